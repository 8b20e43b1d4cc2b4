"""The log as estimators see it: standardised states on a device, and what follows each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.data.units import Units
from tracrl.errors import TracrlError
from tracrl.policies.base import Policy

HELD_OUT = (30, 300)
"""episodes that nothing is fitted to: a tenth, but so many at least and at most, and never more than half"""
STANDARD_RANGE = 10.0
"""standardised observations are cut to ± this"""


@dataclass(frozen=True, eq=False)
class Log:
    """N transitions of E episodes. States are the N logged ones, then each episode's final one, where it is known."""

    horizon: int
    """T, the steps of an episode that nothing ends early"""
    observations: Tensor
    """(N or N + E, observation size): as logged"""
    states: Tensor
    """the same, standardised"""
    actions: Tensor
    """(N, action size), in [−1, 1]"""
    signals: Tensor
    """(N, 2): reward and cost"""
    step: Tensor
    """(N,): t, counted from 0"""
    following: Tensor
    """(N,): which state follows; any where nothing counts behind it"""
    goes_on: Tensor
    """(N,): False where nothing comes after this row: the episode ended by itself, or it was step T"""
    terminated: Tensor
    """(N,): True where the episode ended by itself here"""
    usable: NDArray[np.int64]
    """(E,): rows of each episode whose successor is known"""
    first: Tensor
    """(E,): first row of each episode"""
    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, data: Episodes, device: torch.device) -> Log:
        horizon = data.max_steps
        lengths, last = data.lengths, data.offsets[1:] - 1
        step = np.arange(data.rows) - np.repeat(data.offsets[:-1], lengths)
        terminated = np.zeros(data.rows, bool)
        terminated[last] = data.terminated
        following = np.arange(data.rows) + 1
        observations = data.observations
        cut_short = ~data.terminated & (lengths < horizon)
        usable = lengths
        if data.final_observations is not None:
            observations = np.concatenate([observations, data.final_observations])
            following[last] = data.rows + np.arange(len(data))
        else:
            following[last] = 0
            usable = lengths - cut_short
        if not usable.any():
            raise TracrlError(
                "No transition is left to estimate from: every episode is a single step that was cut off, and the data "
                "have neither 'next_observations' nor 'final_observations'."
            )
        units = Units.of(data, observations_alone=True)
        mean, std = np.array(units.mean, np.float32), np.array(units.scale, np.float32)
        standard = np.clip((observations - mean) / std, -STANDARD_RANGE, STANDARD_RANGE)

        def there(array: NDArray[np.generic]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        return cls(
            horizon=horizon,
            observations=there(observations),
            states=there(standard.astype(np.float32)),
            actions=there(data.scaled_actions()),
            signals=there(np.stack([data.rewards, data.costs], axis=1)),
            step=there(step),
            following=there(following),
            goes_on=there(~terminated & (step + 1 < horizon)),
            terminated=there(terminated),
            usable=usable,
            first=there(data.offsets[:-1]),
            mean=there(mean),
            std=there(std),
        )

    def resampled_rows(self, replicas: int, seed: int, among: NDArray[np.int64] | None = None) -> tuple[Tensor, Tensor]:
        """Rows to draw from, (B, rows), and how many of them count, (B,): replica 0 has every episode once, the others
        as many episodes drawn with replacement. ``among``: of these episodes alone."""
        first = self.first.cpu().numpy()
        every = np.arange(len(first)) if among is None or not self.usable[among].any() else among
        generator = np.random.default_rng(seed)
        drawn = []
        for replica in range(replicas):
            episodes = every
            if replica:
                episodes = every[generator.integers(len(every), size=len(every))]
                if not self.usable[episodes].any():
                    episodes = every
            lengths = self.usable[episodes]
            starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
            drawn.append(np.repeat(first[episodes] - starts, lengths) + np.arange(lengths.sum()))
        longest = max(map(len, drawn))
        rows = np.stack([np.pad(one, (0, longest - len(one))) for one in drawn])
        return torch.from_numpy(rows).to(self.step.device), torch.tensor([len(o) for o in drawn]).to(self.step.device)


def parted(episodes: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(held out, fitted to): of a few episodes none can be spared, and all are both."""
    least, most = HELD_OUT
    count = min(max(episodes // 10, least), most, episodes // 2)
    order = np.random.default_rng(seed).permutation(episodes)
    return (np.sort(order[:count]), np.sort(order[count:])) if count >= 5 else (order, order)


def check_policy(policy: Policy, data: Episodes) -> None:
    """The policy takes these observations and gives these actions."""
    sizes = (policy.observation_size, len(policy.metadata.action_low))
    if sizes != (data.observation_size, data.action_size):
        raise TracrlError(
            f"The policy takes observations of size {sizes[0]} and gives actions of size {sizes[1]}, but the data hold "
            f"{data.observation_size} and {data.action_size}: they belong to different problems."
        )
    low, high = policy.metadata.action_low, policy.metadata.action_high
    if not (np.allclose(low, data.action_low) and np.allclose(high, data.action_high)):
        raise TracrlError(
            f"The policy's actions lie between {_list(low)} and {_list(high)}, those of the data between "
            f"{_list(data.action_low)} and {_list(data.action_high)}: load the data with the policy's action box."
        )


def has_memory(policy: Policy) -> bool:
    """It is told what its actions bring: what it does is no function of the observation alone."""
    return type(policy).observe is not Policy.observe


def draws_actions(policy: Policy) -> bool:
    """It draws random numbers, which begin anew with each episode."""
    return type(policy).reset is not Policy.reset and not has_memory(policy)


def _list(values: object) -> str:
    return "[" + ", ".join(f"{v:g}" for v in np.asarray(values)) + "]"
