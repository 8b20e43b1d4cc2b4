"""How a worker tells how far its training is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

from tracrl.study.measured import Stopwatch, kind_of
from tracrl.study.stack import StackSpec
from tracrl.study.store import Assignment, write_quickly

SECONDS_BETWEEN_REPORTS = 1.0


class TrainingReport:
    """Tells :func:`tracrl.fit`'s progress to a file, and measures."""

    def __init__(self, assignment: Assignment, stack: StackSpec, cores: int, device: str):
        self.assignment, self.stack, self.device = assignment, stack, device
        self.watch = Stopwatch(cores)
        self.now: dict[str, Any] = {"step": 0, "updates": stack.method.updates, "phase": "starting", "cores": cores}
        self._step = 0
        self._said = 0.0
        self._at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._say()
        self.watch.save(self.assignment.measured, kind_of(self.stack, self.device))

    def start(self, step: int, updates: int, runs: Sequence[object]) -> None:
        self._step, self._at = step, time.monotonic()
        self.now |= {"step": step, "first": step}
        if step:
            print(f"Going on after update {step} of {updates}.", flush=True)
        self._say()

    def advance(self, step: int, phase: str, loss: object) -> None:
        now = time.monotonic()
        self.watch.training += now - self._at
        self.watch.updates += step - self._step
        self._step, self._at = step, now
        self.now |= {"step": step, "phase": phase}
        self._tell()

    def evaluating(self, done: int, episodes: int) -> None:
        self.now["phase"] = f"evaluating {done}/{episodes}"
        self._tell()

    def evaluated(self, scores: Any) -> None:
        now = time.monotonic()
        self.watch.evaluating += now - self._at
        self.watch.episodes += scores.returns.size
        self._at = now
        means = scores.means()
        # Without a task's constants: the return as it is.
        shown = {"return": "return"} if scores.task is None else {"reward": "normalised_reward"}
        mine = {k: sum(means[name]) / len(means[name]) for k, name in {**shown, "cost": "normalised_cost"}.items()}
        self.now |= mine
        print(f"update {self._step}: " + ", ".join(f"{name} {value:.3f}" for name, value in mine.items()), flush=True)
        self._say()

    def _tell(self) -> None:
        if time.monotonic() - self._said > SECONDS_BETWEEN_REPORTS:
            self._say()

    def _say(self) -> None:
        self._said = time.monotonic()
        write_quickly(self.assignment.progress, {**self.now, "watch": asdict(self.watch)})
