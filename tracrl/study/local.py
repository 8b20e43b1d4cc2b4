"""A study on this machine: a process for each stack, as many at a time as cores and memory allow."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from tracrl.claims import alive
from tracrl.errors import TracrlError
from tracrl.memory import available_memory
from tracrl.processes import number_of
from tracrl.stopping import stop_requests
from tracrl.study.board import Board
from tracrl.study.collecting import CollectionSpec
from tracrl.study.measured import Rates, memory_of_job
from tracrl.study.plan import Plan
from tracrl.study.processes import Outside, outcome_of, start_worker
from tracrl.study.store import Job, Outcome, Store

SECONDS_A_LOOK = 0.2
SECONDS_FOR_BUSY = 5.0
"""before a stack that another process is at work on is asked for again"""
RETRIES = 2
"""of a stack whose process was killed; each goes on from the last checkpoint"""
STACKS_A_GPU = 2
"""one trains while the other one's policies are in the simulator"""
MEMORY_SHARE = 0.85
SECONDS_WORTH_A_RESTART = 60.0
"""that a worker must gain, at least, to be stopped and started again on more cores"""


@dataclass(frozen=True)
class Machine:
    """What there is to share out."""

    cores: tuple[int, ...]
    memory: int
    gpus: int

    @classmethod
    def this(cls) -> Machine:
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return cls(tuple(sorted(os.sched_getaffinity(0))), available_memory(), gpus)

    def device(self, asked: str) -> str:
        """What ``--device`` means here: cuda or cpu."""
        from tracrl.train.devices import kind_of_device

        return kind_of_device(asked, self.gpus > 0)


def run_locally(
    plan: Plan,
    store: Store,
    console: Console,
    *,
    device: str = "auto",
    workers: int | None = None,
    retries: int = RETRIES,
    checkpoint_seconds: float = 60.0,
    machine: Machine | None = None,
) -> Board:
    """Do what is not done yet. The board says how each stack ended; one that fails does not stop the others."""
    if plan.missing:
        raise TracrlError(plan.missing.sentence)
    machine = machine or Machine.this()
    used = machine.device(device)
    most = number_of(workers, STACKS_A_GPU * machine.gpus if used == "cuda" else len(machine.cores))
    board = Board(store.prepare(plan), store, console, used, len(machine.cores))
    with board, stop_requests() as stop:
        _Workers(board, machine, used, most, retries, checkpoint_seconds).work(stop)
    board.stopped_with = stop.exit_code if stop.is_set() else None
    return board


@dataclass
class _Worker:
    job: Job
    process: subprocess.Popen[str]
    cores: tuple[int, ...]
    gpu: int | None
    memory: int
    since: float
    widening: bool = False
    """it was told to stop, to go on with more cores"""


