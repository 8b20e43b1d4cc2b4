"""Where the runs of studies lie, and how far each has got.

::

    runs/
      BallRun-trac-<identity>/     run directories, named by what determines their result, so that studies share them
      study/
        plans/eta-<identity>.json  what was asked for
        data.json                  fingerprints of data files
        BallRun-trac-<identity>/   the work on that run
          stack.json               what a worker is to do
          log.txt                  what it said
          progress.json            how far it is
          outcome.json             how it ended
          measured.json            what it took: seconds, cores, memory
        BallRun-data/              the work on a data set, with collection.json in place of stack.json
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tracrl.errors import TracrlError
from tracrl.files import read_json, temporary_name, write_json
from tracrl.study.collecting import CollectionSpec
from tracrl.study.inventory import Inventory, Remembered
from tracrl.study.known_data import KnownData
from tracrl.study.plan import Plan
from tracrl.study.stack import StackSpec
from tracrl.train.directory import RunDirectory

State = Literal["done", "failed", "stopped", "busy"]
Job = StackSpec | CollectionSpec
"""what a worker does: train and score a stack of runs, or collect a data set"""


@dataclass(frozen=True)
class Outcome:
    """How the work on a stack ended."""

    state: State
    reason: str = ""
    """in a sentence, where it is not done"""
    final: bool = True
    """False: trying again may help, as after a process was killed"""


@dataclass(frozen=True)
class Assignment:
    """The files of the work on one stack."""

    path: Path

    @property
    def stack(self) -> Path:
        return self.path / "stack.json"

    @property
    def collection(self) -> Path:
        return self.path / "collection.json"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def progress(self) -> Path:
        return self.path / "progress.json"

    @property
    def outcome(self) -> Path:
        return self.path / "outcome.json"

    @property
    def measured(self) -> Path:
        return self.path / "measured.json"

    def read_progress(self) -> dict[str, Any]:
        """How far the worker is; empty where it has not said."""
        return read_quietly(self.progress)

    def last_outcome(self) -> Outcome | None:
        """How the last attempt ended, if it was able to say."""
        with contextlib.suppress(TypeError):
            return Outcome(**read_quietly(self.outcome))
        return None

    def write_outcome(self, outcome: Outcome) -> None:
        write_json(self.outcome, asdict(outcome))


@dataclass(frozen=True)
class Store:
    """A directory of runs."""

    path: Path
    _remembered: Remembered = field(default_factory=dict, compare=False, repr=False)

    @property
    def study(self) -> Path:
        return self.path / "study"

    @cached_property
    def data(self) -> KnownData:
        return KnownData(self.study / "data.json")

    def run(self, stack: StackSpec) -> RunDirectory:
        return RunDirectory(self.path / stack.name)

    def assignment(self, job: Job) -> Assignment:
        return Assignment(self.study / job.name)

    def claim(self, job: Job) -> Path:
        """Of whoever is at work on it."""
        return job.claim if isinstance(job, CollectionSpec) else self.run(job).claim

    def plan(self, plan: Plan) -> Path:
        return self.study / "plans" / f"{plan.name}.json"

    def inventory(self) -> Inventory:
        """The run directories as they are now."""
        return Inventory(self.path, self._remembered)

    def remaining(self, plan: Plan) -> Plan:
        """What there is to do for a plan: of stacks whose runs are partly there, the parts that are missing."""
        inventory = self.inventory()
        parts = [part for stack in plan.stacks for part in inventory.parts(stack)]
        asked, listed = (sum(len(stack.runs) for stack in stacks) for stacks in (plan.stacks, parts))
        return Plan(plan.study, tuple(parts), asked - listed, plan.collections)

    def prepare(self, plan: Plan) -> Plan:
        """Write down what was asked for and what is to be done; the latter."""
        write_json(self.plan(plan), plan.to_dict())
        self.data.remember()
        remaining, inventory = self.remaining(plan), self.inventory()
        for stack in remaining.stacks:
            if stack.data is not None and not inventory.done(stack):
                write_json(self.assignment(stack).stack, stack.to_dict())
        for collection in remaining.collections:
            write_json(self.assignment(collection).collection, asdict(collection))
        return remaining

    def done(self, stack: StackSpec) -> bool:
        """Trained to the end and scored as asked, and all of it whole, in whichever stacks its runs were trained."""
        return self.inventory().done(stack)

    def started(self, job: Job) -> bool:
        """There is something to go on from."""
        return job.started if isinstance(job, CollectionSpec) else self.run(job).checkpoint.exists()


def read_quietly(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is none or it cannot be read: for what is nice to know and no more."""
    with contextlib.suppress(TracrlError):
        value = read_json(path)
        if isinstance(value, dict):
            return value
    return {}


def write_quickly(path: Path, value: Any) -> None:
    """A small JSON file that readers see whole or not at all. Not synced: it is written every second or two and
    tells the present, which a crash makes worthless anyway."""
    aside = temporary_name(path)
    with contextlib.suppress(OSError):
        aside.write_text(json.dumps(value), encoding="utf-8")
        aside.replace(path)
