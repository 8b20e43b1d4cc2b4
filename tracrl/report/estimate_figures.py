"""A picture of estimates: return and cost of each policy with their intervals, against the limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tracrl.ope.estimates import Estimates
from tracrl.report.run_figures import COLOURS, SAFE_COLOUR, figure

WITHIN, NOT_SHOWN, PLAYED = COLOURS[2], COLOURS[1], COLOURS[6]
FAR = 0.1
"""a share of steps out of the data from which it is said beside the policy"""


def plot_estimates(estimates: Estimates, path: Path, played: Mapping[int, tuple[float, float]] | None = None) -> None:
    """A line for each policy; ``played`` are the mean return and cost of those that were also evaluated."""
    count, played = len(estimates), played or {}
    places = np.arange(count)[::-1]
    colours = [WITHIN if shown else NOT_SHOWN for shown in estimates.shown(estimates.limits, estimates.confidence)]
    title = f"Estimated from {estimates.data['episodes']:,} logged episodes alone"
    with figure(path, 2, title, width=4.8, height=1.6 + 0.34 * count) as (returns, costs):
        columns = (
            (returns, estimates.returns, estimates.return_intervals, "return"),
            (costs, estimates.costs, estimates.cost_intervals, "cost"),
        )
        for part, (axes, values, intervals, name) in enumerate(columns):
            for i, place in enumerate(places):
                axes.plot(intervals[i], [place, place], color=colours[i], lw=2.4, solid_capstyle="butt")
                axes.plot(values[i], place, "o", color=colours[i], ms=6, mec="white", mew=0.8)
                if i in played:
                    axes.plot(played[i][part], place, "x", color=PLAYED, ms=6, mew=1.6, zorder=4)
            axes.set_ylim(-0.6, count - 0.4)
            axes.set_xlabel(f"{name}, estimated from the log; {estimates.confidence:.0%} intervals", fontsize=8)
            axes.tick_params(labelsize=8)
            axes.grid(alpha=0.25, axis="x")
        returns.set_yticks(places, _labels(estimates), fontsize=8)
        ends = (*estimates.cost_intervals[:, 1], *(cost for _, cost in played.values()))
        right = max(1.05 * float(max(ends)), 1.3 * max(estimates.limits))
        for limit, place in zip(estimates.limits, places, strict=True):
            costs.fill_betweenx([place - 0.5, place + 0.5], 0, limit, color=SAFE_COLOUR, lw=0, zorder=0)
            costs.plot([limit, limit], [place - 0.5, place + 0.5], color="0.35", lw=1, ls="--")
        costs.set_xlim(-0.02 * right, right)
        costs.set_yticks(places, [_far(share) for share in estimates.ood_shares], fontsize=8, color=NOT_SHOWN)
        costs.yaxis.tick_right()
        costs.tick_params(axis="y", length=0)
        _legend(returns, bool(played), estimates.confidence)


def _labels(estimates: Estimates) -> list[str]:
    several = len(set(estimates.names)) > 1
    return [
        (f"{Path(name).name}, " if several else "") + f"limit {limit:g}, seed {seed}"
        for name, limit, seed in zip(estimates.names, estimates.limits, estimates.seeds, strict=True)
    ]


def _far(share: float) -> str:
    return f"{share:.0%} out of the data" if share >= FAR else ""


def _legend(axes: object, played: bool, confidence: float) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D(
            [], [], color=WITHIN, marker="o", lw=2.4, label=f"cost within its limit with {confidence:.0%} confidence"
        ),
        Line2D([], [], color=NOT_SHOWN, marker="o", lw=2.4, label="not shown to be within it"),
        Line2D([], [], color="0.35", ls="--", lw=1, label="limit"),
    ]
    if played:
        entries.append(Line2D([], [], color=PLAYED, marker="x", ls="none", mew=1.6, label="played (mean of episodes)"))
    drawing = axes.figure  # type: ignore[attr-defined]
    drawing.legend(handles=entries, loc="outside lower center", ncols=len(entries), fontsize=8, frameon=False)
