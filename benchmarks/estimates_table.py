"""Estimates against the truth, a column for each task: what ``estimates.py compare`` ends with, and its picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]
Columns = dict[str, dict[str, str]]
HELD = "90 % intervals that hold the true cost"
GATES = ("gate at 10: passed of those truly above, within", "gate at 20", "gate at 40")
HELD_RETURN = "90 % intervals that hold the true return"
RETURN = "error of return in per cent of its range in the data: mean, median"
NOT_MEASURED = "–"
NUMBER = re.compile(r"\d+")
TABLE = re.compile(r"^\| \| .*\n\|---\|.*\n\| policies \|.*\n(?:\|.*\n)*", re.MULTILINE)
ACROSS = 4
"""panels of the picture in a row"""


def columns(results: Sequence[Result]) -> Columns:
    """task → row → cell"""
    rows: dict[str, Callable[[Result], str]] = {
        "policies": lambda r: f"{r['policies']}",
        "rank correlation of cost": lambda r: f"{r['cost']['rank_correlation']:.2f}",
        "pairs of policies that truly differ, in the right order": lambda r: (
            f"{100 * r['cost']['rightly_ordered']:.0f} %"
        ),
        "mean error of cost; true mean, estimated": lambda r: "{mean_error:.1f}; {true_mean:.1f}, {mean:.1f}".format(
            **r["cost"]
        ),
        HELD: lambda r: f"{r['held']} of {r['policies']}",
        GATES[0]: lambda r: _passed(r, "10"),
        GATES[1]: lambda r: _passed(r, "20"),
        GATES[2]: lambda r: _passed(r, "40"),
        RETURN: lambda r: f"{100 * r['return']['mean_error']:.1f}, {100 * r['return']['median_error']:.1f}",
        HELD_RETURN: lambda r: f"{r['held_return']} of {r['policies']}",
        "fitted Q evaluation alone: rank correlation, mean error of cost": lambda r: (
            "{rank_correlation:.2f}, {mean_error:.1f}".format(**r["cost_fqe"])
        ),
        "the model alone (mean of its members)": lambda r: "{rank_correlation:.2f}, {mean_error:.1f}".format(
            **r["cost_model"]
        ),
        "variance of held-out costs foretold by fitted Q evaluation, the model, both (medians)": lambda r: (
            f"{100 * r['skill_fqe'][1]:.0f}, {100 * r['skill_model'][1]:.0f}, {100 * r['skill'][1]:.0f} %"
        ),
        "the model's weight for costs (median)": lambda r: f"{r['weight'][1]:.2f}",
        "truly cost nothing": lambda r: f"{sum(one['cost'] == 0 for one in r['each'])}",
        "episodes of truth for each policy": lambda r: f"{r['episodes']}",
        "time": lambda r: f"{r['seconds']:.0f} s ({r['device']})",
    }
    return {r["task"]: {row: cell(r) for row, cell in rows.items()} for r in results}


def table(cells: Columns) -> str:
    """In Markdown, the totals below it."""
    lines = ["| | " + " | ".join(cells) + " |", "|---|" + "---:|" * len(cells)]
    for row in max(cells.values(), key=len):  # columns of earlier versions have fewer
        lines.append(f"| {row} | " + " | ".join(column.get(row, NOT_MEASURED) for column in cells.values()) + " |")
    return "\n".join([*lines, "", _together(cells)])


def on_page(page: str, cells: Columns) -> tuple[str, Columns]:
    """A page with these columns in its table, in place of those of the same tasks, in the order of their names; and all
    columns that it has then. Those of the other tasks stay as they are."""
    found = TABLE.search(page)
    if found is None:
        raise ValueError("the page has no table of estimates")
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
    there = {task: {row[0]: row[place] for row in rows} for place, task in enumerate(head) if task}
    merged = dict(sorted({**there, **cells}.items()))
    lines = "\n".join(table(merged).splitlines()[:-2]) + "\n"
    return page[: found.start()] + lines + page[found.end() :], merged


def _passed(result: Result, limit: str) -> str:
    return "{above_passed} of {above}, {within_passed} of {within}".format(**result["gate"][limit])


def _together(cells: Columns) -> str:
    def total(row: str) -> list[int]:
        return [
            sum(numbers) for numbers in zip(*(map(int, NUMBER.findall(c[row])) for c in cells.values()), strict=True)
        ]

    held, policies = total(HELD)
    above_passed, above, within_passed, within = map(sum, zip(*(total(row) for row in GATES), strict=True))
    errors = [float(column[RETURN].partition(",")[0]) for column in cells.values()]
    return (
        f"Together: {held} of {policies} intervals hold ({held / policies:.1%}); passed of those above {above_passed} "
        f"of {above}, of those within {within_passed} of {within} ({within_passed / max(within, 1):.0%}); the return "
        f"is off by {sum(errors) / len(errors):.1f}% of its range (mean over the tasks; within 5 % on "
        f"{sum(error <= 5 for error in errors)} of {len(errors)})."
    )


def draw(results: Sequence[Result], path: Path) -> None:
    """A panel for each task: the true cost across, the estimate with its interval upwards."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(results) // ACROSS)
    drawing = Figure(figsize=(3.1 * ACROSS, 2.9 * rows), layout="constrained")
    FigureCanvasAgg(drawing)
    for axes, result in zip(drawing.subplots(rows, ACROSS, squeeze=False).flat, results, strict=False):
        most = 1.05 * max(max(one["cost"], one["estimate"]) for one in result["each"])
        axes.plot([0, most], [0, most], color="0.6", lw=1)
        for one in result["each"]:
            held = one["low"] <= one["cost"] + 0.05 and one["cost"] <= one["high"] + 0.05
            colour = "#2a7f62" if held else "#c0392b"
            axes.plot([one["cost"]] * 2, [one["low"], one["high"]], color=colour, lw=1.2, alpha=0.5)
            axes.plot(one["cost"], one["estimate"], "o", color=colour, ms=4, mec="white", mew=0.5)
        axes.set_xlim(-0.03 * most, most)
        axes.set_ylim(-0.03 * most, 1.3 * most)
        axes.set_title(f"{result['task']}: {result['cost']['rank_correlation']:.2f}", fontsize=9)
        axes.tick_params(labelsize=7)
        axes.set_xlabel("true cost", fontsize=8)
        axes.set_ylabel("estimated, 90 % interval", fontsize=8)
    for axes in drawing.axes[len(results) :]:
        axes.remove()
    drawing.savefig(path, dpi=110)
