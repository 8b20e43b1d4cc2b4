"""Episodes that may enter a data set, each with the order that it was played by; kept in files to go on from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from tracrl.checkpoints import Checkpoint
from tracrl.collect.progress import Coverage
from tracrl.collect.rollout import Order, Rollout
from tracrl.collect.thinning import cell_of


@dataclass
class Recording:
    """Candidates so far."""

    orders: list[Order] = field(default_factory=list)
    rollouts: list[Rollout] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.orders)

    def add(self, orders: Sequence[Order], rollouts: Sequence[Rollout]) -> None:
        self.orders += orders
        self.rollouts += rollouts

    @property
    def costs(self) -> NDArray[np.float64]:
        return np.array([rollout.costs.sum(dtype=np.float64) for rollout in self.rollouts])

    @property
    def returns(self) -> NDArray[np.float64]:
        return np.array([rollout.rewards.sum(dtype=np.float64) for rollout in self.rollouts])

    def coverage(self, limits: Sequence[float]) -> Coverage:
        costs = self.costs
        safe = [int((costs <= limit).sum()) for limit in limits]
        counts = tuple((limit, n, len(costs) - n) for limit, n in zip(limits, safe, strict=True))
        return Coverage(len(np.unique(cell_of(costs, self.returns))), counts)

    def part(self, first: int) -> Recording:
        """What came from number ``first`` on."""
        return Recording(self.orders[first:], self.rollouts[first:])

    def pack(self, number: int) -> Checkpoint:
        """As one file's contents; there must be an episode."""
        arrays = {
            name: np.concatenate([getattr(rollout, name) for rollout in self.rollouts])
            for name in ("observations", "actions", "rewards", "costs")
        }
        arrays["lengths"] = np.array([len(rollout) for rollout in self.rollouts])
        arrays["terminated"] = np.array([rollout.terminated for rollout in self.rollouts])
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return Checkpoint(number, tensors, {"orders": [asdict(order) for order in self.orders]})

    def unpack(self, checkpoint: Checkpoint) -> None:
        """Add what such a file holds."""
        arrays = {name: tensor.numpy() for name, tensor in checkpoint.tensors.items()}
        ends = np.cumsum(arrays["lengths"])[:-1]
        # An episode of T steps has T + 1 observations.
        observation_ends = np.cumsum(arrays["lengths"] + 1)[:-1]
        parts = zip(
            np.split(arrays["observations"], observation_ends),
            *(np.split(arrays[name], ends) for name in ("actions", "rewards", "costs")),
            arrays["terminated"].tolist(),
            strict=True,
        )
        self.add([Order(**order) for order in checkpoint.metadata["orders"]], [Rollout(*part) for part in parts])
