"""CPQ: constraints penalised Q-learning (Xu, Zhan and Zhu, AAAI 2022).

Actions that the data do not hold are made to look costly, and actions that look costly are worth nothing:

1. A VAE learns which actions the data hold at a state.
2. The cost critic Q_c follows its Bellman equation, and is pushed up at those of the policy's own actions that are
   out of distribution (ood) by the VAE's judgement: E(Q_c − y_c)² + α E_ood[(1.5 l − Q_c)₊], l the threshold. The
   weight α rises until ood actions cost that much, and falls back when they cost more.
3. The reward critic bootstraps only from actions that are safe: y = r + γ 1[Q_c(s', a') ≤ l] Q(s', a').
4. The policy maximises E[1[Q_c(s, a) ≤ l] Q(s, a)]. Where its action is unsafe this has no slope, so that a policy that
   is unsafe everywhere would stay so for ever; there it descends Q_c, towards actions that count again.

The paper writes the penalty of 2. without the (·)₊; with a weight that changes slowly it then goes on to push where
enough is reached, and through the Bellman equation every action ends up unsafe.

``reference_quirks`` gives the form in which the benchmark's reference library computes it: no penalty (there it has no
gradient), no slope where unsafe, the least of the cost critics, and rewards that end at a time-out while costs never
end. Where an episode ended by itself and the data lack its final observation, they go on from the last one: s' = s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.methods.method import Compute, Method, RunSpec
from tracrl.methods.prepared import PreparedLearner, PreparedUpdate
from tracrl.methods.transitions import Batch, Transitions, thresholds
from tracrl.nets.actor import SquashedGaussian
from tracrl.nets.critics import Critics, frozen_copy, polyak_update, regression_loss
from tracrl.nets.stacked import StackedAdam, generators
from tracrl.nets.vae import StackedVAE, divergence
from tracrl.policies.base import Policy
from tracrl.policies.mlp import MLPPolicy
from tracrl.settings import BatchSize, Discount, Hidden, LearningRate, Positive, Range, Updates, Weight

BATCH, ENCODER, NEXT_ACTION, OOD, ACTION = range(5)  # streams of random numbers
OOD_SHARE = 0.25  # the share of the policy's actions, largest divergences first, that is looked at
LOG_ALPHA_RANGE = (-5.0, 5.0)


@dataclass(frozen=True)
class CPQ(Method):
    """CPQ's settings."""

    name: ClassVar[str] = "cpq"
    title: ClassVar[str] = "CPQ"
    paper: ClassVar[str] = (
        "Xu, Zhan and Zhu: Constraints Penalized Q-Learning for Safe Offline Reinforcement Learning, AAAI 2022"
    )
    optimises: ClassVar[str] = "a Q-function that counts only safe actions, with unfamiliar actions made costly"
    has_bf16: ClassVar[bool] = True
    bf16_by_itself: ClassVar[bool] = True
    networks: ClassVar[int] = 34
    outputs_held: ClassVar[float] = 17.0
    metrics: ClassVar = (
        "loss",
        "cost_value",
        "ood_share",
        "alpha",
        "safe_share",
        "vae_loss",
        "actor_loss",
    )
    suites: ClassVar = {"MetaDrive": {"updates": 200_000}}
    fast: ClassVar = {"updates": 2_500, "batch_size": 128, "tau": 0.02, "ood_actions": 4}
    renamed: ClassVar = {
        "actor_rate": "actor_lr",
        "critic_rate": "critic_lr",
        "vae_rate": "vae_lr",
        "alpha_rate": "alpha_lr",
        "strange_actions": "ood_actions",
        "strange_cost": "ood_cost",
    }

    updates: Updates = 100_000
    """gradient updates"""
    batch_size: BatchSize = 512
    """transitions in a batch"""
    gamma: Discount = 0.99
    """γ, discount of rewards and costs"""
    tau: Annotated[float, Range(0, 1, above=True, kind="a share")] = 0.005
    """τ, the share by which target networks follow at each update"""
    actor_lr: LearningRate = 1e-4
    """Adam's learning rate of the policy"""
    critic_lr: LearningRate = 1e-3
    """Adam's learning rate of the critics"""
    vae_lr: LearningRate = 1e-3
    """Adam's learning rate of the VAE"""
    alpha_lr: LearningRate = 1e-4
    """learning rate of log α"""
    beta: Weight = 0.5
    """weight of the VAE's divergence"""
    ood_actions: Annotated[int, Range(1, 1_000)] = 10
    """policy actions per state among which those out of distribution are looked for"""
    ood_cost: Weight = 1.5
    """what actions out of distribution should cost at least, in thresholds"""
    critics: Annotated[int, Range(1, 100)] = 2
    """networks of each critic"""
    reward_scale: Positive = 0.1
    """rewards are multiplied by this"""
    hidden: Hidden = (256, 256)
    """units of the hidden layers of policy and critics"""
    vae_hidden: Hidden = (400, 400)
    """units of the hidden layers of the VAE"""
    reference_quirks: bool = False
    """the reference library's form: no penalty on ood actions, least cost critic, rewards end at time-outs"""

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> CPQLearner:
        return CPQLearner(self, data, runs, compute)


