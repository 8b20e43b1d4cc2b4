"""A second opinion: a model of what a step does, learned from the log, in which every policy is played.

All policies share the model, and a policy may have a memory or draw random numbers, as it really acts. An ensemble of
models, each fitted to episodes drawn with replacement, shows how far the log leaves the outcome open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tracrl.nets import random
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators
from tracrl.ope.log import Log, has_memory
from tracrl.policies.base import Policy

ROWS_STREAM = 10
SHOWN = 10
"""episodes of each policy whose states are kept"""
REPLAYED = 300
"""logged episodes that the model is tested on, at most"""
NEAREST = 30
"""of these, those that tell how far an estimate may be off"""


@dataclass(frozen=True)
class Dynamics:
    """Settings."""

    updates: int = 30_000
    batch_size: int = 512
    hidden: tuple[int, ...] = (256, 256)
    lr: float = 1e-3
    """Adam's, at first; it falls to a hundredth"""
    starts: int = 100
    """logged first states that each policy is played from"""


@dataclass(frozen=True, eq=False)
class Played:
    """Episodes of a stack of policies in the model."""

    sums: NDArray[np.float64]
    """(members, policies, 2): mean return and cost"""
    visited: Tensor
    """(policies, rows, state and action size): where some of the episodes went and what was done there"""


