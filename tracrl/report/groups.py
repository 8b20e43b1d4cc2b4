"""Which runs belong together: the rows and columns of the main table, and the ablations among the runs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tracrl.report.cells import Cell
from tracrl.report.comparable import precision_marks, protocol_marks, uneven
from tracrl.report.results import OWN_DATA, Result, StackMetadata
from tracrl.study.studies import STUDIES, SYMBOLS, in_paper_order, shown
from tracrl.tasks.table import SUITES, all_tasks

SETTINGS = {name: study.setting for name, study in STUDIES.items() if study.setting is not None}
"""study → the setting that it varies"""


@dataclass(frozen=True)
class Row:
    """A task with one data set."""

    task: str
    suite: str
    fingerprint: str
    label: str
    source: str
    from_dsrl: bool


@dataclass(frozen=True)
class Column:
    """A method with one set of settings, as far as these are not the suite's own."""

    method: str
    title: str
    preset: str
    changes: tuple[tuple[str, str], ...]
    """(setting, value) where it is not the preset's"""
    label: str

    @property
    def about(self) -> str:
        """The settings in words."""
        told = ", ".join(f"{SYMBOLS.get(name, name)} {value}" for name, value in self.changes)
        if not self.preset:  # a method that is not known here
            return f"its own settings ({told})" if told else "its own settings"
        return f"{self.preset} preset" + (f" with {told}" if told else "")


@dataclass(frozen=True)
class Overview:
    """Every method on every task, without the variants that belong to an ablation."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    results: Mapping[tuple[Row, Column], tuple[Result, ...]]
    notes: tuple[str, ...] = ()
    """where cells are not over the same limits, seeds or episodes, not trained in one precision or scored in one way"""
    marks: Mapping[tuple[Row, Column], str] = field(default_factory=dict)
    """of cells that the notes say something about"""

    def cell(self, row: Row, column: Column, policy: str) -> Cell | None:
        found = self.results.get((row, column))
        return None if found is None else Cell.of(found, policy)

    def of_tasks(self) -> Overview:
        """Without data of one's own."""
        return self._of([row for row in self.rows if row.suite != OWN_DATA])

    def of_own_data(self) -> Overview:
        return self._of([row for row in self.rows if row.suite == OWN_DATA])

    def _of(self, rows: Sequence[Row]) -> Overview:
        results = {(row, column): found for (row, column), found in self.results.items() if row in rows}
        columns = tuple(column for column in self.columns if any(column == there for _, there in results))
        return replace(self, rows=tuple(rows), columns=columns, results=results)

    def of_columns(self, columns: Sequence[Column]) -> Overview:
        """The same with these methods alone, and the rows that they have."""
        results = {(row, column): found for (row, column), found in self.results.items() if column in columns}
        rows = tuple(row for row in self.rows if any(row == there for there, _ in results))
        return replace(self, rows=rows, columns=tuple(columns), results=results)

    def suites(self) -> list[str]:
        return [suite for suite in SUITES if any(row.suite == suite for row in self.rows)]

    def compared(self, suite: str | None = None) -> list[tuple[list[Row], list[Column]]]:
        """Rows that several columns have, with these columns: averages over the same rows.

        First the most rows that any column has. Then, for columns that have fewer, those that they have, at least two:
        each time at most three quarters as many, so that one missing row does not make a set of its own.
        """
        mine = [row for row in self.rows if suite in (None, row.suite)]
        there = {c: tuple(row for row in mine if (row, c) in self.results) for c in self.columns}
        sets: list[tuple[list[Row], list[Column]]] = []
        for rows in sorted({rows for rows in there.values() if rows}, key=len, reverse=True):
            columns = [c for c in self.columns if set(rows) <= set(there[c])]
            if not sets or (len(columns) > 1 and 2 <= len(rows) <= 0.75 * len(sets[-1][0])):
                sets.append((list(rows), columns))
        return sets

    def with_all_tasks(self) -> Overview:
        """The same with a row for each task that was not run."""
        there = {row.task for row in self.rows}
        empty = [
            Row(task.name, task.suite, "", f"{task.name} (not run)", "", from_dsrl=False)
            for task in all_tasks().values()
            if task.name not in there
        ]
        order = list(all_tasks())
        return replace(self, rows=tuple(sorted((*self.rows, *empty), key=lambda row: order.index(row.task))))


