"""A graph of ONNX nodes, built by hand: nothing is traced, so nothing but what is written here can be in it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracrl.errors import TracrlError

OPSET, IR_VERSION = 17, 8
"""of 2022: what is older than onnxruntime 1.12 cannot read it"""


def require(package: str) -> Any:
    """The package, or how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise TracrlError(f"Export needs {package}, which is missing: pip install 'tracrl[onnx]'.") from error


class Graph:
    """Nodes in the order in which they are added; values are known by their names."""

    def __init__(self) -> None:
        self._onnx = require("onnx")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, shape: Sequence[int | str]) -> str:
        """Of float32; a dimension with a name may have any size."""
        self._inputs.append(self._value(name, shape))
        return name

    def constant(self, value: ArrayLike, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def shape(self, *sizes: int) -> str:
        """A shape, axes or indices."""
        return self.constant(sizes, np.int64)

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Its one output."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        return self.node("Cast", value, to=self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def layers(self, layers: Sequence[tuple[NDArray[Any], NDArray[Any]]], value: str, hidden: str = "Relu") -> str:
        """(rows, in) → (rows, out), with ``hidden`` between the layers."""
        for i, (weight, bias) in enumerate(layers):
            if i:
                value = self.node(hidden, value)
            value = self.node("Add", self.node("MatMul", value, self.constant(weight)), self.constant(bias))
        return value

    def model(
        self, output: str, name: str, shape: Sequence[int | str], properties: dict[str, str], about: str
    ) -> bytes:
        """The file's content, checked as ONNX itself checks it."""
        helper = self._onnx.helper
        self._nodes.append(helper.make_node("Identity", [output], [name], name))
        graph = helper.make_graph(
            self._nodes, "tracrl_policy", self._inputs, [self._value(name, shape)], self._constants, about
        )
        model = helper.make_model(
            graph,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="tracrl",
            producer_version=properties["tracrl_version"],
            doc_string=about,
        )
        helper.set_model_props(model, properties)
        self._onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())

    def _value(self, name: str, shape: Sequence[int | str]) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, self._onnx.TensorProto.FLOAT, shape)
