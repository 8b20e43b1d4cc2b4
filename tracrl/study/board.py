"""How a study shows where it is: done, running, failed and why, and how long it will take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tracrl.claims import alive
from tracrl.errors import TracrlError
from tracrl.study.collecting import CollectionSpec
from tracrl.study.inventory import Inventory
from tracrl.study.measured import Measurement, Rates, kind_of
from tracrl.study.plan import Plan
from tracrl.study.stack import StackSpec
from tracrl.study.store import Job, Outcome, Store
from tracrl.tasks.table import get_task

SECONDS_BETWEEN_LINES = 60.0
_BAR = 20

State = Literal["waiting", "running", "done", "failed", "stopped"]


@dataclass
class Entry:
    """A job on the board."""

    job: Job
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
        # Those that make data first: others wait for them.
        self.entries: dict[str, Entry] = {job.name: Entry(job) for job in plan.collections}
        self.later = [stack for stack in plan.stacks if stack.data is None]
        """stacks whose data are not there yet"""
        self._add(stack for stack in plan.stacks if stack.data is not None)
        for entry in self.entries.values():
            entry.here_before = entry.state == "done"
        self.rates = Rates.of(store)
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._said = time.monotonic()
        self.stopped_with: int | None = None
        """where it was stopped from outside: what shells show for the signal"""

    def __enter__(self) -> Self:
        before = self.count("done")
        self.say(
            f"{self.plan.study}: {_many(len(self.plan.stacks), 'stack')}"
            + (f", {_many(len(self.plan.collections), 'data set')} to collect" if self.plan.collections else "")
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

    def waiting(self) -> list[Job]:
        """Not begun or to be gone on with."""
        return [entry.job for entry in self.entries.values() if entry.state == "waiting"]

    def stacks(self) -> list[StackSpec]:
        """All that were planned, with their data as far as these are there."""
        arrived = {
            entry.job.task: entry.job.data for entry in self.entries.values() if isinstance(entry.job, StackSpec)
        }
        return [
            replace(stack, data=arrived[stack.task]) if stack.data is None and stack.task in arrived else stack
            for stack in self.plan.stacks
        ]

    @property
    def total(self) -> int:
        """Jobs in all."""
        return len(self.entries) + len(self.later)

    @property
    def all_done(self) -> bool:
        return self.count("done") == self.total

    def _add(self, stacks: Iterable[StackSpec]) -> None:
        inventory = self.store.inventory()
        for stack in stacks:
            self.entries[stack.name] = Entry(stack, "done" if inventory.done(stack) else "waiting")

    def _take_in(self, collection: CollectionSpec) -> None:
        """The data are there: what waited for them can be done. Raises where they are not what was to be collected."""
        data = self.store.data.data_set(get_task(collection.task))
        if data is None:
            raise TracrlError(
                f"{collection.file} was collected but is not seen here: set DSRL_DATASET_DIR to a folder that all "
                "machines share."
            )
        arrived = [replace(stack, data=data) for stack in self.later if stack.task == collection.task]
        self.later = [stack for stack in self.later if stack.task != collection.task]
        self._add(self.store.prepare(Plan(self.plan.study, tuple(arrived))).stacks)

    def count(self, state: State) -> int:
        return sum(entry.state == state for entry in self.entries.values())

    def started(self, job: Job) -> None:
        entry = self.entries[job.name]
        entry.state, entry.reason, entry.elsewhere, entry.progress = "running", "", False, {}
        if self._live is None:  # else the picture shows it
            self.say(f"{'going on' if self.store.started(job) else 'started'}: {job.title}")

    def ended(self, job: Job, outcome: Outcome, again: bool = False) -> None:
        """``again``: it will be tried once more."""
        entry = self.entries[job.name]
        entry.progress = self.store.assignment(job).read_progress() or entry.progress
        self.rates = Rates.of(self.store)
        if isinstance(job, CollectionSpec) and outcome.state == "done":
            try:
                self._take_in(job)
            except TracrlError as error:
                outcome = Outcome("failed", str(error))
        if again or outcome.state == "busy":
            entry.state, entry.reason = "waiting", outcome.reason
            if outcome.state != "busy":
                self.say(f"trying again: {job.title}: {outcome.reason}")
            return
        entry.state, entry.reason = outcome.state, outcome.reason
        log = self.store.assignment(job).log
        if outcome.state == "done":
            self.say(f"done: {job.title}{_scores(entry.progress)} ({self.count('done')} of {self.total})")
        elif outcome.state == "failed":
            self.say(f"FAILED: {job.title}: {outcome.reason} Log: {log}")

    def tick(self) -> None:
        """Look at the running ones and show them."""
        for entry in self.entries.values():
            if entry.state == "running":
                entry.progress = self.store.assignment(entry.job).read_progress() or entry.progress
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
        parts = [f"{counts['done']} of {self.total} done"]
        parts += [f"{counts[s]} {s}" for s in ("running", "failed", "stopped") if counts[s]]
        parts += [f"{len(self.later)} waiting for data"] if self.later else []
        parts += [f"{counts['waiting']} waiting"] if counts["waiting"] else []
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
                if isinstance(entry.job, CollectionSpec):
                    seconds = measured.collecting(entry.job, self.cores)
                else:
                    seconds = measured.seconds(entry.job, self.device, self.cores, done)
                total, unknown = total + (seconds or 0), unknown + (seconds is None)
        unknown += len(self.later)
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
            step, updates = int(p.get("step", 0)), int(p.get("updates", 1))
            filled = min(_BAR, round(_BAR * step / max(updates, 1)))
            watch = p.get("watch", {})
            rate = watch["updates"] / watch["training"] if watch.get("training") else 0
            table.add_row(
                Text(f"  {entry.job.title}"),
                Text("━" * filled, style="blue") + Text("━" * (_BAR - filled), style="bright_black"),
                Text(f"{step}/{updates}"),
                Text(str(p.get("phase", "starting"))),
                Text(f"{rate:.3g} updates/s" if rate else ""),
                Text(_scores(p).lstrip(": ")),
            )
        failed = [
            Text(f"  failed: {e.job.title}: {e.reason} Log: {self.store.assignment(e.job).log}", style="red")
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
    if isinstance(entry.job, CollectionSpec) or entry.state != "running":
        return None
    if not watch.get("updates") or not watch.get("training"):
        return None
    mine = int(watch["cores"])
    return Measurement(
        kind=kind_of(entry.job, device),
        seconds_per_update=watch["training"] / watch["updates"] * (mine if device == "cpu" else 1),
        # Before the first evaluation nothing is known of it; leave it out rather than guess.
        seconds_per_episode=watch["evaluating"] / watch["episodes"] * mine if watch["episodes"] else 0.0,
        memory=0,
    )


def _scores(progress: dict[str, Any]) -> str:
    told = [f"{name} {progress[name]:.2f}" for name in ("reward", "return", "cost") if name in progress]
    return f": {', '.join(told)}" if told else ""


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
