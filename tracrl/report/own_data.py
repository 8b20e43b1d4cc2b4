"""Data of one's own: returns and costs as they are, limit by limit, and what was trained and evaluated nowhere."""

from __future__ import annotations

from collections.abc import Sequence

from tracrl.report.cells import Cell
from tracrl.report.grid import NOTHING, Entry, Grid, Line, Style
from tracrl.report.groups import Overview
from tracrl.report.limits import raw_cost
from tracrl.report.results import StackMetadata

NOT_EVALUATED = "not evaluated: no environment"
Place = tuple[str, float]
"""data set and limit"""


def own_data_grid(found: Overview, unscored: Sequence[StackMetadata] = ()) -> Grid:
    """A line for each data set and limit; ``unscored`` stacks say that nothing is known of them."""
    cells: dict[Place, dict[str, Cell | None]] = {}
    for row in found.rows:
        for column in found.columns:
            for limit, cell in Cell.at_limits(found.results.get((row, column), ()), "final").items():
                cells.setdefault((row.label, limit), {})[column.label] = cell
    for stack in unscored:
        for limit in stack.run.limits:
            cells.setdefault((stack.task, limit), {}).setdefault(stack.title, None)
    heads = tuple(dict.fromkeys(head for line in cells.values() for head in line))
    about = [f"{', '.join(c.label for c in found.columns if c.about == told)}: {told}." for told in _settings(found)]
    sources = [f"{row.label}: {row.source}." for row in found.rows]
    return Grid(
        title="Own data, final policy",
        caption=(
            "Return and cost as they are, mean ± standard deviation over seeds × episodes. Bold or *: mean cost at "
            "most the limit; blue or **: the highest return of these; neither: unsafe, or not known to be safe.",
            *about,
            *sources,
        ),
        corner="data and limit",
        heads=heads,
        lines=tuple(_line(place, cells[place], heads) for place in sorted(cells)),
        span=2,
        under=("return ↑", "cost ↓"),
        marked=False,
        notes=found.notes,
    )


def _settings(found: Overview) -> list[str]:
    return list(dict.fromkeys(column.about for column in found.columns))


def _line(place: Place, cells: dict[str, Cell | None], heads: Sequence[str]) -> Line:
    label, limit = place
    safe = [cell for cell in cells.values() if cell is not None and cell.safe]
    best = max(safe, key=lambda cell: cell.reward, default=None)
    entries: list[Entry] = []
    for head in heads:
        cell = cells.get(head)
        if cell is None:
            entries += [Entry(NOT_EVALUATED if head in cells else NOTHING), Entry(NOTHING)]
            continue
        style: Style = "unsafe" if not cell.safe else "best" if cell is best else "safe"
        scale = limit or 1.0  # of a normalised cost
        numbers = ((cell.reward, cell.reward_std), (raw_cost(cell.cost, limit), cell.cost_std * scale))
        entries += [Entry(f"{round(mean, 2) + 0.0:.2f} ± {std:.2f}", style) for mean, std in numbers]
    return Line(f"{label}, limit {limit:g}", tuple(entries))
