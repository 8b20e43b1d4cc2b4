"""The results of one run directory: its runs with their scores, curves and losses."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tracrl.evaluation.scores import EvaluationProtocol, Scores
from tracrl.methods.registry import METHODS
from tracrl.tasks.table import all_tasks, get_task
from tracrl.train.directory import RunDirectory, data_label
from tracrl.train.finished import RunMetadata, read_finished, reading_log
from tracrl.train.logs import read_log

Floats = NDArray[np.float64]
PolicyKind = Literal["final", "best"]
OWN_DATA = "own data"
"""in place of a suite, where data are of no known task: nothing normalises their returns"""
_LOSS_POINTS = 100


@dataclass(frozen=True)
class StackMetadata:
    """What a run directory says about itself, and what tables say about it."""

    run: RunMetadata
    preset: str
    """the nearest one; empty for a method that is not known here"""
    changes: Mapping[str, Any]
    """what differs from that preset"""

    @classmethod
    def of(cls, run: RunMetadata) -> StackMetadata:
        task, kind, settings = all_tasks().get(str(run.task)), METHODS.get(run.method), dict(run.settings)
        told = settings.pop("standardise", "off")
        usual = task is None or (kind is not None and kind.standardised(task, settings.get("updates", 0)))
        if (told == "on") != usual and task is not None:  # else it is as nobody asked for
            settings["standardise"] = told
        return cls(run, *nearest_preset(run.method, task.suite if task else "Bullet", settings))

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def identity(self) -> str:
        return self.run.identity

    @property
    def task(self) -> str:
        """What own data are called, where there is no task."""
        return data_label(self.run.task, self.run.data_source)

    @property
    def is_own(self) -> bool:
        """The data are of no known task, so returns are as they are."""
        return self.run.task not in all_tasks()

    @property
    def method(self) -> str:
        return self.run.method

    @property
    def title(self) -> str:
        return self.run.title

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.run.settings

    @property
    def fingerprint(self) -> str:
        """Of the data."""
        return str(self.run.data["fingerprint"])

    @property
    def data_episodes(self) -> int:
        return int(self.run.data["episodes"])

    @property
    def precision(self) -> str:
        return self.run.precision

    @property
    def suite(self) -> str:
        return OWN_DATA if self.is_own else get_task(self.task).suite

    @property
    def from_dsrl(self) -> bool:
        """The data are DSRL's own file: its name, as many episodes, and nobody else who says they made it."""
        if self.is_own:
            return False
        task = get_task(self.task)
        return (
            self.run.data_source.get("file") == task.dataset_file
            and self.data_episodes == task.episodes
            and not self.run.data_source.get("made_by")
        )

    @property
    def source(self) -> str:
        """Where the data come from, in words."""
        file = self.run.data_source.get("file", "a file without a name")
        if self.from_dsrl:
            return f"DSRL's {file}"
        made = self.run.data_source.get("made_by")
        whose = "" if self.is_own else ", not DSRL's"
        return f"{file}, {self.data_episodes} episodes{whose}" + (f" ({made})" if made else "")


@dataclass(frozen=True, eq=False)
class Result:
    """One run: a limit, a seed, and what its policies scored."""

    stack: StackMetadata
    limit: float
    seed: int
    rewards: Floats
    """(episodes,): normalised, of the final policy; of own data, returns as they are"""
    costs: Floats
    """(episodes,): normalised, of the final policy"""
    best_rewards: Floats | None
    """of the best policy that was seen on the way"""
    best_costs: Floats | None
    curve: tuple[tuple[int, float, float], ...]
    """(update, normalised reward, normalised cost) along the training"""
    losses: tuple[tuple[int, float], ...]
    protocol: EvaluationProtocol | None = None
    """how the final policy was scored; None where that is unknown"""
    has_checksum: bool = True
    """of its policy"""
    further: tuple[Result, ...] = ()
    """where one policy serves every limit, its scores at limits that it was not trained for, with the first run of its
    seed; tables do not count them"""

    @cached_property
    def key(self) -> str:
        """What this run is, whichever stack it was part of."""
        return json.dumps([self.stack.run.training, self.limit, self.seed])

    def scored(self, policy: str) -> tuple[Floats, Floats] | None:
        """(rewards, costs) of the ``final`` or the ``best`` policy."""
        if policy == "final":
            return self.rewards, self.costs
        return None if self.best_rewards is None or self.best_costs is None else (self.best_rewards, self.best_costs)


