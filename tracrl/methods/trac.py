"""TraC: offline safe reinforcement learning by trajectory classification (Gong, Kumar and Varakantham, AAAI 2025).

1. The episodes, or segments of them, are split into desirable and undesirable ones (:mod:`tracrl.data.partition`).
2. A policy is cloned from them and frozen: the reference π_ref.
3. From there the policy itself is trained as the classifier of the two sets: a segment's score is how much more
   likely the policy makes it than the reference does, and the label is read off the score's sign.

Where the paper's text and the settings behind its published numbers differ, the latter are the defaults and the
former are options: docs/paper.md has the list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tracrl.data.episodes import Episodes
from tracrl.data.partition import Labelling, Normaliser, Partition, ShortEpisodes, cut_segments, partition
from tracrl.errors import TracrlError
from tracrl.methods.method import Learner, Method, RunSpec
from tracrl.nets import random
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators
from tracrl.policies.base import Policy
from tracrl.policies.mlp import MLPPolicy

LARGEST_ACTION = 1 - 1e-5  # logged actions are cut to what a tanh can reach
BATCH_STREAM = 0
ROWS_AT_ONCE = 2_048  # when the reference is evaluated on the whole data set: its layers' outputs are not to count
CHUNK = 3 * 2**19
"""How many numbers a run's hidden layers may put out at once on a CPU. A larger batch is taken in chunks of whole
segments, whose gradients are added."""
GPU_CHUNK = 2**25
"""The same on a GPU, which wants large products, for all runs of a stack together."""
GPU_HALF_CHUNK = 2**27
"""The same where products are in bfloat16: each number takes half the room there, and so does the data set."""
UNCUT = 6 * 2**20
"""A batch for which a run's layers put out no more than this is never cut."""


@dataclass(frozen=True)
class TraC(Method):
    """TraC's settings; the defaults are the published ones for the Bullet tasks."""

    name: ClassVar[str] = "trac"
    title: ClassVar[str] = "TraC"
    paper: ClassVar[str] = (
        "Gong, Kumar and Varakantham: Offline Safe Reinforcement Learning Using Trajectory Classification, AAAI 2025"
    )
    optimises: ClassVar[str] = "the policy as a classifier of desirable (safe and rewarding) and undesirable segments"
    metrics: ClassVar = ("loss", "accuracy", "score")
    suites: ClassVar = {
        "SafetyGymnasium": {"ratio": 0.75, "alpha": 0.1, "eta": 0.5, "y": 50.0},
        "MetaDrive": {"updates": 200_000, "clone_updates": 60_000, "ratio": 0.25, "gamma": 1.0, "x": 25.0},
    }
    # A tenth of the updates on a sixth of the batch; its scores on recorded data are in docs/performance.md.
    fast: ClassVar = {
        "updates": 10_000,
        "clone_updates": 3_000,
        "batch_size": 16,
        "clone_rate": 1e-3,
        "rate": 1e-4,
        "warmup": 500,
    }

    updates: int = 100_000
    """gradient updates in all, cloning included"""
    clone_updates: int = 30_000
    """of these, behaviour cloning of the reference; 0 leaves the reference untrained"""
    batch_size: int = 96
    """segments in a batch"""
    clone_rate: float = 1e-4
    """Adam's learning rate for cloning"""
    rate: float = 1e-5
    """Adam's learning rate for classification"""
    warmup: int = 10_000
    """updates over which the classification rate rises from 0"""
    ratio: float = 1.0
    """segment length as a share of the longest episode"""
    alpha: float = 0.2
    """α, the score's temperature"""
    gamma: float = 0.99
    """γ, discount of the score along a segment"""
    delta: float = 0.7
    """δ, the lowest weight of a segment"""
    eta: float = 0.25
    """η, total weight of the undesirable set against that of the desirable set (see eta_means)"""
    x: float = 50.0
    """per cent of the safe segments, best returns first, that are desirable"""
    y: float = 0.0
    """per cent of the safe segments, worst returns first, that are undesirable"""
    hidden: tuple[int, ...] = (256, 256)
    """units of the hidden layers"""
    dropout: float = 0.25
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

    def __post_init__(self) -> None:
        self.require(self.updates >= 1, "updates", "at least 1")
        self.require(0 <= self.clone_updates <= self.updates, "clone_updates", f"0 to --updates ({self.updates})")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(0 < self.ratio <= 1, "ratio", "a share above 0 and up to 1")
        self.require(0 < self.gamma <= 1, "gamma", "a discount above 0 and up to 1")
        self.require(0 <= self.delta <= 1, "delta", "a weight from 0 to 1")
        self.require(0 <= self.dropout < 1, "dropout", "a rate from 0 to below 1")
        self.require(self.eta >= 0, "eta", "0 or more")
        self.require(0 < self.x <= 100, "x", "per cent above 0 and up to 100")
        self.require(0 <= self.y <= 100 - self.x, "y", f"per cent from 0 to {100 - self.x:g}, what --x leaves")

    @property
    def phase_ends(self) -> tuple[int, ...]:
        return (self.clone_updates,)

    def learner(self, data: Episodes, runs: Sequence[RunSpec], device: torch.device) -> TraCLearner:
        return TraCLearner(self, data, runs, device)

    def partition(self, data: Episodes, run: RunSpec) -> Partition:
        """The desirable and undesirable segments of one run."""
        segments = cut_segments(data, self.ratio, self.short_episodes, np.random.default_rng(run.seed))
        parts = partition(
            data,
            segments,
            run.limit,
            x=self.x,
            y=self.y,
            delta=self.delta,
            labelling=self.labelling,
            normaliser=self.normaliser,
        )
        if parts.safe < self.batch_size:
            raise TracrlError(
                f"Only {parts.safe} segments are safe at cost limit {run.limit:g}, fewer than a batch of "
                f"{self.batch_size}: raise the limit, add safe episodes, or set --batch-size to {parts.safe} or less."
            )
        return parts

    def balance(self, desirable: int, undesirable: int) -> tuple[float, float]:
        """λ_d and λ_u from the sizes N_d and N_u of the two sets."""
        if self.eta_means == "undesirable_over_desirable":
            return 1.0, self.eta * desirable / undesirable  # λ_u N_u / (λ_d N_d) = η, λ_d = 1
        total = desirable + self.eta * undesirable  # λ_d N_d / (λ_u N_u) = η, λ_d + λ_u = 1
        return self.eta * undesirable / total, desirable / total


