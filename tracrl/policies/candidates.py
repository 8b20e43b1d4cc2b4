"""Policies that draw candidate actions and take the one with the best Q − λ Q_c: BCQ-Lag's and BEAR-Lag's.

Plain NumPy. The random numbers of an episode follow from the seed that :meth:`Policy.reset` is given, and every policy
of a stack draws the same ones, so that each acts as it would alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from tracrl.nets.ranges import LATENT_RANGE, LOG_STD_RANGE
from tracrl.policies.base import Floats, Policy, PolicyMetadata, require
from tracrl.policies.layers import Layers, forward, layer_names, layers_of

MOST_CANDIDATES = 100_000


class CandidatePolicy(Policy):
    """Tensors: the layers of ``actor`` (R, in, out), of ``critic`` and ``cost_critic`` (R, K, in, out), and λ,
    ``multiplier`` (R,)."""

    def __init__(
        self,
        metadata: PolicyMetadata,
        tensors: Mapping[str, Floats],
        single: bool = False,
        *,
        candidates: int,
        pessimism: float,
    ):
        super().__init__(metadata, tensors, single)
        require(isinstance(candidates, int) and 0 < candidates <= MOST_CANDIDATES, "candidates", candidates)
        require(isinstance(pessimism, int | float) and 0 <= pessimism <= 1, "pessimism", pessimism)
        self.candidates, self.pessimism = candidates, pessimism
        self._actor = layers_of(tensors, "actor")
        self._critic, self._cost_critic = layers_of(tensors, "critic"), layers_of(tensors, "cost_critic")
        self._generator = np.random.default_rng(0)

    def settings(self) -> dict[str, Any]:
        return {"candidates": self.candidates, "pessimism": self.pessimism}

    def tensor_names(self) -> set[str]:
        networks = {"actor": self._actor, "critic": self._critic, "cost_critic": self._cost_critic}
        return {"multiplier"}.union(*(layer_names(layers, network) for network, layers in networks.items()))

    @property
    def observation_size(self) -> int:
        return int(self._critic[0][0].shape[2]) - len(self.metadata.action_low)

    def reset(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def noise(self, *shape: int) -> Floats:
        return self._generator.standard_normal(shape, np.float32)

    def act_scaled(self, observations: Floats) -> Floats:
        states = np.repeat(observations, self.candidates, axis=0)[None]
        actions = self.propose(states)
        joint = np.concatenate([np.broadcast_to(states, (*actions.shape[:2], states.shape[2])), actions], -1)
        # The same pessimism as in the targets: the worse of two groups of critics weighs more.
        value = self._mixed(self._values(self._critic, joint))
        cost = -self._mixed(-self._values(self._cost_critic, joint))
        scores = value - self.tensors["multiplier"][:, None] * cost
        best = scores.reshape(len(scores), -1, self.candidates).argmax(-1)
        actions = actions.reshape(*best.shape, self.candidates, -1)
        return np.take_along_axis(actions, best[..., None, None], axis=2)[:, :, 0]

    @abstractmethod
    def propose(self, states: Floats) -> Floats:
        """Candidates (R, rows, action size), one for each of the (1, rows, size) states."""

    def _values(self, layers: Layers, joint: Floats) -> Floats:
        """(R, K, rows)"""
        return forward(layers, joint[:, None])[..., 0]

    def _mixed(self, values: Floats) -> Floats:
        groups = values.reshape(len(values), 2, -1, values.shape[2]).min(axis=2)
        mixed: Floats = self.pessimism * groups.min(axis=1) + (1 - self.pessimism) * groups.max(axis=1)
        return mixed


class PerturbedDecodes(CandidatePolicy):
    """BCQ-Lag's: decoded from latents (``decoder``), then moved by at most φ (``actor``)."""

    kind = "perturbed-decodes"

    def __init__(
        self,
        metadata: PolicyMetadata,
        tensors: Mapping[str, Floats],
        single: bool = False,
        *,
        phi: float,
        **settings: Any,
    ):
        super().__init__(metadata, tensors, single, **settings)
        require(isinstance(phi, int | float) and 0 <= phi < float("inf"), "phi", phi)
        self.phi = phi
        self._decoder = layers_of(tensors, "decoder")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "phi": self.phi}

    def tensor_names(self) -> set[str]:
        return super().tensor_names() | layer_names(self._decoder, "decoder")

    def propose(self, states: Floats) -> Floats:
        size = self._decoder[0][0].shape[1] - states.shape[2]
        latents = np.clip(self.noise(1, states.shape[1], size), -LATENT_RANGE, LATENT_RANGE)
        decoded = np.tanh(forward(self._decoder, np.concatenate([states, latents], -1)))
        spread = np.broadcast_to(states, (*decoded.shape[:2], states.shape[2]))
        shift = forward(self._actor, np.concatenate([spread, decoded], -1), np.tanh)
        return np.clip(decoded + self.phi * np.tanh(shift), -1, 1)


class GaussianCandidates(CandidatePolicy):
    """BEAR-Lag's: samples of a squashed Gaussian (``actor``)."""

    kind = "gaussian-candidates"

    def propose(self, states: Floats) -> Floats:
        mean, log_std = np.split(forward(self._actor, states), 2, axis=-1)
        noise = self.noise(1, *mean.shape[1:])
        return np.tanh(mean + np.exp(np.clip(log_std, *LOG_STD_RANGE)) * noise)
