"""What a run directory says about itself, whether its runs are finished and whole, and where such directories lie.

A stack's identity names its directory; a run has an identity of its own, from what determines its result: method,
settings, data, seed, and the limit where the method's training depends on it. So a run is found again in whatever
stack it was trained.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.methods.method import RunSpec
from tracrl.methods.registry import METHODS, current_settings, metadata_of
from tracrl.tasks.table import all_tasks, get_task
from tracrl.tensor_files import checksum_holds, has_checksum
from tracrl.train import checksums
from tracrl.train.directory import RunDirectory, identity_of
from tracrl.train.logs import read_log

UNKNOWN = "unknown"
_LARGEST = 1e12
"""of normalised scores: what is beyond it was never played, and sums of it are no longer finite"""
_SCORE_ANEW = "tracrl evaluate RUN --save scores its policies anew"
_NO_RUNS = ("study", "report", "tensorboard")
"""names of folders that belong to us and hold no run directories"""


class UnfinishedError(TracrlError):
    """The run is not at its end, or has no scores; nothing is wrong with it."""


class UnscoredError(UnfinishedError):
    """The run is trained to its end and was evaluated nowhere."""


@dataclass(frozen=True)
class RunMetadata:
    """What config.json says."""

    path: Path
    identity: str
    task: str | None
    method: str
    title: str
    """of the method"""
    settings: Mapping[str, Any]
    limits: tuple[float, ...]
    seeds: tuple[int, ...]
    depends_on_limit: bool
    phase_ends: tuple[int, ...]
    """the updates after which another phase of the training began"""
    data: Mapping[str, Any]
    """fingerprint, episodes, rows, task"""
    data_source: Mapping[str, Any]
    versions: Mapping[str, str]
    device: str
    precision: str

    @property
    def runs(self) -> list[RunSpec]:
        return [RunSpec(limit, seed) for limit in self.limits for seed in self.seeds]

    @property
    def training(self) -> str:
        return training_identity(self.method, self.settings, self.data)


@dataclass(frozen=True, eq=False)
class FinishedRuns:
    """A run directory whose training is at its end, with its scores; all of it whole."""

    metadata: RunMetadata
    scores: Scores | None
    """None where none were asked for, and there are none"""
    best_scores: Scores | None
    further_scores: Scores | None
    """of the final policies at limits beyond the training's own"""
    has_checksum: bool
    """of the policy: those from before version 0.5 have none"""


