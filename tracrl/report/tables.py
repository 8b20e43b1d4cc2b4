"""What the tables say: our numbers, the paper's, aggregates over runs, and ablations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tracrl.evaluation.risk import cvar, percent, share_above
from tracrl.report.cells import Cell, runs_in_words
from tracrl.report.comparable import precision_marks, protocol_marks
from tracrl.report.grid import NOTHING, Entry, Grid, Line, Style
from tracrl.report.groups import Ablation, Column, Overview, Row, unit_of
from tracrl.report.limits import WORST_TENTH
from tracrl.report.published import CITATION, Published, published_ablations, published_results
from tracrl.report.results import Floats, Result
from tracrl.report.statistics import Interval, bootstrap, interquartile_mean, mean
from tracrl.study.studies import STUDIES, shown

RunStrata = list[list[Floats]]
"""for each task and limit the runs, for each run its episodes"""
FINAL = "final policy"
BEST = "best policy on the way"
INTERVAL = (
    "95 % interval of stratified bootstrap samples, which covers the spread over seeds and over episodes (within each "
    "{unit} and limit runs are drawn again, then episodes within each run); where there is one seed it covers episodes "
    "alone."
)


def main_grid(found: Overview, policy: Literal["final", "best"]) -> Grid:
    """Our numbers: tasks, and the average of each suite."""
    lines: list[Line] = []
    for suite in found.suites():
        rows = [row for row in found.rows if row.suite == suite]
        cells = {(row, column): found.cell(row, column, policy) for row in rows for column in found.columns}
        for row in rows:
            marks = [found.marks.get((row, column), "") for column in found.columns]
            lines.append(_line(row.label, [cells[row, column] for column in found.columns], marks))
        for common, columns in found.compared(suite):
            if len(common) == 1:
                continue  # one task's numbers once more
            means = [
                Cell.average([cells[row, column] for row in common]) if column in columns else None
                for column in found.columns
            ]
            lines.append(_line(average_label(suite, common), means, average=True))
    what = FINAL if policy == "final" else BEST
    caption = [_mean_over(found)]
    if policy == "best":
        caption.append(_about_best(found))
    caption += [*settings_in_words(found.columns), *_sources(found.rows)]
    return Grid(
        title=f"Normalised reward and cost, {what}",
        caption=tuple(caption),
        corner="task",
        heads=tuple(column.label for column in found.columns),
        lines=tuple(lines),
        span=2,
        under=("reward ↑", "cost ↓"),
        notes=found.notes,
    )


def published_grid(found: Overview) -> Grid:
    """The paper's numbers for the same tasks and methods."""
    titles = list(dict.fromkeys(column.title for column in found.columns))
    known = published_results()
    lines: list[Line] = []
    for suite in found.suites():
        rows = list({row.task: row for row in found.rows if row.suite == suite}.values())
        cells = {(row.task, t): _as_cell(known.get((row.task, t))) for row in rows for t in titles}
        lines += [_line(row.task, [cells[row.task, t] for t in titles]) for row in rows]
        if len(rows) > 1:
            means = [Cell.average([cells[row.task, t] for row in rows]) for t in titles]
            lines.append(_line(average_label(suite, rows), means, average=True))
    return Grid(
        title=f"As published, for comparison ({CITATION})",
        caption=("Printed in the paper, not computed by us: DSRL's data, 3 limits × 3 seeds × 20 episodes.",),
        corner="task",
        heads=tuple(titles),
        lines=tuple(lines),
        span=2,
        under=("reward ↑", "cost ↓"),
    )


def statistics_grid(found: Overview, policy: Literal["final", "best"] = "final") -> Grid:
    """Interquartile means and means with bootstrap intervals, over runs."""
    lines = []
    for suite in found.suites():
        for column in found.columns:
            strata = strata_of(found, suite, column, policy)
            if strata is None:
                continue
            rewards, costs = strata
            runs = sum(map(len, rewards))
            safe = float(np.mean([np.mean(run) <= 1 for stratum in costs for run in stratum]))
            episodes = np.concatenate([run for stratum in costs for run in stratum])
            entries = [
                _interval(bootstrap(rewards, interquartile_mean)),
                _interval(bootstrap(costs, interquartile_mean)),
                _interval(bootstrap(rewards, mean)),
                _interval(bootstrap(costs, mean)),
                percent(safe),
                percent(share_above(episodes, 1.0)),
                f"{cvar(episodes):.2f}",
                str(runs),
            ]
            lines.append(Line(f"{suite}: {column.label}", tuple(map(Entry, entries))))
    return Grid(
        title=f"Aggregates over runs, {FINAL if policy == 'final' else BEST}",
        caption=(
            "A run's score is the mean over its episodes. IQM: interquartile mean over all runs of the suite. In "
            f"brackets: {INTERVAL.format(unit=unit_of(found.rows))} A run is safe if its mean normalised cost is at "
            f"most 1; {WORST_TENTH}.",
        ),
        corner="suite and method",
        heads=(
            "IQM reward ↑",
            "IQM cost ↓",
            "mean reward ↑",
            "mean cost ↓",
            "safe runs",
            "above limit",
            "worst tenth",
            "runs",
        ),
        lines=tuple(lines),
        marked=False,
    )


