"""Results from run directories alone: read, checked, and each run counted once."""

from __future__ import annotations

import contextlib
import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.methods.registry import get_method
from tracrl.tasks.table import Task, all_tasks, get_task
from tracrl.train.checksums import check_seal, is_sealed
from tracrl.train.directory import RunDirectory, identity_of
from tracrl.train.logs import read_log

Floats = NDArray[np.float64]
_NOT_RUNS = ("study", "report", "tensorboard")
_LOSS_POINTS = 100


@dataclass(frozen=True)
class StackFacts:
    """What a run directory says about itself."""

    path: Path
    identity: str
    task: str
    method: str
    settings: Mapping[str, Any]
    limits: tuple[float, ...]
    seeds: tuple[int, ...]
    fingerprint: str
    """of the data"""
    data_episodes: int
    data_source: Mapping[str, Any]
    versions: Mapping[str, str]
    preset: str
    """the nearest one"""
    changes: Mapping[str, Any]
    """what differs from that preset"""

    @property
    def title(self) -> str:
        return get_method(self.method).title

    @property
    def suite(self) -> str:
        return get_task(self.task).suite

    @property
    def from_dsrl(self) -> bool:
        """The data are DSRL's own file: its name, as many episodes, and nobody else who says they made it."""
        task = get_task(self.task)
        return (
            self.data_source.get("file") == task.dataset_file
            and self.data_episodes == task.episodes
            and not self.data_source.get("made_by")
        )

    @property
    def source(self) -> str:
        """Where the data come from, in words."""
        file = self.data_source.get("file", "a file without a name")
        if self.from_dsrl:
            return f"DSRL's {file}"
        made = self.data_source.get("made_by")
        return f"{file}, {self.data_episodes} episodes, not DSRL's" + (f" ({made})" if made else "")


@dataclass(frozen=True, eq=False)
class Result:
    """One run: a limit, a seed, and what its policies scored."""

    stack: StackFacts
    limit: float
    seed: int
    rewards: Floats
    """(episodes,): normalised, of the final policy"""
    costs: Floats
    """(episodes,): normalised, of the final policy"""
    best_rewards: Floats | None
    """of the best policy that was seen on the way"""
    best_costs: Floats | None
    curve: tuple[tuple[int, float, float], ...]
    """(update, normalised reward, normalised cost) along the training"""
    losses: tuple[tuple[int, float], ...]

    @property
    def key(self) -> str:
        """What this run is, whichever stack it was part of."""
        facts = self.stack
        what = [facts.task, facts.method, facts.settings, facts.fingerprint, self.limit, self.seed]
        return json.dumps(what, sort_keys=True)

    def scored(self, policy: str) -> tuple[Floats, Floats] | None:
        """(rewards, costs) of the ``final`` or the ``best`` policy."""
        if policy == "final":
            return self.rewards, self.costs
        return None if self.best_rewards is None or self.best_costs is None else (self.best_rewards, self.best_costs)


@dataclass(frozen=True)
class Collection:
    """All that was found."""

    results: tuple[Result, ...]
    notes: tuple[str, ...]
    """what was left out, and why"""


class UnfinishedError(TracrlError):
    """The run is not at its end; nothing is wrong with it."""