class _Workers:
    """The processes at work and what each of them has of the machine."""

    def __init__(
        self,
        board: Board,
        machine: Machine,
        device: str,
        most: int,
        retries: int,
        checkpoint_seconds: float,
    ):
        """``most``: at work at a time."""
        self.board, self.machine, self.device, self.checkpoint_seconds = board, machine, device, checkpoint_seconds
        self.most = most
        self.retries: defaultdict[str, int] = defaultdict(lambda: retries)
        self.not_before: dict[str, float] = {}
        self.at_work: list[_Worker] = []

    def work(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set() and (self.at_work or self.board.waiting()):
                self._start()
                self._widen()
                time.sleep(SECONDS_A_LOOK)
                self._check()
            if stop.is_set():
                self._stop()
        finally:
            for worker in self.at_work:  # only after a second Ctrl-C, or an error of our own
                worker.process.kill()
                worker.process.wait()
                self.board.ended(worker.job, Outcome("stopped", "Killed."))

    def _start(self) -> None:
        """Start as many as there is room for."""
        now = time.monotonic()
        ready = [job for job in self.board.waiting() if self.not_before.get(job.name, 0.0) <= now]
        for job in ready:
            if alive(self.board.store.claim(job)):  # another process is at it: look again later
                self.not_before[job.name] = now + SECONDS_FOR_BUSY
                self.board.entries[job.name].elsewhere = True
        ready = [job for job in ready if self.not_before.get(job.name, 0.0) <= now]
        for place, job in enumerate(ready):
            collects = isinstance(job, CollectionSpec)
            # Collections need no GPU: they leave the places at it to others, and half of the cores.
            apart = self.device == "cuda" and collects
            most = max(1, len(self.machine.cores) // 2) if apart else self.most
            alike = [other for other in ready[place:] if self.device == "cpu" or _kind(other) == _kind(job)]
            at_work = [w for w in self.at_work if self.device == "cpu" or _kind(w.job) == _kind(job)]
            places = min(most - len(at_work), len(alike))
            busy = {core for worker in self.at_work for core in worker.cores}
            free = [core for core in self.machine.cores if core not in busy]
            if places < 1 or (not free and self.device == "cpu"):
                continue
            # The cores that are free are shared out among those who can start now; more than it has runs are no
            # use to a stack.
            available = max(1, len(free) // 2) if apart else len(free)
            share = _useful(job, max(1, available // places))
            cores = tuple(free[:share]) or self.machine.cores
            memory = memory_of_job(job, self.board.rates, self.device, len(cores))
            held = sum(worker.memory for worker in self.at_work)
            if self.at_work and held + memory > MEMORY_SHARE * self.machine.memory:
                return  # later, when another has gone; a single one always gets its chance
            gpu = None
            if self.device == "cuda" and not collects:
                load = {g: sum(worker.gpu == g for worker in self.at_work) for g in range(self.machine.gpus)}
                gpu = min(load, key=lambda g: load[g])
            process = start_worker(
                self.board.store.assignment(job),
                self.board.store,
                device="cpu" if collects else self.device,
                cores=cores,
                outside=Outside.of(job),
                gpu=gpu,
                checkpoint_seconds=self.checkpoint_seconds,
            )
            self.at_work.append(_Worker(job, process, cores, gpu, memory, time.monotonic()))
            self.board.started(job)

    def _widen(self) -> None:
        """Cores that nobody else can use go to who gains most by them: it saves, stops, and goes on with more."""
        busy = {core for worker in self.at_work for core in worker.cores}
        free = len(self.machine.cores) - len(busy)
        if self.device != "cpu" or not free or self.board.waiting() or any(w.widening for w in self.at_work):
            return
        gains = {id(worker): self._gain(worker, free) for worker in self.at_work}
        worker = max(self.at_work, key=lambda w: gains[id(w)], default=None)
        if worker is not None and gains[id(worker)] > SECONDS_WORTH_A_RESTART:
            worker.widening = True
            worker.process.terminate()

    def _gain(self, worker: _Worker, free: int) -> float:
        """Seconds that a worker would be done earlier with the free cores."""
        progress = self.board.entries[worker.job.name].progress
        step, first, updates = (float(progress.get(name, 0)) for name in ("step", "first", "updates"))
        elapsed = time.monotonic() - worker.since
        if step <= first or elapsed < SECONDS_WORTH_A_RESTART:
            return 0.0
        mine = len(worker.cores)
        most = _useful(worker.job, mine + free)
        return elapsed * (updates - step) / (step - first) * (1 - mine / max(most, mine))

    def _check(self) -> None:
        for worker in [w for w in self.at_work if w.process.poll() is not None]:
            self.at_work.remove(worker)
            outcome = outcome_of(worker.process)
            name = worker.job.name
            again = outcome.state == "failed" and not outcome.final and self.retries[name] > 0
            if again:
                self.retries[name] -= 1
            if worker.widening and outcome.state == "stopped":
                self.board.entries[name].state = "waiting"
                self.board.say(f"on more cores: {worker.job.title}")
                continue
            if outcome.state == "busy":
                self.not_before[name] = time.monotonic() + SECONDS_FOR_BUSY
            self.board.ended(worker.job, outcome, again)
        self.board.tick()

    def _stop(self) -> None:
        """Have everybody save and stop. A second Ctrl-C comes as KeyboardInterrupt and does not wait."""
        self.board.say("Stopping: every run is being saved (Ctrl-C again stops at once).")
        for worker in self.at_work:
            worker.process.terminate()
        for worker in list(self.at_work):
            worker.process.wait()
            self.at_work.remove(worker)
            self.board.ended(worker.job, outcome_of(worker.process))


def _kind(job: Job) -> type:
    return type(job)


def _useful(job: Job, cores: int) -> int:
    """So many of the cores at most."""
    return cores if isinstance(job, CollectionSpec) else min(cores, len(job.trained))


def calibrate(plan: Plan, store: Store, console: Console, machine: Machine, used: str) -> None:
    """Measure some seconds of each kind of stack whose rate on the used device is not known yet."""
    for stack in store.remaining(plan).stacks:
        if stack.data is None or store.done(stack) or Rates.of(store).find(stack, used) is not None:
            continue
        console.print(f"Measuring {stack.title} ...", markup=False, highlight=False)
        store.prepare(Plan(plan.study, (stack,)))
        worker = start_worker(
            store.assignment(stack),
            store,
            device=used,
            cores=machine.cores[:1],
            outside=Outside.of(stack),
            calibrate=True,
        )
        with _killed_at_the_end(worker):
            worker.wait()
        outcome = outcome_of(worker)
        if outcome.state != "done":
            console.print(f"  {outcome.reason}", markup=False, highlight=False)


@contextlib.contextmanager
def _killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()
