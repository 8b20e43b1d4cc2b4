"""Playing one episode as ordered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracrl.collect.behaviour import Behaviour, Floats
from tracrl.collect.environment import Environment


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


def play(env: Environment, behaviour: Behaviour, order: Order) -> Rollout:
    """One episode, determined by the behaviour and the order alone."""
    reset_seed, noise_seed = np.random.SeedSequence(order.seed).generate_state(2, np.uint32)
    generator = np.random.default_rng(int(noise_seed))
    observation = env.reset(int(reset_seed))
    told = behaviour.begin(env, int(noise_seed))
    decide, deviation = told(order.penalty)
    noise, size = np.float32(order.noise), len(deviation)
    observations, actions = [observation], []
    rewards: list[float] = []
    costs: list[float] = []
    terminated = over = False
    while not over:
        if len(rewards) == order.change_at:
            decide, deviation = told(order.later_penalty)
        if order.random and generator.random() < order.random:
            action = generator.uniform(-1, 1, size).astype(np.float32)
        else:
            action = decide(observation) + noise * deviation * generator.standard_normal(size, np.float32)
        observation, reward, cost, terminated, truncated = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(reward)
        costs.append(cost)
        over = terminated or truncated
    return Rollout(
        np.stack(observations),
        np.stack(actions),
        np.array(rewards, np.float32),
        np.array(costs, np.float32),
        terminated,
    )
