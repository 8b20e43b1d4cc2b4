"""Results that were written down: ``runs.csv``, ``scores.csv`` and ``data.csv`` of a folder such as ``results/``.

A row of ``runs.csv`` is a run, one of ``scores.csv`` an episode that its final policy played, one of ``data.csv`` a
data set. Of each task the data set that came last counts; what its ``data`` column does not call ``repository`` or
``collected`` is another choice of episodes, made to be compared with it. ``changes`` are the settings in which a run
of an ablation is not its preset, such as x=25.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracrl.errors import TracrlError
from tracrl.evaluation.scores import EvaluationProtocol
from tracrl.methods.method import Method, Preset
from tracrl.methods.registry import METHODS
from tracrl.report.results import Floats, Result, StackMetadata
from tracrl.study.settings import changed, parse_settings
from tracrl.study.studies import shown
from tracrl.tasks.normalise import normalised_cost, normalised_reward
from tracrl.tasks.table import all_tasks, get_task
from tracrl.train.finished import RunMetadata

RUN_COLUMNS = (
    "run", "task", "data", "method", "preset", "changes", "standardise", "limit", "seed", "fingerprint", "code",
    "device", "precision", "machine", "episodes", "evaluation_seed",
)  # fmt: skip
SCORE_COLUMNS = ("run", "episode", "return", "cost", "length")
DATA_COLUMNS = (
    "task", "data", "fingerprint", "made_by", "episodes", "rows", "lowest_return", "highest_return", "highest_cost",
    "limits", "safe", "unsafe", "best_safe",
)  # fmt: skip
COLUMNS = {"runs": RUN_COLUMNS, "scores": SCORE_COLUMNS, "data": DATA_COLUMNS}
MAIN_KINDS = ("repository", "collected")
PRESETS: dict[str, Preset] = {"fast": "fast", "full": "full"}
CsvRow = dict[str, str]


@dataclass(frozen=True)
class Committed:
    """What such a folder holds."""

    results: tuple[Result, ...]
    """on the data set of each task that counts"""
    others: tuple[Result, ...]
    """on other data sets of the same tasks"""
    data: tuple[CsvRow, ...]

    def kind(self, fingerprint: str) -> str:
        """What the data set is called: collected, even and so on."""
        return next((row["data"] for row in self.data if row["fingerprint"] == fingerprint), "")


def is_committed(folder: Path) -> bool:
    return all((folder / f"{name}.csv").is_file() for name in ("runs", "scores"))


def read_table(folder: Path, name: str) -> list[CsvRow]:
    """The rows of one of the three files, or a sentence on what is wrong with it."""
    path = folder / f"{name}.csv"
    if not path.exists():
        raise TracrlError(f"{path} is missing: {folder} needs runs.csv, scores.csv and data.csv.")
    with _reading(path), path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        if missing := [column for column in COLUMNS[name] if column not in (reader.fieldnames or ())]:
            raise ValueError(f"without the column {missing[0]}")
        rows = list(reader)
        for number, row in enumerate(rows, start=2):
            if None in row or None in row.values():
                raise ValueError(f"line {number} is not {len(COLUMNS[name])} values long")
    return rows


def read_committed(folder: Path) -> Committed:
    """Everything in the folder; what does not fit together is one sentence."""
    runs, scores, data = (read_table(folder, name) for name in COLUMNS)
    episodes = _episodes(folder / "scores.csv", scores)
    described = {row["fingerprint"]: row for row in data}
    results: dict[tuple[str, str], list[Result]] = {}
    seen: set[tuple[str, ...]] = set()
    units: dict[tuple[str, ...], set[str]] = {}
    varied: dict[tuple[str, ...], list[str]] = {}
    for row in runs:
        units.setdefault((*_trained_alike(row), row["changes"]), set()).add(row["standardise"])
        varied.setdefault(_trained_alike(row), []).extend(row["changes"].split())
    for row in runs:
        with _reading(folder / "runs.csv", f"run {row['run']}: "):
            compared = len(units[*_trained_alike(row), row["changes"]]) > 1
            played, data_row = episodes.pop(row["run"], None), described.get(row["fingerprint"])
            result = _result(folder, row, played, data_row, compared, varied[_trained_alike(row)])
            key = (result.stack.identity, row["limit"], row["seed"])
            if key in seen:
                raise ValueError(f"{' '.join(key)} is there twice")
            seen.add(key)
            results.setdefault((row["task"], row["fingerprint"]), []).append(result)
    if not results:
        raise TracrlError(f"{folder / 'runs.csv'} holds no run.")
    if episodes:
        raise TracrlError(f"{folder / 'scores.csv'} has episodes of run {next(iter(episodes))}, which runs.csv lacks.")
    kinds = {(row["task"], row["fingerprint"]): row["data"] for row in runs}
    counted = {task: fingerprint for (task, fingerprint), kind in kinds.items() if kind in MAIN_KINDS}
    main = [key for key in results if counted.get(key[0]) == key[1]]
    return Committed(
        tuple(r for key in main for r in results[key]),
        tuple(r for key in results if key not in main for r in results[key]),
        tuple(data),
    )


def _trained_alike(row: CsvRow) -> tuple[str, ...]:
    """But for the units of the observations and the settings of an ablation."""
    return row["task"], row["fingerprint"], row["method"], row["preset"]


def _result(
    folder: Path,
    row: CsvRow,
    played: Sequence[tuple[float, float]] | None,
    data: Mapping[str, str] | None,
    units_compared: bool,
    varied: Sequence[str],
) -> Result:
    if row["task"] not in all_tasks():
        raise ValueError(f"no known task is called {row['task']!r}")
    if data is None:
        raise ValueError(f"data.csv says nothing on its data, {row['fingerprint']}")
    if played is None or len(played) != int(row["episodes"]):
        raise ValueError(f"{row['episodes']} episodes were played, scores.csv has {len(played or ())}")
    limit, seed = float(row["limit"]), int(row["seed"])
    if not 0 <= limit < np.inf:
        raise ValueError(f"its limit is {row['limit']}")
    returns, costs = np.array(played, np.float64).T
    rewards: Floats = normalised_reward(get_task(row["task"]), returns)
    return Result(
        stack=_stack(folder, row, data, units_compared, varied),
        limit=limit,
        seed=seed,
        rewards=rewards,
        costs=normalised_cost(costs, limit),
        best_rewards=None,
        best_costs=None,
        curve=(),
        losses=(),
        protocol=EvaluationProtocol(row["task"], len(played), int(row["evaluation_seed"])),
    )


def _stack(
    folder: Path, row: CsvRow, data: Mapping[str, str], units_compared: bool, varied: Sequence[str]
) -> StackMetadata:
    """What is known of it; the settings are not but for the preset's name, which is that of the code then, and those
    that an ablation ``varied``.

    Where a task was trained in its own units and in plain ones, what the method does not do there by itself is a column
    of its own.
    """
    kind = METHODS.get(row["method"])
    settings, changes = _settings(kind, row, varied) if varied else ({}, {})
    if units_compared and row["standardise"] != _usual_units(kind, row):
        changes["standardise"] = row["standardise"]
    told = [f"{name}={shown(value)}" for name, value in changes.items()]
    names = [row["task"], row["method"], row["preset"], *told, row["fingerprint"][:6]]
    run = RunMetadata(
        path=folder / "runs.csv",
        identity="-".join(names),
        task=row["task"],
        method=row["method"],
        title=row["method"] if kind is None else kind.title,
        settings={"preset": row["preset"], "standardise": row["standardise"], **settings},
        limits=(),
        seeds=(),
        depends_on_limit=True,
        phase_ends=(),
        data={"fingerprint": row["fingerprint"], "episodes": int(data["episodes"])},
        data_source={"file": row["data"], "made_by": data["made_by"]},
        versions={"code": row["code"], "machine": row["machine"]},
        device=row["device"],
        precision=row["precision"],
    )
    return StackMetadata(run, row["preset"], changes)


def _usual_units(kind: type[Method] | None, row: CsvRow) -> str:
    if kind is None or (preset := PRESETS.get(row["preset"])) is None:
        return "off"
    task = get_task(row["task"])
    return "on" if kind.standardised(task, kind.preset(task.suite, preset).updates) else "off"


def _settings(kind: type[Method] | None, row: CsvRow, varied: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's values of the settings that were ``varied``, and those of them that are not its preset's."""
    if kind is None or (preset := PRESETS.get(row["preset"])) is None:
        raise ValueError(f"{row['method']} {row['preset']} is no preset whose settings could be varied")
    usual = kind.preset(get_task(row["task"]).suite, preset)
    own = changed(usual, parse_settings(row["changes"].split(), [kind]).get(kind.name, {}))
    names = sorted(parse_settings(varied, [kind])[kind.name])
    values = {name: getattr(own, name) for name in names}
    return values, {name: value for name, value in values.items() if value != getattr(usual, name)}


def _episodes(path: Path, scores: Sequence[CsvRow]) -> dict[str, list[tuple[float, float]]]:
    """(return, cost) of each run's episodes."""
    episodes: dict[str, list[tuple[float, float]]] = {}
    with _reading(path):
        for row in scores:
            played = episodes.setdefault(row["run"], [])
            pair = float(row["return"]), float(row["cost"])
            if int(row["episode"]) != len(played) or not np.isfinite(pair).all() or pair[1] < 0:
                raise ValueError(f"run {row['run']}, episode {row['episode']} is there twice, or is no score")
            played.append(pair)
    return episodes


@contextmanager
def _reading(path: Path, where: str = "") -> Iterator[None]:
    """Whatever is wrong with a file is one sentence."""
    try:
        yield
    except (ValueError, OSError, csv.Error, TracrlError) as error:
        told = error.strerror if isinstance(error, OSError) else error
        raise TracrlError(f"{path} cannot be used ({where}{told}); restore it.") from error
