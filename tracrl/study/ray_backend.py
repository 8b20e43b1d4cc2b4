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
from tracrl.stopping import stop_requests
from tracrl.study.board import Board
from tracrl.study.collecting import CollectionSpec
from tracrl.study.local import RETRIES, STACKS_A_GPU
from tracrl.study.measured import Rates, memory_of_job
from tracrl.study.plan import Plan
from tracrl.study.processes import Outside, outcome_of, start_worker
from tracrl.study.stack import StackSpec
from tracrl.study.store import Assignment, Job, Outcome, Store

SECONDS_A_LOOK = 1.0
PATIENCE = 3 * STALE_SECONDS
"""how long a task waits for a claim whose owner may be on a machine that has gone"""
SECONDS_TO_SAVE = 60.0
COLLECTING_CORES = 4


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
            pending: dict[Any, Job] = {}

            def submit() -> None:
                """Everything that can be done now; all of it is looked at before the first is started."""
                at_hand = {job.name for job in pending.values()}
                demands = []
                for job in [job for job in board.waiting() if job.name not in at_hand]:
                    mine = _cores_for(job, cores, ray.nodes())
                    needs = {
                        "num_cpus": mine,
                        "num_gpus": 1 / STACKS_A_GPU if used == "cuda" and isinstance(job, StackSpec) else 0,
                        "memory": memory_of_job(job, rates, used, mine),
                    }
                    _check_needs(job, needs, ray.nodes())
                    demands.append((job, needs, mine))
                for job, needs, mine in demands:
                    # Ray's own retries are for machines and processes that die; what the worker says is an answer.
                    options = {**needs, "max_retries": retries, "retry_exceptions": False, "name": job.title}
                    reference = task.options(**options).remote(
                        str(store.assignment(job).path),
                        str(store.path),
                        used if isinstance(job, StackSpec) else "cpu",
                        mine,
                        asdict(Outside.of(job)),
                        checkpoint_seconds,
                    )
                    pending[reference] = job
                    board.entries[job.name].state = "running"

            submit()
            while pending and not stop.is_set():
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=SECONDS_A_LOOK)
                for reference in ready:
                    job = pending.pop(reference)
                    board.ended(job, _answer(ray, reference))
                    if isinstance(job, CollectionSpec):  # what waited for its data
                        submit()
                _mark_waiting(board, pending)
                board.tick()
            if pending:
                _cancel(ray, pending, board)
        board.stopped_with = stop.exit_code if stop.is_set() else None
    return board


def _work(
    assignment: str, out: str, device: str, cores: int, outside: dict[str, str | None], checkpoint_seconds: float
) -> dict[str, Any]:
    """What runs on the cluster's machines."""
    told = Assignment(Path(assignment))
    if not told.stack.is_file() and not told.collection.is_file():
        return asdict(
            Outcome(
                "failed",
                f"The machine {os.uname().nodename} does not see {out}: put the runs on storage that all machines "
                "share, under the same path, and say it with --out.",
            )
        )
    with _leased_cores(cores) as mine:
        process = start_worker(
            told,
            Store(Path(out)),
            device=device,
            cores=mine,
            outside=Outside(**outside),
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


def _mark_waiting(board: Board, pending: dict[Any, Job]) -> None:
    """Tasks that Ray has not started yet are shown as waiting: their worker has not said anything since we began."""
    for job in pending.values():
        entry = board.entries[job.name]
        at_work = board.store.claim(job).exists()
        if at_work and entry.state == "waiting":
            board.started(job)
        elif not at_work and entry.state == "running":
            entry.state = "waiting"


def _cancel(ray: Any, pending: dict[Any, Job], board: Board) -> None:
    board.say("Stopping: every run is being saved.")
    for reference in pending:
        ray.cancel(reference)
    deadline = time.monotonic() + SECONDS_TO_SAVE
    while pending and time.monotonic() < deadline:
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=SECONDS_A_LOOK)
        for reference in ready:
            board.ended(pending.pop(reference), _answer(ray, reference))
    for job in pending.values():
        board.ended(job, Outcome("stopped", "Stopped.", final=False))


def _cores_for(job: Job, cores: int, nodes: list[dict[str, Any]]) -> int:
    """A collection plays many episodes at a time: a few cores of its own, where a machine has them."""
    if isinstance(job, StackSpec):
        return cores
    largest = max((int(node["Resources"].get("CPU", 1)) for node in nodes if node["Alive"]), default=1)
    return max(1, min(COLLECTING_CORES, largest))


def _check_needs(stack: Job, needs: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
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