@dataclass(frozen=True)
class Ablation:
    """One setting varied, everything else the same."""

    study: str
    setting: str
    values: tuple[Any, ...]
    results: Mapping[tuple[Row, Any], tuple[Result, ...]]
    """(row, value) → runs: of the same limits and seeds for each value"""
    notes: tuple[str, ...] = field(default=())

    @property
    def symbol(self) -> str:
        return SYMBOLS.get(self.setting, self.setting)

    def rows(self) -> list[Row]:
        return list(dict.fromkeys(row for row, _ in self.results))


def overview(results: Sequence[Result], ablations: Sequence[Ablation] = ()) -> Overview:
    """The main table's contents."""
    rows = _rows(results)
    varied = _only_in_ablations(ablations)
    kept = [r for r in results if _variant_key(r.stack) not in varied]
    columns = _columns(kept)
    cells: dict[tuple[Row, Column], list[Result]] = {}
    for result in kept:
        key = rows[_row_key(result.stack)], columns[_column_key(result.stack)]
        cells.setdefault(key, []).append(result)
    used_rows = {row for row, _ in cells}
    used_columns = {column for _, column in cells}
    ordered = [row for row in rows.values() if row in used_rows]
    across = [column for column in columns.values() if column in used_columns]
    table = {(row, column): tuple(cells[row, column]) for row in ordered for column in across if (row, column) in cells}
    by_label = {row.label: {c.label: table[row, c] for c in across if (row, c) in table} for row in ordered}
    precisions, told = precision_marks(table)
    protocols, scored = protocol_marks(table)
    marks = {key: precisions.get(key, "") + protocols.get(key, "") for key in table}
    return Overview(tuple(ordered), tuple(across), table, (*uneven(by_label), *told, *scored), marks)


def find_ablations(results: Sequence[Result]) -> list[Ablation]:
    """Runs of TraC on one task that differ in one of the paper's settings and in nothing else."""
    rows = _rows(results)
    return [
        found for study, setting in SETTINGS.items() if (found := _ablation(study, setting, results, rows)) is not None
    ]


def _ablation(
    study: str, setting: str, results: Sequence[Result], rows: Mapping[tuple[str, str], Row]
) -> Ablation | None:
    groups: dict[tuple[Row, str], dict[Any, list[Result]]] = {}
    for result in results:
        stack = result.stack
        # Another method's setting of the same name is another setting.
        if stack.method != "trac" or setting not in stack.settings:
            continue
        rest = json.dumps({k: v for k, v in stack.settings.items() if k != setting}, sort_keys=True)
        values = groups.setdefault((rows[_row_key(stack)], rest), {})
        values.setdefault(stack.settings[setting], []).append(result)
    chosen: dict[tuple[Row, Any], tuple[Result, ...]] = {}
    notes: list[str] = []
    for (row, _), values in groups.items():
        if len(values) < 2 or (STUDIES[study].against is not None and not set(STUDIES[study].values) & set(values)):
            continue
        if any(taken == row for taken, _ in chosen):
            notes.append(f"{row.label}: {setting} was varied around several settings; the first is shown.")
            continue
        common = set.intersection(*({(r.limit, r.seed) for r in runs} for runs in values.values()))
        if not common:
            notes.append(f"{row.label}: the values of {setting} have no limit and seed in common and are not compared.")
            continue
        if any((r.limit, r.seed) not in common for runs in values.values() for r in runs):
            notes.append(f"{row.label}: only the {len(common)} runs of limits and seeds that all values have.")
        for value, runs in values.items():
            chosen[row, value] = tuple(r for r in runs if (r.limit, r.seed) in common)
    if not chosen:
        return None
    found = {value for _, value in chosen}
    numbers = all(isinstance(value, int | float) for value in found)
    order = tuple(sorted(found)) if numbers else tuple(v for v in STUDIES[study].values if v in found)
    return Ablation(study, setting, order, chosen, tuple(dict.fromkeys(notes)))


