"""TraC with one policy for every cost limit: the limit is an input, each drawn segment is labelled at a drawn limit.

Cloning does not see the limit: the input is 0 there, and its weights are 0 when classification begins, so that the
reference's log-probabilities hold for every limit. From then on a segment comes with one of several dozen limits
between a low and a high quantile of the data's costs, and with the label, the weight and the balance that TraC would
give it in a training for that limit alone. With ``least_x`` the share of the safe segments that are desirable is drawn
in the same way and is an input too: the fewer and better they are, the bolder the policy, and which x is bold enough at
which limit can be chosen after training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.data.partition import Partition, cut_segments, partitions
from tracrl.errors import TracrlError
from tracrl.methods.method import Compute, Preset, RunSpec
from tracrl.methods.segments import LimitTable, SegmentBatch, SegmentTable, warn_of_few
from tracrl.methods.trac import TraC, TraCLearner
from tracrl.methods.trac_losses import log_prob, weights
from tracrl.policies.any_limit import AnyLimitPolicy, AnyXPolicy, RemainingBudgetPolicy
from tracrl.policies.base import Policy
from tracrl.policies.layers import named_layers
from tracrl.settings import Dropout, Range

MOST_LABELS = 8_000_000
"""of a run: segments × limits; more segments make do with fewer limits"""
LEAST_LIMITS = 8
X_STEPS = 4
"""different x, where x is an input"""
LONGER = 3
"""times the updates of the fast preset, where candidates of several x are to come from one training"""


@dataclass(frozen=True)
class TraCAny(TraC):
    """TraC's settings, and those of the limits."""

    name: ClassVar[str] = "trac-any"
    title: ClassVar[str] = "TraC-Any"
    paper: ClassVar[str] = f"none of its own; TraC is from {TraC.paper}"
    optimises: ClassVar[str] = "TraC's classifier at every cost limit at once: the limit is an input of the policy"
    depends_on_limit: ClassVar[bool] = False
    same_cost: ClassVar = (
        *TraC.same_cost, "label_limits", "lowest", "highest", "most", "least_x",
        "sharpness", "told",
    )  # fmt: skip

    dropout: Dropout = 0.05
    """rate of dropout after each hidden layer; with TraC's 0.25 neighbouring limits are told apart too little"""
    label_limits: Annotated[int, Range(2, 1_000)] = 32
    """limits at which segments are labelled"""
    lowest: Annotated[float, Range(0, 100, kind="per cent")] = 5.0
    """per cent of the episodes that keep to the lowest of them"""
    highest: Annotated[float, Range(0, 100, kind="per cent")] = 95.0
    """per cent of the episodes that keep to the highest"""

    told: Literal["limit", "remaining"] = "limit"
    """what the policy is told in each step: the limit, or what is left of it"""
    most: Annotated[float, Range(0, 100, above=True, kind="per cent")] = 100.0
    """per cent of all segments that are desirable at most: where many are safe, x is the lower"""
    least_x: Annotated[float, Range(0, 100, kind="per cent")] = 0.0
    """where above 0, x is an input beside the limit: drawn between --x and this in training, chosen afterwards"""
    sharpness: Annotated[float, Range(0, 100)] = 0.0
    """s: a desirable segment weighs exp(s (v̂ − 1)) times as much, v̂ its return between 0 and 1"""
    rounds: Annotated[int, Range(1, 100)] = 1
    """rounds of classification, each with the policy of the one before as its reference"""

    def validate(self) -> None:
        super().validate()
        self.require(self.told == "limit" or self.ratio == 1, "told", "limit where --ratio is below 1 (whole episodes)")
        self.require(self.least_x < self.x, "least_x", f"per cent below --x ({self.x:g}); 0: x is no input")
        self.require(self.told == "limit" or not self.least_x, "least_x", "0 where --told is remaining")
        most = max(1, self.updates - self.clone_updates)
        self.require(self.rounds <= most, "rounds", f"1 to {most}, the updates of the classification")
        self.require(self.lowest < self.highest, "lowest", f"per cent below --highest ({self.highest:g})")

    @classmethod
    def to_calibrate(cls, suite: str, preset: Preset) -> dict[str, Any]:
        """Settings of a policy whose inner limit and x are chosen after training: a range of x, a heavier undesirable
        set, which keeps bold policies safe, and more than the fast preset's updates, which a range of x has to share
        (docs/research.md)."""
        longer = {"updates": LONGER * cls.preset(suite, preset).updates} if preset == "fast" else {}
        return {"least_x": 6.0, "eta": 1.0, **longer}

    @property
    def phase_ends(self) -> tuple[int, ...]:
        """Of the cloning, and of each round but the last."""
        each = (self.updates - self.clone_updates) / self.rounds
        return tuple(self.clone_updates + round(i * each) for i in range(self.rounds))

    @property
    def shares(self) -> list[float]:
        """The x at which segments are labelled, each as many times the next as the next is the one after it."""
        if not self.least_x:
            return [self.x]
        return [self.x * (self.least_x / self.x) ** (i / (X_STEPS - 1)) for i in range(X_STEPS)]

    def weights(self, parts: Partition) -> NDArray[np.float32]:
        """TraC's, and more for the best where that is asked for."""
        found, best = weights(parts, self.delta), parts.scaled_returns[0]
        found[: len(best)] *= np.exp(self.sharpness * (best - 1)).astype(np.float32)
        return found

    def limit_range(self, data: Episodes) -> tuple[float, float]:
        """The lowest and the highest limit that a policy learns to keep to."""
        costs = data.total_costs
        low, high = np.quantile(costs, [self.lowest / 100, self.highest / 100], method="inverted_cdf")
        if high == costs.max():  # something must be left that is not safe
            high = max(costs[costs < high], default=low)
        if not low < high:
            raise TracrlError(
                f"{self.title}: {self.lowest:g} % of the episodes cost at most {low:g} and {self.highest:g} % at most "
                f"{high:g}, which leaves no range of limits to learn: change --lowest and --highest, or train TraC for "
                "the limits that are wanted."
            )
        return float(low), float(high)

    def grid(self, data: Episodes, segments: int) -> list[float]:
        """The limits at which segments are labelled: evenly spaced in what the policy is told of them."""
        low, high = self.limit_range(data)
        count = min(self.label_limits, max(LEAST_LIMITS, MOST_LABELS // (segments * len(self.shares))))
        return [low + (high - low) * (i / (count - 1)) ** 2 for i in range(count)]

    def partitions(self, data: Episodes, seed: int) -> list[Partition]:
        """The desirable and undesirable segments of a run with each x, at each limit of the grid."""
        cut = cut_segments(data, self.ratio, self.short_episodes, np.random.default_rng(seed))
        grid = self.grid(data, len(cut.first))
        how: dict[str, Any] = {"most": self.most, "labelling": self.labelling, "normaliser": self.normaliser}
        return [parts for x in self.shares for parts in partitions(data, cut, grid, x=x, y=self.y, **how)]

    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> TraCAnyLearner:
        return TraCAnyLearner(self, data, runs, compute)


class TraCAnyLearner(TraCLearner):
    """TraC's, whose network has one or two inputs more, the limit the last; a run is a seed."""

    method: TraCAny

    def labelled(self, data: Episodes) -> tuple[SegmentTable, list[tuple[float, float]]]:
        method = self.method
        self.limit_range = method.limit_range(data)
        parts = [method.partitions(data, run.seed) for run in self.runs]
        warn_of_few([of_run[0] for of_run in parts], method.batch_size)
        w = [[method.weights(p) for p in of_run] for of_run in parts]
        if method.told == "remaining":
            spent = [np.cumsum(data.costs[rows], dtype=np.float64) - data.costs[rows] for rows in data]
            self.spent = torch.from_numpy(np.concatenate(spent).astype(np.float32)).to(self.compute.device)
            """(rows,): what an episode has cost before each step"""
        shares = method.shares
        x = [x for x in shares for _ in range(len(parts[0]) // len(shares))] if method.least_x else None
        table = LimitTable(parts, w, method.batch_size, method.hidden, self.compute, x)
        # The two sets take turns in a batch: they are of one size there, at every limit.
        return table, [method.balance(1, 1)] * len(self.runs)

    @property
    def more_inputs(self) -> int:
        return 2 if self.method.least_x else 1

    @property
    def drawn_from(self) -> str:
        return "turns" if self.method.sides == "both" else self.method.sides

    @property
    def round(self) -> int:
        """Of the classification, counted from 1; 0 while cloning."""
        return sum(self.step >= end for end in self.method.phase_ends)

    @property
    def phase(self) -> str:
        return super().phase if self.round <= 1 else f"classification {self.round}"

    def prepare(self) -> None:
        if self.round > 1 and self.step in self.method.phase_ends:
            self.freeze()
        super().prepare()

    def freeze(self) -> None:
        if self.round == 1:
            with torch.no_grad():
                self.network.layers[0].weight[:, -self.more_inputs :].zero_()
        super().freeze()

    def reference(self, batch: SegmentBatch) -> Tensor:
        """From the second round on the reference is told the limit (and x) too."""
        if self.round <= 1:
            return super().reference(batch)
        rows = batch.rows.flatten()
        states = self.observations[rows].view(len(batch.rows), -1, self.observations.shape[1])
        actions = self.actions[rows].view(*batch.rows.shape, -1)
        with torch.no_grad(), self.autocast():
            mean = self.frozen(self.seen(states, batch.rows, batch.limit, batch.x))
        return log_prob(mean.to(actions.dtype).view_as(actions), actions)

    def seen(
        self, states: Tensor, rows: Tensor | None = None, limit: Tensor | None = None, x: Tensor | None = None
    ) -> Tensor:
        if rows is None or limit is None:
            return torch.cat([states, states.new_zeros(*states.shape[:2], self.more_inputs)], -1)
        columns = []
        if x is not None:
            bold = 2 * (self.method.x / x).log() / math.log(self.method.x / self.method.least_x) - 1
            columns.append(bold[..., None].expand(rows.shape))
        left = limit[..., None].expand(rows.shape)
        if self.method.told == "remaining":
            left = left - (self.spent[rows] - self.spent[rows[..., :1]])
        low, high = self.limit_range
        share = ((left - low) / (high - low)).clamp(0, 1)
        columns.append(2 * share.sqrt() - 1)
        return torch.cat([states, *(c.to(states.dtype).reshape(*states.shape[:2], 1) for c in columns)], -1)

    def policy(self) -> Policy:
        (low, high), method = self.limit_range, self.method
        if method.least_x:
            tensors = named_layers({"": self.network.weights()})
            return AnyXPolicy(
                self.metadata, tensors, largest_x=method.x, least_x=method.least_x, lowest=low, highest=high
            )
        kind = AnyLimitPolicy if method.told == "limit" else RemainingBudgetPolicy
        return kind.from_layers(self.metadata, self.network.weights(), low, high)
