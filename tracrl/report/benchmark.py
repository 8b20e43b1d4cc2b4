"""The benchmark's tables from results that were written down: every task, the suites, and the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracrl.report.cells import Cell
from tracrl.report.committed import Committed, CsvRow
from tracrl.report.grid import NOTHING, Entry, Grid, Line
from tracrl.report.groups import Ablation, Column, Overview, Row, find_ablations, overview
from tracrl.report.published import CITATION, Published, published_results
from tracrl.report.results import Result
from tracrl.report.tables import average_label, best_of, settings_in_words, style_of
from tracrl.study.studies import shown
from tracrl.tasks.table import all_tasks

EVERY_SUITE = "all suites"
ON_COLLECTED_DATA = "The data were made by tracrl collect and are not DSRL's: no number of ours is a result on DSRL."
OF_THE_PAPER = f"As published: {CITATION}, on DSRL's data; beside ours for orientation, not as a reproduction."
MANY = 5
"""tasks of a method that has a column in the table of all of them"""
OWN_VALUE = "◦"
PARTLY = "mean cost at most 1 but not at every limit"


def benchmark_grid(found: Overview) -> Grid:
    """Every task: reward / cost and how many runs are safe; the paper's TraC beside them."""
    lines: list[Line] = []
    for suite in found.suites():
        for row in (row for row in found.rows if row.suite == suite):
            cells = {c: cell for c in found.columns if (cell := found.cell(row, c, "final")) is not None}
            best = best_of(list(cells.values()))
            entries = [_entry(found, [row], c, cells[c], best) if c in cells else Entry(NOTHING) for c in found.columns]
            lines.append(Line(row.label, (*entries, _published("TraC", [row]))))
        for rows, columns in found.compared(suite):
            means = {c: _mean(found, rows, c) for c in columns}
            best = best_of(list(means.values()))
            entries = [_entry(found, rows, c, means[c], best) if c in means else Entry(NOTHING) for c in found.columns]
            lines.append(Line(average_label(suite, rows), (*entries, _published("TraC", rows)), average=True))
    missing = sum(row.label != row.task for row in found.rows)
    return Grid(
        title=f"Normalised reward / cost and safe runs, final policy: {len(found.rows) - missing} of "
        f"{len(found.rows)} tasks",
        caption=(
            "Mean over limits × seeds × episodes; behind it, how many of the runs have a mean normalised cost of at "
            "most 1. Averages: over the tasks' means, of methods that have the same tasks.",
            *settings_in_words(found.columns),
            *_standardised(found),
            ON_COLLECTED_DATA,
            OF_THE_PAPER,
        ),
        corner="task",
        heads=(*(column.label for column in found.columns), "TraC as published"),
        lines=tuple(lines),
        partly=PARTLY,
        notes=found.notes,
    )


def methods_grid(found: Overview) -> Grid | None:
    """Tasks that many methods have, with all of these; None where every method is in the table of all tasks."""
    many = _of_many(found)
    few = [column for column in found.columns if column not in many]
    if not few:
        return None
    rows = found.of_columns(few).rows
    columns = [c for c in found.columns if c in few or all((row, c) in found.results for row in rows)]
    grid = benchmark_grid(replace(found.of_columns(columns), rows=rows))
    return replace(
        grid,
        title="Every method, on tasks that many were trained on: normalised reward / cost and safe runs, final policy",
        lines=tuple(line for line in grid.lines if not line.average),
    )


def _of_many(found: Overview) -> list[Column]:
    """Methods of at least ``MANY`` tasks; where there are none, those of the most."""
    tasks = {c: sum((row, c) in found.results for row in found.rows) for c in found.columns}
    return [c for c in found.columns if tasks[c] >= min(MANY, max(tasks.values()))]


