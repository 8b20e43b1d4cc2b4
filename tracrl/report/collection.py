"""All results below some folders, each run counted once; what cannot be read is listed and stops nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tracrl.errors import TracrlError
from tracrl.report.cells import Cell
from tracrl.report.results import Result, StackMetadata, read_run
from tracrl.train.directory import RunDirectory
from tracrl.train.finished import UnfinishedError, UnscoredError, find_run_directories, read_metadata


@dataclass(frozen=True)
class Collection:
    """All that was found."""

    results: tuple[Result, ...]
    notes: tuple[str, ...]
    """what is not finished, and what was counted once though it was there twice"""
    unreadable: tuple[str, ...] = ()
    """a sentence for each directory that is damaged, contradicts another, or cannot be looked into"""
    unscored: tuple[StackMetadata, ...] = ()
    """evaluated nowhere"""

    @property
    def unscored_own(self) -> list[StackMetadata]:
        """Those that were trained on data of one's own, which there may be no environment for."""
        return [stack for stack in self.unscored if stack.is_own]

    @property
    def stacks(self) -> list[StackMetadata]:
        """Of each result, and of what has none."""
        return [*(result.stack for result in self.results), *self.unscored]


def collect(paths: Sequence[Path]) -> Collection:
    """The results below these paths."""
    if not paths:
        raise TracrlError("Say where the runs lie: for example tracrl report runs.")
    for path in paths:
        if not _is_directory(path):
            raise TracrlError(f"{path} is not a directory: name run directories, or directories of them.")
    stacks: dict[tuple[str, str], list[Result]] = {}
    notes: list[str] = []
    unscored: list[StackMetadata] = []
    directories, unreadable = find_run_directories(paths)
    for directory in directories:
        try:
            results = read_run(directory)
            stack = results[0].stack
            notes += [f"{directory}: {sentence}" for sentence in RunDirectory(directory).read_warnings()]
            notes += _about_further(results)
            there = stacks.setdefault((stack.task, stack.identity), results)
            if there is not results:
                notes.append(_compare(there, results))
        except UnscoredError as unfinished:
            unscored.append(StackMetadata.of(read_metadata(directory)))
            notes.append(str(unfinished))
        except UnfinishedError as unfinished:
            notes.append(str(unfinished))
        except TracrlError as damaged:
            unreadable.append(str(damaged))
        except OSError as error:
            unreadable.append(f"{directory} cannot be read ({error.strerror or error}).")
    if not stacks and not any(stack.is_own for stack in unscored):
        told = [*unreadable, *notes]
        reason = f" ({told[0].rstrip('.')})" if told else ""
        raise TracrlError(f"No finished run lies below {' '.join(map(str, paths))}{reason}.")
    results, once = _each_once(list(stacks.values()))
    if old := len({result.stack.path for result in results if not result.has_checksum}):
        once.append(
            f"The policies of {old} run director{'y' if old == 1 else 'ies'} were written before version 0.5 and have "
            "no checksum: damage to their weights goes unseen."
        )
    return Collection(tuple(results), (*notes, *once), tuple(unreadable), tuple(unscored))


def _about_further(results: Sequence[Result]) -> list[str]:
    """What tables of a run's own limits do not tell: where its policy is unsafe at others, or was played otherwise."""
    further, own = [more for result in results for more in result.further], results[0]
    cells = Cell.at_limits(further, "final")
    notes = []
    if unsafe := " ".join(f"{limit:g}" for limit, cell in cells.items() if not cell.safe):
        notes.append(f"{own.stack.path}: UNSAFE at {unsafe}, beyond its own limits.")
    played = further[0].protocol if further else None
    if played is not None and own.protocol is not None and (unlike := played.differences(own.protocol)):
        at = " ".join(f"{limit:g}" for limit in cells)
        notes.append(
            f"{own.stack.path}: scores at {at} are not comparable with those at its own limits ({', '.join(unlike)})."
        )
    return notes


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # no permission, or a name that is too long
        raise TracrlError(f"{str(path)[:200]} cannot be looked into ({error.strerror or error}).") from error


def _compare(there: Sequence[Result], here: Sequence[Result]) -> str:
    """Two directories with the same identity: a note if they say the same, a sentence if they contradict."""
    first, second = there[0].stack, here[0].stack
    if not all(_same(a, b) for a, b in zip(there, here, strict=True)):
        raise TracrlError(
            f"{second.path} is left out: it and {first.path} are the same run ({first.title} on {first.task}, identity "
            f"{first.identity}) with different results; keep one of them."
        )
    return f"{second.path} is a copy of {first.path} and is counted once."


def _same(a: Result, b: Result) -> bool:
    return np.array_equal(a.rewards, b.rewards) and np.array_equal(a.costs, b.costs)


def _each_once(stacks: list[list[Result]]) -> tuple[list[Result], list[str]]:
    """Runs that are part of several stacks (such as seed 0 alone, and seeds 0, 10, 20) count once: in the largest."""
    taken: dict[str, Result] = {}
    left_out: dict[tuple[Path, Path], list[bool]] = {}
    for results in sorted(stacks, key=len, reverse=True):
        for result in results:
            other = taken.setdefault(result.key, result)
            if other is not result:
                left_out.setdefault((result.stack.path, other.stack.path), []).append(_same(result, other))
    notes = []
    for (path, other_path), same in left_out.items():
        count, unlike = len(same), same.count(False)
        notes.append(
            f"{count} run{'s' if count > 1 else ''} of {path} {'are' if count > 1 else 'is'} part of {other_path} too "
            "and counted once, from there" + (f" ({unlike} of them with other scores)." if unlike else ".")
        )
    kept = {id(result) for result in taken.values()}
    return [result for results in stacks for result in results if id(result) in kept], notes
