"""A study on this machine: a process for each stack, as many at a time as cores and memory allow."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console

from tracrl.claims import alive
from tracrl.errors import TracrlError
from tracrl.memory import available_memory
from tracrl.methods.registry import how_to_import
from tracrl.processes import limited_to, number_of, python_command
from tracrl.stopping import stop_requests
from tracrl.study.board import Board
from tracrl.study.measured import Rates, memory_of
from tracrl.study.plan import Plan
from tracrl.study.stack import StackSpec
from tracrl.study.store import Assignment, Outcome, Store

SECONDS_A_LOOK = 0.2
SECONDS_FOR_BUSY = 5.0
"""before a stack that another process is at work on is asked for again"""
RETRIES = 2
"""of a stack whose process was killed; each goes on from the last checkpoint"""
STACKS_A_GPU = 2
"""one trains while the other one's policies are in the simulator"""
MEMORY_SHARE = 0.85


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
    stack: StackSpec
    process: subprocess.Popen[str]
    cores: tuple[int, ...]
    gpu: int | None
    memory: int


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
        self.retries = {stack.name: retries for stack in board.waiting()}
        self.not_before: dict[str, float] = {}
        self.at_work: list[_Worker] = []

    def work(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set() and (self.at_work or self.board.waiting()):
                self._start()
                time.sleep(SECONDS_A_LOOK)
                self._check()
            if stop.is_set():
                self._stop()
        finally:
            for worker in self.at_work:  # only after a second Ctrl-C, or an error of our own
                worker.process.kill()
                worker.process.wait()
                self.board.ended(worker.stack, Outcome("stopped", "Killed."))

    def _start(self) -> None:
        """Start as many as there is room for."""
        now = time.monotonic()
        ready = [stack for stack in self.board.waiting() if self.not_before.get(stack.name, 0.0) <= now]
        for stack in ready:
            if alive(self.board.store.run(stack).claim):  # another process is at it: look again later
                self.not_before[stack.name] = now + SECONDS_FOR_BUSY
                self.board.entries[stack.name].elsewhere = True
        ready = [stack for stack in ready if self.not_before.get(stack.name, 0.0) <= now]
        rates = self.board.rates
        for place, stack in enumerate(ready):
            places = min(self.most - len(self.at_work), len(ready) - place)
            busy = {core for worker in self.at_work for core in worker.cores}
            free = [core for core in self.machine.cores if core not in busy]
            if places < 1 or (not free and self.device == "cpu"):
                return
            # The cores that are free are shared out among those who can start now; more than it has runs are no
            # use to a stack.
            share = min(max(1, len(free) // places), len(stack.trained))
            cores = tuple(free[:share]) or self.machine.cores
            memory = memory_of(stack, rates, self.device, len(cores))
            held = sum(worker.memory for worker in self.at_work)
            if self.at_work and held + memory > MEMORY_SHARE * self.machine.memory:
                return  # later, when another has gone; a single one always gets its chance
            gpu = None
            if self.device == "cuda":
                load = {g: sum(worker.gpu == g for worker in self.at_work) for g in range(self.machine.gpus)}
                gpu = min(load, key=lambda g: load[g])
            assignment = self.board.store.assignment(stack)
            process = start_worker(
                assignment,
                self.board.store,
                device=self.device,
                cores=cores,
                method=how_to_import(type(stack.method)),
                gpu=gpu,
                checkpoint_seconds=self.checkpoint_seconds,
            )
            self.at_work.append(_Worker(stack, process, cores, gpu, memory))
            self.board.started(stack)

    def _check(self) -> None:
        for worker in [w for w in self.at_work if w.process.poll() is not None]:
            self.at_work.remove(worker)
            outcome = outcome_of(worker.process)
            name = worker.stack.name
            again = outcome.state == "failed" and not outcome.final and self.retries[name] > 0
            if again:
                self.retries[name] -= 1
            if outcome.state == "busy":
                self.not_before[name] = time.monotonic() + SECONDS_FOR_BUSY
            self.board.ended(worker.stack, outcome, again)
        self.board.tick()

    def _stop(self) -> None:
        """Have everybody save and stop. A second Ctrl-C comes as KeyboardInterrupt and does not wait."""
        self.board.say("Stopping: every run is being saved (Ctrl-C again stops at once).")
        for worker in self.at_work:
            worker.process.terminate()
        for worker in list(self.at_work):
            worker.process.wait()
            self.at_work.remove(worker)
            self.board.ended(worker.stack, outcome_of(worker.process))


def start_worker(
    assignment: Assignment,
    store: Store,
    *,
    device: str,
    cores: tuple[int, ...],
    method: str | None = None,
    gpu: int | None = None,
    patience: float = 0.0,
    checkpoint_seconds: float = 60.0,
    calibrate: bool = False,
) -> subprocess.Popen[str]:
    """A process at work on one stack, on these cores, in a session of its own: Ctrl-C is for us alone."""
    environment = limited_to(len(cores))
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = _visible(gpu, os.environ)
    command = python_command("tracrl.study.worker", str(assignment.path), "--out", str(store.path))
    command += ["--device", device, "--cores", str(len(cores)), "--patience", str(patience)]
    command += ["--checkpoint-seconds", str(checkpoint_seconds), "--parent", str(os.getpid())]
    command += ["--method", method] if method else []
    process = subprocess.Popen(
        command + (["--calibrate"] if calibrate else []),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    )
    with contextlib.suppress(OSError):  # gone already, or not allowed: then it shares all cores
        os.sched_setaffinity(process.pid, cores)
    return process


def outcome_of(process: subprocess.Popen[str]) -> Outcome:
    """How a process that has ended says it ended, or what its end says."""
    assert process.stdout is not None
    with process.stdout as said:
        lines = said.read().splitlines()
    if lines:
        with contextlib.suppress(ValueError, TypeError):
            return Outcome(**json.loads(lines[-1]))
    code = process.returncode
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (out of memory, if nobody did it on purpose)" if -code == signal.SIGKILL else ""
        return Outcome("failed", f"Its process was killed by {name}{hint}.", final=False)
    return Outcome("failed", f"Its process ended with status {code} and said nothing.", final=False)


def calibrate(plan: Plan, store: Store, console: Console, machine: Machine, used: str) -> None:
    """Measure some seconds of each kind of stack whose rate on the used device is not known yet."""
    for stack in store.remaining(plan).stacks:
        if store.done(stack) or Rates.of(store).find(stack, used) is not None:
            continue
        console.print(f"Measuring {stack.title} ...", markup=False, highlight=False)
        store.prepare(Plan(plan.study, (stack,)))
        worker = start_worker(
            store.assignment(stack),
            store,
            device=used,
            cores=machine.cores[:1],
            method=how_to_import(type(stack.method)),
            calibrate=True,
        )
        with _killed_at_the_end(worker):
            worker.wait()
        outcome = outcome_of(worker)
        if outcome.state != "done":
            console.print(f"  {outcome.reason}", markup=False, highlight=False)


def _visible(gpu: int, environment: Mapping[str, str]) -> str:
    """The name of our n-th GPU where only some of the machine's are ours."""
    given = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return given[gpu] if gpu < len(given) else str(gpu)


@contextlib.contextmanager
def _killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()
