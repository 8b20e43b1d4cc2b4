"""What a data set holds: its size, its spread over the cost-return plane, what is safe at each cost limit."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracrl.data.checks import KNOWN
from tracrl.data.episodes import Episodes
from tracrl.data.locate import load_dataset, locate
from tracrl.data.partition import is_safe, split
from tracrl.errors import TracrlError
from tracrl.files import replacing
from tracrl.tasks.normalise import normalised_reward
from tracrl.tasks.table import Task, all_tasks

CELLS = 10
"""Cells along each axis of the plane on which coverage is counted."""

PICTURES = (".png", ".svg", ".pdf")

# Colours of Okabe and Ito, which people of every colour vision tell apart; the markers differ as well.
_BLUE, _VERMILION, _GREY = "#0072B2", "#D55E00", "#999999"


@dataclass(frozen=True)
class Spread:
    """The lowest, the middle and the highest of one number an episode."""

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
    """The facts of a data set."""

    name: str
    task: str | None
    made_by: str | None
    fingerprint: str
    episodes: int
    transitions: int
    terminated: int
    """episodes that ended by themselves rather than by the time limit"""
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
    """The facts of a data set at these cost limits; by default those of :func:`default_limits`."""
    task = _task(episodes)
    return Summary(
        name=name or _name(episodes),
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
        limits=tuple(_at_limit(episodes, limit, x, y, task) for limit in limits or default_limits(episodes)),
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


def default_limits(episodes: Episodes) -> tuple[float, ...]:
    """The cost limits to look at when none are given: the task's own, else three that divide these data.

    These are the quartiles of the costs of the episodes that cost anything, with as few digits as still leave
    some episodes safe and some unsafe.
    """
    if task := _task(episodes):
        return task.limits
    costs = episodes.total_costs
    if not (costs > 0).any():
        return (0.0,)
    return tuple(sorted({_rounded(quartile, costs) for quartile in np.quantile(costs[costs > 0], [0.25, 0.5, 0.75])}))


def coverage(episodes: Episodes, cells: int = CELLS) -> float:
    """Share of occupied cells of a grid over the cost-return plane, inside the bounds of the data."""
    across, along = (_cell(values, cells) for values in (episodes.total_costs, episodes.returns))
    occupied = len(np.unique(across * cells + along))
    return occupied / ((cells if across.any() else 1) * (cells if along.any() else 1))


def print_summary(console: Console, summary: Summary) -> None:
    """Print a summary as two tables: the data as a whole, and the data at each limit."""
    belongs = f", task {summary.task}" if summary.task else ""
    console.print(Text.assemble((summary.name, "bold"), belongs))
    if summary.made_by:
        console.print(Text(f"made by: {summary.made_by}", "dim"))
    counted = f"{summary.episodes:,} episodes, {summary.transitions:,} transitions"
    if summary.dsrl:
        counted += f" (DSRL's data: {summary.dsrl['episodes']:,} episodes)"
    console.print(
        f"{counted}; {summary.terminated} episodes ended by themselves, the others by the time limit; "
        f"observations of size {summary.observation_size}, actions of size {summary.action_size}.\n"
        f"Covers {summary.coverage:.0%} of the cost-return plane: the share of occupied cells of a "
        f"{CELLS} × {CELLS} grid inside the bounds of these data.",
        highlight=False,
    )
    console.print(_table_of_the_whole(summary))
    console.print(_table_of_limits(summary))
    console.print(_explanation(summary), style="dim", highlight=False)
    for at in summary.limits:
        if at.note:
            console.print(Text(f"Limit {at.limit:g}: {at.note}", "yellow"))


def plot_scatter(
    episodes: Episodes,
    path: Path,
    limits: Sequence[float] | None = None,
    *,
    x: float = 50,
    y: float = 0,
    name: str | None = None,
) -> None:
    """Draw each episode's cost and return, coloured by its set, one panel a limit, as the suffix says."""
    from matplotlib.figure import Figure

    path = Path(path)
    if path.suffix.lower() not in PICTURES:
        raise TracrlError(f"{path} cannot be drawn: the name must end in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}.")
    limits = tuple(limits or default_limits(episodes))
    task = _task(episodes)
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
    figure.suptitle(f"{name or _name(episodes)}{belongs}: {len(episodes)} episodes", fontsize=12)
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


def check(
    source: str | Path,
    *,
    task: str | None = None,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    clip_actions: bool = False,
) -> list[str]:
    """What is odd about a data set and yet no error, one sentence each; whatever is an error is raised."""
    path, _ = locate(source, task)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        episodes = load_dataset(
            source, task=task, action_low=action_low, action_high=action_high, clip_actions=clip_actions
        )
    return [*(str(warning.message) for warning in caught), *_oddities(episodes, path)]


