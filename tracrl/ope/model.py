"""A model of what a step does, learned from the log, in which every policy is played.

All policies share the model, and a policy may have a memory or draw random numbers, as it really acts. Some of the
episodes are kept from it: played again (:mod:`tracrl.ope.playing`) they tell what the model is worth. It is an
ensemble, each member fitted to episodes drawn with replacement, which shows how far the log leaves the outcome open.

Observations rarely tell all (a car's wheels turn, and no sensor says how fast), so members see none or some of the
steps before, by which they are of several kinds: what was before helps to foretell, and misleads where a policy does
what the log does not. Reward, cost and end follow from a step and the change that it brought.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tracrl.nets import random
from tracrl.nets.stacked import StackedMLP, generators
from tracrl.ope.directions import Directions
from tracrl.ope.fitting import Adam
from tracrl.ope.log import Log, parted

ROWS_STREAM = 10
BEYOND = 0.1
"""states may leave the range that was logged by this share of it, changes of the state too"""
ROWS, RARE, LEAST_USUAL = 20_000, 0.002, 0.05
"""the usual size of a change: from so many rows, without this share of them at both ends; and at least this share of
the deviation of all"""
FEW = 5.0
"""deviations up to which an error counts squared, and which members see of the step before at most"""


@dataclass(frozen=True)
class Dynamics:
    """Settings."""

    updates: int = 20_000
    batch_size: int = 512
    hidden: tuple[int, ...] = (256, 256)
    lr: float = 1e-3
    """Adam's, at first; it falls to a hundredth"""
    starts: int = 100
    """logged first states that each policy is played from"""
    past: int = 3
    """steps before the present one that members see, at most"""


@dataclass(frozen=True, eq=False)
class Moment:
    """Where episodes are in the model: (members, rows, …) each."""

    states: Tensor
    past: Tensor
    """the last changes and actions, the latest first; zeros before the beginning"""


