"""Reward against cost: a panel for each method, a labelled dot for each task."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from tracrl.report.figures import LIMIT_LINE, PARTLY, SAFE, UNSAFE, panels
from tracrl.report.groups import Overview, unit_of
from tracrl.report.labels import place_labels
from tracrl.report.run_figures import SAFE_COLOUR

FARTHEST = 9.0
"""the highest cost that has a place of its own"""


def plot_scatter(found: Overview, suite: str, path: Path) -> None:
    """One panel a method, one labelled dot a task; the limit is at 1. Costs are drawn by their roots: what is near the
    limit and what is far beyond it can both be read."""
    tasks = {c: sum((row, c) in found.results for row in found.rows if row.suite == suite) for c in found.columns}
    # A panel with a dot or two beside one with twenty says nothing.
    columns = [c for c in found.columns if tasks[c] >= max(1, max(tasks.values()) / 3)]
    rows = [row for row in found.rows if row.suite == suite]
    cells = {(row, c): cell for row in rows for c in columns if (cell := found.cell(row, c, "final")) is not None}
    across = min(3, len(columns))
    down = math.ceil(len(columns) / across)
    right = max([1.6, *(1.15 * min(cell.cost, FARTHEST) for cell in cells.values())])
    low, high = min([0.0, *(c.reward for c in cells.values())]), max([1.0, *(c.reward for c in cells.values())])
    title = f"{suite}: one dot per {unit_of(rows)}, final policy"
    if len(columns) > 1:  # a single panel is too narrow for it
        title += "; green: safe at every limit, yellow: in the mean alone, red: unsafe"
    most = max(sum((row, c) in cells for row in rows) for c in columns)
    with panels(path, down, across, title, 4.2, 2.6 + 0.09 * most) as grid:
        flat = [axes for line in grid for axes in line]
        for axes in flat[len(columns) :]:
            axes.set_visible(False)
        for axes, column in zip(flat, columns, strict=False):
            axes.set_xscale("function", functions=(_root, _square))
            axes.set_xticks([tick for tick in (0, 0.25, 0.5, 1, 2, 4, 8) if tick <= right])
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_xlim(-0.02, right)
            axes.set_ylim(low - 0.08, high + 0.08)
            axes.axvspan(-0.02, 1, color=SAFE_COLOUR, lw=0, zorder=0)
            axes.axvline(1, **LIMIT_LINE, zorder=1)
            axes.set_title(column.label, fontsize=9)
            axes.set_xlabel("normalised cost (drawn by its root)", fontsize=8)
            axes.grid(alpha=0.25)
        for line in grid:
            line[0].set_ylabel("normalised reward", fontsize=8)
        flat[0].figure.draw_without_rendering()  # names are placed in the final layout
        for axes, column in zip(flat, columns, strict=False):
            there = [(row, cells[row, column]) for row in rows if (row, column) in cells]
            # A cost far beyond the limit sits at the edge as a triangle instead of squeezing all others.
            points = [(min(cell.cost, right * 0.97), cell.reward) for _, cell in there]
            for (_, cell), (x, y) in zip(there, points, strict=True):
                axes.scatter(
                    x, y, s=30, color=SAFE if cell.safe else PARTLY if cell.solved else UNSAFE,
                    marker=">" if cell.cost > right else "o", edgecolor="white", lw=0.7, zorder=3,
                )  # fmt: skip
            place_labels(axes, points, [row.label for row, _ in there])


def _root(value: Any) -> Any:
    return np.sign(value) * np.sqrt(np.abs(value))


def _square(value: Any) -> Any:
    return np.sign(value) * np.square(value)