def _oddities(episodes: Episodes, path: Path) -> Iterator[str]:
    with h5py.File(path, "r") as file:
        unused = sorted(key for key in file if key not in KNOWN)
        actions = file["actions"][: episodes.rows].astype(np.float32)
        both = np.zeros(1, bool)
        if "terminals" in file and "timeouts" in file:
            # One of them may be a column and the other flat.
            terminals, timeouts = (file[key][...].reshape(-1).astype(bool) for key in ("terminals", "timeouts"))
            both = terminals & timeouts
        broken = _unchained(file, episodes) if "next_observations" in file else 0
    if broken:
        yield (
            f"{path}: in {broken} rows 'next_observations' differs from the observation of the next row; "
            "the next row's observation is used."
        )
    if unused:
        yield f"{path}: not used: {', '.join(unused)}."
    if moved := int((actions != episodes.actions).any(axis=1).sum()):
        beyond = float(np.abs(actions - episodes.actions).max())
        yield f"{path}: {moved} rows of 'actions' leave the box by up to {beyond:.3g} and are cut to it."
    if both.any():
        yield f"{path}: {int(both.sum())} rows have both 'terminals' and 'timeouts' and count as terminated."
    if episodes.final_observations is None:
        yield (
            f"{path}: there are neither 'next_observations' nor 'final_observations', so BCQ-Lag, BEAR-Lag "
            "and CPQ leave out the last step of each episode that time ended."
        )
    if not episodes.costs.any():
        yield f"{path}: no step costs anything, so every episode is safe at every limit."
    task = _task(episodes)
    longest = int(episodes.lengths.max())
    if task is not None and longest > task.max_steps:
        yield f"{path}: an episode has {longest} steps, where {task.name} ends after {task.max_steps}."
    if task is None and episodes.task is not None:
        yield f"{path}: its task {episodes.task!r} is not one of the 38, so there are no normalised scores."


def _unchained(file: h5py.File, episodes: Episodes, rows: int = 65_536) -> int:
    """Rows inside episodes whose next observation is not the next row's, read block by block."""
    ends = np.zeros(episodes.rows, bool)
    ends[episodes.offsets[1:] - 1] = True
    broken = 0
    for start in range(0, episodes.rows - 1, rows):
        part = slice(start, min(start + rows, episodes.rows - 1))
        following = file["next_observations"][part].astype(np.float32)
        differs = (following != episodes.observations[start + 1 : part.stop + 1]).any(axis=1)
        broken += int((differs & ~ends[part]).sum())
    return broken


def _task(episodes: Episodes) -> Task | None:
    return all_tasks().get(str(episodes.task))


def _name(episodes: Episodes) -> str:
    return str(episodes.metadata.get("file") or episodes.task or "data")


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


def _rounded(quartile: float, costs: NDArray[np.float64]) -> float:
    for digits in range(1, 7):
        limit = float(f"{quartile:.{digits}g}")
        if 0 < is_safe(costs, limit).mean() < 1:
            return limit
    return float(quartile)


def _cell(values: NDArray[np.float64], cells: int) -> NDArray[np.int64]:
    low, high = values.min(), values.max()
    if high == low:
        return np.zeros(len(values), np.int64)
    return np.asarray(np.minimum((values - low) / (high - low) * cells, cells - 1), np.int64)


def _score_scale(task: Task) -> tuple[Any, Any]:
    span = task.max_return - task.min_return
    return (
        lambda value: normalised_reward(task, value),
        lambda score: np.asarray(score) * span + task.min_return,
    )


def _undesirable_label(y: float) -> str:
    return "undesirable (unsafe)" if y == 0 else f"undesirable (unsafe, and bottom {y:g} % of the safe)"


def _table_of_the_whole(summary: Summary) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("an episode's")
    for column in ("lowest", "median", "highest"):
        table.add_column(column, justify="right")
    known = summary.dsrl
    if known:
        table.add_column("DSRL's lowest", justify="right", style="dim")
        table.add_column("DSRL's highest", justify="right", style="dim")
    ends = {
        "steps": ("", "longest"),
        "return": ("lowest_return", "highest_return"),
        "cost": ("", "highest_cost"),
    }
    for label, spread in (("steps", summary.lengths), ("return", summary.returns), ("cost", summary.costs)):
        numbers = [_short(value) for value in (spread.low, spread.median, spread.high)]
        constants = [_short(known[end]) if end else "" for end in ends[label]] if known else []
        table.add_row(label, *numbers, *constants)
    return table


def _table_of_limits(summary: Summary) -> Table:
    scored = summary.dsrl is not None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("limit", "safe", "unsafe"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("best safe return", justify="right")
    if scored:
        table.add_column("score", justify="right")
    for column in ("desirable", "undesirable", "left out"):
        table.add_column(column, justify="right", no_wrap=True)
    for at in summary.limits:
        score = "" if at.best_safe_score is None else f"{at.best_safe_score:.2f}"
        table.add_row(
            f"{at.limit:g}",
            f"{at.safe} ({at.share_safe:.0%})",
            str(at.unsafe),
            "none" if at.best_safe_return is None else _short(at.best_safe_return),
            *([score] if scored else []),
            str(at.desirable),
            str(at.undesirable),
            str(at.left_out),
        )
    return table


def _explanation(summary: Summary) -> str:
    """What the columns of the second table mean."""
    said = f"Desirable: the top {summary.x:g} % of the safe episodes by return. Undesirable: the unsafe"
    said += f" and the bottom {summary.y:g} % of the safe." if summary.y else "."
    return said + (" Score: the return normalised with DSRL's range." if summary.dsrl else "")


def _short(value: float) -> str:
    """One decimal, none where it is zero; small numbers keep three digits."""
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}".removesuffix(".0")
