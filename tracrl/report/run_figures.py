"""Pictures of runs: where the policies landed, and how they got there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tracrl.evaluation.scores import Scores
from tracrl.files import replacing

# Okabe and Ito's colours, which stay apart for colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SAFE_COLOUR = "#E8F4EA"


@contextmanager
def figure(path: Path, columns: int, title: str, width: float = 4.6, height: float = 3.6) -> Iterator[list[Any]]:
    """A row of axes that is written to ``path`` at the end; PNG, SVG or PDF by its suffix."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure  # not pyplot: no screen, no global state

    drawing = Figure(figsize=(width * columns, height), layout="constrained")
    FigureCanvasAgg(drawing)
    drawing.suptitle(title, fontsize=11)
    yield list(drawing.subplots(1, columns, squeeze=False)[0])
    with replacing(path) as aside:
        drawing.savefig(aside, format=path.suffix.lstrip("."), dpi=150)


def plot_scores(scores: Scores, path: Path, title: str) -> None:
    """Every episode and the mean of each limit in the plane of normalised cost and reward, or return without a task."""
    rewards, name = (scores.returns, "return") if scores.task is None else (scores.rewards, "normalised reward")
    with figure(path, 1, title, width=5.6, height=4.2) as (axes,):
        right = max(1.3, 1.08 * float(scores.normalised_costs.max()))
        axes.axvspan(-0.05, 1, color=SAFE_COLOUR, lw=0, zorder=0)
        axes.axvline(1, color="0.35", lw=1, ls="--", zorder=1)
        limits = list(dict.fromkeys(scores.limits))
        for place, (limit, colour) in enumerate(zip(limits, COLOURS * 9, strict=False)):
            which = np.array(scores.limits) == limit
            cost, reward = scores.normalised_costs[which].ravel(), rewards[which].ravel()
            axes.scatter(cost, reward, s=12, color=colour, alpha=0.35, lw=0, zorder=2)
            # Each smaller than the one before: means that coincide, as often at a cost of 0, can all be seen.
            axes.scatter(
                cost.mean(), reward.mean(), s=45 * (len(limits) - place) + 15, color=colour, edgecolor="white", lw=1,
                zorder=3, label=f"{limit:g}",
            )  # fmt: skip
        axes.set_xlim(-0.05, right)
        if scores.task is not None:
            axes.set_ylim(min(0.0, float(rewards.min())) - 0.05, max(1.0, float(rewards.max())) + 0.05)
        axes.set_xlabel("normalised cost (cost / limit); safe up to 1")
        axes.set_ylabel(name)
        axes.legend(title="cost limit", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        axes.grid(alpha=0.25)


def plot_curves(
    evaluations: Sequence[Mapping[str, str]], path: Path, title: str, phase_ends: Mapping[str, int] | None = None
) -> None:
    """Normalised reward (return without a task) and cost along the training: of each limit the mean over seeds, and its
    range."""
    reward = "normalised_reward" if all(row["normalised_reward"] for row in evaluations) else "return"
    with figure(path, 2, title) as panels:
        for axes, column in zip(panels, (reward, "normalised_cost"), strict=True):
            for limit, colour in zip(dict.fromkeys(row["limit"] for row in evaluations), COLOURS * 9, strict=False):
                mine = [row for row in evaluations if row["limit"] == limit]
                steps = sorted({int(row["step"]) for row in mine})
                values = [[float(row[column]) for row in mine if int(row["step"]) == step] for step in steps]
                axes.plot(steps, [np.mean(v) for v in values], color=colour, marker="o", ms=3, label=limit)
                axes.fill_between(
                    steps, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.15, lw=0
                )
            for phase, end in (phase_ends or {}).items():
                axes.axvline(end, color="0.35", lw=1, ls=":")
                axes.annotate(
                    f"end of {phase}", (end, 1), xycoords=("data", "axes fraction"), xytext=(3, -10),
                    textcoords="offset points", fontsize=7, color="0.35",
                )  # fmt: skip
            axes.set_xlabel("update")
            axes.set_ylabel(column.replace("_", " "))
            axes.set_xlim(left=0)
            axes.margins(y=0.12)
            axes.grid(alpha=0.25)
        low, high = panels[1].get_ylim()
        panels[1].axhspan(min(0, low), 1, color=SAFE_COLOUR, lw=0, zorder=0)
        panels[1].set_ylim(low, max(high, 1.1))
        panels[1].axhline(1, color="0.35", lw=1, ls="--")
        panels[0].legend(title="cost limit", frameon=False, fontsize=8, title_fontsize=8)
