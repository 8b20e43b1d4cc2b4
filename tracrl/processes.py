"""Programs of ours that run beside us: each is sent requests over a pipe and sends an answer to each.

They are neither forked nor spawned by ``multiprocessing``, so they inherit no threads of torch's, and the user's script
needs no guard.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import IO, Any, TypeVar

from tracrl.errors import TracrlError

Job = TypeVar("Job")
SECONDS_TO_END = 3.0
"""For all processes together, to leave their simulators in order."""
ATTEMPTS = 2
"""at a job whose process dies"""
ANSWER_SECONDS = 600.0
"""After so long without an answer a process counts as standing still. ``$TRACRL_ANSWER_SECONDS`` sets another time, for
simulators in which an episode takes longer."""


class WorkerError(TracrlError):
    """A process died, and so did the one in its place; or it stood still; or it said why it cannot go on."""


class _DiedError(WorkerError):
    """One process died."""


def limited_to(threads: int) -> dict[str, str]:
    """Our environment, for a process whose numerical libraries are to start so many threads, and not one per core."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads))}


def number_of(workers: int | None, otherwise: int | None = None) -> int:
    """How many run side by side: as many as were asked for, else ``otherwise``, else one per core."""
    if workers is not None and workers < 1:
        raise TracrlError(f"--workers is {workers}; expected at least 1.")
    return workers or otherwise or len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Failure:
    """What a process answers when it cannot go on: a sentence for the user."""

    message: str


@dataclass(frozen=True)
class _Process:
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    """what it writes to its standard error"""
    arguments: tuple[str, ...]


class Processes:
    """The processes of one module. ``name`` is what they simulate, for the sentence that says that one died."""

    def __init__(self, module: str, name: str, answer_seconds: float | None = None):
        """``answer_seconds``: how long an answer may take; by default :data:`ANSWER_SECONDS`."""
        self.module, self.name = module, name
        self.answer_seconds = answer_seconds or _answer_seconds()
        self._open: dict[Connection, _Process] = {}
        self._asked: Mapping[Connection, Any] = {}
        """those whose answers are awaited"""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    @property
    def pids(self) -> list[int]:
        return [opened.process.pid for opened in self._open.values()]

    def start(self, *arguments: str) -> Connection:
        """One more, which gets its end of the pipe as its first argument and then these."""
        ours, theirs = Pipe()
        _limit(ours, self.answer_seconds)
        try:
            log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
            process = subprocess.Popen(
                python_command(self.module, str(theirs.fileno()), *arguments, parent=os.getpid()),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=limited_to(1),
                process_group=0,  # a Ctrl-C in the terminal is the parent's alone
            )
        except OSError as error:
            ours.close()
            raise TracrlError(
                f"A simulator process of {self.name} cannot be started ({error.strerror or error}): make room in the "
                "temporary folder (TMPDIR names another one), or end other processes."
            ) from error
        finally:
            theirs.close()
        self._open[ours] = _Process(process, log, arguments)
        return ours

    def share_out(self, jobs: Iterable[Job], request: Callable[[Connection, Job], Any]) -> Iterator[tuple[Job, Any]]:
        """Each job with its answer, in the order in which they are done; ``request`` says what to send for a job.

        The job of a process that dies is given to another one, which is started in its place.
        """
        asked: dict[Connection, tuple[Job, int, float]] = {}
        """job, attempts at it before, and the time by which there should be an answer"""
        self._asked = asked
        waiting = iter(jobs)
        again: list[tuple[Job, int]] = []

        def next_job() -> tuple[Job, int] | None:
            return again.pop() if again else next(((job, 0) for job in waiting), None)

        try:
            while True:
                for connection in [connection for connection in self._open if connection not in asked]:
                    if (given := next_job()) is None:
                        break
                    asked[connection] = *given, time.monotonic() + self.answer_seconds
                    with contextlib.suppress(ConnectionError):  # a dead one is found when its answer is read
                        self._send(connection, request(connection, given[0]))
                if not asked:
                    if next_job() is not None:
                        raise TracrlError(f"No simulator process of {self.name} is running.")
                    return
                patience = min(until for _, _, until in asked.values()) - time.monotonic()
                ready = [c for c in wait(list(asked), max(patience, 0.0)) if isinstance(c, Connection)]
                if not ready and patience <= 0:
                    raise self._standstill()
                for connection in ready:
                    try:
                        answer = self.receive(connection)
                    except _DiedError as error:
                        job, attempts, _ = asked[connection]
                        if attempts + 1 >= ATTEMPTS:
                            raise WorkerError(f"{error}; another one that was given the same work died too.") from error
                        del asked[connection]
                        again.append((job, attempts + 1))
                        self._replace(connection)
                        continue
                    yield asked.pop(connection)[0], answer
        finally:
            if asked:  # left in the middle: answers that are still under way must not be taken for later ones
                self.close()

    def receive(self, connection: Connection) -> Any:
        """The next answer of one process."""
        try:
            answer = connection.recv()
        except BlockingIOError as error:
            raise self._standstill() from error
        except (EOFError, ConnectionError) as error:
            raise _DiedError(self._cause_of_death(connection)) from error
        if isinstance(answer, Failure):
            raise WorkerError(answer.message)
        return answer

    def close(self) -> None:
        """End the processes: at once where they are in the middle of something, whose answer nobody awaits any more."""
        for connection in self._open:
            connection.close()
        patience = time.monotonic() + (0.0 if self._asked else SECONDS_TO_END)
        for opened in self._open.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                opened.process.wait(timeout=max(0.0, patience - time.monotonic()))
            opened.process.kill()
            opened.process.wait()
            opened.log.close()
        self._open.clear()
        self._asked = {}

    def _replace(self, connection: Connection) -> None:
        """Start another process in the place of a dead one."""
        dead = self._open.pop(connection)
        connection.close()
        dead.process.kill()
        dead.process.wait()
        dead.log.close()
        self.start(*dead.arguments)

    def _send(self, connection: Connection, message: Any) -> None:
        try:
            connection.send(message)
        except BlockingIOError as error:
            raise self._standstill() from error

    def _standstill(self) -> WorkerError:
        return WorkerError(
            f"A simulator process of {self.name} gave no answer for {self.answer_seconds:g} seconds and was given up; "
            "if an episode may take longer, set TRACRL_ANSWER_SECONDS to more."
        )

    def _cause_of_death(self, connection: Connection) -> str:
        """The last line that a process wrote."""
        opened = self._open[connection]
        with contextlib.suppress(subprocess.TimeoutExpired):
            opened.process.wait(timeout=2)
        opened.log.seek(0)
        lines = opened.log.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else _ending(opened.process.poll())
        return f"A simulator process of {self.name} died: {reason}"


