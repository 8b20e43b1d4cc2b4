"""What BCQ-Lag and BEAR-Lag share: a multiplier for the cost, and critics that follow a choice among candidates.

Both papers maximise Q over a handful of candidate actions, at the next state of a transition and when they act. With a
constraint what is maximised is the Lagrangian Q − λ Q_c instead: the candidate that maximises it is the one whose
reward and whose cost are bootstrapped, and the one that is taken. λ is steered by a PID controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from tracrl.data.episodes import Episodes
from tracrl.methods.method import Compute, Learner, Method, RunSpec
from tracrl.methods.transitions import Batch, Transitions, thresholds
from tracrl.nets.critics import Critics, frozen_copy, regression_loss, soft_maximum, soft_minimum
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators
from tracrl.nets.vae import StackedVAE, central
from tracrl.policies.base import Policy
from tracrl.policies.candidates import CandidatePolicy
from tracrl.policies.layers import named_layers
from tracrl.settings import BatchSize, Discount, Hidden, LearningRate, Positive, Range, Share, Updates, Weight

BATCH, ENCODER, CANDIDATES = range(3)  # streams of random numbers; a method's own go on from FREE_STREAM
FREE_STREAM = 3


class PIDLagrangian(nn.Module):
    """λ of each run: it rises while the cost is above the threshold and falls back when it is below.

    With the error e = cost − threshold: λ = (K_P (e)₊ + K_I I + K_D (e − e_before)₊)₊ and I ← (I + e)₊.
    """

    integral: Tensor
    previous: Tensor
    multiplier: Tensor
    threshold: Tensor

    def __init__(self, threshold: Tensor, kp: float, ki: float, kd: float):
        """``threshold`` is (R,)."""
        super().__init__()
        self.kp, self.ki, self.kd = kp, ki, kd
        self.register_buffer("threshold", threshold, persistent=False)
        self.register_buffer("integral", torch.zeros_like(threshold))
        self.register_buffer("previous", torch.zeros_like(threshold))
        self.register_buffer("multiplier", torch.zeros_like(threshold))

    @torch.no_grad()
    def update(self, cost: Tensor) -> Tensor:
        """One step of the controller on the estimated cost (R,); the new λ (R,)."""
        error = cost - self.threshold
        derivative = torch.relu(error - self.previous)
        self.integral.add_(error).relu_()
        self.previous.copy_(error)
        self.multiplier.copy_(self.kp * torch.relu(error) + self.ki * self.integral + self.kd * derivative).relu_()
        return self.multiplier


@dataclass(frozen=True)
class LagrangianMethod(Method):
    """The settings that both have."""

    has_bf16: ClassVar[bool] = True
    bf16_by_itself: ClassVar[bool] = True
    networks: ClassVar[int] = 51
    outputs_held: ClassVar[float] = 5.0
    metrics: ClassVar[Sequence[str]] = ("loss", "cost_value", "multiplier", "vae_loss", "actor_loss")
    renamed: ClassVar[Mapping[str, str]] = {"actor_rate": "actor_lr", "critic_rate": "critic_lr", "vae_rate": "vae_lr"}

    updates: Updates = 100_000
    """gradient updates"""
    batch_size: BatchSize = 512
    """transitions in a batch"""
    gamma: Discount = 0.99
    """γ, discount of rewards and costs"""
    tau: Annotated[float, Range(0, 1, above=True, kind="a share")] = 0.005
    """τ, the share by which target networks follow at each update"""
    actor_lr: LearningRate = 1e-3
    """Adam's learning rate of the policy"""
    critic_lr: LearningRate = 1e-3
    """Adam's learning rate of the critics"""
    vae_lr: LearningRate = 1e-3
    """Adam's learning rate of the VAE"""
    beta: Weight = 0.5
    """weight of the VAE's divergence"""
    candidates: Annotated[int, Range(1, 1_000)] = 10
    """actions among which the best is chosen, in targets and when acting"""
    pessimism: Share = 0.75
    """weight of the worse of two groups of critics in targets (BCQ's λ); the better one has the rest"""
    critics: Annotated[int, Range(1, 100)] = 2
    """networks in each of the two groups of reward critics and of cost critics"""
    kp: Weight = 0.1
    """K_P, the multiplier's proportional gain"""
    ki: Weight = 0.003
    """K_I, its integral gain"""
    kd: Weight = 0.001
    """K_D, its derivative gain"""
    reward_scale: Positive = 0.1
    """rewards are multiplied by this"""
    hidden: Hidden = (256, 256)
    """units of the hidden layers of policy and critics"""
    vae_hidden: Hidden = (400, 400)
    """units of the hidden layers of the VAE"""


def best_candidate(q: Tensor, qc: Tensor, multiplier: Tensor) -> tuple[Tensor, Tensor]:
    """Reward and cost value of the candidate that maximises Q − λ Q_c: (R, rows, n) twice, (R,) → (R, rows) twice."""
    best = (q - multiplier[:, None, None] * qc).argmax(-1, keepdim=True)
    return q.gather(-1, best).squeeze(-1), qc.gather(-1, best).squeeze(-1)


