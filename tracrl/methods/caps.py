"""CAPS: constraint-adaptive policy switching (Chemingui, Deshwal, Wei, Fern and Doppa, AAAI 2025), on implicit
Q-learning (IQL; Kostrikov, Nair and Levine, ICLR 2022).

1. Rewards and costs each have an implicit Q-learning of their own, which never asks for an action that is not in the
   log: V follows an upper expectile of Q over the logged actions (of the cost's, a lower one, as it is to be small),
   and Q follows its Bellman equation with V(s') in place of a maximum.
2. One policy has a shared trunk and several heads. All clone the logged actions: the first with weights exp(β A), A the
   advantage in reward, the last with exp(β A_c), A_c the advantage in cost; those between with a sum of both.
3. It acts by the head that promises the most reward among those whose Q_c is within what is left of the budget; where
   none is, by the one that promises the least cost (:mod:`tracrl.policies.switching`).

The limit has no part in training: one training a seed serves every limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.methods.method import Compute, Learner, Method, RunSpec
from tracrl.methods.transitions import Batch, Transitions
from tracrl.nets.critics import Critics, frozen_copy, polyak_update, regression_loss
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators
from tracrl.policies.base import Policy
from tracrl.policies.layers import named_layers
from tracrl.policies.switching import SwitchingPolicy
from tracrl.settings import BatchSize, Discount, Hidden, LearningRate, Positive, Range, Updates, Weight

BATCH = 0  # stream of random numbers
LARGEST_WEIGHT = 100.0
Expectile = Annotated[float, Range(0, 1, above=True, below=True, kind="a share")]


@dataclass(frozen=True)
class CAPS(Method):
    """CAPS's settings."""

    name: ClassVar[str] = "caps"
    title: ClassVar[str] = "CAPS"
    paper: ClassVar[str] = (
        "Chemingui, Deshwal, Wei, Fern and Doppa: Constraint-Adaptive Policy Switching for Offline Safe Reinforcement "
        "Learning, AAAI 2025"
    )
    optimises: ClassVar[str] = "reward and cost by a head each, switched by what is left of the budget"
    depends_on_limit: ClassVar[bool] = False
    has_bf16: ClassVar[bool] = True
    networks: ClassVar[int] = 25
    outputs_held: ClassVar[float] = 7.5
    metrics: ClassVar = ("loss", "value_loss", "actor_loss", "cost_value", "weight", "cost_weight")
    suites: ClassVar = {"MetaDrive": {"updates": 200_000, "expectile": 0.5, "cost_expectile": 0.5}}
    fast: ClassVar = {"updates": 5_000, "batch_size": 128, "tau": 0.02, "lr": 1e-3, "hidden": (256, 256)}

    updates: Updates = 100_000
    """gradient updates"""
    batch_size: BatchSize = 512
    """transitions in a batch"""
    gamma: Discount = 0.99
    """γ, discount of rewards and costs"""
    tau: Annotated[float, Range(0, 1, above=True, kind="a share")] = 0.005
    """the share by which target networks follow at each update"""
    lr: LearningRate = 3e-4
    """Adam's learning rate of all networks"""
    expectile: Expectile = 0.7
    """which expectile of Q over logged actions V is, for rewards"""
    cost_expectile: Expectile = 0.7
    """the same for costs, counted from the costliest action"""
    beta: Weight = 3.0
    """β, how sharply logged actions are weighed by their advantage in reward"""
    cost_beta: Weight = 3.0
    """the same by their advantage in cost"""
    heads: Annotated[int, Range(2, 100)] = 2
    """heads of the policy: for reward, for cost, and mixtures between them"""
    critics: Annotated[int, Range(1, 100)] = 2
    """networks of each critic"""
    reward_scale: Positive = 0.1
    """rewards are multiplied by this"""
    hidden: Hidden = (512, 512)
    """units of the hidden layers"""

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> CAPSLearner:
        return CAPSLearner(self, data, runs, compute)


def expectile_loss(advantage: Tensor, expectile: float) -> Tensor:
    """E |τ − 1[A < 0]| A²: (R, n) → (R,). Least where V is the τ-expectile of Q = V + A."""
    return ((expectile - (advantage < 0).float()).abs() * advantage.square()).mean(1)


def head_weights(of_reward: Tensor, of_cost: Tensor, heads: int) -> Tensor:
    """What each head weighs logged actions with: (R, n) twice → (R, n, heads).

    Head k between the first and the last takes the reward's weights plus 2 k / (heads − 1) times the cost's.
    """
    between = [of_reward + 2 * k / (heads - 1) * of_cost for k in range(1, heads - 1)]
    return torch.stack([of_reward, *between, of_cost], -1)


