"""What a data set holds: its size, its spread over the cost-return plane, what is safe at each cost limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tracrl.data.episodes import Episodes
from tracrl.data.limits import default_limits
from tracrl.data.partition import is_safe, split
from tracrl.settings import Range, check_limits, checked
from tracrl.tasks.normalise import normalised_reward
from tracrl.tasks.table import Task

CELLS = 10
"""Cells along each axis of the plane on which coverage is counted."""

PerCent = Annotated[float, Range(0, 100)]


@dataclass(frozen=True)
class Spread:
    """The lowest, the middle and the highest of one number per episode."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: NDArray[Any]) -> Spread:
        return cls(float(values.min()), float(np.median(values)), float(values.max()))


@dataclass(frozen=True)
class AtLimit:
    """The data as one cost limit divides them, by whole episodes."""

    limit: float
    safe: int
    unsafe: int
    share_safe: float
    best_safe_return: float | None
    """None where no episode is safe"""
    best_safe_score: float | None
    """the same, normalised with DSRL's return range; None without a known task"""
    desirable: int
    """the top x % of the safe episodes by return"""
    undesirable: int
    """the unsafe episodes and the bottom y % of the safe ones"""
    left_out: int
    note: str
    """what keeps a method from training at this limit; empty if nothing"""


@dataclass(frozen=True)
class Summary:
    """A data set in numbers."""

    name: str
    task: str | None
    made_by: str | None
    fingerprint: str
    episodes: int
    transitions: int
    terminated: int
    """episodes that terminated; the others were truncated by the time limit"""
    observation_size: int
    action_size: int
    lengths: Spread
    returns: Spread
    costs: Spread
    coverage: float
    """share of occupied cells of a 10 × 10 grid over the cost-return plane, from the lowest to the highest
    cost and return in these data; an axis without any spread counts as one cell"""
    x: float
    y: float
    limits: tuple[AtLimit, ...]
    dsrl: dict[str, float] | None
    """DSRL's constants for the task: episodes, longest episode, lowest and highest return, highest cost"""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, ready for JSON."""
        return asdict(self)


def summarise(
    episodes: Episodes,
    limits: Sequence[float] | None = None,
    *,
    x: float = 50,
    y: float = 0,
    name: str | None = None,
) -> Summary:
    """A data set in numbers at these cost limits; by default those of :func:`tracrl.data.limits.default_limits`."""
    limits = checked_division(episodes, limits, x, y)
    task = episodes.known_task
    return Summary(
        name=name or episodes.name,
        task=episodes.task,
        made_by=str(episodes.metadata["made_by"]) if "made_by" in episodes.metadata else None,
        fingerprint=episodes.fingerprint,
        episodes=len(episodes),
        transitions=episodes.rows,
        terminated=int(episodes.terminated.sum()),
        observation_size=episodes.observation_size,
        action_size=episodes.action_size,
        lengths=Spread.of(episodes.lengths),
        returns=Spread.of(episodes.returns),
        costs=Spread.of(episodes.total_costs),
        coverage=coverage(episodes),
        x=x,
        y=y,
        limits=tuple(_at_limit(episodes, limit, x, y, task) for limit in limits),
        dsrl=None
        if task is None
        else {
            "episodes": task.episodes,
            "longest": task.max_steps,
            "lowest_return": task.min_return,
            "highest_return": task.max_return,
            "highest_cost": task.max_cost,
        },
    )


def checked_division(episodes: Episodes, limits: Sequence[float] | None, x: float, y: float) -> tuple[float, ...]:
    """The limits to divide by, the default ones where there are none, after a check of all three."""
    checked("--x", x, PerCent)
    checked("--y", y, PerCent)
    return check_limits(limits) if limits else default_limits(episodes)


def coverage(episodes: Episodes, cells: int = CELLS) -> float:
    """Share of occupied cells of a grid over the cost-return plane, inside the bounds of the data."""
    across, along = (_cell(values, cells) for values in (episodes.total_costs, episodes.returns))
    occupied = len(np.unique(across * cells + along))
    return occupied / ((cells if across.any() else 1) * (cells if along.any() else 1))


def _at_limit(episodes: Episodes, limit: float, x: float, y: float, task: Task | None) -> AtLimit:
    safe = is_safe(episodes.total_costs, limit)
    desirable, middle, poor, unsafe = split(episodes.returns, safe, x, y)
    best = float(episodes.returns[safe].max()) if safe.any() else None
    note = ""
    if best is None:
        note = f"no episode is safe; the lowest cost is {episodes.total_costs.min():g}."
    elif len(unsafe) + len(poor) == 0:
        highest = episodes.total_costs.max()
        note = f"every episode is safe, so nothing is undesirable; the highest cost is {highest:g}."
    return AtLimit(
        limit=float(limit),
        safe=int(safe.sum()),
        unsafe=len(unsafe),
        share_safe=float(safe.mean()),
        best_safe_return=best,
        best_safe_score=None if task is None or best is None else float(normalised_reward(task, best)),
        desirable=len(desirable),
        undesirable=len(poor) + len(unsafe),
        left_out=len(middle),
        note=note,
    )


def _cell(values: NDArray[np.float64], cells: int) -> NDArray[np.int64]:
    low, high = values.min(), values.max()
    if high == low:
        return np.zeros(len(values), np.int64)
    return np.asarray(np.minimum((values - low) / (high - low) * cells, cells - 1), np.int64)
