"""Fewer episodes without losing the picture: a grid over the cost-return plane gives up its fullest cells first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

CELLS = 20
"""Cells along each axis of the plane."""
SHARE = 0.2
"""Share of the kept episodes that should be safe, and share that should be unsafe, at every limit."""


def thin(
    costs: Doubles,
    returns: Doubles,
    size: int,
    *,
    limits: Sequence[float] = (),
    cells: int = CELLS,
    share: float = SHARE,
    seed: int = 0,
) -> NDArray[np.int64]:
    """The numbers of ``size`` episodes, ascending; all of them where there are no more.

    Always kept are the ends of the data: lowest and highest cost and return, and the best safe episode at each limit.
    At each limit at least ``share`` of the kept ones are safe and as many unsafe, or all that there are. The same
    episodes and seed give the same numbers.
    """
    if size >= len(costs):
        return np.arange(len(costs))
    queue = _queue(costs, returns, cells, seed)
    chosen = dict.fromkeys(extremes(costs, returns, limits))
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


def _queue(costs: Doubles, returns: Doubles, cells: int, seed: int) -> list[int]:
    """All episodes, first one of each cell, then a second one of each, and so on: a prefix caps every cell alike."""
    cell = cell_of(costs, returns, cells)
    shuffled = np.random.default_rng(seed).permutation(len(costs))
    place = np.empty(len(costs), np.int64)
    for number in np.unique(cell):
        members = shuffled[cell[shuffled] == number]
        place[members] = np.arange(len(members))
    return [int(n) for n in shuffled[np.argsort(place[shuffled], kind="stable")]]


def _bin(values: Doubles, cells: int) -> NDArray[np.int64]:
    low, high = values.min(), values.max()
    return np.minimum((values - low) / max(high - low, 1e-12) * cells, cells - 1).astype(np.int64)
