"""BCQ-Lag: batch-constrained Q-learning (Fujimoto, Meger and Precup, ICML 2019) with a multiplier for the cost.

1. A VAE learns which actions the data hold at a state; candidates are decoded from it.
2. A perturbation network ξ moves a candidate by at most φ: a = clip(â + φ tanh(ξ(s, â))).
3. The critics bootstrap from the candidate that maximises Q − λ Q_c (:mod:`tracrl.methods.lagrangian`).
4. ξ minimises E[−Q(s, a) + λ (Q_c(s, a) − l)], and λ follows the cost's excess over the threshold l.

The policy decodes candidates, perturbs them and takes the one that maximises Q − λ Q_c, as BCQ does with Q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.methods.lagrangian import CANDIDATES, FREE_STREAM, LagrangianLearner, LagrangianMethod
from tracrl.methods.method import Compute, RunSpec
from tracrl.methods.transitions import Batch
from tracrl.nets.critics import frozen_copy, polyak_update
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators
from tracrl.policies.base import Policy
from tracrl.policies.candidates import PerturbedDecodes
from tracrl.settings import Range

ACTION = FREE_STREAM


@dataclass(frozen=True)
class BCQLag(LagrangianMethod):
    """BCQ-Lag's settings."""

    name: ClassVar[str] = "bcq-lag"
    title: ClassVar[str] = "BCQ-Lag"
    paper: ClassVar[str] = (
        "Fujimoto, Meger and Precup: Off-Policy Deep Reinforcement Learning without Exploration, ICML 2019; "
        "Stooke, Achiam and Abbeel: Responsive Safety in Reinforcement Learning by PID Lagrangian Methods, ICML 2020"
    )
    optimises: ClassVar[str] = "Q − λ Q_c over slightly perturbed actions of a generative model of the data"
    suites: ClassVar = {"MetaDrive": {"updates": 200_000}}
    fast: ClassVar = {"updates": 3_000, "batch_size": 128, "tau": 0.02, "critics": 1, "vae_hidden": (256, 256)}

    phi: Annotated[float, Range(0, 2)] = 0.05
    """φ, the most that a candidate is perturbed, in half widths of the action box"""

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> BCQLagLearner:
        return BCQLagLearner(self, data, runs, compute)


def perturbed(actions: Tensor, shift: Tensor, phi: float) -> Tensor:
    """clip(â + φ tanh(ξ), −1, 1)."""
    return (actions + phi * torch.tanh(shift)).clamp(-1, 1)


class BCQLagLearner(LagrangianLearner):
    """The stack in training."""

    compiled = ("draw", "vae_loss", "next_candidates", "targets", "critic_loss", "actor_loss")
    method: BCQLag

    def __init__(self, method: BCQLag, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        device = compute.device
        sizes = (data.observation_size + data.action_size, *method.hidden, data.action_size)
        self.actor = StackedMLP(generators([run.seed for run in runs], 0), sizes, hidden="tanh").to(device)
        self.actor_target = frozen_copy(self.actor)
        self.actor_adam = StackedAdam(list(self.actor.parameters()))

    def learn(self) -> dict[str, Tensor]:
        method, batch = self.method, self.draw()
        vae_loss = self.train_vae(batch)
        loss, cost_value = self.train_critics(batch, self.next_candidates(batch))
        actor_loss = self.actor_loss(batch)
        self.actor_adam.step(actor_loss, method.actor_lr)
        polyak_update(self.target, self.critics, method.tau)
        polyak_update(self.actor_target, self.actor, method.tau)
        return {
            "loss": loss,
            "cost_value": cost_value,
            "multiplier": self.pid.multiplier.clone(),
            "vae_loss": vae_loss,
            "actor_loss": actor_loss.detach(),
        }

    @torch.no_grad()
    def next_candidates(self, batch: Batch) -> Tensor:
        """(R, B, n, actions): what critics choose from at the next state."""
        decoded = torch.tanh(self.decoded(CANDIDATES, batch.next_observations, self.method.candidates))
        return self.perturb(self.actor_target, batch.next_observations, decoded)

    def actor_loss(self, batch: Batch) -> Tensor:
        """(R,), after one step of λ."""
        decoded = torch.tanh(self.decoded(ACTION, batch.observations, 1))
        actions = self.perturb(self.actor, batch.observations, decoded)
        return self.lagrangian(batch.observations, actions.squeeze(2))

    def perturb(self, actor: StackedMLP, observations: Tensor, decoded: Tensor) -> Tensor:
        """(R, B, n, actions) → (R, B, n, actions)."""
        count = decoded.shape[2]
        states = observations.repeat_interleave(count, 1)
        shift = actor(torch.cat([states, decoded.flatten(1, 2)], -1))
        return perturbed(decoded, shift.view_as(decoded), self.method.phi)

    def policy(self) -> Policy:
        proposers = {"decoder": self.vae.decoder, "actor": self.actor}
        return self.choosing(PerturbedDecodes, proposers, phi=self.method.phi)
