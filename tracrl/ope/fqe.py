"""Fitted Q evaluation over a finite horizon, undiscounted, of return and cost together.

Q(s, a, t) = (T − t) f(s, a, t): f is what is still to come, per step that is left, and its target is

    (r + (T − t − 1) f'(s', π(s'), t + 1)) / (T − t)

where f' follows f. What is known of a step at the end of an episode travels to its beginning one step for each time
constant of f', so f' must follow fast enough for the horizon (:meth:`FQE.taus`).

The cost of a step lies between 0 and the most that was logged, so its f is the sigmoid of a network, fitted by the
cross entropy. A squared error with values cut at 0 would lift costs near 0, as noise is cut on one side only (the
losses are compared by Ayoub et al., Switching the Loss Reduces the Cost in Batch Reinforcement Learning, ICML 2024).
Policies and bootstrap replicas are runs of one stack.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tracrl.nets import random
from tracrl.nets.critics import frozen_copy
from tracrl.nets.stacked import StackedLinear, generators
from tracrl.ope.fitting import Adam
from tracrl.ope.log import Log

ROWS_STREAM, DRAW_STREAM = 0, 1
ROWS_AT_ONCE = 2_048

Rows = NDArray[np.int64] | None


@dataclass(frozen=True)
class FQE:
    """Settings."""

    updates: int = 20_000
    batch_size: int = 512
    hidden: tuple[int, ...] = (256, 256)
    lr: float = 1e-3
    """Adam's at first; it falls to a tenth"""
    passes: float = 3.0
    """how often values can travel through the whole horizon"""

    def taus(self, horizon: int) -> tuple[float, float]:
        """Polyak steps: the first one, and the last, a tenth of it; between them they fall geometrically."""
        mean_share = 0.9 / math.log(10)
        first = min(1.0, self.passes * horizon / (mean_share * self.updates))
        return first, first / 10


class ValueNetwork(nn.Module):
    """(R, rows, in) → (R, rows, 2), through ReLU layers with LayerNorm, for one network a run."""

    def __init__(self, generators: Sequence[torch.Generator], inputs: int, hidden: Sequence[int], first: Tensor):
        super().__init__()
        sizes = (inputs, *hidden)
        self.layers = nn.ModuleList(
            StackedLinear(generators, a, b, "orthogonal", 2.0**0.5) for a, b in itertools.pairwise(sizes)
        )
        self.last = StackedLinear(generators, sizes[-1], 2, "orthogonal", 0.01)
        with torch.no_grad():
            self.last.bias.add_(first)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            x = torch.relu(nn.functional.layer_norm(x, x.shape[-1:]))
        return self.last(x)


