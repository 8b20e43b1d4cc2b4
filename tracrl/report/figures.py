"""Figures of a study: tasks solved, reward against cost, learning curves, ablations, and intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tracrl.files import replacing
from tracrl.report.groups import Ablation, Column, Overview, Row, unit_of
from tracrl.report.results import Result, at_every_limit
from tracrl.report.run_figures import COLOURS as SEVEN
from tracrl.report.run_figures import SAFE_COLOUR
from tracrl.report.statistics import Interval, bootstrap, interquartile_mean, mean
from tracrl.report.tables import published_value, solved, strata_of, strata_of_runs
from tracrl.study.studies import shown

FORMATS = ("png", "svg")
COLOURS = (*SEVEN, "#8A6D3B", "#7F3C8D", "#7B8A8B")  # the paper has eight methods, and two are newer
SAFE, UNSAFE, PARTLY = COLOURS[2], COLOURS[1], COLOURS[4]
FEWLIMIT_LINES = 3
"""the protocol's: more of them make a curve"""
LIMIT_LINE = {"color": "0.35", "lw": 1, "ls": "--"}


@contextmanager
def panels(
    path: Path, rows: int, columns: int, title: str, width: float = 3.4, height: float = 2.8
) -> Iterator[list[list[Any]]]:
    """A grid of axes, written as ``path`` with each suffix of FORMATS at the end."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure  # not pyplot: no screen, no global state

    # Names are shown as they are, dollar signs too. The same contents give the same file: no dates, no random names.
    with mpl.rc_context({"text.parse_math": False, "svg.hashsalt": "tracrl", "svg.fonttype": "none"}):
        drawing = Figure(figsize=(width * columns, height * rows + 0.4), layout="constrained")
        FigureCanvasAgg(drawing)
        drawing.suptitle(title, fontsize=11)
        grid = [list(line) for line in drawing.subplots(rows, columns, squeeze=False)]
        for axes in drawing.axes:
            axes.tick_params(labelsize=8)
        yield grid
        for suffix in FORMATS:
            with replacing(path.with_suffix(f".{suffix}")) as aside:
                dated = {"metadata": {"Date": None}} if suffix == "svg" else {}
                drawing.savefig(aside, format=suffix, dpi=150, **dated)  # type: ignore[arg-type]


def plot_all(found: Overview, ablations: Sequence[Ablation], directory: Path) -> None:
    """Every figure of this file that the runs allow."""
    plot_solved(found, directory / "solved")
    plot_intervals(found, directory / "intervals")
    for row in found.rows:
        if not any(r.curve for c in found.columns for r in found.results.get((row, c), ())):
            continue
        plot_curves(found, row, directory / f"curves-{name_of(row)}")
    for row in found.rows:
        if any(len(limits_of(found, row, column)) > FEWLIMIT_LINES for column in found.columns):
            plot_limits(found, row, directory / f"limits-{name_of(row)}")
    for ablation in ablations:
        plot_ablation(ablation, directory / f"ablation-{ablation.study}")


def name_of(row: Row) -> str:
    """For files."""
    return "".join(c if c.isalnum() else "-" for c in row.label).strip("-")


def scored_suites(found: Overview) -> list[str]:
    """Those with a task that was run."""
    there = {row.suite for row, _ in found.results}
    return [suite for suite in found.suites() if suite in there]


def plot_solved(found: Overview, path: Path) -> None:
    """Per suite and method, the share of tasks whose mean normalised cost is at most 1; dark: at every limit."""
    suites = scored_suites(found)
    tallest = max(1, len(found.columns))
    title = f"{unit_of(found.rows).capitalize()}s solved (mean cost at most 1; dark: at every limit), final policy"
    with panels(path, 1, len(suites), title, max(4.4, 6.4 / len(suites)), 0.5 + 0.32 * tallest) as grid:
        for axes, suite in zip(grid[0], suites, strict=True):
            counts = [solved(found, suite, column) for column in found.columns]
            shares = [100 * in_mean / of if of else 0.0 for in_mean, _, of in counts]
            kept = [100 * safe / of if of else 0.0 for _, safe, of in counts]
            places = np.arange(len(counts))[::-1]
            colours = [colour_of(found, c) for c in found.columns]
            axes.barh(places, shares, color=colours, height=0.7, alpha=0.35)
            axes.barh(places, kept, color=colours, height=0.7)
            for place, share, (in_mean, safe, of) in zip(places, shares, counts, strict=True):
                told = f"{in_mean} of {of}" + (f", {safe} at every limit" if safe < in_mean else "")
                axes.text(share + 2, place, told if of else "not run", va="center", fontsize=8, color="0.2")
            axes.set_yticks(places, [c.label for c in found.columns], fontsize=8)
            axes.set_xlim(0, 215)  # room for the words
            axes.set_xticks([0, 50, 100])
            axes.set_xlabel("per cent")
            axes.set_title(suite, fontsize=10)


def plot_curves(found: Overview, row: Row, path: Path) -> None:
    """Reward and cost along the training of every method: mean over its runs, and the middle half of them."""
    columns = [column for column in found.columns if found.results.get((row, column))]
    with panels(path, 1, 2, f"{row.label}: learning curves", 4.6, 3.4) as ((rewards, costs),):
        for column in columns:
            runs = found.results[row, column]
            if not (steps := common_steps(runs)):
                continue
            colour = colour_of(found, column)
            for axes, part in ((rewards, 1), (costs, 2)):
                values = np.array([[{p[0]: p[part] for p in r.curve}[s] for s in steps] for r in runs])
                axes.plot(steps, values.mean(0), color=colour, marker="o", ms=3, lw=1.4, label=column.label)
                lower, upper = np.percentile(values, [25, 75], axis=0)
                axes.fill_between(steps, lower, upper, color=colour, alpha=0.13, lw=0)
                if (end := end_of_cloning(runs)) is not None:
                    axes.axvline(end, color=colour, lw=1, ls=":")
                    axes.annotate(
                        f"end of {column.label}'s cloning", (end, 1), xycoords=("data", "axes fraction"),
                        xytext=(2, -8), textcoords="offset points", fontsize=6, color=colour,
                    )  # fmt: skip
        _finish_curves(rewards, costs)


def limits_of(found: Overview, row: Row, column: Column) -> list[float]:
    return sorted({run.limit for run in at_every_limit(found.results.get((row, column), ()))})


def plot_limits(found: Overview, row: Row, path: Path) -> None:
    """Reward and cost over the limit, for what was played at many: mean over seeds, and their range. The cost is that
    of an episode; on the dashed line it is the limit itself."""
    with panels(path, 1, 2, f"{row.label}: reward and cost over the limit, final policy", 4.6, 3.4) as grid:
        rewards, costs = grid[0]
        for column in found.columns:
            limits = limits_of(found, row, column)
            runs = at_every_limit(found.results.get((row, column), ()))
            for axes, part in ((rewards, "rewards"), (costs, "costs")):
                factor = [1.0] * len(limits) if part == "rewards" else [limit or 1.0 for limit in limits]
                values = [
                    [f * getattr(run, part).mean() for run in runs if run.limit == limit]
                    for limit, f in zip(limits, factor, strict=True)
                ]
                colour = colour_of(found, column)
                axes.plot(limits, [np.mean(v) for v in values], color=colour, marker="o", ms=3, label=column.label)
                axes.fill_between(
                    limits, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.13, lw=0
                )
        highest = max(limit for column in found.columns for limit in limits_of(found, row, column))
        costs.plot([0, highest], [0, highest], **LIMIT_LINE)
        for axes, name in ((rewards, "normalised reward"), (costs, "cost of an episode")):
            axes.set_xlabel("cost limit")
            axes.set_ylabel(name)
            axes.set_xlim(0, 1.03 * highest)
            axes.margins(y=0.12)
            axes.grid(alpha=0.25)
        rewards.legend(frameon=False, fontsize=7)


def plot_ablation(ablation: Ablation, path: Path) -> None:
    """Reward and cost against the value: the mean over runs with its bootstrap interval, and the published numbers."""
    rows = ablation.rows()
    places = np.arange(len(ablation.values))
    with panels(
        path, 1, 2, f"Ablation of {ablation.symbol}, final policy; 95 % interval over seeds and episodes", 4.2, 3.3
    ) as ((rewards, costs),):
        for row, colour in zip(rows, COLOURS * 9, strict=False):
            shift = 0.0 if len(rows) == 1 else 0.24 * (rows.index(row) / (len(rows) - 1) - 0.5)
            at = [i for i, value in enumerate(ablation.values) if (row, value) in ablation.results]
            runs = [ablation.results[row, ablation.values[i]] for i in at]
            paper = [(i, p) for i in at if (p := published_value(ablation, row, ablation.values[i])) is not None]
            for axes, which in ((rewards, 0), (costs, 1)):
                _with_interval(axes, places[at] + shift, [_mean_of(r, which) for r in runs], colour, row.label)
                if paper:
                    axes.scatter(
                        [i + shift for i, _ in paper], [(p.reward, p.cost)[which] for _, p in paper],
                        marker="x", s=28, color=colour, alpha=0.7, label=f"{row.task}, published (DSRL's data)",
                    )  # fmt: skip
        for axes, name in ((rewards, "normalised reward"), (costs, "normalised cost")):
            axes.set_xticks(places, [shown(value) for value in ablation.values])
            axes.set_xlim(-0.5, len(places) - 0.5)
            axes.set_xlabel(ablation.symbol)
            axes.set_ylabel(name)
            axes.margins(y=0.15)
            axes.grid(alpha=0.25)
        _mark_safe(costs)
        rewards.legend(frameon=False, fontsize=7)


def plot_intervals(found: Overview, path: Path) -> None:
    """Interquartile means of reward and cost with 95 % intervals, per suite and method."""
    suites = scored_suites(found)
    height = 0.7 + 0.3 * len(found.columns)
    with panels(
        path,
        len(suites),
        2,
        "Interquartile mean over runs; 95 % bootstrap interval over seeds and episodes",
        4.2,
        height,
    ) as grid:
        for (left, right), suite in zip(grid, suites, strict=True):
            places = np.arange(len(found.columns))[::-1]
            for place, column in zip(places, found.columns, strict=True):
                strata = strata_of(found, suite, column, "final")
                if strata is None:
                    continue
                for axes, scores in zip((left, right), strata, strict=True):
                    interval = bootstrap(scores, interquartile_mean)
                    _with_interval(axes, [place], [interval], colour_of(found, column), None, sideways=True)
            for axes, name in ((left, "reward"), (right, "cost")):
                axes.set_yticks(places, [c.label for c in found.columns], fontsize=8)
                axes.set_ylim(-0.6, len(places) - 0.4)
                axes.set_xlabel(f"{suite}: normalised {name}", fontsize=8)
                axes.grid(alpha=0.25, axis="x")
            right.axvline(1, **LIMIT_LINE)
            right.axvspan(min(0.0, right.get_xlim()[0]), 1, color=SAFE_COLOUR, lw=0, zorder=0)
            right.set_yticklabels([])


def colour_of(found: Overview, column: Column) -> str:
    """A column has the same colour in every figure."""
    return (COLOURS * 9)[colour_number(found, column)]


def colour_number(found: Overview, column: Column) -> int:
    """TraC comes last in tables, and has the first colour."""
    return sorted(found.columns, key=lambda c: c.method != "trac").index(column)


def common_steps(runs: Sequence[Result]) -> list[int]:
    """Updates at which every run was evaluated."""
    steps = [{point[0] for point in run.curve} for run in runs]
    return sorted(set.intersection(*steps)) if steps else []


def end_of_cloning(runs: Sequence[Result]) -> int | None:
    """The update at which the reference was frozen, for methods that have one."""
    ends = {run.stack.run.phase_ends for run in runs}
    return next(iter(ends.pop()), None) or None if len(ends) == 1 else None


def _mean_of(runs: Sequence[Result], which: int) -> Interval:
    strata = strata_of_runs(runs)
    assert strata is not None
    return bootstrap(strata[which], mean)


def _with_interval(
    axes: Any,
    at: Any,
    intervals: Sequence[Interval],
    colour: str,
    label: str | None,
    sideways: bool = False,
) -> None:
    values = np.array([i.value for i in intervals])
    below = np.array([0.0 if i.low is None else max(0.0, i.value - i.low) for i in intervals])
    above = np.array([0.0 if i.high is None else max(0.0, i.high - i.value) for i in intervals])
    style = {"color": colour, "marker": "o", "ms": 5, "capsize": 3, "lw": 1.2, "label": label}
    if sideways:
        axes.errorbar(values, at, xerr=[below, above], ls="none", **style)
    else:
        axes.errorbar(at, values, yerr=[below, above], **style)


def _finish_curves(rewards: Any, costs: Any) -> None:
    for axes, name in ((rewards, "normalised reward"), (costs, "normalised cost")):
        axes.set_xlabel("update")
        axes.set_ylabel(name)
        axes.set_xlim(left=0)
        axes.margins(y=0.12)
        axes.grid(alpha=0.25)
    _mark_safe(costs)
    if rewards.get_legend_handles_labels()[0]:
        rewards.legend(frameon=False, fontsize=7)


def _mark_safe(costs: Any) -> None:
    low, high = costs.get_ylim()
    costs.axhspan(min(0.0, low), 1, color=SAFE_COLOUR, lw=0, zorder=0)
    costs.axhline(1, **LIMIT_LINE)
    costs.set_ylim(min(0.0, low), max(high, 1.1))
