"""One value function for a whole family of policies: one network that is told different limits (and x).

The candidates of a calibration are a few networks at some fifty limits and x each. They differ in the biases of their
first layer alone, by a multiple of one row of weights for each thing that they are told, and what they return and cost
changes smoothly with it. So one value function, told the same, stands for all of a family: each drawn row is labelled
for one of its members. That takes a small part of the time of a value function for each, and members learn from one
another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tracrl.ope.fqe import FQE, FittedQ, Rows
from tracrl.ope.log import Log
from tracrl.policies.any_limit import AnyLimitPolicy
from tracrl.policies.base import Policy

MOST_TOLD = 2
"""things that a family is told: a limit and x"""


@dataclass(frozen=True, eq=False)
class Families:
    """Policies that are a few networks told different things."""

    members: NDArray[np.int64]
    """(families, members): places among all policies"""
    told: NDArray[np.float32]
    """(families, members, things told): of mean 0 and variance 1 in each family"""


def families(stacks: Sequence[Policy]) -> Families | None:
    """The families that all of these policies belong to, as many to each; None where there are none."""
    if not all(isinstance(stack, AnyLimitPolicy) for stack in stacks):
        return None
    plain = [stack.plain() for stack in stacks if isinstance(stack, AnyLimitPolicy)]
    groups: dict[bytes, list[int]] = {}
    biases, place = [], 0
    for stack in plain:
        shared = [tensor for name, tensor in sorted(stack.tensors.items()) if name != "bias0"]
        for i in range(len(stack)):
            groups.setdefault(b"".join(np.ascontiguousarray(t[i]).tobytes() for t in shared), []).append(place)
            biases.append(stack.tensors["bias0"][i].ravel())
            place += 1
    members = list(groups.values())
    if len({len(group) for group in members}) > 1:
        return None
    told = [_told(np.stack([biases[i] for i in group])) for group in members]
    apart = [one for one in told if one is not None]
    return Families(np.array(members), np.stack(apart)) if len(apart) == len(told) else None


def _told(biases: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """(members, things told): where biases lie in the plane that they span; None where they are all the same."""
    centred = biases.astype(np.float64) - biases.mean(axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    count = int((sizes[:MOST_TOLD] > max(1e-4 * sizes[0], 1e-6)).sum())
    if not count:
        return None
    found = np.zeros((len(biases), MOST_TOLD), np.float32)
    found[:, :count] = left[:, :count] * len(biases) ** 0.5
    return found


class FamilyQ(FittedQ):
    """A stack of R = replicas × families value functions in training, each told which member it is of.

    A family's members take the place of one policy's draws: each row counts for one of them, at random.
    """

    asked: int | None = None
    """the member that is asked for, after training"""

    def __init__(
        self,
        settings: FQE,
        log: Log,
        actions: Tensor,
        given: Families,
        replicas: int = 1,
        seed: int = 0,
        among: Rows = None,
    ):
        """``actions`` (1, policies, states, action size): what each policy does in each of the log's states."""
        members = actions[0][torch.from_numpy(given.members.T).to(actions.device)]
        super().__init__(settings, log, members, replicas, seed, among, more_inputs=given.told.shape[-1])
        self.told = torch.from_numpy(given.told).to(actions.device)

    def values(self) -> Tensor:
        """(replicas, policies, E, 2): as of single policies, family after family"""
        return self._of_each(super().values)

    def foretold(self, episodes: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        foretold = super().foretold
        brought: list[Tensor] = []

        def told() -> Tensor:
            of_member, logged = foretold(episodes)
            brought.append(logged)
            return of_member

        return self._of_each(told), brought[0]

    def _of_each(self, what: Callable[[], Tensor]) -> Tensor:
        found = []
        for member in range(len(self.actions)):
            self.asked = member
            found.append(what())
        self.asked = None
        return torch.stack(found, 2).flatten(1, 2)

    def _every_draw(self) -> Sequence[Tensor]:
        return super()._every_draw() if self.asked is None else [self.actions[self.asked]]

    def _inputs(self, states: Tensor, actions: Tensor, time: Tensor) -> Tensor:
        asked = self.asked
        which = self._draws(states.shape[1], self.clock) if asked is None else torch.full_like(states, asked)
        told = self.told[:, which].transpose(0, 1).flatten(0, 1)
        return torch.cat([super()._inputs(states, actions, time), told], -1)