class CAPSLearner(Learner):
    """The stack in training."""

    compiled = ("losses",)

    def __init__(self, method: CAPS, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        device = compute.device
        self.method, self.steps = method, data.max_steps
        self.transitions = Transitions(data, len(runs), device, method.reward_scale)
        seeds = [run.seed for run in runs]
        sizes = data.observation_size, data.action_size
        outputs = method.heads * data.action_size
        self.actor = StackedMLP(generators(seeds, 0), (sizes[0], *method.hidden, outputs), output=torch.tanh).to(device)
        self.critics = Critics(generators(seeds, 1), *sizes, method.hidden, method.critics).to(device)
        self.values = StackedMLP(generators(seeds, 2), (sizes[0], *method.hidden, 1), members=2).to(device)
        self.target = frozen_copy(self.critics)
        networks = (self.actor, self.critics, self.values)
        self.adam = StackedAdam([p for network in networks for p in network.parameters()])

    def learn(self) -> dict[str, Tensor]:
        total, metrics = self.losses()
        self.adam.step(total, self.method.lr)
        polyak_update(self.target, self.critics, self.method.tau)
        return metrics

    def losses(self) -> tuple[Tensor, dict[str, Tensor]]:
        """What all networks minimise (R,), and what is reported of it."""
        method = self.method
        batch = self.transitions.draw(self.key(BATCH), method.batch_size)
        y, yc = self.targets(batch)
        advantage, cost_advantage = self.advantages(batch)
        value_loss = expectile_loss(advantage, method.expectile) + expectile_loss(cost_advantage, method.cost_expectile)
        qc = self.critics.cost(batch.observations, batch.actions)
        loss = regression_loss(self.critics.reward(batch.observations, batch.actions), y) + regression_loss(qc, yc)
        weight, cost_weight = self.weights(advantage.detach(), cost_advantage.detach())
        actor_loss = self.actor_loss(batch, head_weights(weight, cost_weight, method.heads))
        # The three losses are of different networks: one step along their sum moves each by its own.
        return loss + value_loss + actor_loss, {
            "loss": loss.detach(),
            "value_loss": value_loss.detach(),
            "actor_loss": actor_loss.detach(),
            "cost_value": qc.detach().mean((1, 2)),
            "weight": weight.mean(1),
            "cost_weight": cost_weight.mean(1),
        }

    @torch.no_grad()
    def targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """y = r + γ V(s') and y_c = c + γ V_c(s')."""
        value, cost = self.values(batch.next_observations).squeeze(-1).unbind(1)
        more = self.method.gamma * (1 - batch.terminated)
        return batch.rewards + more * value, batch.costs + more * cost

    def advantages(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """A = Q − V and A_c = V_c − Q_c of the logged actions, (R, B) each: little cost is an advantage."""
        value, cost = self.values(batch.observations).squeeze(-1).unbind(1)
        with torch.no_grad():
            q = self.target.reward(batch.observations, batch.actions).amin(1)
            qc = self.target.cost(batch.observations, batch.actions).amax(1)
        return q - value, cost - qc

    def weights(self, advantage: Tensor, cost_advantage: Tensor) -> tuple[Tensor, Tensor]:
        """exp(β A) and exp(β_c A_c), up to 100: (R, B) each."""
        return (
            (self.method.beta * advantage).exp().clamp(max=LARGEST_WEIGHT),
            (self.method.cost_beta * cost_advantage).exp().clamp(max=LARGEST_WEIGHT),
        )

    def actor_loss(self, batch: Batch, weights: Tensor) -> Tensor:
        """E over transitions and heads of w ‖π_h(s) − a‖² / 2, the likelihood of Gaussians of deviation 1; (R,)."""
        actions = self.actor(batch.observations).unflatten(-1, (self.method.heads, -1))
        error = (actions - batch.actions[:, :, None]).square().sum(-1)
        return (weights * error).mean((1, 2)) / 2

    def policy(self) -> Policy:
        networks = {"actor": self.actor, "critic": self.critics.of_reward, "cost_critic": self.critics.of_cost}
        tensors = named_layers({name: network.weights() for name, network in networks.items()})
        return SwitchingPolicy(
            self.metadata, tensors, heads=self.method.heads, steps=self.steps, gamma=self.method.gamma
        )