def collect(paths: Sequence[Path], *, skip_damaged: bool = False) -> Collection:
    """The results below these paths.

    Unfinished runs are left out with a note. Damaged ones, and two that claim to be the same run with different
    results, are refused with a sentence, or with ``skip_damaged`` left out with a note.
    """
    stacks: dict[tuple[str, str], list[Result]] = {}
    notes: list[str] = []
    found = find_runs(paths)
    for directory in found:
        try:
            results = read_run(directory)
            facts = results[0].stack
            there = stacks.setdefault((facts.task, facts.identity), results)
            if there is not results:
                notes.append(_compare(there, results))
        except UnfinishedError as unfinished:
            notes.append(str(unfinished))
        except TracrlError as damaged:
            if not skip_damaged:
                raise
            notes.append(f"Left out: {damaged}")
    if not stacks:
        reason = f" ({notes[0]})" if notes else ""
        raise TracrlError(f"No finished run lies below {' '.join(map(str, paths))}{reason}.")
    return Collection(*_each_once(list(stacks.values()), notes))


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The run directories below these paths, each once."""
    if not paths:
        raise TracrlError("Say where the runs lie: for example tracrl report runs.")
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise TracrlError(f"{path} is not a directory: name run directories, or directories of them.")
        for directory in _search(path):
            found.setdefault(directory.resolve(), directory)
    return list(found.values())


def read_run(path: Path) -> list[Result]:
    """The runs of one directory, or one sentence on what is wrong with it."""
    run = RunDirectory(path)
    config = run.read_config()
    facts = _facts(run, config)
    if not run.finished:
        raise UnfinishedError(f"{path} is not finished: the command that began it goes on with it.")
    if not run.scores.exists():
        raise UnfinishedError(f"{path} has no scores: tracrl evaluate {path} makes them.")
    if is_sealed(path):
        check_seal(path)
    final = _scores(run.scores, facts)
    best = _scores(run.best_scores, facts) if run.best_scores.exists() else None
    runs = list(zip(final.limits, final.seeds, strict=True))
    with _reading(run.evaluations):
        evaluations = read_log(run.evaluations)
        if not is_sealed(path):
            _check_against_log(run, final, evaluations, facts)
        curves = [_curve(evaluations, limit, seed) for limit, seed in runs]
    with _reading(run.metrics):
        metrics = read_log(run.metrics)
        losses = [_losses(metrics, limit, seed) for limit, seed in runs]
    return [
        Result(
            stack=facts,
            limit=limit,
            seed=seed,
            rewards=final.rewards[i],
            costs=final.normalised_costs[i],
            best_rewards=None if best is None else best.rewards[i],
            best_costs=None if best is None else best.normalised_costs[i],
            curve=curves[i],
            losses=losses[i],
        )
        for i, (limit, seed) in enumerate(runs)
    ]


def nearest_preset(method: str, suite: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The preset that settings are nearest to, and what differs from it."""
    kind = get_method(method)
    differences = {}
    for preset in ("full", "fast"):
        theirs = json.loads(json.dumps(asdict(kind.preset(suite, preset))))
        differences[preset] = {name: value for name, value in settings.items() if theirs.get(name) != value}
    # Where both are as near, the number of updates tells which one was meant.
    few = settings.get("updates", 0) <= kind.preset(suite, "fast").updates
    nearest = min(differences, key=lambda preset: (len(differences[preset]), (preset == "fast") != few))
    return nearest, differences[nearest]


def _search(path: Path) -> Iterator[Path]:
    if (path / "config.json").is_file():
        yield path
        return
    for below in sorted(path.iterdir()):
        if below.is_dir() and not below.name.startswith(".") and below.name not in _NOT_RUNS:
            yield from _search(below)


