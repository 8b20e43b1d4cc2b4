"""The policy of most methods: an MLP whose output is the action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from tracrl.policies.base import Floats, Policy, PolicyMetadata
from tracrl.policies.layers import forward, layer_names, layers_of, named_layers


class MLPPolicy(Policy):
    """ReLU layers and a tanh at the end: tensors ``weight<i>`` (R, in, out) and ``bias<i>`` (R, 1, out)."""

    kind = "mlp"

    def __init__(self, metadata: PolicyMetadata, tensors: Mapping[str, Floats], single: bool = False):
        super().__init__(metadata, tensors, single)
        self._layers = layers_of(self.tensors)

    @classmethod
    def from_layers(cls, metadata: PolicyMetadata, layers: Sequence[tuple[Any, Any]]) -> Self:
        """From the (weight, bias) tensors of a trained network, which are copied."""
        return cls(metadata, named_layers({"": layers}))

    @property
    def observation_size(self) -> int:
        return int(self._layers[0][0].shape[1])

    def tensor_names(self) -> set[str]:
        return layer_names(self._layers)

    def act_scaled(self, observations: Floats) -> Floats:
        return np.tanh(forward(self._layers, observations[None]))
