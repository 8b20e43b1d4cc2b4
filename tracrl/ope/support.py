"""How often a policy is where the log never was, or does what was never done there: estimates mean little then."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tracrl.ope.log import Log

ASKED = 500
"""steps that are looked at"""
AMONG = 50_000
"""logged rows among which neighbours are sought"""
NEIGHBOURS = 32
USUAL = 0.99
"""the share of logged steps that count as usual"""


def ood_shares(visited: Tensor, log: Log, seed: int = 0) -> NDArray[np.float64]:
    """(policies,): the share of a policy's steps, ``visited`` (policies, rows, state and action size), out of the data.

    A step is out of the data where no logged state is near, or where the action is far from every logged one at the
    nearest states. Far is further than for 99 % of the logged steps, seen from the other episodes: a policy that does
    what the log does has a share of 0.01 to 0.02.
    """
    size = log.states.shape[1]
    usual, generator, among = _usual(log, seed)
    shares = []
    for steps in visited:
        some = steps[_picked(generator, len(steps), log)]
        near = _neighbours(log, among, some[:, :size])
        shares.append(_share_of_far(near, some[:, size:], usual))
    return np.array(shares)


def ood_shares_there(states: Tensor, actions: Tensor, log: Log, seed: int = 0) -> NDArray[np.float64]:
    """The same of policies that are all asked in the same ``states`` (rows, state size) and do ``actions`` (policies,
    rows, action size) there: neighbours are sought once, which is nearly all of the work."""
    usual, generator, among = _usual(log, seed)
    nearest, logged = _neighbours(log, among, states)
    shares = []
    for acted in actions:
        some = _picked(generator, len(states), log)
        shares.append(_share_of_far((nearest[some], logged[some]), acted[some], usual))
    return np.array(shares)


def _usual(log: Log, seed: int) -> tuple[Tensor, np.random.Generator, Tensor]:
    """What is far, for states and for actions; the generator that goes on; and the rows that neighbours are among."""
    generator = np.random.default_rng(seed)
    rows, device = len(log.step), log.states.device
    among = torch.from_numpy(np.sort(generator.permutation(rows)[:AMONG])).to(device)
    asked = torch.from_numpy(np.sort(generator.permutation(rows)[:ASKED])).to(device)
    lengths = torch.diff(log.first, append=torch.tensor([rows], device=device))
    episode = torch.repeat_interleave(torch.arange(len(log.first), device=device), lengths)
    own = episode[asked][:, None] == episode[among]
    near = _neighbours(log, among, log.states[asked], own)
    # The least that counts as far keeps rounding out where the log does the very same each time.
    return _distances(near, log.actions[asked]).quantile(USUAL, dim=1).clamp(min=1e-3), generator, among


def _picked(generator: np.random.Generator, count: int, log: Log) -> Tensor:
    return torch.from_numpy(generator.permutation(count)[:ASKED]).to(log.states.device)


def _share_of_far(near: tuple[Tensor, Tensor], actions: Tensor, usual: Tensor) -> float:
    return float((_distances(near, actions) > usual[:, None]).any(0).double().mean())


def _neighbours(log: Log, among: Tensor, states: Tensor, left_out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(steps,), (steps, neighbours, action size): how far the nearest logged state is, and what was done near."""
    distance = torch.cdist(states, log.states[among])
    if left_out is not None:
        distance = distance.masked_fill(left_out, torch.inf)
    near = distance.topk(min(NEIGHBOURS, len(among)), largest=False)
    return near.values[:, 0], log.actions[among[near.indices]]


def _distances(near: tuple[Tensor, Tensor], actions: Tensor) -> Tensor:
    """(2, steps): to the nearest logged state, and to the nearest action at the nearest states."""
    nearest, logged = near
    return torch.stack([nearest, (actions[:, None] - logged).square().mean(-1).amin(1).sqrt()])