def training_identity(method: str, settings: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Of what runs of one method have in common; settings that a file of an earlier version lacks are the defaults."""
    if method in METHODS:
        settings = {**asdict(METHODS[method]()), **settings}
    what = json.dumps([method, settings, dict(data)], sort_keys=True)
    return hashlib.blake2b(what.encode(), digest_size=8).hexdigest()


def read_metadata(path: Path) -> RunMetadata:
    """What a run directory's config.json says, or one sentence on what is wrong with it."""
    run = RunDirectory(path)
    config = run.read_config()
    try:
        limits, seeds = tuple(map(float, config["limits"])), tuple(map(int, config["seeds"]))
        if identity_of(config) != config["identity"]:
            raise TracrlError(
                f"{run.config} was edited: its identity does not belong to its contents; restore it or remove the run."
            )
        _check_kinds(config)
        method = metadata_of(config)
        return RunMetadata(
            path=path,
            identity=config["identity"],
            task=config["task"],
            method=config["method"],
            title=method.title,
            settings=current_settings(METHODS.get(config["method"]), config["settings"]),
            limits=limits,
            seeds=seeds,
            depends_on_limit=method.depends_on_limit,
            phase_ends=method.phase_ends,
            data={"episodes": int(config["data"]["episodes"]), **config["data"]},
            data_source=dict(config["data_source"]),
            versions=dict(config["versions"]),
            device=str(config.get("device", UNKNOWN)),
            precision=str(config.get("precision", UNKNOWN)),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise TracrlError(f"{run.config} was edited or cut off ({error!r}); restore it or remove the run.") from error


def _check_kinds(config: Mapping[str, Any]) -> None:
    """Raise where a value is not of the kind that whoever reads it counts on."""
    kinds = {"method": str, "identity": str, "settings": dict, "data": dict, "data_source": dict, "versions": dict}
    for name, kind in kinds.items():
        if not isinstance(config[name], kind):
            raise TypeError(f"{name} is {config[name]!r:.60}")
    if not isinstance(config["task"], str | None) or not isinstance(config["data"]["fingerprint"], str):
        raise TypeError("task and fingerprint are words")
    if not isinstance(config["settings"].get("updates"), int):
        raise TypeError(f"updates is {config['settings'].get('updates')!r:.60}")


def read_finished(path: Path, *, scored: bool = True) -> FinishedRuns:
    """The finished runs of one directory, or one sentence on what is wrong with it; ``scored``: scores are a must."""
    run = RunDirectory(path)
    metadata = read_metadata(path)
    if not run.finished:
        raise UnfinishedError(f"{path} is not finished: the command that began it goes on with it.")
    if scored and not run.scores.exists():
        env = "" if metadata.task in all_tasks() else " --env my_package:MyEnv"
        raise UnscoredError(f"{path} has no scores: tracrl evaluate {path}{env} --save makes them.")
    for policy in (run.policy, run.best):
        if policy.exists() and not checksum_holds(policy):
            raise TracrlError(
                f"{policy} is not as it was written: its checksum does not hold. Restore it, or remove it and give the "
                "command that trained it again: it is made anew from the checkpoint."
            )
    if checksums.exist(path):
        checksums.check(path)
    scores = _scores(run.scores, metadata) if run.scores.exists() else None
    best = _scores(run.best_scores, metadata) if run.best_scores.exists() else None
    further = _scores(run.further_scores, metadata, further=True) if run.further_scores.exists() else None
    if scores is not None and not checksums.exist(path):
        with reading_log(run.evaluations):
            _check_against_log(run, scores, metadata)
    return FinishedRuns(metadata, scores, best, further, has_checksum(run.policy))


def find_run_directories(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The run directories below these paths, each once, and a sentence for each folder that cannot be looked into.

    Symbolic links are followed, each folder is looked into once.
    """
    found: dict[Path, Path] = {}
    seen: set[Path] = set()
    problems: list[str] = []
    todo = list(reversed(paths))
    while todo:
        path = todo.pop()
        try:
            real = path.resolve(strict=True)
            if real in seen:
                continue
            seen.add(real)
            if (path / "config.json").exists():
                found.setdefault(real, path)
                continue
            below = sorted(entry for entry in path.iterdir() if entry.is_dir())
        except OSError as error:
            problems.append(f"{path} cannot be looked into ({error.strerror or error}).")
            continue
        todo += [p for p in reversed(below) if not p.name.startswith(".") and p.name not in _NO_RUNS]
    return list(found.values()), problems


@contextlib.contextmanager
def reading_log(log: Path) -> Iterator[None]:
    """Whatever is wrong with a log's lines is one sentence."""
    try:
        yield
    except (KeyError, ValueError, TypeError, OSError, csv.Error) as error:
        what = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise TracrlError(
            f"{log} was edited or cut off ({what}); restore it, or remove the run and train it anew."
        ) from error


def _scores(path: Path, metadata: RunMetadata, *, further: bool = False) -> Scores:
    """Scores that belong to this run and are whole; ``further``: of its seeds at limits that are not its own."""
    try:
        scores = Scores.load(path)
    except (TracrlError, TypeError, ValueError, OverflowError) as error:
        raise TracrlError(f"{path}: {error}; {_SCORE_ANEW}.") from error
    own = metadata.task if metadata.task in all_tasks() else None
    if scores.task is None and own is not None and scores.protocol is not None:
        raise UnfinishedError(f"{path} holds scores in {scores.protocol.env}, so there are none in {own}.")
    runs = [RunSpec(*each) for each in zip(scores.limits, scores.seeds, strict=True)]
    if further:
        strange = not {run.seed for run in runs} <= {run.seed for run in metadata.runs}
        others = strange or bool(set(runs) & set(metadata.runs)) or len(set(runs)) < len(runs)
    else:
        others = runs != metadata.runs
    if (own is not None and scores.task != own) or others:
        raise TracrlError(
            f"{path} holds the scores of other runs than its config.json: it was edited or exchanged; {_SCORE_ANEW}."
        )
    shapes = {array.shape for array in (scores.returns, scores.costs, scores.lengths)}
    arrays = np.stack([scores.returns, scores.costs]) if len(shapes) == 1 else np.array(np.nan)
    if arrays.ndim != 3 or arrays.shape[2] < 1 or not np.isfinite(arrays).all():
        raise TracrlError(f"{path} was edited or cut off: some episodes have no return, cost or length; {_SCORE_ANEW}.")
    played = None if scores.protocol is None else scores.protocol.max_steps
    longest = get_task(own).max_steps if own is not None else played or np.inf
    if (scores.costs < 0).any() or (scores.lengths < 1).any() or (scores.lengths > longest).any():
        raise TracrlError(f"{path} was edited: an episode has a cost below 0 or an impossible length; {_SCORE_ANEW}.")
    rewards = scores.returns if scores.task is None else scores.rewards
    if max(np.abs(rewards).max(), scores.normalised_costs.max()) > _LARGEST:
        raise TracrlError(f"{path} was edited: a return or cost is beyond {_LARGEST:g}; {_SCORE_ANEW}.")
    return scores


def _check_against_log(run: RunDirectory, scores: Scores, metadata: RunMetadata) -> None:
    """Without checksums: the last evaluation in the log must be that of the scores."""
    evaluations = read_log(run.evaluations)
    if not evaluations or scores.protocol is not None:
        return  # scored after training, in other episodes than those on the way
    last = [row for row in evaluations if row["step"] == str(metadata.settings.get("updates"))]
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