def suites_grid(found: Overview) -> Grid:
    """For each suite and method: averages, solved tasks and safe runs, and the paper's over the same tasks."""
    lines = []
    for suite in (*found.suites(), EVERY_SUITE):
        for rows, columns in found.compared(None if suite == EVERY_SUITE else suite):
            for column in columns:
                mean = _mean(found, rows, column)
                cells = [found.cell(row, column, "final") for row in rows]
                safe, runs = _safe_runs(found, rows, column)
                style = style_of(mean, None)
                entries = (
                    Entry(f"{mean.reward:.2f}", style),
                    Entry(f"{mean.cost:.2f}", style),
                    Entry(f"{sum(cell is not None and cell.solved for cell in cells)} of {len(rows)}"),
                    Entry(f"{mean.safe_parts} of {len(rows)}"),
                    Entry(f"{safe} of {runs}"),
                    _published(column.title, rows),
                    Entry(_published_solved(column.title, rows)),
                )
                lines.append(Line(f"{suite}, {len(rows)} tasks: {column.label}", entries))
    return Grid(
        title="Averages of the suites, and tasks solved",
        caption=(
            "Each average is over the tasks that all methods beside it have. Solved, as the paper defines it: a mean "
            "normalised cost of at most 1 over all limits; safe: at each of them.",
            ON_COLLECTED_DATA,
            OF_THE_PAPER,
        ),
        corner="suite and method",
        heads=(
            "reward ↑",
            "cost ↓",
            "tasks solved",
            "safe at every limit",
            "safe runs",
            "published, same tasks",
            "published, solved",
        ),
        lines=tuple(lines),
        partly="mean cost at most 1 but not on every task",
    )


def other_data_grid(committed: Committed) -> Grid | None:
    """Tasks that have several data sets, each of them; None where there is no such task."""
    tasks = {result.stack.task for result in committed.others}
    if not tasks:
        return None
    mine = [r for r in (*committed.results, *committed.others) if r.stack.task in tasks]
    found = overview(mine, find_ablations(mine))
    others = {row for row in found.rows if any(r.stack.fingerprint == row.fingerprint for r in committed.others)}
    # A method that none of the other data sets has is compared with nothing.
    found = found.of_columns([c for c in found.columns if any((row, c) in found.results for row in others)])
    lines = []
    for row in found.rows:
        cells = [(c, found.cell(row, c, "final")) for c in found.columns]
        entries = [Entry(NOTHING) if cell is None else _entry(found, [row], c, cell, None) for c, cell in cells]
        lines.append(Line(f"{row.task}, {committed.kind(row.fingerprint)} ({row.fingerprint[:6]})", tuple(entries)))
    return Grid(
        title="Several data sets of one task: normalised reward / cost and safe runs, final policy",
        caption=("In brackets, how the fingerprint of the data begins.", ON_COLLECTED_DATA),
        corner="task and data",
        heads=tuple(column.label for column in found.columns),
        lines=tuple(lines),
        partly=PARTLY,
    )


def data_grid(data: Sequence[CsvRow]) -> Grid:
    """What the data sets hold."""
    order = list(all_tasks())
    told = [row for row in data if row["task"] in order]
    return Grid(
        title="The data",
        caption=("Safe, unsafe and best safe return (normalised) at the three limits of the task.", ON_COLLECTED_DATA),
        corner="task and data",
        heads=("episodes", "returns", "highest cost", "safe", "unsafe", "best safe", "fingerprint", "made by"),
        lines=tuple(
            Line(
                f"{row['task']}, {row['data']}",
                (
                    Entry(row["episodes"]),
                    Entry(f"{row['lowest_return']} … {row['highest_return']}".replace("-", "−")),
                    Entry(row["highest_cost"]),
                    *(Entry(row[name].replace(" ", " / ")) for name in ("safe", "unsafe", "best_safe")),
                    Entry(row["fingerprint"][:12]),
                    Entry(row["made_by"]),
                ),
            )
            for row in sorted(told, key=lambda row: order.index(row["task"]))
        ),
        marked=False,
    )


