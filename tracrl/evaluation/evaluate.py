"""Play every policy of a stack in an environment, over as many processes as there are cores."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import gymnasium
import numpy as np

from tracrl.envs.environment import EnvSpec
from tracrl.envs.pool import EnvPool
from tracrl.errors import TracrlError
from tracrl.evaluation.episode import EvaluationEpisode, Outcome
from tracrl.evaluation.scores import EvaluationProtocol, Scores
from tracrl.policies.base import Policy

Env = str | EnvSpec | Callable[[], gymnasium.Env[Any, Any]]
"""A task's name, a Gymnasium id, ``module:Class``, what makes an environment, or any of them with more to say."""
Played = Callable[[int, int], None]
"""(episodes so far, episodes in all)"""
MOST_EPISODES = 1_000_000


def evaluate(
    policy: Policy,
    env: Env,
    *,
    episodes: int = 20,
    seed: int = 0,
    workers: int | None = None,
    progress: Played | None = None,
) -> Scores:
    """Scores of each policy over the same ``episodes`` episodes; ``seed`` determines them whatever the processes."""
    with Evaluator(env, episodes=episodes, seed=seed, workers=workers) as evaluator:
        return evaluator.evaluate(policy, progress=progress)


def episode_seeds(seed: int, episodes: int, *, on_the_way: bool = False) -> list[int]:
    """The seed of each episode of an evaluation.

    Evaluations ``on_the_way`` of a training choose the best policy; they are of other episodes than the final ones, so
    that a final score is not that of the luckiest policy in the very episodes that it was chosen by.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(1,) if on_the_way else ())
    return [int(s) for s in sequence.generate_state(episodes, np.uint32)]


class Evaluator:
    """Plays policies in one environment, in processes that are started when first needed and kept until closed.

    Every policy is played in the same episodes (common random numbers), whichever run it belongs to.
    """

    def __init__(self, env: Env, *, episodes: int = 20, seed: int = 0, workers: int | None = None):
        if not 1 <= episodes <= MOST_EPISODES:
            raise TracrlError(f"--episodes is {episodes}; expected 1 to {MOST_EPISODES:,}.")
        if seed < 0:
            raise TracrlError(f"--seed is {seed}; expected a whole number of 0 or more.")
        self.spec = EnvSpec.of(env)
        self.episodes, self.seed = episodes, seed
        self.pool = EnvPool(self.spec, workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def evaluate(self, policy: Policy, *, on_the_way: bool = False, progress: Played | None = None) -> Scores:
        """Scores of each policy of the stack over the same episodes."""
        self.check(policy)
        seeds = episode_seeds(self.seed, self.episodes, on_the_way=on_the_way)
        orders = [EvaluationEpisode(run, seed) for run in range(len(policy)) for seed in seeds]
        done = 0

        def played(_: Outcome) -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, len(orders))

        info = self.pool.info
        actors = {run: policy[run] for run in range(len(policy))}
        outcomes = self.pool.play(actors, orders, float(info.max_steps or 1000), played)
        results = np.array(outcomes, np.float64).reshape(len(policy), self.episodes, 3)
        return Scores(
            task=self.spec.task,
            limits=policy.metadata.limits,
            seeds=policy.metadata.seeds,
            returns=results[..., 0],
            costs=results[..., 1],
            lengths=results[..., 2].astype(np.int64),
            protocol=EvaluationProtocol(
                env=self.spec.name,
                cost_key=self.spec.cost_key,
                max_steps=info.max_steps,
                episodes=self.episodes,
                seed=self.seed,
                on_the_way=on_the_way,
                versions=info.versions,
            ),
        )

    def check(self, policy: Policy) -> None:
        """The policy fits the environment. Makes the environment if none has been made yet."""
        info, name = self.pool.info, self.spec.name
        low, high = (np.asarray(end, np.float32) for end in (policy.metadata.action_low, policy.metadata.action_high))
        if policy.observation_size != info.observation_size:
            raise TracrlError(
                f"The policy takes observations of size {policy.observation_size}, "
                f"but {name} has {info.observation_size}: it was trained for another task."
            )
        if len(low) != info.action_size:
            raise TracrlError(
                f"The policy's actions have size {len(low)}, but {name} takes {info.action_size}: "
                "it was trained for another task."
            )
        slack = 1e-6 * (info.action_high - info.action_low)
        if (low < info.action_low - slack).any() or (high > info.action_high + slack).any():
            raise TracrlError(
                f"The policy acts from {low.tolist()} to {high.tolist()}, beyond the action box of {name}, "
                f"{info.action_low.tolist()} to {info.action_high.tolist()}: its data are in other units, or their "
                "action box was not given (--action-low, --action-high)."
            )
        narrower = (low > info.action_low + slack).any() or (high < info.action_high - slack).any()
        if narrower and policy.metadata.task != name:  # data of the very task say themselves how far they go
            warnings.warn(
                f"The policy acts from {low.tolist()} to {high.tolist()}, but the action box of {name} runs from "
                f"{info.action_low.tolist()} to {info.action_high.tolist()}: are its data in the same units?",
                stacklevel=2,
            )

    def close(self) -> None:
        """End the processes."""
        self.pool.close()
