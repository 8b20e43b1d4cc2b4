"""Programs of ours that run beside us: each is sent requests over a pipe and sends an answer to each.

They are neither forked nor spawned by ``multiprocessing``, so they inherit no threads of torch's, and the user's script
needs no guard.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any, TypeVar

from tracrl.errors import TracrlError

Job = TypeVar("Job")
SECONDS_TO_END = 3.0
"""For all processes together; one that is in the middle of something is then ended."""


def limited_to(threads: int) -> dict[str, str]:
    """Our environment, for a process whose numerical libraries are to start so many threads, and not one a core."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads))}


def number_of(workers: int | None, otherwise: int | None = None) -> int:
    """How many run side by side: as many as were asked for, else ``otherwise``, else one a core."""
    if workers is not None and workers < 1:
        raise TracrlError(f"--workers is {workers}; expected at least 1.")
    return workers or otherwise or len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Failure:
    """What a process answers when it cannot go on: a sentence for the user."""

    message: str


class Processes:
    """The processes of one module. ``name`` is what they simulate, for the sentence that says that one died."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name
        self._open: dict[Connection, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process, _ in self._open.values()]

    def start(self, *arguments: str) -> None:
        """One more, which gets its end of the pipe as its first argument and then these."""
        ours, theirs = Pipe()
        log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        process = subprocess.Popen(
            [sys.executable, "-m", self.module, str(theirs.fileno()), *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=limited_to(1),
        )
        theirs.close()
        self._open[ours] = process, log

    def share_out(self, jobs: Iterable[Job], request: Callable[[Connection, Job], Any]) -> Iterator[tuple[Job, Any]]:
        """Each job with its answer, in the order in which they are done; ``request`` says what to send for a job."""
        asked: dict[Connection, Job] = {}
        waiting, idle = iter(jobs), list(self._open)
        try:
            while True:
                for connection, job in zip(idle, waiting, strict=False):
                    asked[connection] = job
                    self._send(connection, request(connection, job))
                if not asked:
                    if next(waiting, None) is not None:
                        raise TracrlError(f"No simulator process of {self.name} is running.")
                    return
                idle = [connection for connection in wait(list(asked)) if isinstance(connection, Connection)]
                for connection in idle:
                    answer = self.receive(connection)
                    yield asked.pop(connection), answer
        finally:
            if asked:  # left in the middle: answers that are still under way must not be taken for later ones
                self.close()

    def receive(self, connection: Connection) -> Any:
        """The next answer of one process."""
        try:
            answer = connection.recv()
        except (EOFError, ConnectionError) as error:
            raise TracrlError(self._obituary(connection)) from error
        if isinstance(answer, Failure):
            raise TracrlError(answer.message)
        return answer

    def close(self) -> None:
        """End the processes."""
        for connection in self._open:
            connection.close()
        patience = time.monotonic() + SECONDS_TO_END
        for process, log in self._open.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, patience - time.monotonic()))
            process.kill()
            process.wait()
            log.close()
        self._open.clear()

    def _send(self, connection: Connection, message: Any) -> None:
        try:
            connection.send(message)
        except ConnectionError as error:
            raise TracrlError(self._obituary(connection)) from error

    def _obituary(self, connection: Connection) -> str:
        """Why a process died: the last line that it wrote."""
        process, log = self._open[connection]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit status {process.poll()}"
        return f"A simulator process of {self.name} died: {reason}"
