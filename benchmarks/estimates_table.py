"""Estimates against the truth, a column for each task: what ``estimates.py compare`` ends with, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]
ACROSS = 4
"""panels of the picture in a row"""


def table(results: Sequence[Result]) -> str:
    """In Markdown."""
    rows = {
        "policies": lambda r: f"{r['policies']}",
        "rank correlation of cost": lambda r: f"{r['cost']['rank_correlation']:.2f}",
        "pairs of policies that truly differ, in the right order": lambda r: (
            f"{100 * r['cost']['rightly_ordered']:.0f} %"
        ),
        "mean error of cost; true mean, estimated": lambda r: "{mean_error:.1f}; {true_mean:.1f}, {mean:.1f}".format(
            **r["cost"]
        ),
        "90 % intervals that hold the true cost": lambda r: f"{r['held']} of {r['policies']}",
        "gate at 10: passed of those truly above, within": lambda r: _passed(r, "10"),
        "gate at 20": lambda r: _passed(r, "20"),
        "gate at 40": lambda r: _passed(r, "40"),
        "error of return in per cent of its range in the data: mean, median": lambda r: (
            f"{100 * r['return']['mean_error']:.1f}, {100 * r['return']['median_error']:.1f}"
        ),
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
    lines = ["| | " + " | ".join(r["task"] for r in results) + " |", "|---|" + "---:|" * len(results)]
    lines += [f"| {name} | " + " | ".join(cell(r) for r in results) + " |" for name, cell in rows.items()]
    return "\n".join([*lines, "", _together(results)])


def _passed(result: Result, limit: str) -> str:
    return "{above_passed} of {above}, {within_passed} of {within}".format(**result["gate"][limit])


def _together(results: Sequence[Result]) -> str:
    gates = [gate for r in results for gate in r["gate"].values()]
    total = {key: sum(gate[key] for gate in gates) for key in gates[0]}
    held, policies = sum(r["held"] for r in results), sum(r["policies"] for r in results)
    errors = [r["return"]["mean_error"] for r in results]
    return (
        f"Together: {held} of {policies} intervals hold ({held / policies:.1%}); passed of those above "
        "{above_passed} of {above}, of those within {within_passed} of {within}".format(**total)
        + f" ({total['within_passed'] / max(total['within'], 1):.0%}); the return is off by "
        f"{sum(errors) / len(errors):.1%} of its range (mean over the tasks; within 5 % on "
        f"{sum(error <= 0.05 for error in errors)} of {len(errors)})."
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
