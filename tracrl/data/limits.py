"""Cost limits to look at when none are given."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tracrl.data.episodes import Episodes

SHARES = (0.25, 0.5, 0.75)
"""of the episodes that are to be safe"""
LEEWAY = 0.05
"""by how much a rounder number may miss such a share"""
ROUNDING = 1e-6


def default_limits(episodes: Episodes) -> tuple[float, ...]:
    """The task's own limits; else up to three plain numbers at which about 25, 50 and 75 % of these episodes are safe.

    Where many episodes cost the same there are fewer: half of them at 0 and half at 200 are divided by 100 alone. Where
    all cost the same nothing divides them, and that cost is the one limit.
    """
    if task := episodes.known_task:
        return task.limits
    costs, counts = np.unique(episodes.total_costs, return_counts=True)
    if len(costs) == 1:
        return (float(costs[0]),)
    safe = np.cumsum(counts[:-1]) / len(episodes)  # at a limit from costs[i] to below costs[i + 1]
    chosen = sorted({int(np.argmin(np.abs(safe - share))) for share in SHARES})
    return tuple(sorted({_plain_limit(costs, safe, i) for i in chosen}))


def _plain_limit(costs: NDArray[np.float64], safe: NDArray[np.float64], i: int) -> float:
    """The plainest number that divides the episodes about as costs[i] does."""
    alike = np.flatnonzero(np.abs(safe - safe[i]) <= LEEWAY + 1e-9)
    low, high = float(costs[alike[0]]), float(costs[alike[-1] + 1])
    middle = (costs[i] + costs[i + 1]) / 2
    for power in range(math.floor(math.log10(high)), -320, -1):
        for step in (10.0**power, 5 * 10.0 ** (power - 1), 2 * 10.0 ** (power - 1)):
            # From 1: nobody means a limit of 0. Costs that differ by a rounding of float32 are the same.
            first, last = (math.ceil(end / step * (1 - ROUNDING)) for end in (low, high))
            first, last = max(1, first), last - 1
            if first <= last:
                return float(f"{min(max(round(middle / step), first), last) * step:.6g}")
        if 10.0**power < 1e-5 * high:  # costs that differ in their last digits
            break
    return float(middle)
