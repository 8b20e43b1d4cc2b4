"""Whether the runs of a table can be compared: the same limits, seeds and episodes, one precision, one protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from tracrl.report.cells import runs_in_words
from tracrl.report.results import Result
from tracrl.train.finished import UNKNOWN

Key = TypeVar("Key", bound=Hashable)
OTHER_PRECISION = "†"
OTHER_PROTOCOL = "‡"


def precision_marks(
    cells: Mapping[Key, Sequence[Result]], labels: Mapping[Key, str] | None = None
) -> tuple[dict[Key, str], list[str]]:
    """Cells whose runs were not trained in the precision that most are, marked; and a sentence on it.

    ``labels``: what cells are called there, where method and task do not say it.
    """
    count = Counter(result.stack.precision for runs in cells.values() for result in runs)
    if len(count) < 2:
        told = next(iter(count), UNKNOWN)
        return {}, [f"All runs were trained in {told}." if told != UNKNOWN else _UNKNOWN_TO_ALL] if count else []
    titles: dict[str, set[str]] = {}
    for runs in cells.values():
        titles.setdefault(runs[0].stack.title, set()).update(result.stack.precision for result in runs)
    if labels is None and UNKNOWN not in count and all(len(mine) == 1 for mine in titles.values()):
        # Each method in its own, on every task: said once. Marks are for what differs where it need not.
        theirs = {precision: [title for title, mine in titles.items() if precision in mine] for precision in count}
        told = "; in ".join(f"{precision}: {', '.join(who)}" for precision, who in theirs.items())
        return {}, [f"Trained in {told}."]
    usual = count.most_common(1)[0][0]
    marked: dict[str, list[Key]] = {}
    marks = {}
    for key, runs in cells.items():
        mine = sorted({result.stack.precision for result in runs})
        if mine != [usual]:
            marks[key] = OTHER_PRECISION
            marked.setdefault(" and ".join(mine), []).append(key)
    named = {
        precision: _names(cells[key] for key in keys) if labels is None else ", ".join(labels[key] for key in keys)
        for precision, keys in marked.items()
    }
    told = "; ".join(f"{names} in {precision}" for precision, names in named.items())
    before = " (unknown: before version 0.5)" if UNKNOWN in count else ""
    return marks, [f"{OTHER_PRECISION} Not trained in the same precision as most, which is {usual}: {told}{before}."]


def protocol_marks(cells: Mapping[Key, Sequence[Result]]) -> tuple[dict[Key, str], list[str]]:
    """Cells whose runs were scored in different ways, marked; a sentence on each, and one where cells differ."""
    marks: dict[Key, str] = {}
    notes: list[str] = []
    for key, runs in cells.items():
        if differing := _differences(runs):
            marks[key] = OTHER_PROTOCOL
            notes.append(
                f"{OTHER_PROTOCOL} {_names([runs])} mixes runs that were scored differently ({differing}): "
                "tracrl evaluate --save scores them anew."
            )
    rows: dict[str, list[Result]] = {}
    for key, runs in cells.items():
        if key not in marks:
            rows.setdefault(runs[0].stack.task, []).append(runs[0])
    for task, firsts in rows.items():
        if differing := _differences(firsts):
            notes.append(f"The methods on {task} were not scored by the same episodes: {differing}.")
    return marks, notes


def uneven(rows: Mapping[str, Mapping[str, Sequence[Result]]]) -> list[str]:
    """A mean over other limits, seeds or episodes is another quantity, and that has to be said."""
    notes = []
    for label, columns in rows.items():
        means: dict[str, list[str]] = {}
        for column, results in columns.items():
            means.setdefault(runs_in_words(results), []).append(column)
        if len(means) > 1:
            told = "; ".join(f"{', '.join(who)}: {mean}" for mean, who in means.items())
            notes.append(f"{label} is not compared over the same runs: {told}.")
    return notes


_UNKNOWN_TO_ALL = "The precision that the runs were trained in is unknown: they are from before version 0.5."


def _differences(runs: Sequence[Result]) -> str:
    """How the protocols of runs differ, in words; empty where they do not. The number of episodes is told elsewhere."""
    protocols = [run.protocol for run in runs]
    known = [protocol for protocol in protocols if protocol is not None]
    if not known:
        return ""
    told = dict.fromkeys(d for other in known[1:] for d in known[0].differences(other) if not d.startswith("episodes "))
    unknown = ["some by an unknown protocol, before version 0.5"] if len(known) < len(protocols) else []
    return ", ".join([*told, *unknown])


def _names(cells: Iterable[Sequence[Result]]) -> str:
    """``TraC on BallRun, CarRun; BC-All on BallRun``"""
    tasks: dict[str, list[str]] = {}
    for runs in cells:
        tasks.setdefault(runs[0].stack.title, []).append(runs[0].stack.task)
    return "; ".join(
        f"{title} on {', '.join(dict.fromkeys(where)) if len(where) <= 4 else f'{len(where)} tasks'}"
        for title, where in tasks.items()
    )
