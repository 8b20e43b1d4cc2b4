"""The behaviour learner's networks, as torch has them, and their weights as NumPy has them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn


def copied(layer: nn.Linear) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weight (in, out) and bias as NumPy has them."""
    return layer.weight.detach().numpy().T.copy(), layer.bias.detach().numpy().copy()


def empty_linear(inputs: int, outputs: int) -> nn.Linear:
    """Without first weights, so that nobody else's random numbers are drawn."""
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")


def mlp(generator: torch.Generator, sizes: Sequence[int], last_gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        linear = empty_linear(inputs, outputs)
        last = i == len(sizes) - 2
        nn.init.orthogonal_(linear.weight, last_gain if last else 2.0**0.5, generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.Tanh()]
    return nn.Sequential(*layers)
