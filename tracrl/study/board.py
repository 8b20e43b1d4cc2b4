"""How a study shows where it is: done, running, failed and why, and how long it will take."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tracrl.claims import alive
from tracrl.study.inventory import Inventory
from tracrl.study.measured import Measurement, Rates, kind_of
from tracrl.study.plan import Plan
from tracrl.study.stack import StackSpec
from tracrl.study.store import Outcome, Store

SECONDS_BETWEEN_LINES = 60.0
_BAR = 20

State = Literal["waiting", "running", "done", "failed", "stopped"]


@dataclass
class Entry:
    """A stack on the board."""

    stack: StackSpec
    state: State = "waiting"
    reason: str = ""
    here_before: bool = False
    """it was done when the study started"""
    elsewhere: bool = False
    """waiting, because another process is at work on it"""
    progress: dict[str, Any] = field(default_factory=dict)


class Board:
    """The state of every stack of a study, and its picture."""

    def __init__(self, plan: Plan, store: Store, console: Console, device: str, cores: int):
        self.plan, self.store, self.console, self.device, self.cores = plan, store, console, device, cores
        self.entries = {stack.name: Entry(stack) for stack in plan.stacks}
        inventory = store.inventory()
        for entry in self.entries.values():
            if inventory.done(entry.stack):
                entry.state, entry.here_before = "done", True
        self.rates = Rates.of(store)
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._said = time.monotonic()
        self.stopped_with: int | None = None
        """where it was stopped from outside: what shells show for the signal"""

    def __enter__(self) -> Self:
        before = self.count("done")
        self.say(
            f"{self.plan.study}: {_many(len(self.entries), 'stack')}"
            + (f", {before} of them done already" if before else "")
            + (f"; {_many(self.plan.finished, 'run')} of earlier stacks used as they are" if self.plan.finished else "")
            + f"; runs in {self.store.path}"
        )
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def waiting(self) -> list[StackSpec]:
        """Not begun or to be gone on with."""
        return [entry.stack for entry in self.entries.values() if entry.state == "waiting"]

    def count(self, state: State) -> int:
        return sum(entry.state == state for entry in self.entries.values())

    def started(self, stack: StackSpec) -> None:
        entry = self.entries[stack.name]
        entry.state, entry.reason, entry.elsewhere, entry.progress = "running", "", False, {}
        if self._live is None:  # else the picture shows it
            self.say(f"{'going on' if self.store.started(stack) else 'started'}: {stack.title}")

    def ended(self, stack: StackSpec, outcome: Outcome, again: bool = False) -> None:
        """``again``: it will be tried once more."""
        entry = self.entries[stack.name]
        entry.progress = self.store.assignment(stack).read_progress() or entry.progress
        self.rates = Rates.of(self.store)
        if again or outcome.state == "busy":
            entry.state, entry.reason = "waiting", outcome.reason
            if outcome.state != "busy":
                self.say(f"trying again: {stack.title}: {outcome.reason}")
            return
        entry.state, entry.reason = outcome.state, outcome.reason
        log = self.store.assignment(stack).log
        if outcome.state == "done":
            self.say(f"done: {stack.title}{_scores(entry.progress)} ({self.count('done')} of {len(self.entries)})")
        elif outcome.state == "failed":
            self.say(f"FAILED: {stack.title}: {outcome.reason} Log: {log}")

    def tick(self) -> None:
        """Look at the running ones and show them."""
        for entry in self.entries.values():
            if entry.state == "running":
                entry.progress = self.store.assignment(entry.stack).read_progress() or entry.progress
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
        elif time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self.say(self.summary())

    def say(self, line: str) -> None:
        self._said = time.monotonic()
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def summary(self) -> str:
        """The study in a line."""
        counts = Counter(entry.state for entry in self.entries.values())
        parts = [f"{counts['done']} of {len(self.entries)} done"]
        parts += [f"{counts[s]} {s}" for s in ("running", "failed", "stopped", "waiting") if counts[s]]
        if elsewhere := sum(entry.state == "waiting" and entry.elsewhere for entry in self.entries.values()):
            parts[-1] += f" ({elsewhere} for another process that is at work on the same)"
        left = self.remaining() if counts["running"] + counts["waiting"] else None
        return f"{self.plan.study}: {', '.join(parts)}" + (f"; {left}" if left else "")

    def remaining(self) -> str:
        """How long it will take, as far as that was measured."""
        total, unknown = 0.0, 0
        measured = self.rates.with_(m for e in self.entries.values() if (m := _measured(e, self.device)) is not None)
        for entry in self.entries.values():
            if entry.state in ("running", "waiting"):
                done = int(entry.progress.get("step", 0)) if entry.state == "running" else 0
                seconds = measured.seconds(entry.stack, self.device, self.cores, done)
                total, unknown = total + (seconds or 0), unknown + (seconds is None)
        if not total:
            return "remaining time unknown yet"
        return f"{'more than' if unknown else 'about'} {duration(total)} left"

    def failures(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.state == "failed"]

    def _picture(self) -> Group:
        running = [entry for entry in self.entries.values() if entry.state == "running"]
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
        for entry in running:
            p = entry.progress
            step, updates = int(p.get("step", 0)), int(p.get("updates", entry.stack.method.updates))
            filled = round(_BAR * step / updates)
            watch = p.get("watch", {})
            rate = watch["updates"] / watch["training"] if watch.get("training") else 0
            table.add_row(
                Text(f"  {entry.stack.title}"),
                Text("━" * filled, style="blue") + Text("━" * (_BAR - filled), style="bright_black"),
                Text(f"{step}/{updates}"),
                Text(str(p.get("phase", "starting"))),
                Text(f"{rate:.3g} updates/s" if rate else ""),
                Text(_scores(p).lstrip(": ")),
            )
        failed = [
            Text(f"  failed: {e.stack.title}: {e.reason} Log: {self.store.assignment(e.stack).log}", style="red")
            for e in self.failures()
        ]
        return Group(Text(self.summary(), style="bold"), table, *failed)


def state_of(stack: StackSpec, store: Store, inventory: Inventory) -> str:
    """Where a stack stands, in a word or two."""
    if stack.data is None:
        return "no data"
    if inventory.done(stack):
        return "done"
    if alive(store.run(stack).claim):
        return "at work"
    before = store.assignment(stack).last_outcome()
    if before is not None and before.state == "failed":
        return "failed before"
    return "goes on" if store.started(stack) else "new"


def _measured(entry: Entry, device: str) -> Measurement | None:
    """The rates of a stack at work."""
    watch = entry.progress.get("watch", {})
    if entry.state != "running" or not watch.get("updates") or not watch.get("training"):
        return None
    mine = int(watch["cores"])
    return Measurement(
        kind=kind_of(entry.stack, device),
        seconds_per_update=watch["training"] / watch["updates"] * (mine if device == "cpu" else 1),
        # Before the first evaluation nothing is known of it; leave it out rather than guess.
        seconds_per_episode=watch["evaluating"] / watch["episodes"] * mine if watch["episodes"] else 0.0,
        memory=0,
    )


def _scores(progress: dict[str, Any]) -> str:
    if "reward" not in progress:
        return ""
    return f": reward {progress['reward']:.2f}, cost {progress['cost']:.2f}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """For people: 40 s, 12 min, 3 h 05 min, 2 d 4 h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"