def ablation_grid(ablation: Ablation) -> Grid:
    """One setting varied: ours, and where the paper prints them its numbers."""
    lines = []
    labels = {(row, v): f"{row.label}, {ablation.symbol} {shown(v)}" for row, v in ablation.results}
    precisions, told_precisions = precision_marks(ablation.results, labels)
    protocols, told_protocols = protocol_marks(ablation.results)
    for row in ablation.rows():
        cells = {v: Cell.of(ablation.results[row, v], "final") for v in ablation.values if (row, v) in ablation.results}
        best = best_of(list(cells.values()))
        for value, cell in cells.items():
            paper = published_value(ablation, row, value)
            told = NOTHING if paper is None else f"{_number(paper.reward)} / {_number(paper.cost)}"
            mark = precisions.get((row, value), "") + protocols.get((row, value), "")
            pair = _entries(cell, best, mark) if cell is not None else (Entry(NOTHING), Entry(NOTHING))
            lines.append(Line(labels[row, value], (*pair, Entry(told))))
    first = next(iter(ablation.results.values()))
    columns = {r.stack.preset for runs in ablation.results.values() for r in runs}
    changes = {
        f"{name} {shown(v)}"
        for runs in ablation.results.values()
        for r in runs
        for name, v in r.stack.changes.items()
        if name != ablation.setting
    }
    return Grid(
        title=f"Ablation: {ablation.symbol}, {FINAL}",
        caption=(
            f"Mean ± standard deviation over {runs_in_words(first)}, normalised with DSRL's constants.",
            f"{first[0].stack.title}, {' and '.join(sorted(columns))} preset"
            + (f" with {', '.join(sorted(changes))}." if changes else "."),
            f"Published: {CITATION}, on DSRL's data; – where the paper prints no number.",
            *_sources(ablation.rows()),
        ),
        corner="task and value",
        heads=("reward ↑", "cost ↓", "published reward / cost"),
        lines=tuple(lines),
        notes=(*ablation.notes, *told_precisions, *told_protocols),
    )


def published_value(ablation: Ablation, row: Row, value: object) -> Published | None:
    """The paper's number for a value of a varied setting."""
    study = STUDIES[ablation.study]
    told = shown(value) if study.against is None or value in study.values else study.against
    return published_ablations().get((ablation.setting, row.task, told))


def strata_of(found: Overview, suite: str, column: Column, policy: str) -> tuple[RunStrata, RunStrata] | None:
    """(rewards, costs) of a method's runs in a suite: for each task and limit the runs, with their episodes."""
    results = [r for row in found.rows if row.suite == suite for r in found.results.get((row, column), ())]
    return strata_of_runs([r for r in results if r.scored(policy) is not None], policy)


def strata_of_runs(results: Sequence[Result], policy: str = "final") -> tuple[RunStrata, RunStrata] | None:
    """(rewards, costs): for each data set and limit the runs, with their episodes."""
    groups: dict[tuple[str, str, float], list[tuple[Floats, Floats]]] = {}
    for r in results:
        if (scored := r.scored(policy)) is not None:
            groups.setdefault((r.stack.task, r.stack.fingerprint, r.limit), []).append(scored)
    if not groups:
        return None
    rewards, costs = ([[run[part] for run in runs] for runs in groups.values()] for part in (0, 1))
    return rewards, costs


