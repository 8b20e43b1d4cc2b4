"""CARL: constraint-aware reward relabelling (a submission to ICLR 2026), around TD3+BC (Fujimoto and Gu, NeurIPS 2021).

1. The cost critic Q_c follows the costs of the current policy: y_c = c + γ Q_c(s', π(s')), fitted Q evaluation.
2. Where it finds a logged action unsafe, Q_c(s, a) > l, its reward is replaced by a penalty, as large as the largest
   reward of the data: r' = −r_max; elsewhere r' = r.
3. TD3+BC learns from r': two critics, of which the less counts, bootstrap from a slowly following policy's action with
   a little noise; the policy maximises λ Q(s, π(s)) − ‖π(s) − a‖², λ = α / E|Q|, and moves in every second update.

l is the limit's threshold (:mod:`tracrl.methods.transitions`): how the limit is mapped to the discounted Q_c is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.methods.method import Compute, Learner, Method, RunSpec
from tracrl.methods.transitions import Batch, Transitions, thresholds
from tracrl.nets.critics import Critics, frozen_copy, polyak_update, regression_loss
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators
from tracrl.policies.base import Policy
from tracrl.policies.mlp import MLPPolicy
from tracrl.settings import BatchSize, Discount, Hidden, LearningRate, Positive, Range, Updates, Weight

BATCH, TARGET_NOISE = range(2)  # streams of random numbers


@dataclass(frozen=True)
class CARL(Method):
    """CARL's settings, those of TD3+BC."""

    name: ClassVar[str] = "carl"
    title: ClassVar[str] = "CARL"
    paper: ClassVar[str] = (
        "Constraint-Aware Reward Relabeling for Offline Safe Reinforcement Learning, submission 22357 to ICLR 2026; "
        "Fujimoto and Gu: A Minimalist Approach to Offline Reinforcement Learning, NeurIPS 2021"
    )
    optimises: ClassVar[str] = (
        "Q near the logged actions, of rewards that are penalised where the cost critic is too high"
    )
    has_bf16: ClassVar[bool] = True
    networks: ClassVar[int] = 20
    outputs_held: ClassVar[float] = 5.5
    metrics: ClassVar = ("loss", "cost_value", "unsafe_share", "actor_loss")
    suites: ClassVar = {"MetaDrive": {"updates": 200_000}}
    fast: ClassVar = {"updates": 5_000, "batch_size": 128, "tau": 0.02, "lr": 1e-3}

    updates: Updates = 100_000
    """gradient updates of the critics"""
    batch_size: BatchSize = 256
    """transitions in a batch"""
    gamma: Discount = 0.99
    """γ, discount of rewards and costs"""
    tau: Annotated[float, Range(0, 1, above=True, kind="a share")] = 0.005
    """the share by which target networks follow whenever the policy moves"""
    lr: LearningRate = 3e-4
    """Adam's learning rate of all networks"""
    alpha: Positive = 2.5
    """α, weight of the value against cloning"""
    policy_noise: Weight = 0.2
    """deviation of the noise on actions that are bootstrapped from, in half widths of the action box"""
    noise_clip: Weight = 0.5
    """where that noise is cut off"""
    policy_delay: Annotated[int, Range(1, 1_000)] = 2
    """the policy and the target networks move in every so many-th update"""
    critics: Annotated[int, Range(1, 100)] = 2
    """networks of each critic"""
    reward_scale: Positive = 0.1
    """rewards are multiplied by this"""
    hidden: Hidden = (256, 256)
    """units of the hidden layers"""

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> CARLLearner:
        return CARLLearner(self, data, runs, compute)


