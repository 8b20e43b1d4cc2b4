"""The picture of a data set: its episodes in the plane of cost and return, desirable and undesirable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tracrl.data.episodes import Episodes
from tracrl.data.partition import is_safe, split
from tracrl.data.summary import checked_division
from tracrl.errors import TracrlError
from tracrl.files import replacing
from tracrl.tasks.normalise import normalised_reward
from tracrl.tasks.table import Task

PICTURES = (".png", ".svg", ".pdf")
MOST_PANELS = 64

# Colours of Okabe and Ito, which people of every colour vision tell apart; the markers differ as well.
_BLUE, _VERMILION, _GREY = "#0072B2", "#D55E00", "#999999"


def plot_scatter(
    episodes: Episodes,
    path: Path,
    limits: Sequence[float] | None = None,
    *,
    x: float = 50,
    y: float = 0,
    name: str | None = None,
) -> None:
    """Draw each episode's cost and return, coloured by its set, one panel per limit, as the suffix says."""
    from matplotlib.figure import Figure

    path = Path(path)
    if path.suffix.lower() not in PICTURES:
        raise TracrlError(f"{path} cannot be drawn: the name must end in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}.")
    limits = checked_division(episodes, limits, x, y)
    if len(limits) > MOST_PANELS:
        raise TracrlError(f"There are {len(limits)} limits, and a picture has room for {MOST_PANELS}: choose some.")
    task = episodes.known_task
    costs, returns = episodes.total_costs, episodes.returns
    columns = min(len(limits), 4)
    rows = math.ceil(len(limits) / columns)
    # A single panel is wider than one of many, so that the legend fits below it.
    figure = Figure(figsize=(max(6.4, 0.9 + 3.6 * columns), 1.1 + 3.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    size = float(np.clip(6000 / len(episodes), 4, 22))
    for panel, limit in zip(panels.flat, limits, strict=False):
        desirable, middle, poor, unsafe = split(returns, is_safe(costs, limit), x, y)
        undesirable = np.concatenate([poor, unsafe])
        for chosen, colour, marker, label in (
            (middle, _GREY, "s", "left out"),
            (undesirable, _VERMILION, "x", "undesirable"),
            (desirable, _BLUE, "o", "desirable"),
        ):
            panel.scatter(
                costs[chosen],
                returns[chosen],
                s=size,
                c=colour,
                marker=marker,
                label=label,
                alpha=0.75,
                linewidths=0.9 if marker == "x" else 0,
                rasterized=len(episodes) > 5000,  # keeps vector pictures of large data small
            )
        panel.axvline(limit, color="black", linestyle="--", linewidth=1.1, label="cost limit")
        safe = len(desirable) + len(middle) + len(poor)
        panel.set_title(f"limit {limit:g}: {safe} safe, {len(unsafe)} unsafe", fontsize=10)
        panel.grid(alpha=0.25, linewidth=0.6)
    for number, panel in enumerate(panels.flat):
        if number >= len(limits):
            panel.set_visible(False)
        elif number + columns >= len(limits):  # nothing below it
            panel.set_xlabel("cost per episode (sum of costs)")
            panel.tick_params(labelbottom=True)
    for row in panels:
        row[0].set_ylabel("return per episode (sum of rewards)")
        if task is not None:
            last = [panel for panel in row if panel.get_visible()][-1]
            last.secondary_yaxis("right", functions=_score_scale(task)).set_ylabel("normalised return")
    belongs = f", task {episodes.task}" if episodes.task else ""
    # Without mathematics: a name may hold dollar signs.
    title = f"{name or episodes.name}{belongs}: {len(episodes)} episodes"
    figure.suptitle(title, fontsize=12, parse_math=False)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    order = [labels.index(label) for label in ("desirable", "undesirable", "left out", "cost limit")]
    explained = {"desirable": f"desirable (top {x:g} % of the safe)", "undesirable": _undesirable_label(y)}
    legend = figure.legend(
        [handles[place] for place in order],
        [explained.get(labels[place], labels[place]) for place in order],
        loc="outside lower center",
        ncols=4 if columns > 2 else 2,
        frameon=False,
        fontsize=9,
        markerscale=1.5,
    )
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    with replacing(path) as aside:
        figure.savefig(aside, format=path.suffix.lower()[1:], dpi=150)


def _score_scale(task: Task) -> tuple[Any, Any]:
    span = task.max_return - task.min_return
    return (
        lambda value: normalised_reward(task, value),
        lambda score: np.asarray(score) * span + task.min_return,
    )


def _undesirable_label(y: float) -> str:
    return "undesirable (unsafe)" if y == 0 else f"undesirable (unsafe, and bottom {y:g} % of the safe)"
