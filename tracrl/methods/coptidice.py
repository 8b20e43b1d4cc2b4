"""COptiDICE: offline constrained RL by correcting the stationary distribution (Lee et al., ICLR 2022).

The best policy is looked for as a reweighting w(s, a) of the data. With multipliers ν(s) for the flow of states and λ
for the cost, the weight has a closed form:

    e = r − λ c + γ ν(s') − ν(s),   w = ((f')⁻¹(e / α))₊,   f the softened χ² divergence.

1. ν minimises (1 − γ) E₀[ν(s)] + E[w e − α f(w)], the dual of maximising the return under the flow constraints.
2. The cost that w predicts is estimated pessimistically: χ(s) and τ reweight the batch by softmax(ℓ / τ), with
   ℓ = (1 − γ) χ(s₀) + w (c + γ χ(s') − χ(s)), up to a divergence of ε from the data; the bound is E[weights · w c].
3. λ rises while the bound exceeds the limit: it minimises λ (ĉ − bound).
4. The policy clones the data with weights w: −E[w log π(a | s)].

What is reweighted is the flow of states through the data. It ends where an episode ends, by time too: a state behind
a time-out has an inflow but no logged way out, so no weights could satisfy its constraint and the dual would have no
minimum. The weighted cost E[w c] of T steps is then (1 − γ) times their discounted sum, and so is the threshold:
ĉ = (1 − γ) l (:mod:`tracrl.methods.transitions`). π is a Gaussian around tanh(μ(s)), the action that the policy takes.

``reference_quirks`` gives the form in which the benchmark's reference library computes it: ĉ = l, which is 1 / (1 − γ)
times too loose; the log-probability of a Gaussian around μ(s) although tanh(μ(s)) is acted; and for s₀ the first states
that happen to be in the batch, each weighing 1 / their share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from tracrl.data.episodes import Episodes
from tracrl.methods.method import Compute, Method, RunSpec
from tracrl.methods.prepared import PreparedLearner, PreparedUpdate
from tracrl.methods.transitions import Batch, Transitions, thresholds
from tracrl.nets.actor import SquashedGaussian, log_prob
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators
from tracrl.policies.base import Policy
from tracrl.policies.mlp import MLPPolicy
from tracrl.settings import BatchSize, Discount, Hidden, LearningRate, Positive, Range, Updates, Weight

BATCH, FIRST, STATE_NOISE, ACTION_NOISE = range(4)  # streams of random numbers
FIRST_STATES = 64  # drawn for a batch; its transitions share them in turn


@dataclass(frozen=True)
class COptiDICE(Method):
    """COptiDICE's settings."""

    name: ClassVar[str] = "coptidice"
    title: ClassVar[str] = "COptiDICE"
    paper: ClassVar[str] = (
        "Lee, Paduraru, Mankowitz, Heess, Precup, Kim and Guez: COptiDICE: Offline Constrained Reinforcement Learning "
        "via Stationary Distribution Correction Estimation, ICLR 2022"
    )
    optimises: ClassVar[str] = "the return of a reweighting of the data whose predicted cost keeps to the limit"
    has_bf16: ClassVar[bool] = True
    bf16_by_itself: ClassVar[bool] = True
    networks: ClassVar[int] = 15
    outputs_held: ClassVar[float] = 11.0
    metrics: ClassVar = ("loss", "cost_bound", "multiplier", "weight", "actor_loss")
    suites: ClassVar = {"MetaDrive": {"updates": 200_000}}
    fast: ClassVar = {"updates": 3_000, "batch_size": 256, "lr": 1e-3, "scalar_lr": 3e-3}
    renamed: ClassVar = {"rate": "lr", "scalar_rate": "scalar_lr"}

    updates: Updates = 100_000
    """gradient updates"""
    batch_size: BatchSize = 512
    """transitions in a batch"""
    gamma: Discount = 0.99
    """γ, discount of rewards and costs"""
    alpha: Positive = 0.5
    """α, weight of the divergence from the data"""
    epsilon: Weight = 0.01
    """ε, how far the cost's upper bound may reweight the data; 0 takes the plain estimate"""
    lr: LearningRate = 1e-4
    """Adam's learning rate of the networks"""
    scalar_lr: LearningRate = 1e-4
    """Adam's learning rate of λ and τ"""
    critics: Annotated[int, Range(1, 100)] = 2
    """networks of ν and of χ, of which the least counts"""
    noise: Weight = 0.1
    """noise on what is cloned, in standard deviations of the data's observations and actions"""
    reward_scale: Positive = 0.1
    """rewards are multiplied by this"""
    hidden: Hidden = (256, 256)
    """units of the hidden layers"""
    reference_quirks: bool = False
    """the reference library's form: threshold 1 / (1 − γ) times as large, tanh ignored in the log-probability"""

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> COptiDICELearner:
        return COptiDICELearner(self, data, runs, compute)


