"""The simulator processes of a collection, and the handing out of episodes to them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any, Self

from tracrl.collect.behaviour import Behaviour
from tracrl.collect.environment import EnvFacts, EnvSpec
from tracrl.collect.rollout import Failure, Order, Rollout
from tracrl.errors import TracrlError

# One core a process: numerical libraries that start threads of their own would fight over the cores.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

SECONDS_TO_END = 3.0
"""For all processes together; one that is in the middle of an episode is then ended."""
SHORT = 200
"""Steps that a message should be worth: shorter episodes are sent several at a time."""


class RolloutPool:
    """Processes that play whole episodes. What an episode becomes does not depend on which of them plays it."""

    def __init__(self, spec: EnvSpec, workers: int | None = None):
        self.spec = spec
        self.workers = workers or len(os.sched_getaffinity(0))
        self._open: dict[Connection, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        self._known: dict[Connection, set[int]] = {}

    def __enter__(self) -> Self:
        try:
            for _ in range(self.workers):
                self._start()
            # All of them are started before the first is asked, so that they import side by side.
            answers = [self._answer(connection) for connection in self._open]
            self.facts: EnvFacts = answers[0]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def play(
        self,
        behaviours: Mapping[int, Behaviour],
        orders: Sequence[Order],
        length: float,
        played: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """One episode for each order, in the order of the orders. ``length`` is a guess at an episode's steps.

        A number must stand for the same behaviour for as long as the pool lives: a process is sent each once, and
        keeps those that are among ``behaviours``.
        """
        # Few at a time towards the end, so that the processes finish together.
        most = max(1, min(int(SHORT / max(length, 1)), len(orders) // (4 * self.workers)))
        results: list[Rollout | None] = [None] * len(orders)
        asked: dict[Connection, range] = {}
        idle, following = list(self._open), 0
        while True:
            for connection in idle:
                if following < len(orders):
                    asked[connection] = range(following, min(following + most, len(orders)))
                    following = asked[connection].stop
                    self._ask(connection, behaviours, [orders[i] for i in asked[connection]])
            if not asked:
                return [rollout for rollout in results if rollout is not None]
            idle = [connection for connection in wait(list(asked)) if isinstance(connection, Connection)]
            for connection in idle:
                for place, rollout in zip(asked.pop(connection), self._answer(connection), strict=True):
                    results[place] = rollout
                    if played is not None:
                        played(rollout)

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

    def _ask(self, connection: Connection, behaviours: Mapping[int, Behaviour], orders: Sequence[Order]) -> None:
        kept = self._known[connection] & behaviours.keys()
        fresh = {order.behaviour: behaviours[order.behaviour] for order in orders if order.behaviour not in kept}
        self._known[connection] = kept | fresh.keys()
        try:
            connection.send((fresh, kept, orders))
        except ConnectionError as error:
            raise TracrlError(self._obituary(connection)) from error

    def _answer(self, connection: Connection) -> Any:
        try:
            answer = connection.recv()
        except (EOFError, ConnectionError) as error:
            raise TracrlError(self._obituary(connection)) from error
        if isinstance(answer, Failure):
            raise TracrlError(answer.message)
        return answer

    def _start(self) -> None:
        ours, theirs = Pipe()
        log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        # Our own search path goes along: an environment that can be imported here can be imported there.
        given = {**asdict(self.spec), "path": [path for path in sys.path if path]}
        process = subprocess.Popen(
            [sys.executable, "-m", "tracrl.collect.worker", str(theirs.fileno()), json.dumps(given)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, **_ONE_THREAD},
        )
        theirs.close()
        self._open[ours] = process, log
        self._known[ours] = set()

    def _obituary(self, connection: Connection) -> str:
        """Why a process died: the last line that it wrote."""
        process, log = self._open[connection]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit status {process.poll()}"
        return f"A simulator process of {self.spec.name} died: {reason}"
