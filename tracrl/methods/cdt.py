"""CDT: the constrained decision transformer (Liu et al., ICML 2023).

A causal transformer reads, step by step, the return still to come, the cost still to come, the observation and the
action, and learns to predict the logged action from what precedes it. Asked for a high return at a low cost it acts
accordingly; one training serves every cost limit.

1. The action's distribution is a diagonal Gaussian; the loss is −E[log π(a_t | …) + α H(π)], with α steered so that the
   entropy H stays near −1 a dimension.
2. From the action's token the cost of the step is predicted too: cross-entropy, with a small weight.
3. Trajectories of low cost are drawn more often, and some are drawn under a label that nothing in the data attains:
   a return above the best one for a cost (the Pareto front), so that asking for too much still gives the best
   that is safe (:func:`augmentation`).

When it acts, the return to come starts at a target (:mod:`tracrl.methods.cdt_targets`), the cost to come at the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tracrl.data.episodes import Episodes
from tracrl.methods.cdt_targets import Targets, data_targets, task_targets
from tracrl.methods.method import ActivationBudget, Compute, DataSizes, Learner, Method, RunSpec
from tracrl.nets import random
from tracrl.nets.actor import log_prob
from tracrl.nets.stacked import StackedAdam, generators
from tracrl.nets.transformer import Affine, Keys, StackedGPT, embedding_table
from tracrl.policies.base import Policy
from tracrl.policies.transformer import TOKENS_A_STEP, TransformerPolicy
from tracrl.settings import BatchSize, Dropout, LearningRate, Positive, Range, Updates, Weight

TRAJECTORY, START = range(2)  # streams of random numbers; dropout's begin at 1000
LOG_STD_RANGE = (-5.0, 2.0)
COST_OFFSET = 50.0  # the cost to come is fed as 50 − cost: a large number is a good one, as for returns
COST_BINS, RETURN_BINS = 10, 50  # cells of the cost–return plane in which outliers are looked for
FEWEST_IN_A_CELL = 3


@dataclass(frozen=True)
class CDT(Method):
    """CDT's settings."""

    name: ClassVar[str] = "cdt"
    title: ClassVar[str] = "CDT"
    paper: ClassVar[str] = (
        "Liu, Guo, Yao, Cen, Yu, Zhang and Zhao: Constrained Decision Transformer for Offline Safe Reinforcement "
        "Learning, ICML 2023"
    )
    optimises: ClassVar[str] = "the likelihood of logged actions given the return and the cost still to come"
    depends_on_limit: ClassVar[bool] = False
    has_bf16: ClassVar[bool] = True
    bf16_by_itself: ClassVar[bool] = True
    numbers_a_row: ClassVar[int] = 5
    runs_apart_on_cpus: ClassVar[bool] = True
    metrics: ClassVar = ("loss", "entropy", "temperature", "cost_loss")
    suites: ClassVar = {"MetaDrive": {"updates": 200_000}}
    fast: ClassVar = {"updates": 2_000, "batch_size": 64, "width": 64, "layers": 2, "heads": 4, "lr": 1e-3}
    renamed: ClassVar = {
        "rate": "lr",
        "decay": "weight_decay",
        "largest_gradient": "max_grad_norm",
        "temperature_rate": "temperature_lr",
    }

    updates: Updates = 100_000
    """gradient updates"""
    batch_size: BatchSize = 2048
    """sub-sequences in a batch"""
    context: Annotated[int, Range(1, 10_000)] = 10
    """steps of a sub-sequence"""
    width: Annotated[int, Range(1, 16_384)] = 128
    """units of a token"""
    layers: Annotated[int, Range(1, 100)] = 3
    """blocks of the transformer"""
    heads: Annotated[int, Range(1, 1_024)] = 8
    """heads of its attention"""
    dropout: Dropout = 0.1
    """rate of dropout of embedding, attention and residuals, rounded to a multiple of 1/256"""
    lr: LearningRate = 1e-4
    """Adam's learning rate, after a linear rise"""
    warmup: Annotated[int, Range(0, 10**9)] = 500
    """updates of that rise"""
    weight_decay: Weight = 1e-4
    """weight decay"""
    max_grad_norm: Positive = 0.25
    """the norm to which a run's gradient is cut"""
    temperature: Positive = 0.1
    """α, the first weight of the entropy"""
    temperature_lr: LearningRate = 1e-4
    """Adam's learning rate of log α"""
    cost_weight: Weight = 0.02
    """weight of the predicted cost in the loss"""
    largest_cost: Positive = 70.0
    """a trajectory is drawn with probability ∝ this − its cost, or never"""
    augment: Annotated[float, Range(0, 10)] = 0.2
    """trajectories under a better label than any, as a share of the data; 0 for none"""
    reward_scale: Positive = 0.1
    """returns are multiplied by this"""
    targets: Literal["task", "data"] = "task"
    """what return to ask for: the benchmark's for its tasks (else as "data"), or the best in the data at each limit"""

    def validate(self) -> None:
        self.require(self.width % self.heads == 0, "heads", f"a divisor of --width ({self.width})")

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> CDTLearner:
        return CDTLearner(self, data, runs, compute)

    def numbers_held(self, sizes: DataSizes, budget: ActivationBudget | None = None) -> int:
        """Mostly what the blocks put out for each token: twenty times its width, and three scores with every other."""
        tokens, width = TOKENS_A_STEP * self.context, self.width
        of_token = self.layers * (20 * width + 3 * self.heads * tokens) + 6 * width
        weights = 12 * self.layers * width**2 + (sizes.steps + self.context) * width
        return 4 * weights + self.batch_size * tokens * of_token

    def targets_for(self, data: Episodes) -> Targets:
        """What is asked for on these data."""
        of_task = task_targets(data.task) if self.targets == "task" else None
        return of_task or data_targets(data)