def python_command(module: str, *arguments: str, parent: int | None = None) -> list[str]:
    """What starts a module of ours as a program of its own; with a ``parent``, it ends at once when that has ended.

    Not ``python -m``: that would import what lies in the current folder under the name of a library. What can be
    imported here can be imported there, but comes after Python's own and what is installed.
    """
    path = [str(Path(entry).absolute()) for entry in sys.path]
    given = json.dumps({"home": str(Path(__file__).parents[1].absolute()), "path": path, "parent": parent})
    return [sys.executable, "-P", "-c", _START, given, module, *arguments]


_START = """import importlib, json, sys, typing
given, module = json.loads(sys.argv.pop(1)), sys.argv.pop(1)
sys.path.insert(0, given["home"])  # this very tracrl, where several are installed
import tracrl
sys.path[:] = list(dict.fromkeys([*sys.path[1:], *given["path"], given["home"]]))
from tracrl.processes import run_module
run_module(module, given["parent"])"""


def run_module(module: str, parent: int | None) -> None:
    """Run a module as ``__main__``, and end at once when ``parent`` has ended."""
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _answer_seconds() -> float:
    given = os.environ.get("TRACRL_ANSWER_SECONDS") or str(ANSWER_SECONDS)
    with contextlib.suppress(ValueError):
        if 0 < float(given) < 1e9:
            return float(given)
    raise TracrlError(f"TRACRL_ANSWER_SECONDS is {given!r}; expected a number of seconds.")


def _limit(connection: Connection, seconds: float) -> None:
    """Let neither sending nor receiving take longer, where the other side stands still in the middle of it."""
    duration = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    with socket.socket(fileno=os.dup(connection.fileno())) as pipe:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            pipe.setsockopt(socket.SOL_SOCKET, option, duration)


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        return f"it was killed by {signal.Signals(-status).name}"
    return f"exit status {status}"
