"""Whether a training is alive: the policies are asked on states of the log, and what looks dead is said.

A policy that gives the same action everywhere, or only the ends of its box, has learnt nothing about states, whatever
its loss says. The usual cause is units: one column in thousands beside others around 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tracrl.data.episodes import Episodes
from tracrl.policies.base import Policy

STATES = 2_048
"""of the log, on which the policies are asked"""
CONSTANT = 1e-3
"""a spread of actions below this share of the box's half is none"""
SATURATED = 0.98
"""this share of actions at the ends of the box is too much"""
CLONED = 0.02
"""the least share of the variance of the logged actions that a clone explains"""
CHANCE = 0.02
"""an accuracy no further from one half than this is chance"""


def examine(policy: Policy, data: Episodes, metrics: Mapping[str, NDArray[np.float64]], cloned: bool) -> list[str]:
    """A sentence for each thing that looks dead, with its likely cause.

    ``metrics`` are the last ones of the training, one value for each policy. ``cloned``: the policies were trained to
    act as the log does.
    """
    rows = np.unique(np.linspace(0, data.rows - 1, STATES).astype(np.int64))
    policy.reset(0)  # one with a memory is asked as if each state were an episode's first
    acted = np.atleast_3d(policy.act(data.observations[rows]))
    policy.reset(0)
    half = (data.action_high - data.action_low) / 2
    scaled = (acted - data.action_low) / half - 1
    logged = (data.actions[rows] - data.action_low) / half - 1
    spread = scaled.std(axis=1).max(axis=1)
    at_ends = (np.abs(scaled) > 0.999).mean(axis=(1, 2))
    logged_at_ends = (np.abs(logged) > 0.99).mean()
    error = np.square(scaled - logged).mean(axis=(1, 2))
    explained = 1 - error / max(float(logged.var(axis=0).mean()), 1e-12)
    found = []
    cause = likely_cause(data)
    if len(which := np.flatnonzero(spread < CONSTANT)):
        found.append(f"{_named(policy, which)} the same action in every state{cause}")
    elif len(which := np.flatnonzero((at_ends > SATURATED) & (logged_at_ends < 0.5))):
        found.append(f"{_named(policy, which)} almost only actions at the ends of the box{cause}")
    elif cloned and len(which := np.flatnonzero(explained < CLONED)):
        found.append(f"{_named(policy, which)} actions no nearer to the log than its mean action{cause}")
    accuracy = metrics.get("accuracy")
    if accuracy is not None and len(which := np.flatnonzero(np.abs(accuracy - 0.5) <= CHANCE)):
        found.append(
            f"{_named(policy, which, 'tells')} desirable from undesirable segments no better than chance{cause}"
        )
    return [f"{sentence}." for sentence in found]


def likely_cause(data: Episodes) -> str:
    """What most often makes a training die, as far as the data show it."""
    size = np.sqrt(np.square(data.observations[:: max(1, data.rows // STATES)].astype(np.float64)).mean(axis=0))
    used = size[size > 0]
    if len(used) and (used.max() > 100 or used.max() < 0.01):
        worst = int(np.argmax(np.abs(np.log10(np.maximum(size, 1e-300)))) if used.max() < 0.01 else np.argmax(size))
        return (
            f": observations are of size {used.max():.3g} (column {worst}), where networks expect about 1; "
            "train with --standardise on"
        )
    return ": train longer, with another learning rate, or look at the data (tracrl data inspect)"


def _named(policy: Policy, which: NDArray[np.int64], verb: str = "gives") -> str:
    """The policy of limit 10, seed 0 gives / All 9 policies give."""
    verb_of_many = verb.removesuffix("s")
    if len(which) == len(policy) > 1:
        return f"All {len(which)} policies {verb_of_many}"
    limit, seed = policy.metadata.limits[which[0]], policy.metadata.seeds[which[0]]
    one = f"the policy of limit {limit:g}, seed {seed}"
    if len(which) == 1:
        return f"{one[0].upper()}{one[1:]} {verb}"
    return f"{len(which)} of {len(policy)} policies ({one.removeprefix('the policy of ')} among them) {verb_of_many}"