def solved(found: Overview, suite: str, column: Column, policy: str = "final") -> tuple[int, int, int]:
    """Rows of a suite (tasks, or data sets where a task has several) that a method solves as the paper defines it, of
    these those that are safe at every limit, and how many there are."""
    cells = [found.cell(row, column, policy) for row in found.rows if row.suite == suite]
    there = [cell for cell in cells if cell is not None]
    return sum(cell.solved for cell in there), sum(cell.safe for cell in there), len(there)


def _line(label: str, cells: Sequence[Cell | None], marks: Sequence[str] = (), average: bool = False) -> Line:
    best = best_of(cells)
    entries: list[Entry] = []
    for cell, mark in zip(cells, marks or [""] * len(cells), strict=True):
        entries += _entries(cell, best, mark) if cell is not None else (Entry(NOTHING), Entry(NOTHING))
    return Line(label, tuple(entries), average)


def best_of(cells: Sequence[Cell | None]) -> Cell | None:
    """The safe one of highest reward."""
    safe = [cell for cell in cells if cell is not None and cell.safe]
    return max(safe, key=lambda cell: cell.reward, default=None)


def style_of(cell: Cell, best: Cell | None) -> Style:
    if not cell.solved:
        return "unsafe"
    return "partly" if not cell.safe else "best" if cell is best else "safe"


def _entries(cell: Cell, best: Cell | None, mark: str = "") -> tuple[Entry, Entry]:
    style = style_of(cell, best)
    kept = f"{cell.safe_parts}/{cell.parts}" if style == "partly" else ""
    return (
        Entry(_spread(cell.reward, cell.reward_std), style),
        Entry(_spread(cell.cost, cell.cost_std), style, " ".join(filter(None, (kept, mark)))),
    )


def average_label(suite: str, rows: Sequence[Row]) -> str:
    from tracrl.tasks.table import all_tasks

    whole = sum(task.suite == suite for task in all_tasks().values())
    count = len({row.task for row in rows})
    told = [f"{count} of {whole}"] if count < whole else []
    told += [f"{len(rows)} data sets"] if len(rows) > count else []
    return f"{suite} average" + (f" ({', '.join(told)})" if told else "")


def _as_cell(paper: Published | None) -> Cell | None:
    if paper is None:
        return None
    safe = int(paper.cost <= 1)  # as printed: what it is at each limit is not
    return Cell(paper.reward, paper.reward_std or 0.0, paper.cost, paper.cost_std or 0.0, 9, 180, safe, 1)


def _mean_over(found: Overview) -> str:
    protocols = list(dict.fromkeys(runs_in_words(results) for results in found.results.values()))
    over = protocols[0] if len(protocols) == 1 else "limits × seeds × episodes (" + "; ".join(protocols) + ")"
    return (
        f"Mean ± standard deviation over {over}; averages: over the {unit_of(found.rows)}s' means. Normalised with "
        "DSRL's constants. Safe: mean normalised cost at most 1 at every limit; solved, as the paper defines it: at "
        "most 1 in the mean over limits."
    )


def _about_best(found: Overview) -> str:
    results = [result for runs in found.results.values() for result in runs]
    told = "Best policy: of each run the best of its evaluations on the way, chosen in the simulator"
    if any(result.protocol is None for result in results):  # before version 0.5
        told += (
            ", of runs from before version 0.5 by the same episodes that score it here, so these numbers are too good"
        )
    else:
        told += " by other episodes than those that score it here; the data alone do not allow this choice"
    return f"{told}. The other table is the one to compare with."


def settings_in_words(columns: Sequence[Column]) -> list[str]:
    told: dict[str, list[str]] = {}
    for column in columns:
        told.setdefault(column.about, []).append(column.label)
    return [f"{', '.join(labels)}: {about}." for about, labels in told.items()]


def _sources(rows: Sequence[Row]) -> list[str]:
    dsrl = [row.label for row in rows if row.from_dsrl]
    ours = [f"Data of {row.label}: {row.source}." for row in rows if not row.from_dsrl and row.source]
    if len(ours) > 8:
        ours = [f"Data of {len(ours)} {unit_of(rows)}s: not DSRL's; results.csv and the page say where they are from."]
    if not dsrl:
        return ours
    names = ", ".join(dsrl) if len(dsrl) <= 6 else f"{'the other' if ours else 'all'} {len(dsrl)} {unit_of(rows)}s"
    return [*ours, f"Data of {names}: DSRL's."]


def _interval(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _spread(value: float, deviation: float) -> str:
    return f"{_number(value)} ± {_number(deviation)}"


def _number(value: float) -> str:
    """Two digits, and no minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"
