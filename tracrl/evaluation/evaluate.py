"""Play every policy of a stack in its simulator, over as many processes as there are cores."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any, Self

import numpy as np

from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.evaluation.worker import Outcome
from tracrl.policy import Policy
from tracrl.tasks.simulators import require
from tracrl.tasks.table import Task, get_task

EPISODES_A_JOB = 5
"""Small enough that cores finish together, large enough that sending the policy does not count."""

# One core a process: numerical libraries that start threads of their own would fight over the cores.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def evaluate(
    policy: Policy,
    task: str,
    *,
    episodes: int = 20,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scores:
    """Scores of each policy over the same ``episodes`` episodes; ``seed`` determines them whatever the processes."""
    with SimulatorPool(task, workers) as pool:
        return pool.evaluate(policy, episodes=episodes, seed=seed, progress=progress)


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """The seed of each episode of an evaluation."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(episodes, np.uint32)]


class SimulatorPool:
    """Simulator processes of one task, started when first needed and kept until closed."""

    def __init__(self, task: str, workers: int | None = None):
        self.task: Task = get_task(task)
        require(self.task)
        self.workers = workers or len(os.sched_getaffinity(0))
        self._open: dict[Connection, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def evaluate(
        self,
        policy: Policy,
        *,
        episodes: int = 20,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Scores:
        """Scores of each policy of the stack over the same episodes."""
        if policy.observation_size != self.task.observation_size:
            raise TracrlError(
                f"The policy takes observations of size {policy.observation_size}, "
                f"but {self.task.name} has {self.task.observation_size}: it was trained for another task."
            )
        if episodes < 1:
            raise TracrlError(f"--episodes is {episodes}; expected at least 1.")
        seeds = episode_seeds(seed, episodes)
        jobs = [
            (run, start, seeds[start : start + EPISODES_A_JOB])
            for run in range(len(policy))
            for start in range(0, episodes, EPISODES_A_JOB)
        ]
        results = np.zeros((len(policy), episodes, 3))
        done = 0
        requests = ((job, (policy[job[0]], job[2])) for job in jobs)
        for (run, start, part), outcomes in self._answers(requests, len(jobs)):
            results[run, start : start + len(part)] = outcomes
            done += len(part)
            if progress is not None:
                progress(done, results.shape[0] * episodes)
        return Scores(
            task=self.task.name,
            limits=policy.facts.limits,
            seeds=policy.facts.seeds,
            returns=results[..., 0],
            costs=results[..., 1],
            lengths=results[..., 2].astype(np.int64),
        )

    def close(self) -> None:
        """End the processes."""
        for connection, (process, log) in self._open.items():
            connection.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            process.kill()
            process.wait()
            log.close()
        self._open.clear()

    def _answers(self, requests: Iterable[tuple[Any, Any]], count: int) -> Iterator[tuple[Any, list[Outcome]]]:
        """Each job with its outcomes, in the order in which they are done."""
        self._start(min(self.workers, count))
        asked: dict[Connection, Any] = {}
        requests = iter(requests)
        try:
            idle = list(self._open)
            while True:
                for connection in idle:
                    if (following := next(requests, None)) is not None:
                        asked[connection], request = following
                        connection.send(request)
                if not asked:
                    return
                idle = [c for c in wait(list(asked)) if isinstance(c, Connection)]
                for connection in idle:
                    outcomes = connection.recv()
                    yield asked.pop(connection), outcomes
        except (EOFError, ConnectionError) as error:
            raise TracrlError(self._obituary()) from error
        finally:
            if asked:  # left in the middle: answers that are still under way must not be taken for later ones
                self.close()

    def _start(self, wanted: int) -> None:
        while len(self._open) < wanted:
            ours, theirs = Pipe()
            log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
            process = subprocess.Popen(
                [sys.executable, "-m", "tracrl.evaluation.worker", str(theirs.fileno()), self.task.name],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **_ONE_THREAD},
            )
            theirs.close()
            self._open[ours] = process, log

    def _obituary(self) -> str:
        """Why a process died: the last line that it wrote."""
        for process, log in self._open.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
            if process.poll() is not None:
                log.seek(0)
                lines = log.read().decode(errors="replace").strip().splitlines()
                reason = lines[-1] if lines else f"exit status {process.returncode}"
                return f"A simulator process of {self.task.name} died: {reason}"
        return f"A simulator process of {self.task.name} stopped answering."
