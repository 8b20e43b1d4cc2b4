"""What stacks take, from what they took: nothing is estimated that was not measured on something of the same kind."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tracrl.methods.method import DataSizes
from tracrl.study.collecting import CollectionSpec
from tracrl.study.stack import StackSpec
from tracrl.study.store import Store, read_quietly, write_quickly
from tracrl.tasks.table import all_tasks, get_task
from tracrl.train.devices import choose_precision
from tracrl.train.stack import compute_on

LEAST_SECONDS = 1.0
"""of training, before its rate is worth remembering"""


@dataclass(frozen=True)
class Measurement:
    """What one stack took."""

    kind: Mapping[str, Any]
    """what an update's cost depends on"""
    seconds_per_update: float
    """of the whole stack, on one core or on the GPU"""
    seconds_per_episode: float | None
    """of evaluation, for one policy on one core"""
    memory: int
    """bytes at the most, simulators included"""


def kind_of(stack: StackSpec, device: str) -> dict[str, Any]:
    """What a stack's cost depends on."""
    settings = {name: value for name, value in asdict(stack.method).items() if name not in stack.method.same_cost}
    return {
        "task": stack.task if stack.environment is not None else f"{stack.task}, not evaluated",
        "method": stack.method.name,
        "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()},
        "runs": len(stack.trained),
        "rows": None if stack.data is None else stack.data.rows,
        "device": device,
        "precision": choose_precision(stack.precision, torch.device(device), stack.method),
    }


class Rates:
    """Measurements of a store, looked up by kind."""

    def __init__(self, measurements: Iterable[Measurement]):
        # Before version 0.7.0 studies trained in float32 on CPUs; on GPUs their precision was not noted.
        before = {"cpu": {"precision": "float32"}}
        self._by_kind = [({**before.get(m.kind.get("device", ""), {}), **m.kind}, m) for m in measurements]

    @classmethod
    def of(cls, store: Store) -> Rates:
        found = []
        for path in sorted(store.study.glob("*/measured.json")) if store.study.is_dir() else []:
            try:
                found.append(Measurement(**read_quietly(path)))
            except TypeError:  # cut off or of another version: as good as not measured
                continue
        return cls(found)

    def with_(self, others: Iterable[Measurement]) -> Rates:
        """These and others, which are asked first."""
        return Rates([*(m for _, m in self._by_kind), *others])

    def find(self, stack: StackSpec, device: str) -> Measurement | None:
        """Of the same kind; on a CPU, where a run costs the same in any stack, also of another number of runs."""
        kind = kind_of(stack, device)
        if (exact := next((m for k, m in reversed(self._by_kind) if k == kind), None)) or device != "cpu":
            return exact
        alike = next((m for k, m in reversed(self._by_kind) if {**k, "runs": kind["runs"]} == kind), None)
        if alike is None:
            return None
        return replace(alike, seconds_per_update=alike.seconds_per_update * kind["runs"] / alike.kind["runs"])

    def seconds(self, stack: StackSpec, device: str, cores: int, updates_done: int = 0) -> float | None:
        """What is left of a stack on so many cores; None where nothing of its kind was measured."""
        shares = self.shares(stack, device, cores, updates_done)
        return None if shares is None else sum(shares)

    def collecting(self, spec: CollectionSpec, cores: int) -> float | None:
        """Seconds of a collection on so many cores; of another number of steps in proportion."""
        alike = [m for k, m in reversed(self._by_kind) if (k.get("task"), k.get("method")) == (spec.task, "collect")]
        exact = [m for m in alike if m.kind == spec.kind()] or alike
        return exact[0].seconds_per_update * spec.steps / cores if exact else None

    def shares(self, stack: StackSpec, device: str, cores: int, updates_done: int = 0) -> tuple[float, float] | None:
        """Seconds of training and of evaluating that are left of a stack."""
        found = self.find(stack, device)
        if found is None or (found.seconds_per_episode is None and stack.environment is not None):
            return None
        left = stack.method.updates - updates_done
        evaluations = stack.evaluations * left / stack.method.updates
        episodes = evaluations * len(stack.runs) * stack.episodes if stack.environment is not None else 0
        training = left * found.seconds_per_update / (cores if device == "cpu" else 1)
        return training, episodes * (found.seconds_per_episode or 0.0) / cores


def memory_of(stack: StackSpec, rates: Rates, device: str, cores: int = 1) -> int:
    """Bytes that a stack needs: measured, or the sum of what it holds: process, simulators, data and runs."""
    found = rates.find(stack, device)
    if found is not None and found.kind["runs"] == len(stack.trained):  # more runs hold more
        return found.memory
    method, sizes = stack.method, _sizes(stack)
    runs, rows = len(stack.trained), 0 if stack.data is None else stack.data.rows
    # As they were read; actions, rewards and costs once more as the learners see them.
    data = rows * (sizes.observation + 2 * sizes.action + 6 + runs * method.numbers_a_row)
    held = runs * method.numbers_held(sizes, compute_on(torch.device("cpu"), runs).activation_budget)
    return _PROCESS + cores * _SIMULATOR + 4 * (data + held)


def memory_of_job(job: StackSpec | CollectionSpec, rates: Rates, device: str, cores: int = 1) -> int:
    """Bytes that a worker needs. A collection holds every candidate episode: several times what it keeps."""
    if isinstance(job, StackSpec):
        return memory_of(job, rates, device, cores)
    task = get_task(job.task)
    row = 4 * (task.observation_size + task.action_size + 4)
    return _PROCESS + cores * _SIMULATOR + 6 * job.episodes * task.max_steps * row


def _sizes(stack: StackSpec) -> DataSizes:
    if (task := all_tasks().get(stack.task)) is not None:
        return DataSizes(task.observation_size, task.action_size, task.max_steps)
    assert stack.data is not None
    return DataSizes(stack.data.observation_size, stack.data.action_size, stack.data.longest)


_PROCESS, _SIMULATOR = 600 << 20, 200 << 20
"""bytes: Python with torch; a simulator process (Bullet and SafetyGymnasium measured 150 to 200 MiB)"""


@dataclass
class Stopwatch:
    """Accumulates what a worker measures."""

    cores: int
    updates: int = 0
    training: float = 0.0
    episodes: int = 0
    evaluating: float = 0.0

    def save(self, path: Path, kind: Mapping[str, Any]) -> None:
        """Remember it, if there was enough of it to tell."""
        if self.training < LEAST_SECONDS or not self.updates:
            return
        factor = self.cores if kind["device"] == "cpu" else 1
        measurement = Measurement(
            kind=kind,
            seconds_per_update=factor * self.training / self.updates,
            seconds_per_episode=self.cores * self.evaluating / self.episodes if self.episodes else None,
            memory=peak_memory(self.cores),
        )
        write_quickly(path, asdict(measurement))


def peak_memory(simulators: int) -> int:
    """Bytes of this process at its peak, and of as many simulators as ran beside it."""
    mine, child = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 1024 * (mine + simulators * child)
