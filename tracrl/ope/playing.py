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
from tracrl.ope.support import ASKED
from tracrl.policies.base import Policy

Floats = NDArray[np.float64]
SHOWN = 10
"""episodes of each policy of which some steps are kept"""


@dataclass(frozen=True, eq=False)
class Played:
    """Episodes of policies in the model."""

    sums: Floats
    """(members, policies, 2): mean return and cost"""
    visited: Tensor
    """(K, policies, rows, state and action size): where some of the episodes were at some of their steps, in a member
    of each of K kinds, and what was done there"""


def retrace(model: LearnedModel, policies: Sequence[Policy], seed: int = 0) -> tuple[Floats, Floats]:
    """(members, policies, episodes, 2), (episodes, 2): what the logged actions of episodes that the model was not
    fitted to bring in it, and what they truly brought.

    They are played as they are, and once more with an eye on where they go: where the model has left the logged path,
    the action is changed as the policy would change it between there and here. Blind actions let a walker fall that a
    policy would hold, and a policy may spoil what others did; so for each policy that of both counts which is nearer
    to the truth. A policy with a memory changes nothing.
    """
    log = model.log
    first, lengths = _held_out(model)
    truth = torch.zeros(len(first), 2, dtype=torch.float64, device=first.device)
    for step in range(int(lengths.max())):
        rows, on = _at(first, lengths, step)
        truth += log.signals[rows] * on
    logged = truth.cpu().numpy()

    def off(foretold: Floats) -> Floats:
        known = np.isfinite(foretold)  # a member that ran away says nothing of how the others are asked
        told = np.where(known, foretold, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        square: Floats = np.square(np.where(known.any(axis=0), told, np.inf) - logged).mean(axis=1)
        return square

    blindly, found = _again(model, None, seed), []
    for policy in policies:
        looking = np.repeat(blindly, len(policy), axis=1) if has_memory(policy) else _again(model, policy, seed)
        ran_away = (np.isfinite(blindly) & ~np.isfinite(looking)).any(axis=(0, 2))
        nearer = (off(looking) < off(blindly)) & ~ran_away
        found.append(np.where(nearer[None, :, None], looking, blindly))
    return np.concatenate(found, axis=1), logged


@torch.no_grad()
def _again(model: LearnedModel, policy: Policy | None, seed: int) -> Floats:
    """(members, policies, episodes, 2): the held-out episodes in the model, changed as the policy would, if there is
    one"""
    log, members = model.log, model.members
    first, lengths = _held_out(model)
    actors = [] if policy is None else [Actor(policy, first.device, seed) for _ in range(2)]
    for actor in actors:
        actor.reset()
    count = len(actors[0]) if actors else 1
    now = model.begin(log.states[first].repeat(count, 1))
    total = torch.zeros(members, count, len(first), 2, device=first.device)
    for step in range(int(lengths.max())):
        rows, on = _at(first, lengths, step)
        actions = log.actions[rows].repeat(count, 1).expand(members, -1, -1)
        if actors:
            there = actors[0].act(_by_policy(now.states * log.std + log.mean, count))
            here = actors[1].act(log.observations[rows].repeat(members, 1).expand(count, -1, -1))
            actions = (actions + _by_member(there - here, members)).clamp(-1, 1)
        now, brought, _ = model.advance(now, actions)
        total += brought.view_as(total) * on
    return total.double().cpu().numpy()


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
    generator = np.random.default_rng(seed)
    picked = generator.permutation(len(log.first))[:count]
    first = log.states[log.first[torch.from_numpy(picked).to(device)]]
    # Whole episodes of a hundred policies would fill the memory where observations are long.
    shown = min(SHOWN, count)
    looked_at = np.sort(generator.permutation(log.horizon * shown)[:ASKED])
    whose = torch.from_numpy(looked_at % shown).to(device)
    ends_at = np.searchsorted(looked_at, shown * np.arange(log.horizon + 1))
    totals, visited = [], []
    for policy in policies:
        actor = Actor(policy, device, seed)
        actor.reset()
        now = model.begin(first.repeat(len(actor), 1))
        total = torch.zeros(members, len(first) * len(actor), 2, device=device)
        alive = torch.ones(members, len(first) * len(actor), 1, device=device)
        steps = []
        for step in range(log.horizon):
            observations = _by_policy(now.states * log.std + log.mean, len(actor))
            actions = _by_member(actor.act(observations), members)
            taken = torch.cat([now.states[: model.kinds], actions[: model.kinds]], -1)
            here = whose[ends_at[step] : ends_at[step + 1]]
            steps.append(taken.view(model.kinds, len(actor), count, -1)[:, :, here])
            now, brought, ends = model.advance(now, actions)
            total += alive * brought
            alive = alive * (1 - ends)
            if has_memory(policy):
                # Of a member that ran away the policy is told nothing; the sums keep what it said.
                actor.observe(_by_policy(brought.nan_to_num(0.0, 0.0, 0.0), len(actor)))
        totals.append(total.view(members, len(actor), count, 2).mean(2).double().cpu().numpy())
        visited.append(torch.cat(steps, 2))
    return Played(np.concatenate(totals, axis=1), torch.cat(visited, 1))


def _by_policy(values: Tensor, policies: int) -> Tensor:
    """(members, policies · rows, …) → (policies, members · rows, …)"""
    return values.view(len(values), policies, -1, values.shape[-1]).transpose(0, 1).flatten(1, 2)


def _by_member(values: Tensor, members: int) -> Tensor:
    """and back"""
    return values.view(len(values), members, -1, values.shape[-1]).transpose(0, 1).flatten(1, 2)
