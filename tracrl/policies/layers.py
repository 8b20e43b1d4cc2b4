"""The layers of a stack of networks in NumPy: applied, and named in a policy file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracrl.policies.base import Floats

Layers = Sequence[tuple[Floats, Floats]]
"""(weight, bias) of each: (R, in, out) and (R, 1, out)"""


def relu(x: Floats) -> Floats:
    return np.maximum(x, 0)


def forward(layers: Layers, x: Floats, hidden: Callable[[Floats], Floats] = relu) -> Floats:
    """(R, n, in) → (R, n, out) through layers, with ``hidden`` between them."""
    for weight, bias in layers[:-1]:
        x = hidden(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def named_layers(networks: Mapping[str, Sequence[tuple[Any, Any]]]) -> dict[str, Floats]:
    """The (weight, bias) tensors of trained networks, copied, under names that :func:`layers_of` finds again."""
    return {
        f"{network}{name}{i}": np.array(tensor.cpu().numpy(), np.float32)
        for network, layers in networks.items()
        for i, pair in enumerate(layers)
        for name, tensor in zip(("weight", "bias"), pair, strict=True)
    }


def layer_names(layers: Layers, network: str = "") -> set[str]:
    """The names under which :func:`layers_of` found them."""
    return {f"{network}{name}{i}" for name in ("weight", "bias") for i in range(len(layers))}


def layers_of(tensors: Mapping[str, Floats], network: str = "") -> Layers:
    """The layers of one network by its name."""
    count = sum(key.startswith(f"{network}weight") for key in tensors)
    return [(tensors[f"{network}weight{i}"], tensors[f"{network}bias{i}"]) for i in range(count)]
