"""TraC: offline safe reinforcement learning by trajectory classification (Gong, Kumar and Varakantham, AAAI 2025).

1. The episodes, or segments of them, are split into desirable and undesirable ones (:mod:`tracrl.data.partition`).
2. A policy is cloned from them and frozen: the reference π_ref.
3. From there the policy itself is trained as the classifier of the two sets: a segment's score is how much more
   likely the policy makes it than the reference does, and the label is read off the score's sign.

Where the paper's text and the settings behind its published numbers differ, the latter are the defaults and the
former are options: docs/paper.md has the list.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.data.partition import Labelling, Normaliser, Partition, ShortEpisodes, cut_segments, partition
from tracrl.methods.method import ActivationBudget, Compute, DataSizes, Learner, Method, RunSpec
from tracrl.methods.segments import SegmentBatch, SegmentTable, Within, warn_of_few
from tracrl.methods.trac_losses import classification_loss, cloning_loss, log_prob, score, weights
from tracrl.nets import random
from tracrl.nets.blocks import ROWS
from tracrl.nets.critics import frozen_copy
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators
from tracrl.policies.base import Policy
from tracrl.policies.mlp import MLPPolicy
from tracrl.settings import BatchSize, Dropout, Hidden, LearningRate, Range, Share, Updates, Weight

LARGEST_ACTION = 1 - 1e-5  # logged actions are cut to what a tanh can reach
BATCH_STREAM = 0
ROWS_AT_ONCE = 2_048  # when the reference is evaluated on the whole data set: its layers' outputs are not to count
UpdatesOrNone = Annotated[int, Range(0, 10**9)]


@dataclass(frozen=True)
class TraC(Method):
    """TraC's settings; the defaults are the published ones for the Bullet tasks."""

    name: ClassVar[str] = "trac"
    title: ClassVar[str] = "TraC"
    paper: ClassVar[str] = (
        "Gong, Kumar and Varakantham: Offline Safe Reinforcement Learning Using Trajectory Classification, AAAI 2025"
    )
    optimises: ClassVar[str] = "the policy as a classifier of desirable (safe and rewarding) and undesirable segments"
    unit_free: ClassVar[bool] = True
    has_bf16: ClassVar[bool] = True
    bf16_by_itself: ClassVar[bool] = True
    networks: ClassVar[int] = 4
    numbers_a_row: ClassVar[int] = 1
    metrics: ClassVar = ("loss", "accuracy", "score")
    suites: ClassVar = {
        "SafetyGymnasium": {"ratio": 0.75, "alpha": 0.1, "eta": 0.5, "y": 50.0},
        "MetaDrive": {"updates": 200_000, "clone_updates": 60_000, "ratio": 0.25, "gamma": 1.0, "x": 25.0},
    }
    # A tenth of the updates on a sixth of the batch; its scores on recorded data are in docs/performance.md.
    fast: ClassVar = {
        "updates": 10_000, "clone_updates": 3_000, "warmup": 500, "batch_size": 16, "bc_lr": 1e-3, "lr": 1e-4,
    }  # fmt: skip
    same_cost: ClassVar = (
        *Method.same_cost, "clone_updates", "bc_lr", "delta", "eta", "x", "y", "labelling", "normaliser", "clone_on",
        "eta_means", "reference", "sides",
    )  # fmt: skip
    scaled: ClassVar = ("clone_updates", "warmup")
    renamed: ClassVar = {"rate": "lr", "clone_rate": "bc_lr"}

    updates: Updates = 100_000
    """gradient updates in all, cloning included"""
    clone_updates: UpdatesOrNone = 30_000
    """of these, behaviour cloning of the reference; 0 leaves the reference untrained"""
    batch_size: BatchSize = 96
    """segments in a batch"""
    bc_lr: LearningRate = 1e-4
    """Adam's learning rate for cloning"""
    lr: LearningRate = 1e-5
    """Adam's learning rate for classification"""
    warmup: UpdatesOrNone = 10_000
    """updates over which the classification rate rises from 0"""
    ratio: Annotated[float, Range(0, 1, above=True, kind="a share")] = 1.0
    """segment length as a share of the longest episode"""
    alpha: Annotated[float, Range(0, 1_000, above=True)] = 0.2
    """α, the score's temperature"""
    gamma: Annotated[float, Range(0, 1, above=True, kind="a discount")] = 0.99
    """γ, discount of the score along a segment"""
    delta: Share = 0.7
    """δ, the lowest weight of a segment"""
    eta: Weight = 0.25
    """η, total weight of the undesirable set against that of the desirable set (see eta_means)"""
    x: Annotated[float, Range(0, 100, above=True, kind="per cent")] = 50.0
    """per cent of the safe segments, best returns first, that are desirable"""
    y: Annotated[float, Range(0, 100, kind="per cent")] = 0.0
    """per cent of the safe segments, worst returns first, that are undesirable"""
    hidden: Hidden = (256, 256)
    """units of the hidden layers"""
    dropout: Dropout = 0.25
    """rate of dropout after each hidden layer, rounded to a multiple of 1/256"""
    labelling: Labelling = "segments"
    """what is judged: each drawn segment by itself, or whole episodes (the paper's text)"""
    normaliser: Normaliser = "safe"
    """returns are scaled by the range over the safe segments, or over all (the paper's text)"""
    short_episodes: ShortEpisodes = "mask"
    """episodes shorter than a segment enter whole and masked, or not at all (the published code)"""
    clone_on: Literal["labelled", "all"] = "labelled"
    """the reference is cloned from the two sets, or from all segments (the paper's text)"""
    eta_means: Literal["undesirable_over_desirable", "desirable_over_undesirable"] = "undesirable_over_desirable"
    """which way round η is; the second is the paper's formula as printed"""
    reference: Literal["cloned", "uniform"] = "cloned"
    """π_ref, or a constant in its place (ablation)"""
    sides: Literal["both", "desirable", "undesirable"] = "both"
    """which sets are classified (ablation)"""

    def validate(self) -> None:
        self.require(self.clone_updates <= self.updates, "clone_updates", f"0 to --updates ({self.updates})")
        self.require(self.y <= 100 - self.x, "y", f"per cent from 0 to {100 - self.x:g}, what --x leaves")

    @property
    def phase_ends(self) -> tuple[int, ...]:
        return (self.clone_updates,)

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> TraCLearner:
        return TraCLearner(self, data, runs, compute)

    def numbers_held(self, sizes: DataSizes, budget: ActivationBudget | None = None) -> int:
        rows, units = self.batch_size * max(1, round(self.ratio * sizes.steps)), sum(self.hidden)
        outputs = rows * units
        if budget is not None and outputs > budget.uncut:
            outputs = min(outputs, max(budget.chunk, units * rows // self.batch_size))
        layers = (sizes.observation, *self.hidden, sizes.action)
        weights = self.networks * sum(a * b for a, b in itertools.pairwise(layers))
        # Beside the outputs: slopes of a block of rows, and a dozen numbers of each row of the batch.
        return weights + outputs + 3 * max(self.hidden) * min(rows, ROWS) + (12 + sizes.observation) * rows

    def partition(self, data: Episodes, run: RunSpec) -> Partition:
        """The desirable and undesirable segments of one run."""
        cut = cut_segments(data, self.ratio, self.short_episodes, np.random.default_rng(run.seed))
        return partition(data, cut, run.limit, x=self.x, y=self.y, labelling=self.labelling, normaliser=self.normaliser)

    def balance(self, desirable: int, undesirable: int) -> tuple[float, float]:
        """λ_d and λ_u from the sizes N_d and N_u of the two sets."""
        if self.eta_means == "undesirable_over_desirable":
            return 1.0, self.eta * desirable / undesirable  # λ_u N_u / (λ_d N_d) = η, λ_d = 1
        total = desirable + self.eta * undesirable  # λ_d N_d / (λ_u N_u) = η, λ_d + λ_u = 1
        return self.eta * undesirable / total, desirable / total


class TraCLearner(Learner):
    """The stack in training: one policy network, one frozen copy of it."""

    compiled = ("drawn", "part_to_clone", "part_to_classify", "judged", "lr")

    def __init__(self, method: TraC, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        self.method, device = method, compute.device
        self.table, balances = self.labelled(data)
        self.discount = method.gamma**self.table.steps
        self.lambda_d, self.lambda_u = torch.tensor(balances, device=device).unbind(1)
        self.classified = self.table.sets[self.drawn_from]
        self.cloned = self.table.sets["both" if method.clone_on == "labelled" else "all"]

        self.states = torch.from_numpy(data.observations)
        """every logged state, on the host, in float32"""
        # On a GPU, in the precision of the product that they go into.
        rounded = torch.bfloat16 if compute.bf16 and device.type == "cuda" else None
        self.observations = self.states.to(device, rounded)
        actions = torch.from_numpy(data.scaled_actions())
        self.actions = actions.clamp(-LARGEST_ACTION, LARGEST_ACTION).to(device)
        sizes = (data.observation_size + self.more_inputs, *method.hidden, data.action_size)
        seeds = [run.seed for run in runs]
        network = StackedMLP(generators(seeds), sizes, output=torch.tanh, dropout=method.dropout, init="orthogonal")
        self.network = network.to(device)
        if rounded is not None:
            self.network.fuse()
        self.frozen = frozen_copy(self.network)
        self.adam = StackedAdam(list(self.network.parameters()))
        self.log_ref: Tensor | None = None
        """(R, rows): log π_ref of every logged action, computed once, when the reference is frozen"""

    def labelled(self, data: Episodes) -> tuple[SegmentTable, list[tuple[float, float]]]:
        """The segments of each run with their labels, and its λ_d and λ_u."""
        method = self.method
        parts = [method.partition(data, run) for run in self.runs]
        warn_of_few(parts, method.batch_size)
        w = [weights(p, method.delta) for p in parts]
        table = SegmentTable(parts, w, method.batch_size, method.hidden, self.compute)
        return table, [method.balance(p.desirable, p.undesirable) for p in parts]

    @property
    def more_inputs(self) -> int:
        """What the network sees beside the state."""
        return 0

    @property
    def drawn_from(self) -> str:
        """The set that batches of the classification are drawn from."""
        return self.method.sides

    @property
    def phase(self) -> str:
        return "cloning" if self.step < self.method.clone_updates else "classification"

    def prepare(self) -> None:
        """Between the phases: freeze the cloned policy as π_ref and begin Adam anew."""
        if self.phase == "cloning" or self.log_ref is not None:
            return
        if self.step == self.method.clone_updates:
            self.freeze()
        self.log_ref = self.reference_log_probs()

    def freeze(self) -> None:
        """The policy as it is now becomes the reference."""
        self.frozen.load_state_dict(self.network.state_dict())
        self.adam.restart()

    def learn(self) -> dict[str, Tensor]:
        return self.clone() if self.phase == "cloning" else self.classify()

    def clone(self) -> dict[str, Tensor]:
        """One update of behaviour cloning."""
        batch = self.drawn(self.cloned)
        steps = batch.valid.sum((-2, -1))

        def loss(part: SegmentBatch) -> Tensor:
            return self.part_to_clone(part, steps)

        return {"loss": self.adam.step_in_parts(map(loss, self.table.chunks(batch)), self.method.bc_lr)}

    def classify(self) -> dict[str, Tensor]:
        """One update of classification."""
        batch = self.drawn(self.classified)
        scores: list[Tensor] = []

        def loss(part: SegmentBatch) -> Tensor:
            part_loss, psi = self.part_to_classify(part)
            scores.append(psi)
            return part_loss

        total = self.adam.step_in_parts(map(loss, self.table.chunks(batch)), self.lr())
        correct, score = self.judged(torch.cat(scores, 1), batch.desirable)
        return {"loss": total, "accuracy": correct, "score": score}

    def drawn(self, within: Within) -> SegmentBatch:
        """This step's batch."""
        return self.table.draw(self.key(BATCH_STREAM), within)

    def part_to_clone(self, part: SegmentBatch, steps: Tensor) -> Tensor:
        """A part's share (R,) of the loss of a batch with so many steps (R,)."""
        share = part.valid.sum((-2, -1)) / steps
        return share * cloning_loss(self.log_pi(part.rows, part.first_row), part.valid)

    def part_to_classify(self, part: SegmentBatch) -> tuple[Tensor, Tensor]:
        """A part's share (R,) of a batch's loss, and ψ of its segments (R, B)."""
        psi = self.scores(part)
        loss = part.share * classification_loss(psi, part.desirable, part.weight, self.lambda_d, self.lambda_u)
        return loss, psi.detach()

    def judged(self, psi: Tensor, desirable: Tensor) -> tuple[Tensor, Tensor]:
        """The share of labels that are right, and the mean score, (R,) each."""
        return ((psi > 0) == (desirable > 0)).to(psi.dtype).mean(-1), psi.mean(-1)

    def scores(self, batch: SegmentBatch) -> Tensor:
        """ψ of each segment of a batch (R, B)."""
        log_pi = self.log_pi(batch.rows, batch.first_row, batch.limit, batch.x)
        return score(log_pi, self.reference(batch), self.discount * batch.valid, self.method.alpha)

    def reference(self, batch: SegmentBatch) -> Tensor:
        """log π_ref of the logged actions of a batch (R, B, L)."""
        assert self.log_ref is not None
        return self.log_ref.gather(1, batch.rows.flatten(1)).view(batch.rows.shape)

    def lr(self) -> Tensor:
        """The classification rate: linear from 0 over the warm-up, then constant."""
        since = self.clock - self.method.clone_updates + 1
        return self.method.lr * (since / max(self.method.warmup, 1)).clamp(max=1.0)

    def seen(
        self, states: Tensor, rows: Tensor | None = None, limit: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        """What the network sees in states (R, rows, size): those at rows (R, B, L) of segments that were labelled at
        these limits and x (R, B)."""
        return states

    def log_pi(
        self, rows: Tensor, first_row: random.Position = 0, limit: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        """log π_θ of the logged actions at these rows (R, B, L), dropout on, with the masks from ``first_row`` on."""
        runs, flat = len(rows), rows.flatten()
        states = self.observations[flat].view(runs, -1, self.observations.shape[1])
        actions = self.actions[flat].view(*rows.shape, -1)
        with self.autocast():
            mean = self.network(self.seen(states, rows, limit, x), self.key, first_row=first_row)
        return log_prob(mean.to(actions.dtype).view_as(actions), actions)

    @torch.no_grad()
    def reference_log_probs(self) -> Tensor:
        """log π_ref of every logged action (R, rows); a constant where the reference is uniform."""
        if self.method.reference == "uniform":
            return self.actions.new_zeros(len(self.runs), len(self.actions))
        runs, rows = len(self.runs), len(self.actions)
        result = self.actions.new_empty(runs, rows)
        for start in range(0, rows, ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            states, actions = self.states[part], self.actions[part]
            result[:, part] = log_prob(self.frozen(self.seen(states.to(actions).expand(runs, -1, -1))), actions)
        return result

    def policy(self) -> Policy:
        return MLPPolicy.from_layers(self.metadata, self.network.weights())
