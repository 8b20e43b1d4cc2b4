"""How a training shows that it is alive."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol, Self

from rich.console import Console
from rich.progress import TaskID
from torch import Tensor

from tracrl.bars import TerminalBars
from tracrl.evaluation.scores import Scores
from tracrl.methods.method import RunSpec

SECONDS_BETWEEN_LINES = 15.0


class Progress(Protocol):
    """What :func:`tracrl.fit` tells while it works."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def start(self, step: int, updates: int, runs: Sequence[RunSpec]) -> None: ...

    def advance(self, step: int, phase: str, loss: Tensor) -> None: ...

    def evaluating(self, done: int, episodes: int) -> None: ...

    def evaluated(self, scores: Scores) -> None: ...


class Silence:
    """Says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def start(self, step: int, updates: int, runs: Sequence[RunSpec]) -> None:
        return None

    def advance(self, step: int, phase: str, loss: Tensor) -> None:
        return None

    def evaluating(self, done: int, episodes: int) -> None:
        return None

    def evaluated(self, scores: Scores) -> None:
        return None


def chosen_progress(wanted: bool | Progress | None) -> Progress:
    """True: shown in a terminal or a notebook, and nowhere else."""
    if not isinstance(wanted, bool | None):
        return wanted
    console = Console()
    return Terminal(console) if wanted and (console.is_terminal or console.is_jupyter) else Silence()


class Terminal(TerminalBars):
    """A bar with the rate, the remaining time, the loss and the latest scores; plain lines where output is a file."""

    def __init__(self, console: Console):
        super().__init__(console)
        self._task = TaskID(0)
        self._note = ""
        self._began = self._said = 0.0
        self._first = self._updates = self._runs = 0

    def start(self, step: int, updates: int, runs: Sequence[RunSpec]) -> None:
        self._first, self._updates, self._runs = step, updates, len(runs)
        self._began = self._said = time.monotonic()
        if step:
            self.console.print(f"Going on after update {step}.")
        self._task = self.bars.add_task("starting", total=updates, completed=step, rate="", note="")

    def advance(self, step: int, phase: str, loss: Tensor) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = (step - self._first) / seconds
        shown = f"{rate:.3g} updates/s of {self._runs} run{'s' if self._runs > 1 else ''}"
        note = f"loss {float(loss.mean()):.4g}{self._note}"
        self.bars.update(self._task, completed=step, description=phase, rate=shown, note=note)
        now = time.monotonic()
        if not self.drawn and (now - self._said > SECONDS_BETWEEN_LINES or step == self._updates):
            self._said = now
            left = (self._updates - step) / max(rate, 1e-9)
            self.console.print(
                f"{phase}: update {step} of {self._updates}, {shown}, {left:.0f} s left, {note}",
                highlight=False,
            )

    def evaluating(self, done: int, episodes: int) -> None:
        self.bars.update(self._task, description=f"evaluating {done}/{episodes}")

    def evaluated(self, scores: Scores) -> None:
        means = scores.means()
        shown = "normalised_reward" if "normalised_reward" in means else "return"
        reward, cost = (sum(means[k]) / len(means[k]) for k in (shown, "normalised_cost"))
        self._note = f", {shown.removeprefix('normalised_')} {reward:.4g}, cost {cost:.2f}"
