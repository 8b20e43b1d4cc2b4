"""Whether a training is alive: the policies are asked on states of the log, and what looks dead is said.

A policy that gives the same action everywhere, or only the ends of its box, has learnt nothing about states, whatever
its loss says. The usual cause is units: one column in thousands beside others around 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods.method import Method
from tracrl.policies.base import Policy
from tracrl.train.logs import Row

STATES = 2_048
"""of the log, on which the policies are asked"""
CONSTANT = 1e-3
"""a spread of actions below this share of the box's half is none"""
SATURATED = 0.98
"""this share of actions at the ends of the box is too much"""
EXPLAINED = 0.02
"""the least share of the variance of the logged actions that a clone explains"""
UNMOVED = 1e-3
"""a classifier whose scores stay below this has not left its reference"""
ENOUGH = 1_000
"""updates after which a training should have got somewhere"""


@dataclass(frozen=True, eq=False)
class Health:
    """What a training's policies are held to."""

    data: Episodes
    method: Method
    strict: bool = False
    """what looks dead is an error"""

    def examine(self, policy: Policy, history: Sequence[Row]) -> list[str]:
        """A sentence for each thing that looks dead, with its likely cause; also as warnings."""
        found = self.found(policy, history)
        if found and self.strict:
            raise TracrlError(f"{self.method.title}: {' '.join(found)}")
        for sentence in found:
            warnings.warn(f"{self.method.title}: {sentence}", stacklevel=2)
        return found

    def look(self, policy: Policy, history: Sequence[Row], step: int) -> None:
        """Along the way, so that hours are not trained for nothing: a warning, as it may still come to life."""
        for sentence in self.found(policy, history):
            warnings.warn(
                f"{self.method.title}, after {step} of {self.method.updates} updates: {sentence}", stacklevel=2
            )

    def found(self, policy: Policy, history: Sequence[Row]) -> list[str]:
        dead = (*self.of_actions(policy), *self.of_scores(history))
        return [f"{what}: {self.likely_cause(policy)}." for what in dead]

    def of_actions(self, policy: Policy) -> list[str]:
        data = self.data
        rows = np.unique(np.linspace(0, data.rows - 1, STATES).astype(np.int64))
        policy.reset(0)  # one with a memory is asked as if each state were an episode's first
        acted = policy.act(data.observations[rows]).reshape(len(policy), len(rows), -1)
        policy.reset(0)
        half = (data.action_high - data.action_low) / 2
        scaled, logged = ((actions - data.action_low) / half - 1 for actions in (acted, data.actions[rows]))
        constant = scaled.std(axis=1).max(axis=1) < CONSTANT
        if constant.any() and logged.std(axis=0).max() > CONSTANT:
            return [f"{_named(policy, constant)} the same action in every state"]
        saturated = (np.abs(scaled) > 0.999).mean(axis=(1, 2)) > SATURATED
        if saturated.any() and (np.abs(logged) > 0.99).mean() < 0.5:
            return [f"{_named(policy, saturated)} almost only actions at the ends of their box"]
        if not self.method.clones:
            return []
        error = np.square(scaled - logged).mean(axis=(1, 2))
        off = 1 - error / max(float(logged.var(axis=0).mean()), 1e-12) < EXPLAINED
        return [f"{_named(policy, off)} actions no nearer to the log than its mean action"] if off.any() else []

    def of_scores(self, history: Sequence[Row]) -> list[str]:
        """Of methods that classify: whether the scores have left 0."""
        last = [row for row in history if row.get("score") is not None][-20 * 9 :]
        if not last or int(last[-1]["step"]) - (*self.method.phase_ends, 0)[0] < ENOUGH:
            return []
        if max(abs(float(row["score"])) for row in last) < UNMOVED:
            return ["The scores of the classification are all about 0: the policy has not left its reference"]
        return []

    def likely_cause(self, policy: Policy) -> str:
        """What most often makes a training die, as far as the data show it."""
        seen = self.data.observations[:: max(1, self.data.rows // STATES)].astype(np.float64)
        size = np.sqrt(np.square(seen).mean(axis=0))
        largest = int(np.argmax(size))
        if not policy.metadata.observation_mean and (size[largest] > 100 or 0 < size[largest] < 0.01):
            return (
                f"column {largest} of the observations is of size {size[largest]:.3g}, where networks expect about 1; "
                "train with --standardise on"
            )
        return "train longer, with another learning rate, or look at the data (tracrl data inspect)"


def _named(policy: Policy, which: NDArray[np.bool_]) -> str:
    """The policy of limit 10, seed 0 gives / All 9 policies give."""
    numbers = np.flatnonzero(which)
    limit, seed = policy.metadata.limits[numbers[0]], policy.metadata.seeds[numbers[0]]
    if len(numbers) == 1:
        return f"The policy of limit {limit:g}, seed {seed} gives"
    if len(numbers) == len(policy):
        return f"All {len(policy)} policies give"
    return f"{len(numbers)} of {len(policy)} policies (limit {limit:g}, seed {seed} among them) give"
