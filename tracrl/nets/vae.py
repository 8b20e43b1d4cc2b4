"""A conditional variational auto-encoder of actions: which actions the data hold at a state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tracrl.nets.ranges import LATENT_RANGE
from tracrl.nets.stacked import StackedMLP

LOG_STD_RANGE = (-4.0, 15.0)


class StackedVAE(nn.Module):
    """Encoder (s, a) → N(μ, σ) over a latent z; decoder (s, z) → a. One per run."""

    def __init__(self, generators: Sequence[torch.Generator], observations: int, actions: int, hidden: Sequence[int]):
        super().__init__()
        self.latent = 2 * actions
        self.encoder = StackedMLP(generators, (observations + actions, *hidden, 2 * self.latent))
        self.decoder = StackedMLP(generators, (observations + self.latent, *hidden, actions))

    def encode(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ of the latent, (R, rows, latent) each."""
        mean, log_std = self.encoder(torch.cat([observations, actions], -1)).chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD_RANGE)

    def decode_raw(self, observations: Tensor, latent: Tensor) -> Tensor:
        """The action before its tanh, (R, rows, actions)."""
        return self.decoder(torch.cat([observations, latent], -1))

    def decode(self, observations: Tensor, latent: Tensor) -> Tensor:
        return torch.tanh(self.decode_raw(observations, latent))

    def loss(self, observations: Tensor, actions: Tensor, noise: Tensor, beta: float) -> Tensor:
        """E‖â − a‖² / action size + β KL / latent size, one value per run; ``noise`` (R, rows, latent) is normal."""
        mean, log_std = self.encode(observations, actions)
        decoded = self.decode(observations, mean + log_std.exp() * noise)
        return (decoded - actions).square().mean((-2, -1)) + beta * divergence(mean, log_std).mean(-1)


def divergence(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(N(μ, σ) ‖ N(0, 1)), averaged over the latent's dimensions: (R, rows)."""
    return 0.5 * (mean.square() + (2 * log_std).exp() - 2 * log_std - 1).mean(-1)


def central(noise: Tensor) -> Tensor:
    """Normal numbers cut to the latents that candidates are decoded from."""
    return noise.clamp(-LATENT_RANGE, LATENT_RANGE)