def looked_at(actions: int) -> int:
    """How many of so many actions may count as out of distribution."""
    return max(1, round(OOD_SHARE * actions))


def most_ood(divergences: Tensor) -> Tensor:
    """(R, n) → (R, n / 4): where the largest divergences of each run are."""
    return divergences.topk(looked_at(divergences.shape[1]), dim=1).indices


def ood_mean(values: Tensor, ood: Tensor) -> Tensor:
    """E_ood of each run, 0 where nothing is out of distribution: (R, n), (R, n) → (R,)."""
    return (values * ood).sum(1) / ood.sum(1).clamp(min=1)


class CPQLearner(PreparedLearner):
    """The stack in training."""

    compiled = ("draw", "vae_loss", "critic_loss", "adjust_alpha", "actor_loss")
    log_alpha: Tensor

    def __init__(self, method: CPQ, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        device = compute.device
        self.method = method
        self.transitions = Transitions(data, len(runs), device, method.reward_scale)
        self.threshold = thresholds(data, runs, method.gamma).to(device)
        seeds = [run.seed for run in runs]
        sizes = data.observation_size, data.action_size
        self.actor = SquashedGaussian(generators(seeds, 0), *sizes, method.hidden).to(device)
        self.critics = Critics(generators(seeds, 1), *sizes, method.hidden, method.critics).to(device)
        self.vae = StackedVAE(generators(seeds, 2), *sizes, method.vae_hidden).to(device)
        self.target = frozen_copy(self.critics)
        self.actor_adam = StackedAdam(list(self.actor.parameters()))
        self.critic_adam = StackedAdam(list(self.critics.parameters()))
        self.vae_adam = StackedAdam(list(self.vae.parameters()))
        self.register_buffer("log_alpha", torch.zeros(len(runs), device=device))
        self.by_autograd = method.reference_quirks

    def put_together(self) -> PreparedUpdate:
        from tracrl.methods.cpq_unrolled import UnrolledCPQ  # which knows this learner

        return UnrolledCPQ(self).update

    def learn(self) -> dict[str, Tensor]:
        method = self.method
        batch = self.draw()
        vae_loss = self.vae_loss(batch)
        self.vae_adam.step(vae_loss, method.vae_lr)
        loss, cost_value, lack, ood_share = self.critic_loss(batch)
        self.critic_adam.step(loss, method.critic_lr)
        if not method.reference_quirks:
            self.adjust_alpha(lack)

        actor_loss, safe = self.actor_loss(batch.observations)
        self.actor_adam.step(actor_loss, method.actor_lr)
        polyak_update(self.target, self.critics, method.tau)
        return {
            "loss": loss.detach(),
            "cost_value": cost_value,
            "ood_share": ood_share,
            "alpha": self.log_alpha.exp(),
            "safe_share": safe,
            "vae_loss": vae_loss.detach(),
            "actor_loss": actor_loss.detach(),
        }

    def draw(self) -> Batch:
        return self.transitions.draw(self.key(BATCH), self.method.batch_size)

    def vae_loss(self, batch: Batch) -> Tensor:
        noise = self.noise(ENCODER, batch.rewards.shape[1], self.vae.latent)
        return self.vae.loss(batch.observations, batch.actions, noise, self.method.beta)

    def critic_loss(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The loss, the mean of Q_c, E_ood[1.5 l − Q_c] and the share of actions that are ood, (R,) each."""
        y, yc = self.targets(batch)
        q = self.critics.reward(batch.observations, batch.actions)
        qc = self.critics.cost(batch.observations, batch.actions)
        loss = regression_loss(q, y) + regression_loss(qc, yc)
        cost_value = qc.detach().mean((1, 2))
        if self.method.reference_quirks:
            return loss, cost_value, torch.zeros_like(self.threshold), torch.zeros_like(self.threshold)
        lack, ood = self.ood_lack(batch)
        loss = loss + self.log_alpha.exp() * ood_mean(torch.relu(lack), ood)
        return loss, cost_value, ood_mean(lack.detach(), ood), ood.mean(1)

    @torch.no_grad()
    def targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """y = r + γ 1[Q_c(s', a') ≤ l] Q(s', a') and y_c = c + γ Q_c(s', a'), a' the policy's."""
        noise = self.noise(NEXT_ACTION, batch.rewards.shape[1], self.actor.actions)
        action = self.actor.sample(batch.next_observations, noise)
        value = self.target.reward(batch.next_observations, action).amin(1)
        cost = self.pessimistic_cost(self.target.cost(batch.next_observations, action))
        gamma, quirks = self.method.gamma, self.method.reference_quirks
        y = batch.rewards + gamma * (1 - (batch.done if quirks else batch.terminated)) * self.is_safe(cost) * value
        yc = batch.costs + gamma * (cost if quirks else (1 - batch.terminated) * cost)
        return y, yc

    def ood_lack(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """1.5 l − Q_c of the policy's most divergent quarter of actions, and 1 for those that are ood; (R, n) each.

        Out of distribution is an action whose divergence exceeds that of every logged action of the batch.
        """
        observations, count = batch.observations, self.method.ood_actions
        with torch.no_grad():
            usual = divergence(*self.vae.encode(observations, batch.actions)).amax(1, keepdim=True)
            noise = self.noise(OOD, observations.shape[1], count, self.actor.actions)
            actions = torch.tanh(self.actor.raw(observations, noise)).flatten(1, 2)
            states = observations.repeat_interleave(count, 1)
            divergences = divergence(*self.vae.encode(states, actions))
            chosen = most_ood(divergences)
            ood = (divergences.gather(1, chosen) > usual).float()
            states = states.take_along_dim(chosen[..., None], 1)
            actions = actions.take_along_dim(chosen[..., None], 1)
        qc = self.pessimistic_cost(self.critics.cost(states, actions))
        return self.method.ood_cost * self.threshold[:, None] - qc, ood

    def adjust_alpha(self, lack: Tensor) -> None:
        """Dual ascent on α E_ood[1.5 l − Q_c]."""
        self.log_alpha.add_(self.method.alpha_lr * self.log_alpha.exp() * lack).clamp_(*LOG_ALPHA_RANGE)

    def actor_loss(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """−E[1[Q_c ≤ l] Q − 1[Q_c > l] Q_c] of the policy's actions, and the share of them that are safe; (R,) each."""
        noise = self.noise(ACTION, observations.shape[1], self.actor.actions)
        action = self.actor.sample(observations, noise)
        value = self.critics.reward(observations, action, frozen=True).amin(1)
        cost = self.pessimistic_cost(self.critics.cost(observations, action, frozen=True))
        safe = self.is_safe(cost.detach())
        gain = safe * value
        if not self.method.reference_quirks:
            gain = gain - (1 - safe) * cost
        return -gain.mean(1), safe.mean(1)

    def pessimistic_cost(self, costs: Tensor) -> Tensor:
        """(R, K, rows) → (R, rows): the greatest of the cost critics."""
        return costs.amin(1) if self.method.reference_quirks else costs.amax(1)

    def is_safe(self, cost: Tensor) -> Tensor:
        return (cost <= self.threshold[:, None]).float()

    def policy(self) -> Policy:
        return MLPPolicy.from_layers(self.metadata, self.actor.mean_layers())
