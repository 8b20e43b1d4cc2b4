"""A study on many machines: each stack is a Ray task with its needs, and all of them write to storage that they share.

The task only starts the same worker process that a local study starts and waits for it, so both ways give the same
files. When a machine goes away, Ray runs its tasks again elsewhere, and the worker there goes on from the last
checkpoint, once the claim on the run directory has been given up or has grown old.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from tracrl.claims import STALE_SECONDS
from tracrl.errors import TracrlError
from tracrl.methods.registry import how_to_import
from tracrl.stopping import stop_requests
from tracrl.study.board import Board
from tracrl.study.local import RETRIES, STACKS_A_GPU, outcome_of, start_worker
from tracrl.study.measured import Rates, memory_of
from tracrl.study.plan import Plan
from tracrl.study.stack import StackSpec
from tracrl.study.store import Assignment, Outcome, Store

SECONDS_A_LOOK = 1.0
PATIENCE = 3 * STALE_SECONDS
"""how long a task waits for a claim whose owner may be on a machine that has gone"""
SECONDS_TO_SAVE = 60.0


def run_on_ray(
    plan: Plan,
    store: Store,
    console: Console,
    *,
    address: str = "auto",
    device: str = "auto",
    cores: int = 1,
    retries: int = RETRIES,
    checkpoint_seconds: float = 60.0,
) -> Board:
    """Do what is not done yet on a Ray cluster. ``store`` must lie where every machine sees it under the same path."""
    ray = _ray()
    if cores < 1:
        raise TracrlError(f"--cores-per-run is {cores}; expected at least 1.")
    if plan.missing:
        raise TracrlError(plan.missing.sentence)
    with _connected(ray, address), stop_requests() as stop:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        if device == "cuda" and not gpus:
            raise TracrlError("--device cuda: no machine of the Ray cluster has a GPU; use --device cpu.")
        used = "cuda" if device != "cpu" and gpus else "cpu"
        todo = store.prepare(plan)
        store = Store(store.path.resolve())
        board = Board(todo, store, console, used, int(resources.get("CPU", 1)))
        rates = Rates.of(store)
        task = ray.remote(_work)
        with board:
            pending: dict[Any, StackSpec] = {}
            demands = []
            for stack in board.waiting():  # all are looked at before the first is started
                needs = {
                    "num_cpus": cores,
                    "num_gpus": 1 / STACKS_A_GPU if used == "cuda" else 0,
                    "memory": memory_of(stack, rates, used, cores),
                }
                _check_needs(stack, needs, ray.nodes())
                demands.append((stack, needs))
            for stack, needs in demands:
                # Ray's own retries are for machines and processes that die; what the worker says is an answer.
                options = {**needs, "max_retries": retries, "retry_exceptions": False, "name": stack.title}
                reference = task.options(**options).remote(
                    str(store.assignment(stack).path),
                    str(store.path),
                    used,
                    cores,
                    how_to_import(type(stack.method)),
                    checkpoint_seconds,
                )
                pending[reference] = stack
                board.entries[stack.name].state = "running"
            while pending and not stop.is_set():
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=SECONDS_A_LOOK)
                for reference in ready:
                    board.ended(pending.pop(reference), _answer(ray, reference))
                _mark_waiting(board, pending)
                board.tick()
            if pending:
                _cancel(ray, pending, board)
        board.stopped_with = stop.exit_code if stop.is_set() else None
    return board


def _work(
    assignment: str, out: str, device: str, cores: int, method: str | None, checkpoint_seconds: float
) -> dict[str, Any]:
    """What runs on the cluster's machines."""
    if not Assignment(Path(assignment)).stack.is_file():
        return asdict(
            Outcome(
                "failed",
                f"The machine {os.uname().nodename} does not see {out}: put the runs on storage that all machines "
                "share, under the same path, and say it with --out.",
            )
        )
    with _leased_cores(cores) as mine:
        process = start_worker(
            Assignment(Path(assignment)),
            Store(Path(out)),
            device=device,
            cores=mine,
            method=method,
            patience=PATIENCE,
            checkpoint_seconds=checkpoint_seconds,
        )
        try:
            while process.poll() is None:  # Ray's cancelling is no signal: it is noticed between two looks
                time.sleep(0.2)
        except BaseException:  # cancelled: let it save what it has
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_SAVE)
            process.kill()
            raise
    outcome = outcome_of(process)
    if outcome.state == "failed" and not outcome.final:
        os.kill(os.getpid(), signal.SIGKILL)  # the way to tell Ray that it should try again, here or elsewhere
    return asdict(outcome)


@contextlib.contextmanager
def _leased_cores(count: int) -> Iterator[tuple[int, ...]]:
    """Cores of this machine that no other task of ours has.

    Ray counts cores and does not say which. A worker has to know: it starts a simulator for each of its cores.
    """
    directory = Path(tempfile.gettempdir()) / f"tracrl-cores-{os.getuid()}"
    directory.mkdir(exist_ok=True)
    everything = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as held:
        mine: list[int] = []
        for core in everything:
            file = held.enter_context((directory / str(core)).open("w"))
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given up by the kernel when this process ends
                mine.append(core)
            if len(mine) == count:
                break
        spare = [core for core in everything if core not in mine]
        yield tuple(mine + random.sample(spare, min(count - len(mine), len(spare))))


def _answer(ray: Any, reference: Any) -> Outcome:
    try:
        return Outcome(**ray.get(reference))
    except ray.exceptions.TaskCancelledError:
        return Outcome("stopped", "Stopped.", final=False)
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return Outcome("failed", f"Ray gave it up after its retries: {first[:300]}", final=False)


def _mark_waiting(board: Board, pending: dict[Any, StackSpec]) -> None:
    """Tasks that Ray has not started yet are shown as waiting: their worker has not said anything since we began."""
    for stack in pending.values():
        entry = board.entries[stack.name]
        at_work = board.store.run(stack).claim.exists()
        if at_work and entry.state == "waiting":
            board.started(stack)
        elif not at_work and entry.state == "running":
            entry.state = "waiting"


def _cancel(ray: Any, pending: dict[Any, StackSpec], board: Board) -> None:
    board.say("Stopping: every run is being saved.")
    for reference in pending:
        ray.cancel(reference)
    deadline = time.monotonic() + SECONDS_TO_SAVE
    while pending and time.monotonic() < deadline:
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=SECONDS_A_LOOK)
        for reference in ready:
            board.ended(pending.pop(reference), _answer(ray, reference))
    for stack in pending.values():
        board.ended(stack, Outcome("stopped", "Stopped.", final=False))


def _check_needs(stack: StackSpec, needs: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    """A task that fits on no machine would wait forever."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    if not any(all(node.get(names[n], 0) >= amount for n, amount in needs.items()) for node in alive):
        raise TracrlError(
            f"{stack.title} fits on no machine of the Ray cluster: it needs {needs['num_cpus']} cores, "
            f"{needs['num_gpus']:g} GPUs and {needs['memory'] / 2**30:.1f} GiB of memory."
        )


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise TracrlError("--backend ray needs the package ray: pip install 'tracrl[ray]'.") from error
    return ray


@contextlib.contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise TracrlError(
            f"There is no Ray cluster at address {address!r} ({str(error).splitlines()[0]}): start one with "
            "`ray start --head`, or say its address with --address."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise if nobody listens at host:port. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "//" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()
