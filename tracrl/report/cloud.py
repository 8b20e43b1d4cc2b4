"""One picture of a task: the episodes of the data, the limit, and where each method ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.report.figures import colour_of, panels
from tracrl.report.groups import Overview, Row
from tracrl.report.labels import place_labels
from tracrl.report.limits import raw_cost
from tracrl.report.run_figures import SAFE_COLOUR
from tracrl.tasks.normalise import normalised_reward
from tracrl.tasks.table import get_task


def row_of(found: Overview, data: Episodes) -> Row:
    """The row whose runs were trained on these episodes."""
    for row in found.rows:
        if row.fingerprint == data.fingerprint:
            return row
    raise TracrlError(
        f"No run on a task here was trained on {data.name} (fingerprint {data.fingerprint}): --data names what they "
        "were trained on."
    )


def plot_cloud(found: Overview, row: Row, data: Episodes, path: Path) -> None:
    """A panel for each limit; of each method the mean of its final policies, and their episodes."""
    rewards = normalised_reward(get_task(row.task), data.returns)
    cells = {column: found.results[row, column] for column in found.columns if (row, column) in found.results}
    limits = sorted({result.limit for cell in cells.values() for result in cell})
    title = f"{row.label}: {len(rewards)} episodes in the data, and where each method ends (reward / cost)"
    with panels(path, 1, len(limits), title, 3.9, 4.2) as (line,):
        runs = [run for cell in cells.values() for run in cell]
        right = 1.06 * float(
            np.concatenate([data.total_costs, *(raw_cost(run.costs, run.limit) for run in runs)]).max()
        )
        everything = np.concatenate([rewards, *(run.rewards for run in runs)])
        low, high = float(everything.min()), float(everything.max())
        for axes, limit in zip(line, limits, strict=True):
            axes.set_xlim(-0.03 * right, right)
            axes.set_ylim(low - 0.06 * (high - low), high + 0.1 * (high - low))
            axes.axvspan(-0.03 * right, limit, color=SAFE_COLOUR, lw=0, zorder=0)
            axes.axvline(limit, color="0.35", lw=1, ls="--", zorder=1)
            axes.scatter(data.total_costs, rewards, s=7, color="0.72", lw=0, zorder=1, label="an episode of the data")
            axes.set_title(f"cost limit {limit:g}", fontsize=10)
            axes.set_xlabel("cost of an episode", fontsize=9)
            axes.grid(alpha=0.2)
        line[0].set_ylabel("normalised reward", fontsize=9)
        line[0].figure.draw_without_rendering()  # names are placed in the final layout
        for axes, limit in zip(line, limits, strict=True):
            means: dict[Any, tuple[float, float]] = {}
            for column, cell in cells.items():
                mine = [run for run in cell if run.limit == limit]
                if not mine:
                    continue
                costs = np.concatenate([raw_cost(run.costs, run.limit) for run in mine])
                scores = np.concatenate([run.rewards for run in mine])
                colour = colour_of(found, column)
                axes.scatter(costs, scores, s=14, color=colour, alpha=0.35, lw=0, zorder=3)
                means[column] = float(costs.mean()), float(scores.mean())
                axes.scatter(*means[column], s=80, color=colour, edgecolor="white", lw=1.2, zorder=4)
            names = [f"{column.label}\n{reward:.2f} / {cost:.0f}" for column, (cost, reward) in means.items()]
            place_labels(axes, list(means.values()), names, size=9, colours=[colour_of(found, c) for c in means], dot=6)
