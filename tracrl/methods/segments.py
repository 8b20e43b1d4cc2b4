"""Labelled segments on the device, to draw batches from; a batch may be taken in chunks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tracrl.data.partition import Partition
from tracrl.methods.method import ActivationBudget, Compute
from tracrl.nets import random

Within = tuple[Tensor, Tensor]
"""(R,) twice: the first of each run's segments to draw from, and the one behind the last"""


@dataclass(frozen=True, eq=False)
class SegmentBatch:
    """Segments drawn for each run, or a chunk of them."""

    rows: Tensor
    """(R, B, L): the rows of each segment; behind a short episode's end its last row again"""
    valid: Tensor
    """(R, B, L): 1 inside the episode, 0 behind its end"""
    desirable: Tensor
    """(R, B): y, 1 or 0"""
    weight: Tensor
    """(R, B): w"""
    first_row: random.Position = 0
    """how many rows of the whole batch lie before a chunk: its dropout masks begin there"""
    share: float = 1.0
    """of the whole batch's segments"""
    limit: Tensor | None = None
    """(R, B): the limit at which each was labelled; None where a run has one limit"""
    x: Tensor | None = None
    """(R, B): the x, likewise"""


class SegmentTable:
    """The labelled segments of each run. They lie in the order desirable, undesirable, left out."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        weights: Sequence[NDArray[np.float32]],
        batch_size: int,
        hidden: Sequence[int],
        compute: Compute,
    ):
        """``hidden`` are the units of the layers that a batch goes through: what an activation budget is spent on."""
        device = compute.device
        most = max(len(w) for w in weights)

        def stack(columns: Sequence[np.ndarray]) -> Tensor:
            """Columns of different lengths as (R, most); the filling is never drawn."""
            return torch.from_numpy(np.stack([np.resize(c, most) for c in columns])).to(device)

        def per_run(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        self.batch_size = batch_size
        # Four bytes a number: runs times segments of them are no small part of what lies on a GPU.
        self.first = stack([p.segments.first.astype(np.int32) for p in partitions])
        self.length = stack([p.segments.length.astype(np.int32) for p in partitions])
        self.weight = stack(weights)
        horizon = partitions[0].segments.horizon
        self.steps = torch.arange(horizon, device=device)
        none, d = per_run([0] * len(partitions)), per_run([p.desirable for p in partitions])
        labelled = per_run([p.desirable + p.undesirable for p in partitions])
        everything = per_run([len(w) for w in weights])
        self.sets: dict[str, Within] = {
            "desirable": (none, d),
            "undesirable": (d, labelled),
            "both": (none, labelled),
            "all": (none, everything),
        }
        self.chunk = segments_at_once(batch_size, horizon, hidden, compute.activation_budget)
        """segments of a run that go through the network together"""
        self.first_rows = torch.arange(0, batch_size * horizon, self.chunk * horizon, device=device)
        """where each chunk begins in a batch"""

    def draw(self, key: Tensor, within: Within) -> SegmentBatch:
        """A batch for each run, uniform over its segments ``within`` [start, stop), with replacement."""
        start, stop = within
        index = start[:, None] + random.below(key, stop - start, self.batch_size)
        return self._gathered(index, index < self.sets["desirable"][1][:, None])

    def _gathered(
        self, index: Tensor, desirable: Tensor, limit: Tensor | None = None, x: Tensor | None = None
    ) -> SegmentBatch:
        first, length = self.first.gather(1, index)[..., None], self.length.gather(1, index)[..., None]
        return SegmentBatch(
            rows=first.long() + torch.minimum(self.steps, length - 1),
            valid=(self.steps < length).to(self.weight.dtype),
            desirable=desirable.to(self.weight.dtype),
            weight=self.weight.gather(1, index),
            limit=limit,
            x=x,
        )

    def chunks(self, batch: SegmentBatch) -> Iterator[SegmentBatch]:
        """A batch in parts, so that hidden layers hold one part at a time."""
        for i, first_row in enumerate(self.first_rows):
            part = slice(i * self.chunk, (i + 1) * self.chunk)
            rows = batch.rows[:, part]
            share = rows.shape[1] / self.batch_size
            yield SegmentBatch(
                rows,
                batch.valid[:, part],
                batch.desirable[:, part],
                batch.weight[:, part],
                first_row,
                share,
                None if batch.limit is None else batch.limit[:, part],
                None if batch.x is None else batch.x[:, part],
            )


class LimitTable(SegmentTable):
    """The segments of each run, labelled in each of K ways: at a limit, and where there are several x, with one of
    them. A batch's segments are drawn in ways of their own.

    Where both sets are classified, desirable and undesirable segments take turns: at a low limit few are desirable, and
    in a batch of all limits they would hardly count.
    """

    def __init__(
        self,
        partitions: Sequence[Sequence[Partition]],
        weights: Sequence[Sequence[NDArray[np.float32]]],
        batch_size: int,
        hidden: Sequence[int],
        compute: Compute,
        x: Sequence[float] | None = None,
    ):
        """``partitions`` and ``weights`` have K entries for each run, the same limits for all; so has ``x``, where it
        differs between them."""
        super().__init__(list(chain(*partitions)), list(chain(*weights)), batch_size, hidden, compute)
        runs, self.limits = len(partitions), len(partitions[0])
        self.most = self.first.shape[1]
        self.first, self.length, self.weight = (t.view(runs, -1) for t in (self.first, self.length, self.weight))
        limits = [parts.limit for parts in partitions[0]]
        self.limit_values = torch.tensor(limits, dtype=torch.float32, device=compute.device)
        self.x_values = None if x is None else torch.tensor(x, dtype=torch.float32, device=compute.device)
        each = {name: (start.view(runs, -1), stop.view(runs, -1)) for name, (start, stop) in self.sets.items()}
        (d_start, d_stop), (u_start, u_stop) = each["desirable"], each["undesirable"]
        # (R, 1 or 2 · K): where two sets take turns, first those of the one, then those of the other
        self.sets = {**each, "turns": (torch.cat([d_start, u_start], 1), torch.cat([d_stop, u_stop], 1))}

    def draw(self, key: Tensor, within: Within) -> SegmentBatch:
        """A batch for each run: of each segment first the limit and x, uniform over all, then the segment itself."""
        start, stop = within
        drawn = random.uniform(key, 2 * self.batch_size).view(len(key), 2, -1)
        limit = (drawn[:, 0] * self.limits).to(torch.int64)
        places = torch.arange(self.batch_size, device=key.device)
        column = limit + places % (start.shape[1] // self.limits) * self.limits
        first, last = start.gather(1, column), stop.gather(1, column)
        index = first + (drawn[:, 1] * (last - first)).to(torch.int64)
        desirable = index < self.sets["desirable"][1].gather(1, limit)
        x = None if self.x_values is None else self.x_values[limit]
        return self._gathered(index + limit * self.most, desirable, self.limit_values[limit], x)


def warn_of_few(partitions: Sequence[Partition], batch_size: int) -> None:
    """Say where a batch holds the same segments over and over."""
    for parts in partitions:
        if parts.safe < batch_size:
            warnings.warn(
                f"Only {parts.safe} segments are safe at cost limit {parts.limit:g}, fewer than a batch of "
                f"{batch_size}: each is drawn many times over.",
                stacklevel=2,
            )


def segments_at_once(batch_size: int, horizon: int, hidden: Sequence[int], budget: ActivationBudget | None) -> int:
    """How many of a batch's segments go through the network at once: all of them, or chunks of nearly equal size.

    A chunk's dropout masks begin with whole words of eight bytes.
    """
    segment = horizon * sum(hidden)
    if budget is None or batch_size * segment <= budget.uncut:
        return batch_size
    chunks = -(-batch_size // max(1, budget.chunk // segment))
    whole_words = 8 // math.gcd(8, horizon * math.gcd(*hidden))
    return min(batch_size, -(-batch_size // (chunks * whole_words)) * whole_words)
