"""Fewer episodes without losing the picture: a grid over the cost-return plane gives up its fullest cells first.

What is learned from a data set are its good episodes at each cost. So cells near the front, the best return for a
cost, may hold more than others, and episodes outside the task's own region of the plane go first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

CELLS = 20
"""Cells along each axis of the plane."""
SHARE = 0.2
"""Share of the kept episodes that should be safe, and share that should be unsafe, at every limit."""

FRONT = 3.0
"""A cell that lies below the front by the whole range of returns may hold e to this power fewer than one at it."""


@dataclass(frozen=True)
class Region:
    """The part of the plane that data should cover."""

    highest_cost: float = math.inf
    lowest_return: float = -math.inf

    def holds(self, costs: Doubles, returns: Doubles) -> NDArray[np.bool_]:
        """Which episodes lie in it; all of them where none does."""
        inside = (costs <= self.highest_cost) & (returns >= self.lowest_return)
        return inside if inside.any() else np.ones(len(costs), bool)


EVERYWHERE = Region()


def thin(
    costs: Doubles,
    returns: Doubles,
    size: int,
    *,
    limits: Sequence[float] = (),
    cells: int = CELLS,
    share: float = SHARE,
    seed: int = 0,
    region: Region = EVERYWHERE,
    front: float = FRONT,
) -> NDArray[np.int64]:
    """The numbers of ``size`` episodes, ascending; all of them where there are no more.

    Always kept are the ends of the data: lowest and highest cost and return, and the best safe episode at each limit.
    At each limit at least ``share`` of the kept ones are safe and as many unsafe, or all that there are. Episodes
    outside the ``region`` are kept only for want of others. With ``front = 0`` all cells are alike. The same episodes
    and seed give the same numbers.
    """
    if size >= len(costs):
        return np.arange(len(costs))
    inside = np.flatnonzero(region.holds(costs, returns))
    outside = np.setdiff1d(np.arange(len(costs)), inside)
    queue = [
        int(part[n])
        for part in (inside, outside)
        if len(part)
        for n in _queue(costs[part], returns[part], cells, seed, front)
    ]
    chosen = dict.fromkeys(int(inside[n]) for n in extremes(costs[inside], returns[inside], limits))
    # What is safe at a low limit is safe at the higher ones, what is unsafe at a high one is unsafe at the lower ones.
    # So quotas are filled from these ends, and most of the others are then full already.
    quota = int(np.ceil(share * size))
    for safe, ordered in ((True, sorted(limits)), (False, sorted(limits, reverse=True))):
        for limit in ordered:
            members = [n for n in queue if (costs[n] <= limit) == safe]
            missing = quota - sum((costs[n] <= limit) == safe for n in chosen)
            chosen |= dict.fromkeys([n for n in members if n not in chosen][: max(missing, 0)])
    chosen |= dict.fromkeys(queue)
    return np.sort(np.array(list(chosen)[:size], np.int64))


def extremes(costs: Doubles, returns: Doubles, limits: Sequence[float]) -> list[int]:
    """The episodes at the ends of the data."""
    ends = [int(pick(values)) for pick in (np.argmin, np.argmax) for values in (costs, returns)]
    for limit in limits:
        if (safe := costs <= limit).any():
            ends.append(int(np.argmax(np.where(safe, returns, -np.inf))))
    return list(dict.fromkeys(ends))


def cell_of(costs: Doubles, returns: Doubles, cells: int = CELLS) -> NDArray[np.int64]:
    """The number of each episode's cell, inside the bounds of these episodes."""
    return _bin(costs, cells) * cells + _bin(returns, cells)


def nearness(costs: Doubles, returns: Doubles, region: Region, front: float = FRONT) -> Doubles:
    """A weight for each episode: 1 at the front, less below it, 0 outside the region."""
    inside = region.holds(costs, returns)
    weight = np.zeros(len(costs))
    weight[inside] = _nearness(costs[inside], returns[inside], front)
    return weight


def _nearness(costs: Doubles, returns: Doubles, front: float) -> Doubles:
    order = np.lexsort((-returns, costs))
    best = np.empty(len(costs))
    best[order] = np.maximum.accumulate(returns[order])  # for no more cost
    return np.exp(-front * (best - returns) / max(float(np.ptp(returns)), 1e-12))


def _queue(costs: Doubles, returns: Doubles, cells: int, seed: int, front: float) -> list[int]:
    """All episodes, the first one of each cell before the others: a prefix caps every cell by its nearness."""
    cell = cell_of(costs, returns, cells)
    near = _nearness(costs, returns, front)
    shuffled = np.random.default_rng(seed).permutation(len(costs))
    place = np.empty(len(costs))
    for number in np.unique(cell):
        members = shuffled[cell[shuffled] == number]
        place[members] = np.arange(len(members)) / near[members].mean()
    return [int(n) for n in shuffled[np.argsort(place[shuffled], kind="stable")]]


def _bin(values: Doubles, cells: int) -> NDArray[np.int64]:
    low, high = values.min(), values.max()
    return np.minimum((values - low) / max(high - low, 1e-12) * cells, cells - 1).astype(np.int64)