class CARLLearner(Learner):
    """The stack in training."""

    compiled = ("draw", "critic_loss", "actor_loss")
    last_actor_loss: Tensor

    def __init__(self, method: CARL, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        device = compute.device
        self.method = method
        self.transitions = Transitions(data, len(runs), device, method.reward_scale)
        self.threshold = thresholds(data, runs, method.gamma).to(device)
        # By size: where all rewards are below 0, minus the largest would be no penalty.
        self.penalty = -self.transitions.rewards.abs().max()
        seeds = [run.seed for run in runs]
        sizes = (data.observation_size, *method.hidden, data.action_size)
        self.actor = StackedMLP(generators(seeds, 0), sizes, output=torch.tanh).to(device)
        self.critics = Critics(
            generators(seeds, 1), data.observation_size, data.action_size, method.hidden, method.critics
        ).to(device)
        self.actor_target, self.target = frozen_copy(self.actor), frozen_copy(self.critics)
        self.actor_adam = StackedAdam(list(self.actor.parameters()))
        self.critic_adam = StackedAdam(list(self.critics.parameters()))
        self.register_buffer("last_actor_loss", torch.zeros(len(runs), device=device))

    def learn(self) -> dict[str, Tensor]:
        method = self.method
        batch = self.draw()
        loss, cost_value, unsafe_share = self.critic_loss(batch)
        self.critic_adam.step(loss, method.lr)
        if batch.rewards.is_cuda:
            self.move_policy_where(self.clock % method.policy_delay == method.policy_delay - 1, batch)
        elif self.step % method.policy_delay == method.policy_delay - 1:
            self.move_policy(batch)
        return {
            "loss": loss.detach(),
            "cost_value": cost_value,
            "unsafe_share": unsafe_share,
            "actor_loss": self.last_actor_loss.clone(),
        }

    def draw(self) -> Batch:
        return self.transitions.draw(self.key(BATCH), self.method.batch_size)

    def critic_loss(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, the mean of Q_c and the share of unsafe transitions, (R,) each."""
        qc = self.critics.cost(batch.observations, batch.actions)
        unsafe = self.is_unsafe(qc.detach())
        y, yc = self.targets(batch, unsafe)
        q = self.critics.reward(batch.observations, batch.actions)
        loss = regression_loss(q, y) + regression_loss(qc, yc)
        return loss, qc.detach().mean((1, 2)), unsafe.float().mean(1)

    def is_unsafe(self, costs: Tensor) -> Tensor:
        """Whether the greatest of the cost critics is above the threshold: (R, K, rows) → (R, rows)."""
        return costs.amax(1) > self.threshold[:, None]

    @torch.no_grad()
    def targets(self, batch: Batch, unsafe: Tensor) -> tuple[Tensor, Tensor]:
        """y = r' + γ Q(s', π'(s') + noise), r' relabelled, and y_c = c + γ Q_c(s', π(s'))."""
        method, states = self.method, batch.next_observations
        noise = method.policy_noise * self.noise(TARGET_NOISE, *batch.actions.shape[1:])
        noisy = self.actor_target(states) + noise.clamp(-method.noise_clip, method.noise_clip)
        q = self.target.reward(states, noisy.clamp(-1, 1)).amin(1)
        qc = self.target.cost(states, self.actor(states)).amax(1)
        more = method.gamma * (1 - batch.terminated)
        rewards = torch.where(unsafe, self.penalty, batch.rewards)
        return rewards + more * q, batch.costs + more * qc

    def actor_loss(self, batch: Batch) -> Tensor:
        """−α E Q / E|Q| + E‖π(s) − a‖² / action size, Q the first critic's; (R,)."""
        action = self.actor(batch.observations)
        q = self.critics.reward(batch.observations, action, frozen=True)[:, 0]
        value = self.method.alpha * q.mean(1) / q.detach().abs().mean(1).clamp(min=1e-8)
        return (action - batch.actions).square().mean((1, 2)) - value

    def move_policy(self, batch: Batch) -> None:
        """One step of the policy; the target networks follow."""
        loss = self.actor_loss(batch)
        self.actor_adam.step(loss, self.method.lr)
        polyak_update(self.target, self.critics, self.method.tau)
        polyak_update(self.actor_target, self.actor, self.method.tau)
        self.last_actor_loss.copy_(loss.detach())

    def move_policy_where(self, moves: Tensor, batch: Batch) -> None:
        """The same for a GPU, which does the same work in every update: where it is not the policy's turn, what moved
        is put back."""
        moved = [*self.actor.parameters(), *self.actor_adam.buffers(), self.last_actor_loss]
        moved += [*self.target.parameters(), *self.actor_target.parameters()]
        before = [tensor.detach().clone() for tensor in moved]
        self.move_policy(batch)
        with torch.no_grad():
            for tensor, old in zip(moved, before, strict=True):
                tensor.copy_(torch.where(moves, tensor, old))

    def policy(self) -> Policy:
        return MLPPolicy.from_layers(self.metadata, self.actor.weights())