def ablations_grid(ablations: Sequence[Ablation]) -> Grid:
    """Each value of each setting that was varied, the tasks side by side."""
    order = list(all_tasks())
    rows = sorted({row for ablation in ablations for row in ablation.rows()}, key=lambda row: order.index(row.task))
    lines = [
        Line(f"{ablation.symbol} {shown(value)}", tuple(_ablated(ablation, row, value) for row in rows))
        for ablation in ablations
        for value in ablation.values
    ]
    return Grid(
        title="Ablations of TraC: normalised reward / cost and safe runs, final policy",
        caption=(
            f"One setting varied, everything else as in the fast preset; {OWN_VALUE}: its own value.",
            ON_COLLECTED_DATA,
        ),
        corner="setting and value",
        heads=tuple(row.label for row in rows),
        lines=tuple(lines),
        partly=PARTLY,
    )


def benchmark_tables(found: Overview, committed: Committed, ablations: Sequence[Ablation]) -> dict[str, Grid]:
    """All of them by name."""
    many = replace(found.of_columns(_of_many(found)), rows=found.rows)
    grids = {"benchmark": benchmark_grid(many), "suites": suites_grid(found)}
    if (methods := methods_grid(found)) is not None:
        grids["methods"] = methods
    if ablations:
        grids["ablations"] = ablations_grid(ablations)
    if (others := other_data_grid(committed)) is not None:
        grids["other-data"] = others
    return {**grids, "data": data_grid(committed.data)}


def _entry(found: Overview, rows: Sequence[Row], column: Column, cell: Cell, best: Cell | None) -> Entry:
    safe, runs = _safe_runs(found, rows, column)
    return Entry(_pair(cell.reward, cell.cost), style_of(cell, best), f"{safe}/{runs}")


def _ablated(ablation: Ablation, row: Row, value: object) -> Entry:
    runs = ablation.results.get((row, value), ())
    cell = Cell.of(runs, "final") if runs else None
    if cell is None:
        return Entry(NOTHING)
    usual = f" {OWN_VALUE}" if ablation.setting not in runs[0].stack.changes else ""
    return Entry(f"{_pair(cell.reward, cell.cost)}{usual}", style_of(cell, None), f"{_safe(runs)}/{len(runs)}")


def _safe(runs: Sequence[Result]) -> int:
    return sum(bool(result.costs.mean() <= 1) for result in runs)


def _safe_runs(found: Overview, rows: Sequence[Row], column: Column) -> tuple[int, int]:
    runs = [result for row in rows for result in found.results[row, column]]
    return _safe(runs), len(runs)


def _standardised(found: Overview) -> list[str]:
    """A sentence on the tasks whose observations were standardised for training, and by whom if not by all."""
    named = []
    for row in found.rows:
        mine = [c for c in found.columns if (row, c) in found.results]
        on = [c for c in mine if found.results[row, c][0].stack.run.settings["standardise"] == "on"]
        if on:
            named.append(row.task if on == mine else f"{row.task} (only {', '.join(c.label for c in on)})")
    return [f"Trained on standardised observations: {', '.join(named)}."] if named else []


def _mean(found: Overview, rows: Sequence[Row], column: Column) -> Cell:
    mean = Cell.average([found.cell(row, column, "final") for row in rows])
    assert mean is not None, "the column has all of these rows"
    return mean


def _papers(title: str, rows: Sequence[Row]) -> list[Published] | None:
    told = [published_results().get((row.task, title)) for row in rows]
    papers = [paper for paper in told if paper is not None]
    return papers if len(papers) == len(rows) and papers else None


def _published(title: str, rows: Sequence[Row]) -> Entry:
    papers = _papers(title, rows)
    if papers is None:
        return Entry(NOTHING)
    return Entry(_pair(sum(p.reward for p in papers) / len(papers), sum(p.cost for p in papers) / len(papers)))


def _published_solved(title: str, rows: Sequence[Row]) -> str:
    papers = _papers(title, rows)
    return NOTHING if papers is None else f"{sum(p.cost <= 1 for p in papers)} of {len(papers)}"


def _pair(reward: float, cost: float) -> str:
    return " / ".join(f"{round(value, 2) + 0.0:.2f}".replace("-", "−") for value in (reward, cost))
