"""Stochastic actors: a Gaussian whose samples are squashed into [−1, 1]."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tracrl.nets.ranges import LOG_STD_RANGE
from tracrl.nets.stacked import StackedMLP


class SquashedGaussian(nn.Module):
    """a = tanh(μ(s) + σ(s) ε), ε normal. One per run."""

    def __init__(self, generators: Sequence[torch.Generator], observations: int, actions: int, hidden: Sequence[int]):
        super().__init__()
        self.actions = actions
        self.network = StackedMLP(generators, (observations, *hidden, 2 * actions))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ before the tanh, (R, rows, actions) each."""
        mean, log_std = self.network(observations).chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD_RANGE)

    def raw(self, observations: Tensor, noise: Tensor) -> Tensor:
        """Samples before the tanh: ``noise`` (R, rows, n, actions) is normal, and gives n of them a row."""
        mean, log_std = self(observations)
        return mean[:, :, None] + log_std.exp()[:, :, None] * noise

    def sample(self, observations: Tensor, noise: Tensor) -> Tensor:
        """One action per row; ``noise`` is (R, rows, actions)."""
        mean, log_std = self(observations)
        return torch.tanh(mean + log_std.exp() * noise)

    def mean_layers(self) -> list[tuple[Tensor, Tensor]]:
        """(weight, bias) of each layer of s ↦ μ(s), for the policy tanh(μ)."""
        *trunk, (weight, bias) = self.network.weights()
        return [*trunk, (weight[..., : self.actions], bias[..., : self.actions])]


def log_prob(mean: Tensor, log_std: Tensor, x: Tensor) -> Tensor:
    """log N(x; μ, σ) of each dimension."""
    return -0.5 * ((x - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