class FittedQ(nn.Module):
    """A stack of R = replicas × policies value functions in training."""

    clock: Tensor

    def __init__(
        self,
        settings: FQE,
        log: Log,
        actions: Tensor,
        replicas: int = 1,
        seed: int = 0,
        among: Rows = None,
        more_inputs: int = 0,
    ):
        """``actions`` (draws, policies, states, action size): what each policy does in each of the log's states.
        ``among``: fitted to these episodes alone."""
        super().__init__()
        device = log.states.device
        self.settings, self.log, self.updates = settings, log, settings.updates
        self.policies, self.replicas = actions.shape[1], replicas
        self.actions = actions
        self.rows, self.counts = log.resampled_rows(replicas, seed, among)
        self.seeds = torch.arange(replicas, device=device) + seed * 1_000
        every = torch.arange(self.updates, device=device)[:, None]
        self.keys = random.keys(self.seeds, every, ROWS_STREAM)
        self.low, self.high = _ranges(log)
        self.centre, self.scale = log.signals[:, 0].mean(), log.signals[:, 0].std().clamp(min=1e-6)
        inputs = log.states.shape[1] + log.actions.shape[1] + 1 + more_inputs
        # One seed a replica: policies differ by what they do alone.
        seeds = [int(s) for s in self.seeds for _ in range(self.policies)]
        first_cost = (log.signals[:, 1].mean() / self.high[1]).clamp(0.01, 0.99).logit()
        first = torch.tensor([0.0, float(first_cost)])
        self.network = ValueNetwork(generators(seeds), inputs, settings.hidden, first).to(device)
        self.target = frozen_copy(self.network)
        self.adam = Adam(self.network.parameters())
        self.register_buffer("clock", torch.zeros((), dtype=torch.int64, device=device))

    def learn(self) -> Tensor:
        """One update; the loss of each run."""
        log, settings, clock = self.log, self.settings, self.clock
        done = clock / settings.updates
        drawn = random.below(self.keys.index_select(0, clock.view(1))[0], self.counts, settings.batch_size)
        rows = self.rows.gather(1, drawn)
        time, goes_on = log.step[rows], log.goes_on[rows]
        following = log.following[rows]
        left = (log.horizon - time).float()[..., None]
        with torch.no_grad():
            later = self.bounded(self.target(self._inputs(following, self._chosen(following, clock), time + 1)))
            later = later.view(self.replicas, self.policies, -1, 2)
            later = torch.where(goes_on[..., None], left - 1, 0.0)[:, None] * later
            value = (log.signals[rows][:, None] + later) / left[:, None]
            value = torch.minimum(torch.maximum(value, self.low), self.high)
            value = value.flatten(0, 1)
        own = log.actions[rows][:, None].expand(-1, self.policies, -1, -1)
        scores = self.network(self._inputs(rows, own, time))
        weight = (left / log.horizon)[:, None].expand(-1, self.policies, -1, -1).flatten(0, 1)
        error = (scores[..., :1] - (value[..., :1] - self.centre) / self.scale).square()
        shares = value[..., 1:] / self.high[1]
        entropy = nn.functional.binary_cross_entropy_with_logits(scores[..., 1:], shares, reduction="none")
        loss = ((error + entropy) * weight).mean((1, 2))
        self.adam.step(loss, settings.lr * (1 - 0.9 * done))
        first, last = settings.taus(log.horizon)
        follow(self.target, self.network, first ** (1 - done) * last**done)
        self.clock += 1
        return loss.detach()

    @torch.no_grad()
    def values(self) -> Tensor:
        """(replicas, policies, E, 2): estimated return and cost from each logged first state."""
        first = self.log.first[None].expand(self.replicas, -1)
        total = torch.zeros((self.replicas, self.policies, len(self.log.first), 2), device=first.device)
        for draw in self._every_draw():
            chosen = draw[:, first].transpose(0, 1)
            scores = self.target(self._inputs(first, chosen, torch.zeros_like(first)))
            total += self.bounded(scores).view_as(total)
        return total * (self.log.horizon / len(self._every_draw()))

    @torch.no_grad()
    def foretold(self, episodes: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """(replicas, policies, episodes, 2), (episodes, 2): what these value functions say that the logged actions of
        these episodes bring, and what they brought.

        Where Q is exact, what an episode brings is V(s₀) + Σ Q(s, a) − V(s), whoever acted. So what it brought less
        r + V(s') − Q(s, a), summed over its steps, is what Q says of it, and the rest is what Q is off.
        """
        log = self.log
        device = log.first.device
        lengths = torch.from_numpy(log.usable[episodes]).to(device)
        place = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
        starts = torch.cumsum(lengths, 0) - lengths
        rows = log.first[torch.from_numpy(episodes).to(device)][place] + torch.arange(len(place), device=device)
        rows = rows - starts[place]
        brought = torch.zeros(len(lengths), 2, dtype=torch.float64, device=device)
        brought.index_add_(0, place, log.signals[rows].double())
        told = torch.zeros(self.replicas, self.policies, len(lengths), 2, dtype=torch.float64, device=device)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            at = rows[some][None].expand(self.replicas, -1)
            time, following = log.step[at], log.following[at]
            own = log.actions[at][:, None].expand(-1, self.policies, -1, -1)
            left = (log.horizon - time).float()[:, None, :, None]
            here = left * self._shaped(self._inputs(at, own, time))
            later = torch.zeros_like(here)
            for draw in self._every_draw():
                chosen = draw[:, following].transpose(0, 1)
                later += self._shaped(self._inputs(following, chosen, time + 1)) / len(self._every_draw())
            later = log.goes_on[at][:, None, :, None] * (left - 1) * later
            told.index_add_(2, place[some], (here - later).double())
        return told, brought

    def _shaped(self, inputs: Tensor) -> Tensor:
        """(replicas, policies, rows, 2): by the network that follows"""
        return self.bounded(self.target(inputs)).view(self.replicas, self.policies, -1, 2)

    def bounded(self, scores: Tensor) -> Tensor:
        returns = (self.centre + self.scale * scores[..., :1]).clamp(self.low[0], self.high[0])
        costs = self.high[1] * torch.sigmoid(scores[..., 1:])
        return torch.cat([returns, costs], -1)

    def _chosen(self, states: Tensor, clock: Tensor) -> Tensor:
        """(replicas, policies, rows, action size): what the policies do there, of several draws one at random."""
        if len(self.actions) == 1:
            return self.actions[0][:, states].transpose(0, 1)
        draw = self._draws(states.shape[1], clock)
        return torch.stack([self.actions[draw[b], :, states[b]].transpose(0, 1) for b in range(self.replicas)])

    def _draws(self, count: int, clock: Tensor) -> Tensor:
        """(replicas, rows): which of the draws counts in each row of this update."""
        key = random.keys(self.seeds, clock, DRAW_STREAM)
        return random.below(key, torch.full_like(self.seeds, len(self.actions)), count)

    def _every_draw(self) -> Sequence[Tensor]:
        return list(self.actions)

    def _inputs(self, states: Tensor, actions: Tensor, time: Tensor) -> Tensor:
        """(replicas, rows), (replicas, policies, rows, size), (replicas, rows) → (R, rows, inputs)"""
        known = torch.cat([self.log.states[states], (time.float() * (2 / self.log.horizon) - 1)[..., None]], -1)
        known = known[:, None].expand(-1, self.policies, -1, -1)
        return torch.cat([known, actions], -1).flatten(0, 1)


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, share: Tensor) -> None:
    """θ' ← θ' + share (θ − θ'), where the share is a tensor that changes from update to update."""
    share = share.float()
    for old, new in zip(target.parameters(), source.parameters(), strict=True):
        old.lerp_(new, share)


def _ranges(log: Log) -> tuple[Tensor, Tensor]:
    """The least and the most of f, for return and cost: over all rows, what was still to come per step left.

    A little wider than seen, and down to 0 at least, which is what comes after an end.
    """
    starts = log.first
    sums = torch.cumsum(log.signals.double(), 0)
    lengths = torch.diff(torch.cat([starts, torch.tensor([len(log.step)], device=starts.device)]))
    ends = torch.repeat_interleave(starts + lengths - 1, lengths)
    to_go = (sums[ends] - sums + log.signals) / torch.clamp(log.horizon - log.step, min=1)[:, None]
    # Few steps before the end a single reward would count as what every step brings.
    far = log.horizon - log.step >= max(1, log.horizon // 10)
    to_go = to_go[far] if bool(far.any()) else to_go
    low, high = to_go.amin(0).clamp(max=0).float(), to_go.amax(0).clamp(min=0).float()
    margin = 0.1 * (high - low) + 1e-6
    low, high = low - margin, high + margin
    low[1], high[1] = 0.0, max(float(log.signals[:, 1].max()), 1e-6)
    return low, high
