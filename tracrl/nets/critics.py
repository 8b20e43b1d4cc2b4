"""Critics of reward and of cost, an ensemble of each per run, and their slowly following copies."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from tracrl.nets.stacked import StackedMLP

Network = TypeVar("Network", bound=nn.Module)


class Critics(nn.Module):
    """Q(s, a) for rewards and Q_c(s, a) for costs, K networks each."""

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        observations: int,
        actions: int,
        hidden: Sequence[int],
        members: int,
    ):
        super().__init__()
        sizes = (observations + actions, *hidden, 1)
        self.of_reward = StackedMLP(generators, sizes, members=members)
        self.of_cost = StackedMLP(generators, sizes, members=members)

    def reward(self, observations: Tensor, actions: Tensor, frozen: bool = False) -> Tensor:
        """Q: (R, rows, …) → (R, K, rows). ``frozen``: to be differentiated in the actions alone."""
        return self.of_reward(torch.cat([observations, actions], -1), frozen=frozen).squeeze(-1)

    def cost(self, observations: Tensor, actions: Tensor, frozen: bool = False) -> Tensor:
        """Q_c: (R, rows, …) → (R, K, rows)."""
        return self.of_cost(torch.cat([observations, actions], -1), frozen=frozen).squeeze(-1)


def regression_loss(values: Tensor, target: Tensor) -> Tensor:
    """Σ_k E(Q_k − y)², one value per run; ``values`` is (R, K, rows), ``target`` (R, rows)."""
    return (values - target[:, None]).square().mean(-1).sum(-1)


def soft_minimum(values: Tensor, weight: float) -> Tensor:
    """λ min + (1 − λ) max over two groups of critics, each group its own minimum: (R, K, rows) → (R, rows).

    BCQ's softened double critic; costs take :func:`soft_maximum`.
    """
    runs, members, rows = values.shape
    groups = values.view(runs, 2, members // 2, rows).amin(2)
    return weight * groups.amin(1) + (1 - weight) * groups.amax(1)


def soft_maximum(values: Tensor, weight: float) -> Tensor:
    """The mirror image for costs: λ max + (1 − λ) min over two groups, each group its own maximum."""
    return -soft_minimum(-values, weight)


def frozen_copy(network: Network) -> Network:
    """A copy that only follows: it is never differentiated."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def polyak_update(target: nn.Module, source: nn.Module, tau: float) -> None:
    """θ' ← (1 − τ) θ' + τ θ (Polyak)."""
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), tau)
