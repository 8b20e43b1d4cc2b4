"""One episode of a collection: how it is to be played, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracrl.collect.behaviour import Behaviour, Floats
from tracrl.envs.environment import Environment
from tracrl.envs.play import play


@dataclass(frozen=True)
class Rollout:
    """A whole episode of T steps."""

    observations: Floats
    """(T + 1, observation size)"""
    actions: Floats
    """(T, action size) as they were drawn: beyond [−1, 1] they were cut before they were carried out"""
    rewards: Floats
    costs: Floats
    terminated: bool

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Order:
    """One episode to play: with which behaviour, from which seed, how."""

    behaviour: int
    """the number under which the worker knows the behaviour"""
    seed: int
    penalty: float
    """how much costs matter to the behaviour, 0 … 1"""
    change_at: int = -1
    """the step at which the penalty changes to ``later_penalty``; −1: never"""
    later_penalty: float = 0.0
    noise: float = 1.0
    """what the policy's standard deviation is multiplied with"""
    random: float = 0.0
    """share of steps at which the action is drawn uniformly instead"""

    @property
    def actor(self) -> int:
        return self.behaviour

    def play(self, env: Environment, behaviour: Behaviour) -> Rollout:
        """The episode, determined by the behaviour and this order alone."""
        reset_seed, noise_seed = np.random.SeedSequence(self.seed).generate_state(2, np.uint32)
        actor = _OrderedActor(env, behaviour, self)
        steps = list(play(env, actor, int(reset_seed), int(noise_seed)))
        return Rollout(
            np.stack([*actor.observations, steps[-1].observation]),
            np.stack(actor.drawn),
            np.array([step.reward for step in steps], np.float32),
            np.array([step.cost for step in steps], np.float32),
            steps[-1].terminated,
        )


class _OrderedActor:
    """A behaviour that acts as an order says, and remembers what it saw and drew."""

    def __init__(self, env: Environment, behaviour: Behaviour, order: Order):
        self.env, self.behaviour, self.order = env, behaviour, order
        self.observations: list[Floats] = []
        self.drawn: list[Floats] = []

    def reset(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._at = self.behaviour.begin(self.env, seed)
        self._decide, self._deviation = self._at(self.order.penalty)

    def act(self, observation: Floats) -> Floats:
        order, generator, size = self.order, self._generator, len(self.env.low)
        if len(self.drawn) == order.change_at:
            self._decide, self._deviation = self._at(order.later_penalty)
        if order.random and generator.random() < order.random:
            action = generator.uniform(-1, 1, size).astype(np.float32)
        else:
            noise = np.float32(order.noise) * self._deviation * generator.standard_normal(size, np.float32)
            action = self._decide(observation) + noise
        self.observations.append(observation)
        self.drawn.append(action)
        return to_box(action, self.env.low, self.env.high)

    def observe(self, reward: float, cost: float) -> None:
        return None


def to_box(actions: Floats, low: Floats, high: Floats) -> Floats:
    """From [−1, 1], to which they are cut, to the action box."""
    half = (high - low) / np.float32(2)
    one = np.float32(1)
    # np.clip takes twice as long for a single action.
    scaled = low + (np.minimum(np.maximum(actions, -one), one) + one) * half
    return np.minimum(np.maximum(scaled, low), high)  # rounding may lead a last bit beyond the box