def _facts(run: RunDirectory, config: Mapping[str, Any]) -> StackFacts:
    try:
        if identity_of(config) != config["identity"]:
            raise TracrlError(
                f"{run.config} was edited: its identity does not belong to its contents; restore it or remove the run."
            )
        if config["task"] not in all_tasks():
            raise UnfinishedError(f"{run.path} was trained on data of no known task, so it has no normalised scores.")
        suite = get_task(config["task"]).suite
        preset, changes = nearest_preset(config["method"], suite, config["settings"])
        return StackFacts(
            path=run.path,
            identity=config["identity"],
            task=config["task"],
            method=config["method"],
            settings=config["settings"],
            limits=tuple(map(float, config["limits"])),
            seeds=tuple(map(int, config["seeds"])),
            fingerprint=config["data"]["fingerprint"],
            data_episodes=int(config["data"]["episodes"]),
            data_source=config["data_source"],
            versions=config["versions"],
            preset=preset,
            changes=changes,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TracrlError(f"{run.config} was edited or cut off ({error!r}).") from error


def _scores(path: Path, facts: StackFacts) -> Scores:
    """Scores that belong to this run and are whole."""
    try:
        scores = Scores.load(path)
    except TracrlError as error:
        raise TracrlError(f"{path}: {error}") from error
    runs = [(limit, seed) for limit in facts.limits for seed in facts.seeds]
    if scores.task != facts.task or list(zip(scores.limits, scores.seeds, strict=True)) != runs:
        raise TracrlError(f"{path} holds the scores of other runs than its config.json: it was edited or exchanged.")
    shapes = {array.shape for array in (scores.returns, scores.costs, scores.lengths)}
    arrays = np.stack([scores.returns, scores.costs]) if len(shapes) == 1 else np.array(np.nan)
    if arrays.ndim != 3 or arrays.shape[2] < 1 or not np.isfinite(arrays).all():
        raise TracrlError(f"{path} was edited or cut off: some episodes have no return, cost or length.")
    if (scores.costs < 0).any() or (scores.lengths < 1).any() or (scores.lengths > _longest(facts)).any():
        raise TracrlError(f"{path} was edited: an episode has a cost below 0 or an impossible length.")
    return scores


def _longest(facts: StackFacts) -> int:
    task: Task = get_task(facts.task)
    return task.max_steps


def _check_against_log(
    run: RunDirectory, scores: Scores, evaluations: Sequence[Mapping[str, str]], facts: StackFacts
) -> None:
    """Without a seal: the last evaluation in the log must be that of the scores."""
    updates = facts.settings.get("updates")
    last = [row for row in evaluations if row["step"] == str(updates)]
    if not evaluations:
        return  # scored after training, by `tracrl evaluate`
    means = scores.means()
    expected = {(row["limit"], row["seed"]): (row["return"], row["cost"]) for row in last}
    for i, (limit, seed) in enumerate(zip(scores.limits, scores.seeds, strict=True)):
        told = expected.get((f"{limit:g}", str(seed)))
        mine = (means["return"][i], means["cost"][i])
        if told is None or not all(math.isclose(float(a), b, rel_tol=1e-4, abs_tol=1e-4) for a, b in zip(told, mine)):  # noqa: B905
            raise TracrlError(
                f"{run.scores} does not agree with the last lines of {run.evaluations.name}: one of them was edited or "
                "cut off, or the policies were evaluated again over other episodes."
            )


@contextlib.contextmanager
def _reading(log: Path) -> Iterator[None]:
    """Whatever is wrong with a log's lines is one sentence."""
    try:
        yield
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise TracrlError(f"{log} was edited or cut off ({type(error).__name__}: {error}).") from error


def _curve(rows: Sequence[Mapping[str, str]], limit: float, seed: int) -> tuple[tuple[int, float, float], ...]:
    mine = [row for row in rows if row["limit"] == f"{limit:g}" and row["seed"] == str(seed)]
    return tuple((int(r["step"]), float(r["normalised_reward"]), float(r["normalised_cost"])) for r in mine)


def _losses(rows: Sequence[Mapping[str, str]], limit: float, seed: int) -> tuple[tuple[int, float], ...]:
    """Thinned. A method that is trained once for all limits has logged it once a seed."""
    mine = [row for row in rows if row["seed"] == str(seed)]
    mine = [row for row in mine if row["limit"] == f"{limit:g}"] or mine
    every = max(1, -(-len(mine) // _LOSS_POINTS))
    return tuple((int(row["step"]), float(row["loss"])) for row in mine[every - 1 :: every])


def _compare(there: Sequence[Result], here: Sequence[Result]) -> str:
    """Two directories with the same identity: a note if they say the same, a refusal if they do not."""
    first, second = there[0].stack, here[0].stack
    same = all(
        np.array_equal(a.rewards, b.rewards) and np.array_equal(a.costs, b.costs)
        for a, b in zip(there, here, strict=True)
    )
    if not same:
        raise TracrlError(
            f"{first.path} and {second.path} are the same run ({first.title} on {first.task}, identity "
            f"{first.identity}) with different results: keep one of them."
        )
    return f"{second.path} is a copy of {first.path} and is counted once."


def _each_once(stacks: list[list[Result]], notes: list[str]) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """Runs that are part of several stacks (such as seed 0 alone, and seeds 0, 10, 20) count once: in the largest."""
    taken: dict[str, Result] = {}
    left_out: dict[tuple[Path, Path], int] = {}
    for results in sorted(stacks, key=len, reverse=True):
        for result in results:
            other = taken.setdefault(result.key, result)
            if other is not result:
                pair = (result.stack.path, other.stack.path)
                left_out[pair] = left_out.get(pair, 0) + 1
    for (path, other_path), count in left_out.items():
        notes.append(
            f"{count} run{'s' if count > 1 else ''} of {path} {'are' if count > 1 else 'is'} part of {other_path} too "
            "and counted once, from there."
        )
    kept = {id(result) for result in taken.values()}
    return tuple(result for results in stacks for result in results if id(result) in kept), tuple(notes)
