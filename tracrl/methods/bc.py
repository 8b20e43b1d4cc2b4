"""Behaviour cloning: of every episode (BC-All), or of the episodes within the cost limit (BC-Safe)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.data.partition import is_safe
from tracrl.errors import TracrlError
from tracrl.methods.method import Compute, Method, RunSpec
from tracrl.methods.prepared import PreparedLearner, PreparedUpdate
from tracrl.methods.sampling import RowSampler
from tracrl.nets.passes import Draws
from tracrl.nets.regression import Regression
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators
from tracrl.policies.base import Policy
from tracrl.policies.mlp import MLPPolicy
from tracrl.settings import BatchSize, Hidden, LearningRate, Updates

BATCH_STREAM = 0


@dataclass(frozen=True)
class Cloning(Method):
    """Behaviour cloning of the episodes that a subclass chooses."""

    paper: ClassVar[str] = "Pomerleau: ALVINN, an Autonomous Land Vehicle in a Neural Network, NeurIPS 1988"
    unit_free: ClassVar[bool] = True
    clones: ClassVar[bool] = True
    has_bf16: ClassVar[bool] = True
    bf16_by_itself: ClassVar[bool] = True
    networks: ClassVar[int] = 4
    outputs_held: ClassVar[float] = 1.5
    suites: ClassVar = {"MetaDrive": {"updates": 200_000}}
    fast: ClassVar = {"updates": 5_000}
    renamed: ClassVar = {"rate": "lr"}

    updates: Updates = 100_000
    """gradient updates"""
    batch_size: BatchSize = 512
    """transitions in a batch"""
    lr: LearningRate = 1e-3
    """Adam's learning rate"""
    hidden: Hidden = (256, 256)
    """units of the hidden layers"""

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> CloningLearner:
        return CloningLearner(self, data, runs, compute)

    @abstractmethod
    def chosen(self, data: Episodes, limit: float) -> NDArray[np.bool_]:
        """Which episodes are cloned."""


@dataclass(frozen=True)
class BCAll(Cloning):
    """Behaviour cloning of every episode: what imitation without regard for cost gives."""

    name: ClassVar[str] = "bc-all"
    title: ClassVar[str] = "BC-All"
    optimises: ClassVar[str] = "the squared error of the logged actions of every episode"
    depends_on_limit: ClassVar[bool] = False

    def chosen(self, data: Episodes, limit: float) -> NDArray[np.bool_]:
        return np.ones(len(data), bool)


@dataclass(frozen=True)
class BCSafe(Cloning):
    """Behaviour cloning of the episodes whose cost is within the limit."""

    name: ClassVar[str] = "bc-safe"
    title: ClassVar[str] = "BC-Safe"
    optimises: ClassVar[str] = "the squared error of the logged actions of the episodes within the cost limit"

    def chosen(self, data: Episodes, limit: float) -> NDArray[np.bool_]:
        safe = is_safe(data.total_costs, limit)
        if not safe.any():
            raise TracrlError(
                f"No episode is safe at cost limit {limit:g}: the lowest cost in the data is "
                f"{data.total_costs.min():g}; raise the limit or add safe episodes."
            )
        return safe


class CloningLearner(PreparedLearner):
    """Regression of the logged actions: the loss is E‖π(s) − a‖² / action size."""

    compiled = ("loss",)

    def __init__(self, method: Cloning, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        device = compute.device
        self.batch_size, self.lr = method.batch_size, method.lr
        self.observations = torch.from_numpy(data.observations).to(device)
        self.actions = torch.from_numpy(data.scaled_actions()).to(device)
        self.sampler = RowSampler(data, [method.chosen(data, run.limit) for run in runs], device)
        sizes = (data.observation_size, *method.hidden, data.action_size)
        self.network = StackedMLP(generators([run.seed for run in runs]), sizes, output=torch.tanh).to(device)
        self.adam = StackedAdam(list(self.network.parameters()))

    def put_together(self) -> PreparedUpdate:
        regression = Regression(
            self.network,
            self.adam,
            self.observations,
            self.actions,
            self.draws(),
            batch=self.batch_size,
            lr=self.lr,
            bf16=self.compute.bf16,
        )
        return lambda: {"loss": regression.update()}

    def learn(self) -> dict[str, Tensor]:
        loss = self.loss()
        self.adam.step(loss, self.lr)
        return {"loss": loss.detach()}

    def loss(self) -> Tensor:
        """(R,), of this step's batch"""
        rows = self.sampler.draw(self.key(BATCH_STREAM), self.batch_size)
        return (self.network(self.observations[rows]) - self.actions[rows]).square().mean((-2, -1))

    def draws(self) -> list[Draws]:
        """For compiled passes: how each run draws its batches, the same as in :meth:`loss`."""
        runs = range(len(self.runs))
        return [Draws(*self.drawing(run), BATCH_STREAM, *self.sampler.pieces(run)) for run in runs]

    def policy(self) -> Policy:
        return MLPPolicy.from_layers(self.metadata, self.network.weights())
