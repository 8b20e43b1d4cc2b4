"""Which runs of a study lie in the folder of runs already, in whatever stacks, and which are missing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.methods.method import RunSpec
from tracrl.study.stack import StackSpec
from tracrl.train.directory import RunDirectory, data_label
from tracrl.train.finished import FinishedRuns, RunMetadata, find_run_directories, read_finished, read_metadata

Stamp = tuple[tuple[int, int, int], ...]
Remembered = dict[Path, tuple[Stamp, FinishedRuns | None]]
"""what was read, and what the files were like then"""


class Inventory:
    """The run directories of a folder at one moment, by what was trained in them."""

    def __init__(self, path: Path, remembered: Remembered | None = None):
        self.path = path
        self._remembered: Remembered = {} if remembered is None else remembered
        self._by_training: dict[str, list[RunMetadata]] = {}
        for directory in find_run_directories([path])[0] if path.is_dir() else []:
            try:
                metadata = read_metadata(directory)
            except (TracrlError, OSError):  # what cannot be read is as good as not there; the report names it
                continue
            self._by_training.setdefault(metadata.training, []).append(metadata)

    def done(self, stack: StackSpec) -> bool:
        return not self.missing(stack)

    def missing(self, stack: StackSpec) -> list[RunSpec]:
        """The runs of a stack that are not trained to the end, scored as asked, and whole."""
        there = {run for finished in self._scored(stack) for run in finished.metadata.runs}
        return [run for run in stack.runs if run not in there]

    def precisions(self, stack: StackSpec) -> set[str]:
        """Those that the finished runs of a stack were trained in."""
        wanted = set(stack.runs)
        return {f.metadata.precision for f in self._scored(stack) if wanted & set(f.metadata.runs)}

    def parts(self, stack: StackSpec) -> list[StackSpec]:
        """What has to be done for a stack, as stacks: itself where all of it is there or nothing."""
        if stack.data is None or not (missing := self.missing(stack)):
            return [stack]
        parts = []
        for begun in self._by_training.get(stack.training, ()):
            if self._is_ours(begun) and set(begun.runs) <= set(stack.runs) and set(begun.runs) & set(missing):
                parts.append(_part(stack, begun.limits, begun.seeds, begun.path.name))
                missing = [run for run in missing if run not in begun.runs]
        by_source: dict[Path | None, list[RunSpec]] = {}
        for run in missing:
            source = self.source(_part(stack, (run.limit,), (run.seed,)))
            by_source.setdefault(None if source is None else source.path, []).append(run)
        return parts + [_part(stack, *grid) for runs in by_source.values() for grid in _grids(runs)]

    def source(self, stack: StackSpec) -> RunMetadata | None:
        """A directory where policies of all these runs lie finished, though they are scored otherwise.

        At other limits, if training does not depend on the limit; or over other episodes, in a directory of
        somebody's own.
        """
        wanted = {_trained_for(stack.method.depends_on_limit, run) for run in stack.runs}
        for metadata in self._by_training.get(stack.training, ()):
            there = {_trained_for(metadata.depends_on_limit, run) for run in metadata.runs}
            if wanted <= there and metadata.path != self.path / stack.name and RunDirectory(metadata.path).finished:
                return metadata
        return None

    def _scored(self, stack: StackSpec) -> list[FinishedRuns]:
        """Whole directories of the same training that are scored as the stack asks for, if it asks for scores."""
        found = [self._finished(metadata.path) for metadata in self._by_training.get(stack.training, ())]
        return [f for f in found if f is not None and _as_asked(f.scores, stack)]

    def directories(self, stacks: Iterable[StackSpec]) -> list[Path]:
        """Where finished runs of these stacks lie."""
        found = (f.metadata for stack in stacks for f in self._scored(stack) if set(stack.runs) & set(f.metadata.runs))
        return list(dict.fromkeys(metadata.path for metadata in found))

    def _is_ours(self, metadata: RunMetadata) -> bool:
        """Named as a study or ``tracrl train`` names it, so that a study may go on with it and score it anew."""
        label = data_label(metadata.task, metadata.data_source)
        return metadata.path == self.path / f"{label}-{metadata.method}-{metadata.identity}"

    def _finished(self, path: Path) -> FinishedRuns | None:
        stamp = _stamp(path)
        before = self._remembered.get(path)
        if before is None or before[0] != stamp:
            try:
                before = (stamp, read_finished(path, scored=False))
            except (TracrlError, OSError):  # unfinished or damaged: the worker sees to it
                before = (stamp, None)
            self._remembered[path] = before
        return before[1]


def _as_asked(scores: Scores | None, stack: StackSpec) -> bool:
    """Over as many episodes, and those that a study plays; which ones they were, files from before 0.5 do not say."""
    env = stack.environment
    if env is None or scores is None:
        return env is None
    protocol = scores.protocol
    asked = (env.name, env.cost_key, 0, False)
    usual = protocol is None or (protocol.env, protocol.cost_key, protocol.seed, protocol.on_the_way) == asked
    return usual and scores.returns.shape[1] == stack.episodes


def _part(stack: StackSpec, limits: Iterable[float], seeds: Iterable[int], directory: str = "") -> StackSpec:
    """Some of a stack's runs, with a title that says which."""
    limits, seeds = tuple(limits), tuple(seeds)
    told = [stack.variant] if stack.variant else []
    for name, mine, whole in (("limit", limits, stack.limits), ("seed", seeds, stack.seeds)):
        if set(mine) != set(whole):
            told.append(f"{name}{'' if len(mine) == 1 else 's'} {' '.join(f'{value:g}' for value in mine)}")
    part = replace(stack, limits=limits, seeds=seeds, variant=", ".join(told))
    return part if directory in ("", part.name) else replace(part, directory=directory)


def _grids(runs: Iterable[RunSpec]) -> list[tuple[tuple[float, ...], tuple[int, ...]]]:
    """Runs as few limits × seeds: a stack is one."""
    seeds: dict[float, list[int]] = {}
    for run in runs:
        seeds.setdefault(run.limit, []).append(run.seed)
    limits: dict[tuple[int, ...], list[float]] = {}
    for limit, mine in seeds.items():
        limits.setdefault(tuple(mine), []).append(limit)
    return [(tuple(theirs), mine) for mine, theirs in limits.items()]


def _trained_for(depends_on_limit: bool, run: RunSpec) -> tuple[float | None, int]:
    return run.limit if depends_on_limit else None, run.seed


def _stamp(path: Path) -> Stamp:
    """Changes when a file does."""
    entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    status = [entry.stat() for entry in entries if entry.is_file()]
    return tuple((s.st_ino, s.st_size, s.st_mtime_ns) for s in status)
