"""Who acts while episodes are recorded: a NumPy copy of the learned policy, told how much costs matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tracrl.envs.environment import Environment

Floats = NDArray[np.float32]
Decide = Callable[[Floats], Floats]
"""observation → the action before noise, in [−1, 1]"""
View = Callable[[Floats], Floats]
"""observations (…, size) → what the networks are given instead"""

PENALTY_FEATURES = 4
OBSERVATION_CLIP = 10.0


class Behaviour(Protocol):
    """One way to act, for every penalty."""

    def begin(self, env: Environment, seed: int) -> Callable[[float], tuple[Decide, Floats]]:
        """An episode has been reset: returns what gives, for a penalty, how to act and the deviations of its noise."""


def penalty_features(penalty: Floats) -> Floats:
    """(n,) → (n, features): cosines, all of the size of a normalised observation's numbers.

    A single number beside dozens of observations would hardly be heard by a new network.
    """
    orders = np.arange(1, PENALTY_FEATURES + 1, dtype=np.float32)
    return np.cos(np.float32(np.pi) * penalty[:, None] * orders).astype(np.float32)


@dataclass(frozen=True)
class GaussianBehaviour:
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
    view: View | None = None
    """what is seen of an observation, where it is not the observation itself"""

    def begin(self, env: Environment, seed: int) -> Callable[[float], tuple[Decide, Floats]]:
        return self.at

    def at(self, penalty: float) -> tuple[Decide, Floats]:
        """How to act with this penalty, whose features are then a constant of the first layer."""
        (first, bias), *rest = self.layers
        split = len(first) - PENALTY_FEATURES
        features = penalty_features(np.array([penalty], np.float32))[0]
        weight, log_bias = self.log_deviation
        layers = [(first[:split], bias + features @ first[split:]), *rest]
        mean, scale, view = self.mean, self.scale, self.view

        def decide(observation: Floats) -> Floats:
            x = ((observation if view is None else view(observation)) - mean) * scale
            x = np.minimum(np.maximum(x, -OBSERVATION_CLIP), OBSERVATION_CLIP)  # np.clip takes twice as long
            for weight, bias in layers:
                x = np.tanh(x @ weight + bias)
            return x

        return decide, np.exp(features @ weight + log_bias)