def to_go(steps: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
    """Σ over the present and later steps of the same episode, for every row."""
    # Each episode is summed by itself, from its end: nothing huge elsewhere costs it a digit.
    sums = [np.cumsum(steps[a:b][::-1], dtype=np.float64)[::-1] for a, b in pairwise(offsets)]
    return np.concatenate(sums).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Episodes to draw from, each with what is added to its labels."""

    episode: NDArray[np.int64]
    extra_return: NDArray[np.float64]
    extra_cost: NDArray[np.float64]


def augmentation(data: Episodes, targets: Targets, share: float, generator: np.random.Generator) -> Trajectories:
    """Safe trajectories under labels above the Pareto front.

    For costs spread evenly over the data's, a return above the front is drawn, up to the highest to ask for. An
    episode within that cost, of nearly the best return and preferably near the target, stands in for it.
    """
    costs, returns = data.total_costs, data.returns
    usual = _usual(costs, returns)
    number = int(share * usual.sum())
    chosen, extra_return, extra_cost = np.empty(number, np.int64), np.empty(number), np.empty(number)
    wanted_costs = np.linspace(costs[usual].min(), costs[usual].max(), number)
    for i, cost in enumerate(wanted_costs):
        within = np.flatnonzero(usual & (costs <= cost))
        front = returns[within].max()
        wanted = generator.uniform(front, max(front, targets.highest_return))
        near = within[returns[within] >= front - targets.slack]
        closeness = 1 / (np.hypot(costs[near] - cost, returns[near] - wanted) + 1)
        chosen[i] = generator.choice(near, p=closeness / closeness.sum())
        extra_return[i], extra_cost[i] = wanted - returns[chosen[i]], cost - costs[chosen[i]]
    return Trajectories(chosen, extra_return, extra_cost)


def _usual(costs: NDArray[np.float64], returns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which episodes are no outliers of the cost–return plane; all, where most would be: the data are too sparse."""

    def cell(values: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
        span = max(float(np.ptp(values)), 1e-12)
        return np.minimum(((values - values.min()) / span * bins).astype(np.int64), bins - 1)

    cells = cell(costs, COST_BINS) * RETURN_BINS + cell(returns, RETURN_BINS)
    usual = np.bincount(cells)[cells] >= FEWEST_IN_A_CELL
    return usual if usual.mean() >= 0.5 else np.ones(len(costs), bool)


class Model(nn.Module):
    """Embeddings, the transformer and its heads."""

    def __init__(self, method: CDT, observations: int, actions: int, steps: int, seeds: Sequence[int]):
        super().__init__()
        first, width = generators(seeds), method.width
        self.of_return = Affine(first, 1, width)
        self.of_cost = Affine(first, 1, width)
        self.of_observation = Affine(first, observations, width)
        self.of_action = Affine(first, actions, width)
        self.steps = embedding_table(first, steps, width)
        self.gpt = StackedGPT(first, width, method.layers, method.heads, method.dropout)
        self.mean = Affine(first, width, actions)
        self.log_std = Affine(first, width, actions)
        self.cost = Affine(first, width, 1)

    def forward(self, batch: SequenceBatch, keys: Keys | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and log standard deviation of each action, (R, B, L, actions), and the logit of its cost (R, B, L)."""
        runs, sequences, steps = batch.costs.shape
        moment = self.steps.gather(1, batch.steps.flatten(1)[..., None].expand(-1, -1, self.steps.shape[2]))
        moment = moment.view(runs, sequences, steps, 1, -1)
        tokens = torch.stack(
            [
                self.of_return(batch.returns_to_go[..., None]),
                self.of_cost(COST_OFFSET - batch.costs_to_go[..., None]),
                self.of_observation(batch.observations),
                self.of_action(batch.actions),
            ],
            dim=3,
        )

        def of_observation_and_action(x: Tensor) -> Tensor:
            return x.view(runs, sequences, steps, TOKENS_A_STEP, -1)[:, :, :, -2:].flatten(2, 3)

        known = self.gpt((tokens + moment).flatten(2, 3), keys, wanted=of_observation_and_action)
        seen, done = known.view(runs, sequences, steps, 2, -1).unbind(3)
        # What losses are made of is in float32, whatever the products are in.
        mean, log_std, cost = (
            head(at).float() for head, at in ((self.mean, seen), (self.log_std, seen), (self.cost, done))
        )
        return mean, log_std.clamp(*LOG_STD_RANGE), cost.squeeze(-1)


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """Sub-sequences drawn for each run; behind an episode's end its last row is repeated, and not valid."""

    returns_to_go: Tensor
    """(R, B, L), scaled"""
    costs_to_go: Tensor
    """(R, B, L)"""
    observations: Tensor
    """(R, B, L, observation size)"""
    actions: Tensor
    """(R, B, L, action size), in [−1, 1]"""
    costs: Tensor
    """(R, B, L): the cost of each step, in units of the largest, if that is above 1"""
    steps: Tensor
    """(R, B, L): steps since the episode's start"""
    valid: Tensor
    """(R, B, L): 1 inside the episode, 0 behind its end"""


class SequenceTable:
    """The trajectories of each run on the device, to draw sub-sequences from."""

    def __init__(self, data: Episodes, trajectories: Sequence[Trajectories], method: CDT, device: torch.device):
        def stack(columns: Sequence[NDArray[np.float64]] | Sequence[NDArray[np.int64]]) -> Tensor:
            return torch.from_numpy(np.stack(columns)).to(device)

        self.batch_size = method.batch_size
        self.observations = torch.from_numpy(data.observations).to(device)
        self.actions = torch.from_numpy(data.scaled_actions()).to(device)
        self.returns_to_go = torch.from_numpy(method.reward_scale * to_go(data.rewards, data.offsets)).to(device)
        self.costs_to_go = torch.from_numpy(to_go(data.costs, data.offsets)).to(device)
        self.costs = torch.from_numpy(data.costs / max(1.0, float(data.costs.max()))).to(device)
        self.window = torch.arange(method.context, device=device)

        weights = [
            np.maximum(method.largest_cost - data.total_costs[t.episode] - t.extra_cost, 0) for t in trajectories
        ]
        weights = [w if w.any() else np.ones_like(w) for w in weights]
        self.chances = stack([np.cumsum(w) / w.sum() for w in weights])
        self.first = stack([data.offsets[t.episode] for t in trajectories])
        self.length = stack([data.lengths[t.episode] for t in trajectories])
        self.extra_return = stack([method.reward_scale * t.extra_return for t in trajectories]).float()
        self.extra_cost = stack([t.extra_cost for t in trajectories]).float()

    def draw(self, trajectory_key: Tensor, start_key: Tensor) -> SequenceBatch:
        """A trajectory by its chance, then a start within it, uniformly."""
        drawn = torch.searchsorted(self.chances, random.uniform(trajectory_key, self.batch_size), right=True)
        drawn = drawn.clamp(max=self.chances.shape[1] - 1)
        length = self.length.gather(1, drawn)
        start = (random.uniform(start_key, self.batch_size) * length).to(torch.int64)
        return self.at(drawn, start)

    def at(self, drawn: Tensor, start: Tensor) -> SequenceBatch:
        """The sub-sequences of these trajectories (R, B) from these starts (R, B)."""
        length = self.length.gather(1, drawn)[..., None]
        steps = start[..., None] + self.window
        inside = torch.minimum(steps, length - 1)
        rows = self.first.gather(1, drawn)[..., None] + inside
        return SequenceBatch(
            returns_to_go=self.returns_to_go[rows] + self.extra_return.gather(1, drawn)[..., None],
            costs_to_go=self.costs_to_go[rows] + self.extra_cost.gather(1, drawn)[..., None],
            observations=self.observations[rows],
            actions=self.actions[rows],
            costs=self.costs[rows],
            steps=steps,
            valid=(steps < length).float(),
        )


def action_losses(mean: Tensor, log_std: Tensor, batch: SequenceBatch) -> tuple[Tensor, Tensor]:
    """−E log π(a) and E H(π), both a dimension, over the valid steps: (R,) each."""
    log_pi = log_prob(mean, log_std, batch.actions)
    entropy = log_std + 0.5 * math.log(2 * math.pi * math.e)
    return -masked_mean(log_pi.mean(-1), batch.valid), masked_mean(entropy.mean(-1), batch.valid)


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """(R, B, L) → (R,)"""
    return (values * valid).sum((1, 2)) / valid.sum((1, 2))


class CDTLearner(Learner):
    """The stack in training: one model per seed."""

    compiled = ("losses", "temperature_loss", "cut")

    def __init__(self, method: CDT, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__(method, data, runs, compute)
        device = compute.device
        self.method = method
        self.targets = method.targets_for(data)
        logged = np.arange(len(data))
        extras = [augmentation(data, self.targets, method.augment, np.random.default_rng(r.seed)) for r in runs]
        nothing = np.zeros(len(data))
        trajectories = [
            Trajectories(
                np.concatenate([logged, extra.episode]),
                np.concatenate([nothing, extra.extra_return]),
                np.concatenate([nothing, extra.extra_cost]),
            )
            for extra in extras
        ]
        self.table = SequenceTable(data, trajectories, method, device)
        steps = data.max_steps + method.context
        seeds = [run.seed for run in runs]
        self.model = Model(method, data.observation_size, data.action_size, steps, seeds).to(device)
        if device.type == "cuda":
            self.model.gpt.fuse_attention(TOKENS_A_STEP * method.context)
        self.log_temperature = nn.Parameter(torch.full((len(runs),), math.log(method.temperature), device=device))
        self.adam = StackedAdam(list(self.model.parameters()))
        self.temperature_adam = StackedAdam([self.log_temperature])

    def learn(self) -> dict[str, Tensor]:
        temperature = self.log_temperature.detach().exp()
        loss, entropy, cost_loss = self.losses()
        self.descend(loss)
        self.temperature_adam.step(self.temperature_loss(entropy), self.method.temperature_lr)
        return {"loss": loss.detach(), "entropy": entropy, "temperature": temperature, "cost_loss": cost_loss}

    def losses(self) -> tuple[Tensor, Tensor, Tensor]:
        """The model's loss on this step's batch, the entropy and the error of predicted costs in it, (R,) each."""
        batch = self.table.draw(self.key(TRAJECTORY), self.key(START))
        mean, log_std, cost = self.model(batch, self.key)
        nll, entropy = action_losses(mean, log_std, batch)
        cost_error = binary_cross_entropy_with_logits(cost, batch.costs, reduction="none")
        cost_loss = masked_mean(cost_error, batch.valid)
        loss = nll - self.log_temperature.detach().exp() * entropy + self.method.cost_weight * cost_loss
        return loss, entropy.detach(), cost_loss.detach()

    def temperature_loss(self, entropy: Tensor) -> Tensor:
        """(R,): α falls while the entropy is above −1 a dimension, and rises below."""
        return self.log_temperature.exp() * (entropy + 1)

    def cut(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Gradients of a limited norm, each run's by its own."""
        norm = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
        factor = (self.method.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        return [g * factor.view(-1, *[1] * (g.dim() - 1)) for g in gradients]

    def descend(self, loss: Tensor) -> None:
        """Adam with decoupled weight decay on the cut gradients."""
        parameters = list(self.model.parameters())
        gradients = torch.autograd.grad(loss.sum(), parameters)
        lr = self.method.lr * ((self.clock + 1) / max(self.method.warmup, 1)).clamp(max=1.0)
        with torch.no_grad():
            torch._foreach_mul_(list[Tensor](parameters), 1 - lr * self.method.weight_decay)
        self.adam.move(self.cut(gradients), lr)

    def policy(self) -> Policy:
        tensors = {
            name: np.array(tensor.detach().cpu().numpy(), np.float32)
            for name, tensor in self.model.state_dict().items()
            if not name.startswith(("log_std.", "cost."))
        }
        return TransformerPolicy(
            self.metadata,
            tensors,
            targets=self.targets.returns,
            context=self.method.context,
            heads=self.method.heads,
            reward_scale=self.method.reward_scale,
            cost_offset=COST_OFFSET,
        )
