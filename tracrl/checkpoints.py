"""Everything that training goes on from, in one safetensors file that is either whole or not there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tracrl.errors import TracrlError
from tracrl.files import replacing

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a stack after ``step`` updates, and metadata about them."""

    step: int
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any]
    """plain values: which method, what has been scored so far"""

    def save(self, path: Path) -> None:
        header = json.dumps({"format": FORMAT, "step": self.step, **self.metadata})
        with replacing(path) as aside:
            aside.write_bytes(save({k: t.contiguous() for k, t in self.tensors.items()}, metadata={"tracrl": header}))

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        try:
            with safe_open(path, "pt") as file:
                header = json.loads((file.metadata() or {})["tracrl"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            if header.pop("format") != FORMAT:
                raise TracrlError(f"{path} was written by another version of tracrl; begin anew with another --out.")
            return cls(header.pop("step"), tensors, header)
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise TracrlError(f"{path} is not a whole checkpoint ({error}); begin anew with another --out.") from error
