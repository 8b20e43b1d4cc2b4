"""What stacks take, from what they took: nothing is estimated that was not measured on something of the same kind."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tracrl.methods.method import DataSizes
from tracrl.study.plan import Plan
from tracrl.study.stack import StackSpec
from tracrl.study.store import Store, read_quietly, write_quickly
from tracrl.tasks.table import get_task
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
        "task": stack.task,
        "method": stack.method.name,
        "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()},
        "runs": len(stack.trained),
        "rows": None if stack.data is None else stack.data.rows,
        "device": device,
    }


class Rates:
    """Measurements of a store, looked up by kind."""

    def __init__(self, measurements: Iterable[Measurement]):
        self._by_kind = [(dict(m.kind), m) for m in measurements]

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
        found = self.find(stack, device)
        if found is None or found.seconds_per_episode is None:
            return None
        left = stack.method.updates - updates_done
        episodes = stack.evaluations * left / stack.method.updates * len(stack.runs) * stack.episodes
        training = left * found.seconds_per_update / (cores if device == "cpu" else 1)
        return training + episodes * found.seconds_per_episode / cores


def memory_of(stack: StackSpec, rates: Rates, device: str, cores: int = 1) -> int:
    """Bytes that a stack needs: measured, or the sum of what it holds: process, simulators, data and runs."""
    found = rates.find(stack, device)
    if found is not None and found.kind["runs"] == len(stack.trained):  # more runs hold more
        return found.memory
    task, method = get_task(stack.task), stack.method
    runs, rows = len(stack.trained), 0 if stack.data is None else stack.data.rows
    # As they were read; actions, rewards and costs once more as the learners see them.
    data = rows * (task.observation_size + 2 * task.action_size + 6 + runs * method.numbers_a_row)
    sizes = DataSizes(task.observation_size, task.action_size, task.max_steps)
    held = runs * method.numbers_held(sizes, compute_on(torch.device("cpu"), runs).activation_budget)
    return _PROCESS + cores * _SIMULATOR + 4 * (data + held)


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


@dataclass(frozen=True)
class Estimate:
    """What a plan would take."""

    seconds: float | None
    """of the stacks whose kind was measured, on the given cores; None where none was"""
    unknown: int
    """stacks whose kind was never measured"""
    memory: int
    """bytes of the largest stack"""


def estimate(plan: Plan, store: Store, device: str, cores: int) -> Estimate:
    """What is left of a plan on so many cores."""
    rates = Rates.of(store)
    inventory = store.inventory()
    waiting = [stack for stack in plan.stacks if stack.data is None or not inventory.done(stack)]
    # A stack after the other on all the cores takes as long in sum as many side by side on one each.
    seconds = [rates.seconds(stack, device, max(cores, 1)) for stack in waiting]
    known = [s for s in seconds if s is not None]
    return Estimate(
        seconds=sum(known) if known or not waiting else None,
        unknown=len(seconds) - len(known),
        memory=max((memory_of(stack, rates, device) for stack in waiting), default=0),
    )
