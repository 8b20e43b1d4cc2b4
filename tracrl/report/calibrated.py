"""Policies for every limit that were calibrated: which inner limits the log chose, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from tracrl.errors import TracrlError
from tracrl.ope.inner_limits import HEADS, TITLE, Calibration
from tracrl.report.grid import Entry, Grid, Line
from tracrl.report.results import StackMetadata
from tracrl.train.directory import RunDirectory


def calibrated_of(stacks: Sequence[StackMetadata]) -> tuple[dict[Path, Calibration], list[str]]:
    """By the directory of each run that keeps a calibration; and what cannot be read of them."""
    found, problems = {}, []
    for path in dict.fromkeys(stack.path for stack in stacks):
        if not RunDirectory(path).calibration.exists():
            continue
        try:
            found[path] = Calibration.load(RunDirectory(path))
        except TracrlError as error:
            problems.append(str(error))
    return found, problems


def calibrated_grid(stacks: Sequence[StackMetadata], calibrated: Mapping[Path, Calibration]) -> Grid:
    """A row for each wanted limit and seed. Numbers are as they are, as the limit is."""
    plain = {stack.path: f"{stack.task}, {stack.title}" for stack in stacks if stack.path in calibrated}
    titles = dict(plain)
    for where in (lambda path: f"{path.parent.name}/{path.name}", str):
        if len(set(titles.values())) < len(titles):
            titles = {path: f"{title} ({where(path)})" for path, title in plain.items()}
    lines = [
        Line(f"{titles[path]}, limit {choice.limit:g}, seed {choice.seed}", tuple(map(Entry, choice.in_words())))
        for path, calibration in calibrated.items()
        for choice in calibration.choices
    ]
    rests_on = {titles[path]: calibration.basis for path, calibration in calibrated.items()}
    of_all = [
        said for said in dict.fromkeys(chain(*rests_on.values())) if all(said in its for its in rests_on.values())
    ]
    own = [f"{title}: {said}" for title, its in rests_on.items() for said in its if said not in of_all]
    return Grid(
        title=TITLE,
        caption=(
            "Calibrated policies (calibrated.safetensors) are not those that the other tables are about. Return and "
            "cost are estimated, and in their own units; shown: the bound of the cost is within the limit.",
            *own,
            *of_all,
        ),
        corner="policy",
        heads=HEADS,
        lines=tuple(lines),
        marked=False,
    )
