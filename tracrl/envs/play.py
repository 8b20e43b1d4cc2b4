"""The one player of episodes: for evaluation, for collection and for videos."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tracrl.envs.environment import Environment

Floats = NDArray[np.float32]


class Actor(Protocol):
    """What acts: a policy of this package, or anything like it."""

    def reset(self, seed: int) -> None: ...

    def act(self, observation: Any) -> Any: ...

    def observe(self, reward: float, cost: float) -> None: ...


class Step(NamedTuple):
    """One step of an episode, and the observation that it led to."""

    observation: Floats
    reward: float
    cost: float
    terminated: bool
    truncated: bool


def play(env: Environment, actor: Actor, seed: int, actor_seed: int) -> Iterator[Step]:
    """One episode, step by step. It is determined by the actor and the two seeds."""
    observation = env.reset(seed)
    actor.reset(actor_seed)
    done = False
    while not done:
        step = Step(*env.step(actor.act(observation)))
        actor.observe(step.reward, step.cost)
        observation, done = step.observation, step.terminated or step.truncated
        yield step


def actor_seed_of(seed: int) -> int:
    """The seed of the actor in the episode of an environment's ``seed``.

    Both may hand theirs to NumPy's generator: with the same seed, an actor's random numbers would be the
    environment's own.
    """
    return int(np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(1, np.uint64)[0])
