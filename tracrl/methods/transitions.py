"""Transitions for methods with critics, and what costs, limits and the ends of episodes mean to them.

**A truncation is no termination.** The clock that stops an episode after T steps is not part of the observation, so a
critic cannot know it: at a time-out both the reward and the cost target go on with the value of the observation that
followed. Only where an episode terminated is there nothing more to come, of rewards and of costs alike. Where the data
do not say what followed a time-out, that one transition is left out, unless a method ends there anyway
(``ends_at_truncation``).

**The limit κ is a bound on an episode's summed cost, a cost critic is a discounted sum.** κ spread evenly over the T
steps of a full episode is, discounted by the method's own γ, the threshold l = κ / T · (1 − γ^T) / (1 − γ)
(:func:`discounted_threshold`), and that is what cost critics are compared with. A critic that goes on past time-outs
sees κ / T · 1 / (1 − γ) for the same behaviour, so for short episodes the threshold is on the safe side, by the
factor 1 − γ^T (0.63 at T = 100 and γ = 0.99, 0.95 at T = 300). T is the task's own length, or that of the longest
episode in data of no known task (``Episodes.max_steps``). Averages per step under the discounted occupancy of states,
which COptiDICE bounds, are (1 − γ) times discounted sums, and so is their threshold.

**Disagreement counts as cost.** Where critics of an ensemble disagree, rewards take the least of them and costs the
greatest (COptiDICE: the least of both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods.method import RunSpec
from tracrl.methods.sampling import RowSampler
from tracrl.nets import random


def discounted_threshold(limit: float, gamma: float, steps: int) -> float:
    """l(κ, γ, T): the discounted cost of an episode of T steps that spends κ evenly."""
    return limit if gamma == 1 else limit / steps * (1 - gamma**steps) / (1 - gamma)


def thresholds(data: Episodes, runs: Sequence[RunSpec], gamma: float, scale: float = 1.0) -> Tensor:
    """(R,): l of each run, ``scale`` times."""
    return torch.tensor([scale * discounted_threshold(run.limit, gamma, data.max_steps) for run in runs])


@dataclass(frozen=True, eq=False)
class Batch:
    """Transitions drawn for each run."""

    observations: Tensor
    """(R, B, observation size): s"""
    actions: Tensor
    """(R, B, action size): a, in [−1, 1]"""
    rewards: Tensor
    """(R, B): r, scaled"""
    costs: Tensor
    """(R, B): c"""
    next_observations: Tensor
    """(R, B, observation size): s'"""
    terminated: Tensor
    """(R, B): 1 where the episode ended by itself here"""
    done: Tensor
    """(R, B): 1 where it ended here, terminated or truncated"""
    first: Tensor
    """(R, B): 1 where it began here"""


class Transitions:
    """The data on the device, to draw transitions from. The observations are kept once: s' is the next row's s."""

    def __init__(
        self,
        data: Episodes,
        runs: int,
        device: torch.device,
        reward_scale: float = 1.0,
        *,
        ends_at_truncation: bool = False,
    ):
        """``ends_at_truncation``: nothing behind a time-out counts, so that all rows can be drawn from any data."""
        self.observations = torch.from_numpy(data.observations).to(device)
        self.actions = torch.from_numpy(data.scaled_actions()).to(device)
        self.rewards = torch.from_numpy(data.rewards * np.float32(reward_scale)).to(device)
        self.costs = torch.from_numpy(data.costs).to(device)
        self.first = torch.from_numpy(data.offsets[:-1]).to(device)
        self.ends = torch.from_numpy(data.offsets[1:]).to(device)
        self.terminated = torch.from_numpy(data.terminated).to(device)
        usable, final = data.lengths, data.final_observations
        if final is None:
            if not ends_at_truncation:
                usable = usable - ~data.terminated
            final = data.observations[data.offsets[1:] - 1]  # behind an end nothing counts: any observation will do
        self.final = torch.from_numpy(final).to(device)
        if not usable.any():
            raise TracrlError(
                "No transition is left to learn from: every episode is a single step that time ended, and the data "
                "have neither 'next_observations' nor 'final_observations'."
            )
        everything = np.ones(len(data), bool)
        self.sampler = RowSampler(data, [everything] * runs, device, usable)
        self.episodes = torch.full((runs,), len(data), device=device)

    def draw(self, key: Tensor, count: int) -> Batch:
        """``count`` transitions for each run, uniform over all."""
        return self.at(self.sampler.draw(key, count))

    def at(self, rows: Tensor) -> Batch:
        """The transitions of these rows (R, B)."""
        episode = torch.searchsorted(self.ends, rows, right=True)
        last = rows + 1 == self.ends[episode]
        following = torch.where(last, rows, rows + 1)
        return Batch(
            observations=self.observations[rows],
            actions=self.actions[rows],
            rewards=self.rewards[rows],
            costs=self.costs[rows],
            next_observations=torch.where(last[..., None], self.final[episode], self.observations[following]),
            terminated=(last & self.terminated[episode]).float(),
            done=last.float(),
            first=(rows == self.first[episode]).float(),
        )

    def draw_first(self, key: Tensor, count: int) -> Tensor:
        """(R, count, observation size): first observations of episodes, uniform over episodes."""
        return self.observations[self.first[random.below(key, self.episodes, count)]]
