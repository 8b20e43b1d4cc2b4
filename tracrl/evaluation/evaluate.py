"""Play every policy of a stack in its simulator, over as many processes as there are cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np

from tracrl.envs.simulators import require
from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.policies.base import Policy
from tracrl.processes import Processes, number_of
from tracrl.tasks.table import Task, get_task

EPISODES_A_JOB = 5
"""Small enough that cores finish together, large enough that sending the policy does not count."""


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
        self.workers = number_of(workers)
        self.processes = Processes("tracrl.evaluation.worker", self.task.name)

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
        while len(self.processes) < min(self.workers, len(jobs)):
            self.processes.start(self.task.name)
        answers = self.processes.share_out(jobs, lambda _, job: (policy[job[0]], job[2]))
        for (run, start, part), outcomes in answers:
            results[run, start : start + len(part)] = outcomes
            done += len(part)
            if progress is not None:
                progress(done, results.shape[0] * episodes)
        return Scores(
            task=self.task.name,
            limits=policy.metadata.limits,
            seeds=policy.metadata.seeds,
            returns=results[..., 0],
            costs=results[..., 1],
            lengths=results[..., 2].astype(np.int64),
        )

    def close(self) -> None:
        """End the processes."""
        self.processes.close()
