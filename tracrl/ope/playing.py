"""Episodes in the model of the dynamics: those of policies, and logged ones once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tracrl.ope.acting import Actor
from tracrl.ope.log import has_memory
from tracrl.ope.model import LearnedModel
from tracrl.policies.base import Policy

Floats = NDArray[np.float64]
SHOWN = 10
"""episodes of each policy whose states are kept"""
NEAREST = 20
"""replays that tell how far an estimate may be off; of a few, a third, since the nearest of all are no neighbours"""


@dataclass(frozen=True, eq=False)
class Played:
    """Episodes of policies in the model."""

    sums: Floats
    """(members, policies, 2): mean return and cost"""
    visited: Tensor
    """(policies, rows, state and action size): where some of the episodes went and what was done there"""


@dataclass(frozen=True, eq=False)
class Replays:
    """What logged actions bring in each member and what they truly brought, return and cost."""

    replayed: Floats
    """(members, episodes, 2)"""
    logged: Floats
    """(episodes, 2)"""

    @property
    def foretold(self) -> Floats:
        """(episodes, 2): by all members together"""
        together: Floats = self.replayed.mean(axis=0)
        return together

    @property
    def skill(self) -> Floats:
        """(2,): the share of the variance between logged episodes that the model brings back, from 0 to 1."""
        error = np.square(self.foretold - self.logged).mean(axis=0)
        share: Floats = np.clip(1 - error / np.maximum(self.logged.var(axis=0), 1e-12), 0, 1)
        return share

    @property
    def floor(self) -> float:
        """The cost that the model foretells where in truth there was none: it sees no difference below."""
        free = self.foretold[self.logged[:, 1] == 0, 1]
        return float(np.quantile(free, 0.9)) if len(free) else 0.0

    def variances(self, values: Floats) -> Floats:
        """(policies, 2): of the model's error where it foretold about these ``values`` (policies, 2).

        What is off on average counts in full. Of what differs from episode to episode half does: an estimate is a mean
        of episodes, but those of one policy are alike. The nearer a replay, the more it counts (Cleveland's tricube
        weights): at a cost of 0 all neighbours lie on one side, and far ones would lend their errors to it.
        """
        result, foretold = np.empty_like(values), self.foretold
        count = min(NEAREST, max(8, len(foretold) // 3), len(foretold))
        for signal in range(2):
            distance = np.abs(foretold[:, signal] - values[:, None, signal])
            reach = np.sort(distance, axis=1)[:, count - 1, None] * (1 + 1e-4) + 1e-9
            share = np.clip(1 - (distance / reach) ** 3, 0, None) ** 3
            share /= share.sum(axis=1, keepdims=True)
            off = (foretold - self.logged)[:, signal]
            mean = share @ off
            result[:, signal] = np.square(mean) + (share * np.square(off - mean[:, None])).sum(axis=1) / 2
        return result


@torch.no_grad()
def replay(model: LearnedModel) -> Replays:
    """Episodes that the model was not fitted to, once more, by their logged actions."""
    log = model.log
    first, lengths = _held_out(model)
    now = model.begin(log.states[first])
    total = torch.zeros(model.members, len(first), 2, device=first.device)
    logged = torch.zeros(len(first), 2, dtype=torch.float64, device=first.device)
    for step in range(int(lengths.max())):
        rows, on = _at(first, lengths, step)
        now, brought, _ = model.advance(now, log.actions[rows].expand(model.members, -1, -1))
        total += brought * on
        logged += log.signals[rows] * on
    return Replays(total.double().cpu().numpy(), logged.cpu().numpy())


@torch.no_grad()
def retrace(model: LearnedModel, policies: Sequence[Policy], seed: int = 0) -> Floats:
    """(members, policies, episodes, 2): the same episodes, with an eye on where they go.

    Where the model has left the logged path, the action is changed as the policy would change it between there and
    here. Errors of the model then grow as they do where the policy itself is played in it, no more. A policy with a
    memory changes nothing.
    """
    log, members = model.log, model.members
    first, lengths = _held_out(model)
    totals = []
    for policy in policies:
        there, here = (Actor(policy, first.device, seed) for _ in range(2))
        there.reset()
        here.reset()
        now = model.begin(log.states[first].repeat(len(there), 1))
        total = torch.zeros(members, len(there), len(first), 2, device=first.device)
        for step in range(int(lengths.max())):
            rows, on = _at(first, lengths, step)
            actions = log.actions[rows].repeat(len(there), 1).expand(members, -1, -1)
            if not has_memory(policy):
                wanted = there.act(_by_policy(now.states * log.std + log.mean, len(there)))
                logged = here.act(log.observations[rows].repeat(members, 1).expand(len(there), -1, -1))
                actions = (actions + _by_member(wanted - logged, members)).clamp(-1, 1)
            now, brought, _ = model.advance(now, actions)
            total += brought.view_as(total) * on
        totals.append(total.double().cpu().numpy())
    return np.concatenate(totals, axis=1)


def _held_out(model: LearnedModel) -> tuple[Tensor, Tensor]:
    """(episodes,) each: first rows and lengths"""
    log = model.log
    lengths = torch.diff(log.first, append=torch.tensor([len(log.step)], device=log.first.device))
    chosen = torch.from_numpy(model.held_out).to(log.first.device)
    return log.first[chosen], lengths[chosen]


def _at(first: Tensor, lengths: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """(episodes,), (episodes, 1): the rows of this step, and whether the episodes have it"""
    return first + (lengths - 1).clamp(max=step), (step < lengths)[:, None]


@torch.no_grad()
def play(model: LearnedModel, policies: Sequence[Policy], seed: int = 0) -> Played:
    """Whole episodes of each policy of the stacks in each member, from logged first states."""
    log, members = model.log, model.members
    device = log.states.device
    count = min(model.settings.starts, len(log.first))
    picked = np.random.default_rng(seed).permutation(len(log.first))[:count]
    first = log.states[log.first[torch.from_numpy(picked).to(device)]]
    totals, visited = [], []
    for policy in policies:
        actor = Actor(policy, device, seed)
        actor.reset()
        now = model.begin(first.repeat(len(actor), 1))
        total = torch.zeros(members, len(first) * len(actor), 2, device=device)
        alive = torch.ones(members, len(first) * len(actor), 1, device=device)
        steps = []
        for _ in range(log.horizon):
            observations = _by_policy(now.states * log.std + log.mean, len(actor))
            actions = _by_member(actor.act(observations), members)
            steps.append(torch.cat([now.states, actions], -1)[0].view(len(actor), count, -1)[:, :SHOWN])
            now, brought, ends = model.advance(now, actions)
            total += alive * brought
            alive = alive * (1 - ends)
            if has_memory(policy):
                actor.observe(_by_policy(brought, len(actor)))
        totals.append(total.view(members, len(actor), count, 2).mean(2).double().cpu().numpy())
        visited.append(torch.cat(steps, 1))
    return Played(np.concatenate(totals, axis=1), torch.cat(visited))


def _by_policy(values: Tensor, policies: int) -> Tensor:
    """(members, policies · rows, …) → (policies, members · rows, …)"""
    return values.view(len(values), policies, -1, values.shape[-1]).transpose(0, 1).flatten(1, 2)


def _by_member(values: Tensor, members: int) -> Tensor:
    """and back"""
    return values.view(len(values), members, -1, values.shape[-1]).transpose(0, 1).flatten(1, 2)