def _only_in_ablations(ablations: Sequence[Ablation]) -> set[tuple[str, str, str]]:
    """Settings that are not the preset's, beside others that are: their runs are in the ablation's own table.

    All of their runs, also those of limits and seeds that the ablation does not compare.
    """
    varied = set()
    for ablation in ablations:
        for row in ablation.rows():
            runs = {v: ablation.results[row, v] for v in ablation.values if (row, v) in ablation.results}
            own = {v for v, found in runs.items() if ablation.setting not in found[0].stack.changes}
            if own:
                varied |= {_variant_key(found[0].stack) for v, found in runs.items() if v not in own}
    return varied


def _rows(results: Iterable[Result]) -> dict[tuple[str, str], Row]:
    """In the order of the table of tasks."""
    first = {_row_key(result.stack): result.stack for result in results}
    tasks = Counter(stack.task for stack in first.values())
    alike = Counter((stack.task, stack.data_episodes) for stack in first.values())

    def label(stack: StackMetadata) -> str:
        if tasks[stack.task] == 1:
            return stack.task
        apart = f", {stack.fingerprint[:6]}" if alike[stack.task, stack.data_episodes] > 1 else ""
        return f"{stack.task} ({stack.data_episodes} episodes{apart})"

    order = defaultdict(lambda: len(all_tasks()), {name: i for i, name in enumerate(all_tasks())})
    return {
        key: Row(
            task=stack.task,
            suite=stack.suite,
            fingerprint=stack.fingerprint,
            label=label(stack),
            source=stack.source,
            from_dsrl=stack.from_dsrl,
        )
        for key, stack in sorted(first.items(), key=lambda item: (order[item[0][0]], item[1].data_episodes, item[0]))
    }


def _row_key(stack: StackMetadata) -> tuple[str, str]:
    return stack.task, stack.fingerprint


def _variant_key(stack: StackMetadata) -> tuple[str, str, str]:
    return *_row_key(stack), json.dumps([stack.method, stack.settings], sort_keys=True)


def _column_key(stack: StackMetadata) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    return stack.method, stack.preset, tuple(sorted((name, shown(value)) for name, value in stack.changes.items()))


def _columns(results: Iterable[Result]) -> dict[tuple[str, str, tuple[tuple[str, str], ...]], Column]:
    """In the order of the paper; a method with several settings has a column for each."""
    titles = {_column_key(r.stack): r.stack.title for r in results}
    methods = in_paper_order(dict.fromkeys(method for method, _, _ in titles))
    columns = {}
    for method in methods:
        mine = [key for key in titles if key[0] == method]
        presets = {preset for _, preset, _ in mine}
        common = set.intersection(*(set(changes) for _, _, changes in mine))
        for key in sorted(mine, key=lambda key: (len(key[2]), key[1] == "full", key[1:])):
            _, preset, changes = key
            apart = [preset] if len(presets) > 1 else []
            apart += [f"{SYMBOLS.get(name, name)} {value}" for name, value in changes if (name, value) not in common]
            label = titles[key] + (f" ({', '.join(apart)})" if apart else "")
            columns[key] = Column(method, titles[key], preset, changes, label)
    return columns


def unit_of(rows: Iterable[Row]) -> str:
    """What a row is: a task, or one of several data sets of a task."""
    rows = list(rows)
    return "task" if len({row.task for row in rows}) == len(rows) else "data set"