def divergence(w: Tensor) -> Tensor:
    """f(w) of the softened χ²: w log w − w + 1 below 1, (w − 1)² / 2 from there on."""
    return torch.where(w < 1, torch.xlogy(w, w.clamp(min=1e-10)) - w + 1, 0.5 * (w - 1).square())


def weight(advantage: Tensor) -> Tensor:
    """((f')⁻¹(x))₊: exp(x) below 0, x + 1 from there on."""
    return torch.where(advantage < 0, advantage.clamp(max=0).exp(), advantage + 1)


def bound_weights(ell: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(ℓ / τ) · n over each run's batch, and its divergence from uniform: (R, n), (R,) → (R, n), (R,)."""
    count = ell.shape[1]
    logits = torch.log_softmax(ell / tau[:, None], 1) + math.log(count)
    weights = logits.exp()
    return weights, (weights * logits).mean(1)


class Scalars(nn.Module):
    """λ and τ of each run, kept positive by a softplus."""

    def __init__(self, runs: int):
        super().__init__()
        self.raw_lambda = nn.Parameter(torch.ones(runs))
        self.raw_tau = nn.Parameter(torch.ones(runs))

    @property
    def multiplier(self) -> Tensor:
        return softplus(self.raw_lambda)

    @property
    def tau(self) -> Tensor:
        return softplus(self.raw_tau)


class COptiDICELearner(PreparedLearner):
    """The stack in training."""

    compiled = ("draw", "value_loss", "scalar_loss", "actor_loss")

    def __init__(self, method: COptiDICE, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        device = compute.device
        self.method = method
        self.transitions = Transitions(data, len(runs), device, method.reward_scale, ends_at_truncation=True)
        scale = 1.0 if method.reference_quirks else 1 - method.gamma
        self.threshold = thresholds(data, runs, method.gamma, scale).to(device)
        self.first_share = len(data) / data.rows
        self.state_noise = method.noise * self.transitions.observations.std(0)
        self.action_noise = method.noise * self.transitions.actions.std(0)
        seeds = [run.seed for run in runs]
        values = (data.observation_size, *method.hidden, 1)
        self.actor = SquashedGaussian(generators(seeds, 0), data.observation_size, data.action_size, method.hidden)
        self.actor.to(device)
        self.nu = StackedMLP(generators(seeds, 1), values, members=method.critics).to(device)
        self.chi = StackedMLP(generators(seeds, 2), values, members=method.critics).to(device)
        self.scalars = Scalars(len(runs)).to(device)
        self.value_adam = StackedAdam([*self.nu.parameters(), *self.chi.parameters()])
        self.scalar_adam = StackedAdam(list(self.scalars.parameters()))
        self.actor_adam = StackedAdam(list(self.actor.parameters()))
        self.by_autograd = method.reference_quirks

    def put_together(self) -> PreparedUpdate:
        from tracrl.methods.reweighting import Reweighting  # which knows this learner

        return Reweighting(self).update

    def learn(self) -> dict[str, Tensor]:
        method = self.method
        batch, first = self.draw()
        value_loss, nu_loss, w, bound, kl = self.value_loss(batch, first)
        scalar_loss, multiplier = self.scalar_loss(bound, kl)
        self.value_adam.step(value_loss, method.lr)
        self.scalar_adam.step(scalar_loss, method.scalar_lr)
        actor_loss = self.actor_loss(batch, w)
        self.actor_adam.step(actor_loss, method.lr)
        return {
            "loss": nu_loss,
            "cost_bound": bound,
            "multiplier": multiplier,
            "weight": w.mean(1),
            "actor_loss": actor_loss.detach(),
        }

    def draw(self) -> tuple[Batch, Tensor | None]:
        """A batch, and first states of episodes unless those of the batch serve."""
        batch = self.transitions.draw(self.key(BATCH), self.method.batch_size)
        if self.method.reference_quirks:
            return batch, None
        return batch, self.transitions.draw_first(self.key(FIRST), FIRST_STATES)

    def value_loss(self, batch: Batch, first: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """What ν and χ minimise and ν's part of it, (R,) each, w (R, B), the cost's bound and its divergence (R,)."""
        method, tau = self.method, self.scalars.tau.detach()
        multiplier = self.scalars.multiplier.detach()
        nu, nu_next, nu_first = self.values(self.nu, batch, first)
        e = self.advantage(batch, nu, nu_next, multiplier)
        # w maximises w e − α f(w), so that its own derivative does not count.
        w = weight(e.detach() / method.alpha)
        nu_loss = (nu_first + w * e - method.alpha * divergence(w)).mean(1)

        chi, chi_next, chi_first = self.values(self.chi, batch, first)
        ell = chi_first + w * self.cost_advantage(batch, chi, chi_next)
        weights, kl = bound_weights(ell.detach(), tau)
        if method.epsilon == 0:
            weights, kl = torch.ones_like(weights), torch.zeros_like(kl)
        bound = (weights * w * batch.costs).mean(1)
        chi_loss = (weights * ell).mean(1)
        return nu_loss + chi_loss, nu_loss.detach(), w, bound, kl

    def scalar_loss(self, bound: Tensor, kl: Tensor) -> tuple[Tensor, Tensor]:
        """What λ and τ minimise, and λ, (R,) each."""
        multiplier, tau = self.scalars.multiplier, self.scalars.tau
        loss = multiplier * (self.threshold - bound) + tau * (self.method.epsilon - kl)
        return loss, multiplier.detach()

    def values(self, network: StackedMLP, batch: Batch, first: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """ν(s), ν(s') and (1 − γ) ν(s₀), or the same of χ, in one pass: (R, B) each, the least of the ensemble."""
        states = [batch.observations, batch.next_observations] + ([] if first is None else [first])
        values = network(torch.cat(states, 1)).squeeze(-1).amin(1)
        count = batch.rewards.shape[1]
        now, following, initial = values[:, :count], values[:, count : 2 * count], values[:, 2 * count :]
        if first is None:  # the reference library's: first states of the batch, scaled up to their share
            beginning = now * batch.first / self.first_share
        else:
            beginning = initial[:, torch.arange(count, device=initial.device) % initial.shape[1]]
        return now, following, (1 - self.method.gamma) * beginning

    def advantage(self, batch: Batch, nu: Tensor, nu_next: Tensor, multiplier: Tensor) -> Tensor:
        """e = r − λ c + γ ν(s') − ν(s)."""
        return batch.rewards - multiplier[:, None] * batch.costs + self.more(batch) * nu_next - nu

    def cost_advantage(self, batch: Batch, chi: Tensor, chi_next: Tensor) -> Tensor:
        """c + γ χ(s') − χ(s)."""
        return batch.costs + self.more(batch) * chi_next - chi

    def more(self, batch: Batch) -> Tensor:
        """γ, or 0 where the flow ends."""
        return self.method.gamma * (1 - batch.done)

    def actor_loss(self, batch: Batch, w: Tensor) -> Tensor:
        """−E[w log π(a + noise | s + noise)], (R,)."""
        states = batch.observations + self.state_noise * self.noise(STATE_NOISE, *batch.observations.shape[1:])
        actions = batch.actions + self.action_noise * self.noise(ACTION_NOISE, *batch.actions.shape[1:])
        mean, log_std = self.actor(states)
        centre = mean if self.method.reference_quirks else torch.tanh(mean)
        return -(w * log_prob(centre, log_std, actions).sum(-1)).mean(1)

    def policy(self) -> Policy:
        return MLPPolicy.from_layers(self.metadata, self.actor.mean_layers())
