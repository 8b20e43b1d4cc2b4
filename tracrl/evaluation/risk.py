"""What a mean cost hides: how often an episode is above its limit, and how bad the worst tenth of them is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

WORST = 0.1
"""the share of episodes whose mean cost is looked at"""


@dataclass(frozen=True)
class Verdict:
    """What the episodes at one cost limit come to, over all policies that were trained for it."""

    limit: float
    episodes: int
    cost: float
    """mean"""
    share_above: float
    """of the episodes, those whose cost is above the limit"""
    cost_cvar: float
    """mean cost of the worst tenth of the episodes"""
    safe: bool
    """mean cost at most the limit"""


def share_above(costs: ArrayLike, limits: ArrayLike) -> float:
    """The share of episodes whose cost is above their limit."""
    return float(np.mean(np.asarray(costs, np.float64) > np.asarray(limits, np.float64)))


def cvar(costs: ArrayLike, share: float = WORST) -> float:
    """Conditional value at risk: the mean cost of the worst ``share`` of the episodes.

    Where that is no whole number of episodes, the last one counts in part: of 25 the two worst and half of the third.
    Where it is less than one, as for fewer than ten episodes, it is the worst episode.
    """
    worst_first = np.sort(np.asarray(costs, np.float64), axis=None)[::-1]
    if not len(worst_first):
        raise ValueError("the worst of no episodes is not known")
    # 0.1 × 30 is a little more than 3 in floating point.
    count = max(round(share * len(worst_first), 9), 1.0)
    weights = np.clip(count - np.arange(len(worst_first)), 0.0, 1.0)
    return float(weights @ worst_first / count)


def percent(share: float) -> str:
    """For people; what is little but not nothing is not called 0 %, nor nearly all 100 %."""
    if 0 < share < 0.01:
        return "< 1 %"
    if 0.99 < share < 1:
        return "> 99 %"
    return f"{100 * share:.0f} %"