def log_probability(mean: Tensor, action: Tensor) -> Tensor:
    """log π(a|s) of a Gaussian of fixed variance, constants dropped: −‖μ(s) − a‖² (appendix A)."""
    return -(mean - action).square().sum(-1)


def reachable(actions: Tensor) -> Tensor:
    """Logged actions as they are compared with: cut when they are used, which spares a copy of all of them."""
    return actions.clamp(-LARGEST_ACTION, LARGEST_ACTION)


def score(log_pi: Tensor, log_ref: Tensor, discount: Tensor, alpha: float) -> Tensor:
    """ψ(τ) = α Σ_t γ^t [log π(a_t|s_t) − log π_ref(a_t|s_t)] (equation 7); ``discount`` is γ^t, 0 behind the end."""
    return alpha * (discount * (log_pi - log_ref)).sum(-1)


def classification_loss(psi: Tensor, desirable: Tensor, weight: Tensor, lambda_d: Tensor, lambda_u: Tensor) -> Tensor:
    """Equation 11 with f = σ(ψ): −E[λ_d w y log σ(ψ) + λ_u w (1 − y) log(1 − σ(ψ))], one value a run.

    log σ(−ψ) = log(1 − σ(ψ)), without the overflow that forces others to clamp probabilities.
    """
    attract = lambda_d[:, None] * desirable * logsigmoid(psi)
    repel = lambda_u[:, None] * (1 - desirable) * logsigmoid(-psi)
    return -(weight * (attract + repel)).mean(-1)


def cloning_loss(log_pi: Tensor, valid: Tensor) -> Tensor:
    """−E[log π(a|s)] over the steps of a batch that are inside their episode, one value a run."""
    return -(valid * log_pi).sum((-2, -1)) / valid.sum((-2, -1))


