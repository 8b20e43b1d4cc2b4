"""How a collection shows that it is alive, and what it has reached so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from rich.console import Console
from rich.progress import TaskID

from tracrl.bars import TerminalBars
from tracrl.collect.rollout import Rollout

SECONDS_BETWEEN_LINES = 15.0
REMEMBERED = 20
"""Episodes at each end of the penalties that the shown means are taken over."""


@dataclass
class Front:
    """Return and cost of the latest training episodes with a low and with a high penalty."""

    recent: list[tuple[int, float, float]] = field(default_factory=list)
    """end (0 low, 1 high), return, cost"""

    def add(self, penalties: Sequence[float], rollouts: Sequence[Rollout], highest: float) -> None:
        for penalty, rollout in zip(penalties, rollouts, strict=True):
            share = penalty / highest
            if not 0.2 < share < 0.8:
                self.recent.append((int(share >= 0.8), float(rollout.rewards.sum()), float(rollout.costs.sum())))
        ends = ([item for item in self.recent if item[0] == end][-REMEMBERED:] for end in (0, 1))
        self.recent = [item for end in ends for item in end]

    def means(self, end: int) -> tuple[float, float] | None:
        """Mean return and cost at the low (0) or high (1) end; None before there is any."""
        there = [item for item in self.recent if item[0] == end]
        if not there:
            return None
        return sum(item[1] for item in there) / len(there), sum(item[2] for item in there) / len(there)

    def __str__(self) -> str:
        said = []
        for end, name in enumerate(("low", "high")):
            if means := self.means(end):
                said.append(f"{name} penalty {means[0]:.4g} at cost {means[1]:.3g}")
        return ", ".join(said)


@dataclass(frozen=True)
class Coverage:
    """What the recorded episodes cover."""

    cells: int
    """occupied cells of the plane"""
    counts: tuple[tuple[float, int, int], ...]
    """limit, safe and unsafe episodes"""

    def __str__(self) -> str:
        at = ", ".join(f"{limit:g}: {safe}/{unsafe}" for limit, safe, unsafe in self.counts)
        return f"{self.cells} cells" + (f", safe/unsafe at {at}" if at else "")


class Progress(Protocol):
    """What :func:`tracrl.collect.collect` tells while it works."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def learning(self, step: int, steps: int, front: Front) -> None: ...

    def recording(self, done: int, candidates: int, coverage: Coverage | None) -> None: ...


class Silence:
    """Says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def learning(self, step: int, steps: int, front: Front) -> None:
        return None

    def recording(self, done: int, candidates: int, coverage: Coverage | None) -> None:
        return None


class Terminal(TerminalBars):
    """A bar with the rate, the remaining time and what is covered; plain lines where output is a file."""

    def __init__(self, console: Console):
        super().__init__(console)
        self._tasks: dict[str, tuple[TaskID, int, float]] = {}
        self._said = time.monotonic()
        self._note = ""

    def learning(self, step: int, steps: int, front: Front) -> None:
        self._show("learning", "steps", min(step, steps), steps, str(front), step >= steps)

    def recording(self, done: int, candidates: int, coverage: Coverage | None) -> None:
        if coverage is not None:
            self._note = str(coverage)
        self._show("recording", "episodes", done, candidates, self._note, done >= candidates and coverage is not None)

    def _show(self, phase: str, unit: str, done: int, total: int, note: str, last: bool) -> None:
        now = time.monotonic()
        if phase not in self._tasks:
            task = self.bars.add_task(phase, total=total, completed=done, rate="", note="")
            self._tasks[phase] = task, done, now
            if done and done < total:
                self.console.print(f"{phase}: going on after {done:,} {unit}.", highlight=False)
            return
        task, first, began = self._tasks[phase]
        rate = (done - first) / max(now - began, 1e-9)
        shown = f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s"
        self.bars.update(task, completed=done, rate=shown, note=note)
        if not self.console.is_terminal and (now - self._said > SECONDS_BETWEEN_LINES or last):
            self._said = now
            left = (total - done) / max(rate, 1e-9)
            self.console.print(
                f"{phase}: {done:,} of {total:,} {unit}, {shown}, {left:.0f} s left, {note}", highlight=False
            )
