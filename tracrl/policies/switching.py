"""CAPS's policy: several heads, of which the critics choose one in each step by what is left of the budget.

It keeps account of its costs (:meth:`Policy.observe`), so one training serves every limit. Plain NumPy; all policies of
a stack are shown the same episode, each with a limit of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracrl.errors import TracrlError
from tracrl.policies.base import Floats, Policy, PolicyMetadata, require
from tracrl.policies.layers import Layers, forward, layer_names, layers_of

MOST = 1_000_000  # steps of an episode, heads


class SwitchingPolicy(Policy):
    """Tensors: the layers of ``actor`` (R, in, out), whose output is all heads' actions behind each other, and those of
    ``critic`` and ``cost_critic`` (R, K, in, out)."""

    kind = "switching"

    def __init__(
        self,
        metadata: PolicyMetadata,
        tensors: Mapping[str, Floats],
        single: bool = False,
        *,
        heads: int,
        steps: int,
        gamma: float,
    ):
        """``steps`` are those of a full episode, ``gamma`` the discount of the cost critics."""
        super().__init__(metadata, tensors, single)
        for name, count in (("heads", heads), ("steps", steps)):
            require(isinstance(count, int) and 0 < count <= MOST, name, count)
        require(isinstance(gamma, int | float) and 0 < gamma < 1, "gamma", gamma)
        self.heads, self.steps, self.gamma = heads, steps, gamma
        self._actor = layers_of(tensors, "actor")
        self._critic, self._cost_critic = layers_of(tensors, "critic"), layers_of(tensors, "cost_critic")
        self.reset(0)

    def settings(self) -> dict[str, Any]:
        return {"heads": self.heads, "steps": self.steps, "gamma": self.gamma}

    def tensor_names(self) -> set[str]:
        networks = {"actor": self._actor, "critic": self._critic, "cost_critic": self._cost_critic}
        return set[str]().union(*(layer_names(layers, network) for network, layers in networks.items()))

    @property
    def observation_size(self) -> int:
        return int(self._actor[0][0].shape[1])

    def reset(self, seed: int) -> None:
        self._left = np.array(self.metadata.limits, np.float64)[:, None] / self.metadata.cost_unit
        """(R, 1), or (R, n) for n episodes at a time"""
        self._step = 0

    def observe(self, reward: float, cost: float) -> None:
        super().observe(reward, cost)
        self._left = self._left - cost / self.metadata.cost_unit
        self._step += 1

    def threshold(self) -> Floats:
        """What Q_c may be at this step: what is left, spent evenly over the steps that are left, discounted."""
        steps = max(self.steps - self._step, 1)
        share = (1 - self.gamma**steps) / ((1 - self.gamma) * steps)
        return (share * np.maximum(self._left, 0)).astype(np.float32)

    def act_scaled(self, observations: Floats) -> Floats:
        count, threshold = len(observations), self.threshold()
        if threshold.shape[1] not in (1, count):
            raise TracrlError(
                f"The episode began with {threshold.shape[1]} observations at a time, now there are {count}: "
                "call reset first."
            )
        actions = np.tanh(forward(self._actor, observations[None])).reshape(len(self), count, self.heads, -1)
        states = np.broadcast_to(observations[None, :, None], (*actions.shape[:3], observations.shape[1]))
        joint = np.concatenate([states, actions], -1).reshape(len(self), count * self.heads, -1)
        # Where critics disagree, rewards take the least and costs the greatest.
        value = self._values(self._critic, joint).min(axis=1).reshape(actions.shape[:3])
        cost = self._values(self._cost_critic, joint).max(axis=1).reshape(actions.shape[:3])
        chosen = switch(value, cost, threshold)
        return np.take_along_axis(actions, chosen[..., None, None], axis=2)[:, :, 0]

    def _values(self, layers: Layers, joint: Floats) -> Floats:
        """(R, K, rows)"""
        return forward(layers, joint[:, None])[..., 0]


def switch(value: Floats, cost: Floats, threshold: Floats) -> Any:
    """Which head acts: (R, n, heads) twice, (R, 1 or n) → (R, n).

    Of those within the threshold the one of the greatest value; where none is, the one of the least cost.
    """
    within = cost <= threshold[..., None]
    best = np.where(within, value, -np.inf).argmax(-1)
    return np.where(within.any(-1), best, cost.argmin(-1))
