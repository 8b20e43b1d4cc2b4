"""A verdict for each limit: what a mean over limits, or over episodes, does not tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeVar

from tracrl.evaluation.risk import percent
from tracrl.report.cells import Cell
from tracrl.report.grid import NOTHING, Entry, Grid, Line
from tracrl.report.groups import Column, Overview, Row
from tracrl.report.results import Floats

Number = TypeVar("Number", float, Floats)
WORST_TENTH = (
    "above limit: share of the episodes that cost more than their limit; worst tenth: mean cost of the worst 10 % of "
    "the episodes (CVaR), the last of them in part where that is no whole number, and at least one of them"
)


def at_limits(found: Overview, policy: str) -> Iterator[tuple[Row, Column, float, Cell]]:
    """Every cell of the main table, limit by limit."""
    for row in found.rows:
        for column in found.columns:
            for limit, cell in Cell.at_limits(found.results.get((row, column), ()), policy).items():
                yield row, column, limit, cell


def verdicts_grid(found: Overview, policy: Literal["final", "best"] = "final") -> Grid:
    """A line for each task, method and limit. Costs are as they are, as the limit is."""
    lines = []
    # Methods beside each other at each limit.
    ordered = sorted(at_limits(found, policy), key=lambda told: (found.rows.index(told[0]), told[2]))
    for row, column, limit, cell in ordered:
        told = [_two(cell.reward), _two(raw_cost(cell.cost, limit)), *_risk(cell, limit), verdict(cell)]
        lines.append(Line(f"{row.label}, limit {limit:g}: {column.label}", tuple(map(Entry, told))))
    what = "final policy" if policy == "final" else "best policy on the way"
    return Grid(
        title=f"Each limit, {what}",
        caption=(
            "Means over seeds × episodes; the reward is normalised with DSRL's constants, or of own data the return as "
            "it is; costs are as they are. "
            f"Safe: mean cost at most the limit; {WORST_TENTH}.",
        ),
        corner="task, limit and method",
        heads=("reward ↑", "cost ↓", "above limit", "worst tenth", "verdict"),
        lines=tuple(lines),
        marked=False,
    )


def raw_cost(cost: Number, limit: float) -> Number:
    """A normalised cost, or an array of them, in the limit's own unit."""
    return cost * (limit or 1.0) - (limit == 0)


def verdict(cell: Cell) -> str:
    return "safe" if cell.safe else "UNSAFE"


def _risk(cell: Cell, limit: float) -> list[str]:
    if cell.share_above is None or cell.cost_cvar is None:
        return [NOTHING, NOTHING]
    return [percent(cell.share_above), _two(raw_cost(cell.cost_cvar, limit))]


def _two(value: float) -> str:
    """Two digits, and no minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"
