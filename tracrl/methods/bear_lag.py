"""BEAR-Lag: bootstrapping error accumulation reduction (Kumar et al., NeurIPS 2019) with a multiplier for the cost.

1. A VAE learns which actions the data hold at a state.
2. The critics bootstrap from that of a few actions of the policy that maximises Q − λ Q_c
   (:mod:`tracrl.methods.lagrangian`).
3. The policy, a squashed Gaussian, minimises E[−Q(s, a) + λ (Q_c(s, a) − l)] + α (MMD − ε): the maximum mean
   discrepancy between its actions and the VAE's is to stay below ε, so that it keeps to what the data hold. α rises
   while it does not, and λ follows the cost's excess over the threshold l.

The policy draws candidates and takes the one that maximises Q − λ Q_c, as BEAR does with Q.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.methods.lagrangian import CANDIDATES, FREE_STREAM, LagrangianLearner, LagrangianMethod
from tracrl.methods.method import Compute, RunSpec
from tracrl.methods.transitions import Batch
from tracrl.nets.actor import SquashedGaussian
from tracrl.nets.critics import frozen_copy, polyak_update
from tracrl.nets.stacked import StackedAdam, generators
from tracrl.policies.base import Policy
from tracrl.policies.candidates import GaussianCandidates
from tracrl.settings import LearningRate, Range, Updates, Weight

ACTIONS, DECODES = FREE_STREAM, FREE_STREAM + 1
LOG_ALPHA_RANGE = (-5.0, 5.0)


@dataclass(frozen=True)
class BEARLag(LagrangianMethod):
    """BEAR-Lag's settings."""

    name: ClassVar[str] = "bear-lag"
    title: ClassVar[str] = "BEAR-Lag"
    paper: ClassVar[str] = (
        "Kumar, Fu, Tucker and Levine: Stabilizing Off-Policy Q-Learning via Bootstrapping Error Reduction, "
        "NeurIPS 2019; "
        "Stooke, Achiam and Abbeel: Responsive Safety in Reinforcement Learning by PID Lagrangian Methods, ICML 2020"
    )
    optimises: ClassVar[str] = "Q − λ Q_c by a policy whose actions stay close (in MMD) to those of the data"
    metrics: ClassVar[Sequence[str]] = (*LagrangianMethod.metrics, "mmd", "alpha")
    suites: ClassVar = {"MetaDrive": {"updates": 200_000}}
    fast: ClassVar = {"updates": 3_000, "batch_size": 128, "tau": 0.02, "critics": 1, "vae_hidden": (256, 256)}
    renamed: ClassVar[Mapping[str, str]] = {**LagrangianMethod.renamed, "alpha_rate": "alpha_lr"}

    updates: Updates = 300_000
    """gradient updates"""
    mmd_samples: Annotated[int, Range(1, 1_000)] = 10
    """actions of each side from which the discrepancy is estimated"""
    mmd_sigma: Annotated[float, Range(0, 10**6, above=True, kind="a width")] = 50.0
    """σ of its Gaussian kernel exp(−d² / 2σ)"""
    mmd_target: Weight = 0.05
    """ε, the discrepancy that is allowed"""
    alpha_lr: LearningRate = 1e-3
    """learning rate of log α"""

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> BEARLagLearner:
        return BEARLagLearner(self, data, runs, compute)


def mmd(x: Tensor, y: Tensor, sigma: float) -> Tensor:
    """√(E k(x, x') + E k(y, y') − 2 E k(x, y)), k a Gaussian kernel; (…, n, actions) twice → (…)."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        distances = (a[..., :, None, :] - b[..., None, :, :]).square().sum(-1)
        return torch.exp(-distances / (2 * sigma)).mean((-2, -1))

    # The constant keeps the root's slope finite where both sides agree.
    return (kernel(x, x) + kernel(y, y) - 2 * kernel(x, y) + 1e-6).clamp(min=0).sqrt()


class BEARLagLearner(LagrangianLearner):
    """The stack in training."""

    compiled = ("draw", "vae_loss", "next_candidates", "targets", "critic_loss", "actor_loss", "adjust_alpha")
    method: BEARLag
    log_alpha: Tensor

    def __init__(self, method: BEARLag, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        device = compute.device
        seeds = [run.seed for run in runs]
        self.actor = SquashedGaussian(generators(seeds, 0), data.observation_size, data.action_size, method.hidden)
        self.actor.to(device)
        self.actor_target = frozen_copy(self.actor)
        self.actor_adam = StackedAdam(list(self.actor.parameters()))
        self.register_buffer("log_alpha", torch.zeros(len(runs), device=device))

    def learn(self) -> dict[str, Tensor]:
        method, batch = self.method, self.draw()
        vae_loss = self.train_vae(batch)
        loss, cost_value = self.train_critics(batch, self.next_candidates(batch))
        actor_loss, discrepancy = self.actor_loss(batch)
        self.actor_adam.step(actor_loss, method.actor_lr)
        self.adjust_alpha(discrepancy)
        polyak_update(self.target, self.critics, method.tau)
        polyak_update(self.actor_target, self.actor, method.tau)
        return {
            "loss": loss,
            "cost_value": cost_value,
            "multiplier": self.pid.multiplier.clone(),
            "vae_loss": vae_loss,
            "actor_loss": actor_loss.detach(),
            "mmd": discrepancy,
            "alpha": self.log_alpha.exp(),
        }

    @torch.no_grad()
    def next_candidates(self, batch: Batch) -> Tensor:
        """(R, B, n, actions): what critics choose from at the next state."""
        noise = self.noise(CANDIDATES, batch.rewards.shape[1], self.method.candidates, self.actor.actions)
        return torch.tanh(self.actor_target.raw(batch.next_observations, noise))

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, after one step of λ, and the discrepancy in it, (R,) each."""
        method = self.method
        noise = self.noise(ACTIONS, batch.rewards.shape[1], method.mmd_samples, self.actor.actions)
        raw = self.actor.raw(batch.observations, noise)
        decoded = self.decoded(DECODES, batch.observations, method.mmd_samples)
        # Compared before their tanh, as in the paper: there, actions near the edge of the box are still told apart.
        discrepancy = mmd(decoded, raw, method.mmd_sigma).mean(1)
        lagrangian = self.lagrangian(batch.observations, torch.tanh(raw[:, :, 0]))
        loss = lagrangian + self.log_alpha.exp() * (discrepancy - method.mmd_target)
        return loss, discrepancy.detach()

    def adjust_alpha(self, discrepancy: Tensor) -> None:
        """Dual ascent on α (MMD ≤ ε)."""
        excess = discrepancy - self.method.mmd_target
        self.log_alpha.add_(self.method.alpha_lr * self.log_alpha.exp() * excess).clamp_(*LOG_ALPHA_RANGE)

    def policy(self) -> Policy:
        return self.choosing(GaussianCandidates, {"actor": self.actor.network})