class LagrangianLearner(Learner):
    """The parts of the stack in training that do not depend on where the candidates come from."""

    method: LagrangianMethod

    def __init__(self, method: LagrangianMethod, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        device = compute.device
        self.method = method
        self.transitions = Transitions(data, len(runs), device, method.reward_scale)
        self.pid = PIDLagrangian(thresholds(data, runs, method.gamma).to(device), method.kp, method.ki, method.kd)
        seeds = [run.seed for run in runs]
        sizes = data.observation_size, data.action_size
        self.critics = Critics(generators(seeds, 1), *sizes, method.hidden, 2 * method.critics).to(device)
        self.vae = StackedVAE(generators(seeds, 2), *sizes, method.vae_hidden).to(device)
        self.target = frozen_copy(self.critics)
        self.critic_adam = StackedAdam(list(self.critics.parameters()))
        self.vae_adam = StackedAdam(list(self.vae.parameters()))

    def draw(self) -> Batch:
        return self.transitions.draw(self.key(BATCH), self.method.batch_size)

    def train_vae(self, batch: Batch) -> Tensor:
        """One update of the VAE; its loss (R,)."""
        loss = self.vae_loss(batch)
        self.vae_adam.step(loss, self.method.vae_lr)
        return loss.detach()

    def vae_loss(self, batch: Batch) -> Tensor:
        noise = self.noise(ENCODER, batch.rewards.shape[1], self.vae.latent)
        return self.vae.loss(batch.observations, batch.actions, noise, self.method.beta)

    @torch.no_grad()
    def targets(self, batch: Batch, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """y = r + γ Q(s', a*) and y_c = c + γ Q_c(s', a*), a* the best candidate; ``candidates`` is (R, B, n, actions).

        Q is the softened minimum over the target critics, Q_c the softened maximum.
        """
        count = candidates.shape[2]
        states, actions = batch.next_observations.repeat_interleave(count, 1), candidates.flatten(1, 2)
        weight = self.method.pessimism
        q = soft_minimum(self.target.reward(states, actions), weight).view(*candidates.shape[:3])
        qc = soft_maximum(self.target.cost(states, actions), weight).view(*candidates.shape[:3])
        q_best, qc_best = best_candidate(q, qc, self.pid.multiplier)
        more = self.method.gamma * (1 - batch.terminated)
        return batch.rewards + more * q_best, batch.costs + more * qc_best

    def train_critics(self, batch: Batch, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """One update of the critics; their loss and the mean cost of the logged actions, (R,) each."""
        loss, cost_value = self.critic_loss(batch, *self.targets(batch, candidates))
        self.critic_adam.step(loss, self.method.critic_lr)
        return loss.detach(), cost_value

    def critic_loss(self, batch: Batch, y: Tensor, yc: Tensor) -> tuple[Tensor, Tensor]:
        """Σ E(Q − y)² + E(Q_c − y_c)² and the mean of Q_c, (R,) each."""
        qc = self.critics.cost(batch.observations, batch.actions)
        loss = regression_loss(self.critics.reward(batch.observations, batch.actions), y) + regression_loss(qc, yc)
        return loss, qc.detach().mean((1, 2))

    def lagrangian(self, observations: Tensor, actions: Tensor) -> Tensor:
        """E[−Q(s, a) + λ (Q_c(s, a) − l)], (R,), after one step of λ; the least Q and the greatest Q_c count."""
        q = self.critics.reward(observations, actions, frozen=True).amin(1)
        qc = self.critics.cost(observations, actions, frozen=True).amax(1)
        multiplier = self.pid.update(qc.detach().mean(1))
        return -q.mean(1) + multiplier * (qc.mean(1) - self.pid.threshold)

    @torch.no_grad()
    def decoded(self, stream: int, observations: Tensor, count: int) -> Tensor:
        """``count`` actions per row that the data could hold, before their tanh: (R, rows, count, actions)."""
        latent = central(self.noise(stream, observations.shape[1] * count, self.vae.latent))
        decoded = self.vae.decode_raw(observations.repeat_interleave(count, 1), latent)
        return decoded.view(*observations.shape[:2], count, -1)

    def choosing(self, kind: type[CandidatePolicy], proposers: Mapping[str, StackedMLP], **settings: Any) -> Policy:
        """The policy that draws candidates from the ``proposers`` and chooses by the critics and λ."""
        networks = {**proposers, "critic": self.critics.of_reward, "cost_critic": self.critics.of_cost}
        tensors = named_layers({name: network.weights() for name, network in networks.items()})
        tensors["multiplier"] = self.pid.multiplier.cpu().numpy().copy()
        settings |= {"candidates": self.method.candidates, "pessimism": self.method.pessimism}
        return kind(self.metadata, tensors, **settings)