class LearnedModel(nn.Module):
    """(past, s, a) → change of the state; (s, a, change) → reward, cost and end. One pair of networks a member."""

    clock: Tensor

    def __init__(self, settings: Dynamics, log: Log, members: int, seed: int = 0):
        super().__init__()
        device = log.states.device
        self.settings, self.log, self.members, self.updates = settings, log, members, settings.updates
        self.held_out, self.fitted = parted(len(log.first), seed)
        self.rows, self.counts = log.resampled_rows(members, seed, self.fitted)
        self.seeds = torch.arange(members, device=device) + seed * 1_000
        every = torch.arange(self.updates, device=device)[:, None]
        self.keys = random.keys(self.seeds, every, ROWS_STREAM)
        # The last row of an episode whose successor is not known teaches reward, cost and end, but no change.
        self.known = log.following > 0
        self.ends = bool(log.terminated.any())
        self.directions = Directions(log)
        change = self.directions.change(log.states[: len(log.step)], log.states[log.following])[self.known]
        self.scale = usual_size(change)
        self.low, self.high = _range(log.states)
        self.least, self.most = _range(change / self.scale)
        self.reward_mean, self.reward_std = log.signals[:, 0].mean(), log.signals[:, 0].std().clamp(min=1e-6)
        self.most_cost = log.signals[:, 1].max().clamp(min=1e-6)
        size, acts = log.states.shape[1], log.actions.shape[1]
        self.step_size = size + acts
        seen = (settings.past - torch.arange(members, device=device)) % (settings.past + 1)
        places = torch.arange(settings.past, device=device).repeat_interleave(self.step_size)
        self.seen = (places < seen[:, None]).float()[:, None]
        seeds = [int(s) for s in self.seeds]
        inputs = self.step_size * (settings.past + 1)
        self.changes = StackedMLP(generators(seeds, 1), (inputs, *settings.hidden, size)).to(device)
        self.heads = StackedMLP(generators(seeds, 2), (2 * size + acts, *_narrower(settings.hidden), 3)).to(device)
        self.adam = Adam([*self.changes.parameters(), *self.heads.parameters()])
        self.register_buffer("clock", torch.zeros((), dtype=torch.int64, device=device))

    @property
    def kinds(self) -> int:
        """of members, by the steps before that they see; the first members are one of each"""
        return min(self.settings.past + 1, self.members)

    def learn(self) -> Tensor:
        """One update; the loss of each member."""
        log, settings = self.log, self.settings
        drawn = random.below(self.keys.index_select(0, self.clock.view(1))[0], self.counts, settings.batch_size)
        rows = self.rows.gather(1, drawn)
        states, actions, known = log.states[rows], log.actions[rows], self.known[rows]
        guess = self.changes(torch.cat([states, actions, self._past(rows)], -1))
        change = self.directions.change(states, log.states[log.following[rows]]) / self.scale
        loss = _squared(guess - change).mean(-1) * known
        brought = self.heads(torch.cat([states, actions, torch.where(known[..., None], change, guess.detach())], -1))
        signals = log.signals[rows]
        entropy = nn.functional.binary_cross_entropy_with_logits
        loss = loss + _squared(brought[..., 0] - (signals[..., 0] - self.reward_mean) / self.reward_std)
        loss = loss + entropy(brought[..., 1], signals[..., 1] / self.most_cost, reduction="none")
        if self.ends:
            loss = loss + entropy(brought[..., 2], log.terminated[rows].float(), reduction="none")
        loss = loss.mean(-1)
        self.adam.step(loss, settings.lr * 0.01 ** (self.clock / self.updates))
        self.clock += 1
        return loss.detach()

    def begin(self, states: Tensor) -> Moment:
        """``states`` (rows, size): the first of episodes, the same in each member."""
        states = states.expand(self.members, -1, -1)
        past = torch.zeros(*states.shape[:2], self.settings.past * self.step_size, device=states.device)
        return Moment(states, past)

    def advance(self, now: Moment, actions: Tensor) -> tuple[Moment, Tensor, Tensor]:
        """Where the step leads, what it brings (reward and cost), and how probably it is the last."""
        change = self.changes(torch.cat([now.states, actions, now.past * self.seen], -1))
        change = torch.minimum(torch.maximum(change, self.least), self.most)
        brought = self.heads(torch.cat([now.states, actions, change], -1))
        reward = brought[..., 0] * self.reward_std + self.reward_mean
        cost = torch.sigmoid(brought[..., 1]) * self.most_cost
        ends = torch.sigmoid(brought[..., 2:]) if self.ends else torch.zeros_like(brought[..., 2:])
        states = torch.minimum(torch.maximum(now.states + change * self.scale, self.low), self.high)
        past = torch.cat([change.clamp(-FEW, FEW), actions, now.past], -1)[..., : now.past.shape[-1]]
        return Moment(self.directions.kept(states), past), torch.stack([reward, cost], -1), ends

    def _past(self, rows: Tensor) -> Tensor:
        """(members, rows, …): the changes and actions before these rows, as far as each member sees them."""
        log, steps = self.log, []
        for back in range(1, self.settings.past + 1):
            before = (rows - back).clamp(min=0)
            change = self.directions.change(log.states[before], log.states[before + 1]) / self.scale
            there = (log.step[rows] >= back)[..., None]
            seen = torch.cat([change.clamp(-FEW, FEW), log.actions[before]], -1)
            steps.append(torch.where(there, seen, 0.0))
        return torch.cat(steps, -1) * self.seen if steps else log.actions[rows][..., :0]


def usual_size(change: Tensor) -> Tensor:
    """(size,): the deviation of each column without the rarest changes. A single crash, hundreds of times as large as
    what is usual, would else make all that is usual look like nothing."""
    rows = change[torch.linspace(0, len(change) - 1, min(ROWS, len(change))).long().to(change.device)].sort(0).values
    rare = int(RARE * len(rows))
    usual = rows.clamp(rows[rare], rows[len(rows) - 1 - rare]).std(0)
    return torch.maximum(usual, LEAST_USUAL * change.std(0)).clamp(min=1e-4)


def _squared(error: Tensor) -> Tensor:
    """and beyond a few deviations linear, so that few rows do not decide"""
    return 2 * nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=FEW)


def _range(values: Tensor) -> tuple[Tensor, Tensor]:
    low, high = values.amin(0), values.amax(0)
    margin = BEYOND * (high - low)
    return low - margin, high + margin


def _narrower(hidden: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(units // 4, 16) for units in hidden)