@dataclass(frozen=True, eq=False)
class Replays:
    """What logged actions bring in the model and what they truly brought: (episodes, 2) each, return and cost."""

    replayed: NDArray[np.float64]
    logged: NDArray[np.float64]

    @property
    def skill(self) -> NDArray[np.float64]:
        """(2,): the share of the variance between logged episodes that the model brings back, from 0 to 1."""
        error = np.square(self.replayed - self.logged).mean(axis=0)
        share: NDArray[np.float64] = np.clip(1 - error / np.maximum(self.logged.var(axis=0), 1e-12), 0, 1)
        return share

    def errors(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(policies, 2): how far the model was off where it foretold about these ``values`` (policies, 2)."""
        result = np.empty_like(values)
        for signal in range(2):
            distance = np.abs(self.replayed[:, signal] - values[:, None, signal])
            nearest = np.argsort(distance, axis=1, kind="stable")[:, :NEAREST]
            off = (self.replayed - self.logged)[:, signal]
            result[:, signal] = np.sqrt(np.square(off[nearest]).mean(axis=1))
        return result


class LearnedModel(nn.Module):
    """(s, a) → change of the state, reward, cost and whether the episode ends; one network a member."""

    def __init__(self, settings: Dynamics, log: Log, members: int, seed: int = 0):
        super().__init__()
        device = log.states.device
        self.settings, self.log, self.members = settings, log, members
        self.rows, self.counts = log.resampled_rows(members, seed)
        self.seeds = torch.arange(members, device=device) + seed * 1_000
        # The last row of an episode whose successor is not known teaches reward, cost and end, but no change.
        self.known = log.following > 0
        self.ends = bool(log.terminated.any())
        size = log.states.shape[1]
        change = (log.states[log.following] - log.states[: len(log.step)])[self.known]
        self.scale = change.std(0).clamp(min=1e-4)
        self.low, self.high = log.states.amin(0), log.states.amax(0)
        self.reward_mean, self.reward_std = log.signals[:, 0].mean(), log.signals[:, 0].std().clamp(min=1e-6)
        self.most_cost = log.signals[:, 1].max().clamp(min=1e-6)
        seeds = [int(s) for s in self.seeds]
        sizes = (size + log.actions.shape[1], *settings.hidden, size + 3)
        self.network = StackedMLP(generators(seeds, 1), sizes).to(device)
        self.adam = StackedAdam(list(self.network.parameters()))
        self.step = 0

    def learn(self) -> Tensor:
        """One update; the loss of each member."""
        log, settings = self.log, self.settings
        clock = torch.tensor(self.step, device=log.step.device)
        drawn = random.below(random.keys(self.seeds, clock, ROWS_STREAM), self.counts, settings.batch_size)
        rows = self.rows.gather(1, drawn)
        states, following = log.states[rows], log.states[log.following[rows]]
        guess = self.network(torch.cat([states, log.actions[rows]], -1))
        change = (following - states) / self.scale
        of_change = (guess[..., :-3] - change).square().mean(-1) * self.known[rows]
        of_reward = (guess[..., -3] - (log.signals[rows][..., 0] - self.reward_mean) / self.reward_std).square()
        entropy = nn.functional.binary_cross_entropy_with_logits
        of_cost = entropy(guess[..., -2], log.signals[rows][..., 1] / self.most_cost, reduction="none")
        loss = of_change + of_reward + of_cost
        if self.ends:
            loss = loss + entropy(guess[..., -1], log.terminated[rows].float(), reduction="none")
        loss = loss.mean(-1)
        self.adam.step(loss, settings.lr * 0.01 ** (self.step / settings.updates))
        self.step += 1
        return loss.detach()

    @torch.no_grad()
    def replay(self, seed: int = 0) -> Replays:
        """Logged episodes of full length once more in the model, by their logged actions."""
        log = self.log
        lengths = torch.diff(log.first, append=torch.tensor([len(log.step)], device=log.first.device))
        whole = torch.nonzero(lengths == lengths.max())[:, 0].cpu().numpy()
        picked = np.random.default_rng(seed).permutation(whole)[:REPLAYED]
        first = log.first[torch.from_numpy(picked).to(log.first.device)]
        rows = first[:, None] + torch.arange(int(lengths.max()), device=first.device)
        states = log.states[first].expand(self.members, -1, -1)
        total = torch.zeros(self.members, len(first), 2, device=states.device)
        for step in range(rows.shape[1]):
            actions = log.actions[rows[:, step]].expand(self.members, -1, -1)
            states, brought, _ = self._advance(states, actions)
            total += brought
        return Replays(total.mean(0).double().cpu().numpy(), log.signals[rows].double().sum(1).cpu().numpy())

    @torch.no_grad()
    def play(self, policy: Policy, seed: int = 0) -> Played:
        """Whole episodes of each policy of the stack in each member, from logged first states."""
        log = self.log
        count = min(self.settings.starts, len(log.first))
        picked = np.random.default_rng(seed).permutation(len(log.first))[:count]
        first = log.first[torch.from_numpy(picked).to(log.first.device)]
        totals, visited = [], []
        for i in range(len(policy)):
            one = policy[i]
            one.reset(seed)
            states = log.states[first].expand(self.members, -1, -1)
            total = torch.zeros(self.members, count, 2, device=states.device)
            alive = torch.ones(self.members, count, 1, device=states.device)
            steps = []
            for _ in range(log.horizon):
                observed = (states * log.std + log.mean).flatten(0, 1).cpu().numpy()
                acted = torch.from_numpy(one.act_scaled(one.seen(observed))[0])
                action = acted.to(states.device).view(self.members, count, -1)
                steps.append(torch.cat([states[0, :SHOWN], action[0, :SHOWN]], -1))
                states, brought, ends = self._advance(states, action)
                total += alive * brought
                alive = alive * (1 - ends)
                if has_memory(one):
                    one.observe(*brought.flatten(0, 1).cpu().numpy().T)
            totals.append(total.mean(1).double().cpu().numpy())
            visited.append(torch.cat(steps))
        return Played(np.stack(totals, axis=1), torch.stack(visited))

    def _advance(self, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The next states, what the step brings (reward and cost), and how probably it is the last."""
        guess = self.network(torch.cat([states, actions], -1))
        reward = guess[..., -3] * self.reward_std + self.reward_mean
        cost = torch.sigmoid(guess[..., -2]) * self.most_cost
        following = states + guess[..., :-3] * self.scale
        ends = torch.sigmoid(guess[..., -1:]) if self.ends else torch.zeros_like(guess[..., -1:])
        return torch.minimum(torch.maximum(following, self.low), self.high), torch.stack([reward, cost], -1), ends
