"""Where policies go in an environment, and what they do there: the steps themselves, not their sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracrl.envs.environment import Environment
from tracrl.envs.play import Actor, actor_seed_of, play
from tracrl.evaluation.evaluate import Evaluator, episode_seeds
from tracrl.policies.base import Policy

Floats = NDArray[np.float64]
EPISODES = 3
"""of each policy, whose steps are looked at"""


@dataclass(frozen=True)
class VisitedEpisode:
    """The steps of the episode of a seed. It is played in simulator processes."""

    actor: int
    seed: int

    def play(self, env: Environment, policy: Actor) -> Floats:
        """(steps, observation and action size)"""
        watched = _Watched(policy)
        for _ in play(env, watched, self.seed, actor_seed_of(self.seed)):
            pass
        return np.stack(watched.steps)


class _Watched:
    """An actor whose steps are kept."""

    def __init__(self, actor: Actor):
        self._actor = actor
        self.steps: list[Floats] = []

    def reset(self, seed: int) -> None:
        self._actor.reset(seed)

    def act(self, observation: Any) -> Any:
        action = self._actor.act(observation)
        self.steps.append(np.concatenate([np.ravel(observation), np.ravel(action)]).astype(np.float64))
        return action

    def observe(self, reward: float, cost: float) -> None:
        self._actor.observe(reward, cost)


def visited_steps(evaluator: Evaluator, policy: Policy, episodes: int = EPISODES) -> list[Floats]:
    """For each policy the steps of its first episodes in an evaluation, one behind the other."""
    evaluator.check(policy)
    seeds = episode_seeds(evaluator.seed, min(episodes, evaluator.episodes))
    orders = [VisitedEpisode(place, seed) for place in range(len(policy)) for seed in seeds]
    actors = {place: policy[place] for place in range(len(policy))}
    played = evaluator.pool.play(actors, orders, float(evaluator.pool.info.max_steps or 1000))
    return [np.concatenate(played[i : i + len(seeds)]) for i in range(0, len(played), len(seeds))]