def read_run(path: Path) -> list[Result]:
    """The runs of one directory, or one sentence on what is wrong with it."""
    run = RunDirectory(path)
    finished = read_finished(path)
    final, best = finished.scores, finished.best_scores
    assert final is not None
    stack = StackMetadata.of(finished.metadata)
    runs = finished.metadata.runs
    rewards = final.returns if stack.is_own else final.rewards
    best_rewards = None if best is None else best.returns if stack.is_own else best.rewards
    shown = "return" if stack.is_own else "normalised_reward"
    with reading_log(run.evaluations):
        evaluations = read_log(run.evaluations)
        curves = [_curve(evaluations, r.limit, r.seed, shown) for r in runs]
    with reading_log(run.metrics):
        metrics = read_log(run.metrics)
        losses = [_losses(metrics, r.limit, r.seed) for r in runs]
    results = [
        Result(
            stack=stack,
            limit=r.limit,
            seed=r.seed,
            rewards=rewards[i],
            costs=final.normalised_costs[i],
            best_rewards=None if best_rewards is None else best_rewards[i],
            best_costs=None if best is None else best.normalised_costs[i],
            curve=curves[i],
            losses=losses[i],
            protocol=final.protocol,
            has_checksum=finished.has_checksum,
        )
        for i, r in enumerate(runs)
    ]
    return results if finished.further_scores is None else _with_further(results, finished.further_scores)


def _with_further(results: Sequence[Result], scores: Scores) -> list[Result]:
    rewards = scores.returns if results[0].stack.is_own else scores.rewards
    more: dict[int, list[Result]] = {result.seed: [] for result in results}
    like = {result.seed: result for result in results}
    for i, (limit, seed) in enumerate(zip(scores.limits, scores.seeds, strict=True)):
        more[seed].append(
            replace(
                like[seed],
                limit=limit,
                rewards=rewards[i],
                costs=scores.normalised_costs[i],
                best_rewards=None,
                best_costs=None,
                curve=(),
                losses=(),
                protocol=scores.protocol,
            )
        )
    return [replace(result, further=tuple(more.pop(result.seed, ()))) for result in results]


def at_every_limit(runs: Sequence[Result]) -> list[Result]:
    """These runs and, of each, what its policy scored at further limits."""
    return [*runs, *(further for run in runs for further in run.further)]


def nearest_preset(method: str, suite: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The preset that settings are nearest to, and what differs from it; ``""`` and all of them without presets."""
    kind = METHODS.get(method)
    if kind is None:
        return "", dict(settings)
    differences = {}
    for preset in ("full", "fast"):
        theirs = json.loads(json.dumps(asdict(kind.preset(suite, preset))))
        differences[preset] = {name: value for name, value in settings.items() if theirs.get(name) != value}
    # Where both are as near, the number of updates tells which one was meant.
    few = settings.get("updates", 0) <= kind.preset(suite, "fast").updates
    nearest = min(differences, key=lambda preset: (len(differences[preset]), (preset == "fast") != few))
    return nearest, differences[nearest]


def _curve(
    rows: Sequence[Mapping[str, str]], limit: float, seed: int, shown: str
) -> tuple[tuple[int, float, float], ...]:
    mine = [row for row in rows if row["limit"] == f"{limit:g}" and row["seed"] == str(seed)]
    points = [(int(r["step"]), float(r[shown]), float(r["normalised_cost"])) for r in mine]
    if not all(math.isfinite(value) for point in points for value in point):
        raise ValueError("a score is not finite")
    return tuple(points)


def _losses(rows: Sequence[Mapping[str, str]], limit: float, seed: int) -> tuple[tuple[int, float], ...]:
    """Thinned. A method that is trained once for all limits has logged it once a seed."""
    mine = [row for row in rows if row["seed"] == str(seed)]
    mine = [row for row in mine if row["limit"] == f"{limit:g}"] or mine
    every = max(1, -(-len(mine) // _LOSS_POINTS))
    points = [(int(row["step"]), float(row["loss"])) for row in mine[every - 1 :: every]]
    if not all(math.isfinite(loss) for _, loss in points):
        raise ValueError("a loss is not finite")
    return tuple(points)