def segments_at_once(batch_size: int, horizon: int, hidden: Sequence[int], room: int) -> int:
    """How many of a batch's segments go through the network at once: all of them, or chunks of nearly equal size.

    ``room`` is how many numbers a run's hidden layers may put out. A chunk's dropout masks begin with whole words of
    eight bytes.
    """
    segment = horizon * max(1, sum(hidden))
    if batch_size * segment <= UNCUT:
        return batch_size
    chunks = -(-batch_size // max(1, room // segment))
    whole_words = 8 // math.gcd(8, horizon * math.gcd(*hidden))
    return min(batch_size, -(-batch_size // (chunks * whole_words)) * whole_words)


class TraCLearner(Learner):
    """The stack in training: one policy network, one frozen copy of it."""

    def __init__(self, method: TraC, data: Episodes, runs: Sequence[RunSpec], device: torch.device):
        super().__init__(method, data, runs, device)
        self.method = method
        self.table = SegmentTable([method.partition(data, run) for run in runs], method, device)
        self.logged = torch.from_numpy(data.observations)
        """every state, on the host, in float32"""
        self.actions = torch.from_numpy(data.scaled_actions()).to(device)

        sizes = (data.observation_size, *method.hidden, data.action_size)
        seeds = [run.seed for run in runs]
        self.network = StackedMLP(
            generators(seeds), sizes, output=torch.tanh, dropout=method.dropout, init="orthogonal"
        ).to(device)
        self.frozen = StackedMLP(generators(seeds), sizes, output=torch.tanh, init="orthogonal").to(device)
        self.frozen.requires_grad_(False)
        self.adam = StackedAdam(list(self.network.parameters()))
        self.place()
        self.log_ref: Tensor | None = None
        """(R, rows): log π_ref of every logged action, computed once, when the reference is frozen"""

    def use_half_products(self) -> None:
        super().use_half_products()
        self.place()

    def place(self) -> None:
        """Put the states where they are used, and find how much of a batch fits there at once."""
        device = self.clock.device
        half = self.half_products and device.type == "cuda"  # where the first product would round them anyway
        self.observations = self.logged  # and what was on the device gives up its room
        self.observations = self.logged.to(device, torch.bfloat16 if half else None)
        room = CHUNK if device.type == "cpu" else (GPU_HALF_CHUNK if half else GPU_CHUNK) // len(self.runs)
        batch_size, horizon = self.method.batch_size, len(self.table.steps)
        self.chunk = segments_at_once(batch_size, horizon, self.method.hidden, room)
        """segments of a run that go through the network together"""
        self.first_rows = torch.arange(0, batch_size * horizon, self.chunk * horizon, device=device)
        """where each chunk begins in a batch"""

    @property
    def phase(self) -> str:
        return "cloning" if self.step < self.method.clone_updates else "classification"

    def prepare(self) -> None:
        """Between the phases: freeze the cloned policy as π_ref and begin Adam anew."""
        if self.phase == "cloning" or self.log_ref is not None:
            return
        if self.step == self.method.clone_updates:
            self.frozen.load_state_dict(self.network.state_dict())
            self.adam.restart()
        self.log_ref = self.reference_log_probabilities()

    def learn(self) -> dict[str, Tensor]:
        return self.clone() if self.phase == "cloning" else self.classify()

    def clone(self) -> dict[str, Tensor]:
        """One update of behaviour cloning."""
        batch = self.table.draw(self.key(BATCH_STREAM), self.table.cloned)
        steps = batch.valid.sum((-2, -1))

        def losses() -> Iterator[Tensor]:
            for part, first_row in self.chunks(batch):
                share = part.valid.sum((-2, -1)) / steps
                yield share * cloning_loss(self.log_pi(part.rows, first_row), part.valid)

        return {"loss": self.adam.step_in_parts(losses(), self.method.clone_rate)}

    def classify(self) -> dict[str, Tensor]:
        """One update of classification."""
        batch = self.table.draw(self.key(BATCH_STREAM), self.table.classified)
        scores: list[Tensor] = []

        def losses() -> Iterator[Tensor]:
            for part, first_row in self.chunks(batch):
                psi = self.scores(part, first_row)
                scores.append(psi.detach())
                loss = classification_loss(psi, part.desirable, part.weight, self.table.lambda_d, self.table.lambda_u)
                yield psi.shape[1] / self.method.batch_size * loss

        loss = self.adam.step_in_parts(losses(), self.rate())
        psi = torch.cat(scores, 1)
        correct = ((psi > 0) == (batch.desirable > 0)).to(psi.dtype).mean(-1)
        return {"loss": loss, "accuracy": correct, "score": psi.mean(-1)}

    def chunks(self, batch: SegmentBatch) -> Iterator[tuple[SegmentBatch, random.Position]]:
        """A batch in parts, each with the number of its first row: hidden layers hold one part at a time."""
        for i, first_row in enumerate(self.first_rows):
            yield batch.part(slice(i * self.chunk, (i + 1) * self.chunk)), first_row

    def scores(self, batch: SegmentBatch, first_row: random.Position = 0) -> Tensor:
        """ψ of each segment of a batch (R, B)."""
        assert self.log_ref is not None
        log_ref = self.log_ref.gather(1, batch.rows.flatten(1)).view(batch.rows.shape)
        log_pi = self.log_pi(batch.rows, first_row)
        return score(log_pi, log_ref, self.table.discount * batch.valid, self.method.alpha)

    def rate(self) -> Tensor:
        """The classification rate: linear from 0 over the warm-up, then constant."""
        since = self.clock - self.method.clone_updates + 1
        return self.method.rate * (since / max(self.method.warmup, 1)).clamp(max=1.0)

    def log_pi(self, rows: Tensor, first_row: random.Position = 0) -> Tensor:
        """log π_θ of the logged actions at these rows (R, B, L), dropout on, with the masks from ``first_row`` on."""
        runs, flat = len(rows), rows.flatten()
        states = self.observations[flat].view(runs, -1, self.observations.shape[1])
        actions = reachable(self.actions[flat]).view(*rows.shape, -1)
        with self.matmul_precision():
            mean = self.network(states, self.key, first_row=first_row)
        return log_probability(mean.to(actions.dtype).view_as(actions), actions)

    def compile_parts(self) -> None:
        for owner, part in ((self, "log_pi"), (self.table, "draw"), (self.adam, "move")):
            setattr(owner, part, torch.compile(getattr(owner, part), dynamic=False))

    @torch.no_grad()
    def reference_log_probabilities(self) -> Tensor:
        """log π_ref of every logged action (R, rows); a constant where the reference is uniform."""
        runs, rows = len(self.runs), len(self.logged)
        result = self.actions.new_zeros(runs, rows)
        if self.method.reference == "uniform":
            return result
        for start in range(0, rows, ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            mean = self.frozen(self.logged[part].to(self.actions).expand(runs, -1, -1))
            result[:, part] = log_probability(mean, reachable(self.actions[part]))
        return result

    def policy(self) -> Policy:
        return MLPPolicy.from_layers(self.metadata, self.network.weights())


@dataclass(frozen=True, eq=False)
class SegmentBatch:
    """Segments drawn for each run."""

    rows: Tensor
    """(R, B, L): the rows of each segment; behind a short episode's end its last row again"""
    valid: Tensor
    """(R, B, L): 1 inside the episode, 0 behind its end"""
    desirable: Tensor
    """(R, B): y, 1 or 0"""
    weight: Tensor
    """(R, B): w"""

    def part(self, segments: slice) -> SegmentBatch:
        """Some of each run's segments."""
        return SegmentBatch(*(t[:, segments] for t in (self.rows, self.valid, self.desirable, self.weight)))


class SegmentTable:
    """The labelled segments of each run on the device, to draw batches from."""

    def __init__(self, partitions: Sequence[Partition], method: TraC, device: torch.device):
        most = max(len(p.weight) for p in partitions)

        def stack(columns: Sequence[np.ndarray]) -> Tensor:
            """Columns of different lengths as (R, most); the filling is never drawn."""
            return torch.from_numpy(np.stack([np.resize(c, most) for c in columns])).to(device)

        def per_run(values: Sequence[float], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        self.batch_size = method.batch_size
        # Four bytes a number: runs times segments of them are no small part of what lies on a GPU.
        self.first = stack([p.segments.first.astype(np.int32) for p in partitions])
        self.length = stack([p.segments.length.astype(np.int32) for p in partitions])
        self.weight = stack([p.weight for p in partitions])
        self.steps = torch.arange(partitions[0].segments.horizon, device=device)
        self.discount = method.gamma**self.steps
        self.desirable = per_run([p.desirable for p in partitions], torch.int64)
        balances = [method.balance(p.desirable, p.undesirable) for p in partitions]
        self.lambda_d = per_run([d for d, _ in balances], torch.float32)
        self.lambda_u = per_run([u for _, u in balances], torch.float32)

        # Segments lie in the order desirable, undesirable, left out: what is drawn from is a range of them.
        labelled = [p.desirable + p.undesirable for p in partitions]
        everything = [len(p.weight) for p in partitions]
        start, stop = {
            "both": ([0] * len(partitions), labelled),
            "desirable": ([0] * len(partitions), [p.desirable for p in partitions]),
            "undesirable": ([p.desirable for p in partitions], labelled),
        }[method.sides]
        self.classified = per_run(start, torch.int64), per_run(stop, torch.int64)
        cloned = labelled if method.clone_on == "labelled" else everything
        self.cloned = per_run([0] * len(partitions), torch.int64), per_run(cloned, torch.int64)

    def draw(self, key: Tensor, within: tuple[Tensor, Tensor]) -> SegmentBatch:
        """A batch for each run, uniform over its segments ``within`` [start, stop)."""
        start, stop = within
        index = start[:, None] + random.below(key, stop - start, self.batch_size)
        first, length = self.first.gather(1, index)[..., None], self.length.gather(1, index)[..., None]
        return SegmentBatch(
            rows=first.long() + torch.minimum(self.steps, length - 1),
            valid=(self.steps < length).to(self.weight.dtype),
            desirable=(index < self.desirable[:, None]).to(self.weight.dtype),
            weight=self.weight.gather(1, index),
        )
