"""Playing one episode with a NumPy copy of the behaviour policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracrl.collect.environment import Environment

Floats = NDArray[np.float32]

PENALTY_FEATURES = 4
OBSERVATION_CLIP = 10.0


def penalty_features(penalty: Floats) -> Floats:
    """(n,) → (n, features): cosines, all of the size of a normalised observation's numbers.

    A single number beside dozens of observations would hardly be heard by a new network.
    """
    orders = np.arange(1, PENALTY_FEATURES + 1, dtype=np.float32)
    return np.cos(np.float32(np.pi) * penalty[:, None] * orders).astype(np.float32)


@dataclass(frozen=True)
class Behaviour:
    """A Gaussian policy conditioned on a cost penalty: tanh layers of weights (in, out) and biases (out,).

    The first layer takes the normalised observation and then the penalty's features. The mean is bounded too: far
    outside the box every action is cut to the same, and nothing would ever lead the policy back.
    """

    mean: Floats
    scale: Floats
    """what an observation is shifted by and then multiplied with"""
    layers: tuple[tuple[Floats, Floats], ...]
    log_deviation: tuple[Floats, Floats]
    """weight (penalty features, action size) and bias of the logarithm of the actions' deviations: who is careful
    must be able to be more exact"""

    def at(self, penalty: float) -> tuple[list[tuple[Floats, Floats]], Floats]:
        """The layers and deviations for one penalty, whose features are then a constant of the first layer."""
        (first, bias), *rest = self.layers
        split = len(first) - PENALTY_FEATURES
        features = penalty_features(np.array([penalty], np.float32))[0]
        weight, log_bias = self.log_deviation
        return [(first[:split], bias + features @ first[split:]), *rest], np.exp(features @ weight + log_bias)


@dataclass(frozen=True)
class Order:
    """One episode to play: with which behaviour, from which seed, how."""

    behaviour: int
    """the number under which the worker knows the behaviour"""
    seed: int
    penalty: float
    """share of cost against reward in what the behaviour strives for, 0 … 1"""
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


@dataclass(frozen=True)
class Failure:
    """What a process answers when it cannot go on: a sentence for the user."""

    message: str


def play(env: Environment, behaviour: Behaviour, order: Order) -> Rollout:
    """One episode, determined by the behaviour and the order alone."""
    reset_seed, noise_seed = np.random.SeedSequence(order.seed).generate_state(2, np.uint32)
    generator = np.random.default_rng(int(noise_seed))
    layers, deviation = behaviour.at(order.penalty)
    size = len(deviation)
    noise = np.float32(order.noise)
    observation = env.reset(int(reset_seed))
    observations, actions = [observation], []
    rewards: list[float] = []
    costs: list[float] = []
    terminated = over = False
    while not over:
        if len(rewards) == order.change_at:
            layers, deviation = behaviour.at(order.later_penalty)
        if order.random and generator.random() < order.random:
            action = generator.uniform(-1, 1, size).astype(np.float32)
        else:
            x = (observation - behaviour.mean) * behaviour.scale
            x = np.minimum(np.maximum(x, -OBSERVATION_CLIP), OBSERVATION_CLIP)
            for weight, bias in layers:
                x = np.tanh(x @ weight + bias)
            action = x + noise * deviation * generator.standard_normal(size, np.float32)
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
