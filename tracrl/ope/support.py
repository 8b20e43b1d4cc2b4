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
    generator = np.random.default_rng(seed)
    rows, device = len(log.step), log.states.device
    among = torch.from_numpy(np.sort(generator.permutation(rows)[:AMONG])).to(device)
    asked = torch.from_numpy(np.sort(generator.permutation(rows)[:ASKED])).to(device)
    lengths = torch.diff(log.first, append=torch.tensor([rows], device=device))
    episode = torch.repeat_interleave(torch.arange(len(log.first), device=device), lengths)
    own = episode[asked][:, None] == episode[among]
    usual = _distances(log, among, log.states[asked], log.actions[asked], own).quantile(USUAL, dim=1)
    size, shares = log.states.shape[1], []
    for steps in visited:
        some = steps[torch.from_numpy(generator.permutation(len(steps))[:ASKED]).to(device)]
        distances = _distances(log, among, some[:, :size], some[:, size:])
        # The least that counts as far keeps rounding out where the log does the very same each time.
        far = distances > usual.clamp(min=1e-3)[:, None]
        shares.append(float(far.any(0).double().mean()))
    return np.array(shares)


def _distances(log: Log, among: Tensor, states: Tensor, actions: Tensor, left_out: Tensor | None = None) -> Tensor:
    """(2, steps): to the nearest logged state, and to the nearest action at the nearest states."""
    distance = torch.cdist(states, log.states[among])
    if left_out is not None:
        distance = distance.masked_fill(left_out, torch.inf)
    near = distance.topk(min(NEIGHBOURS, len(among)), largest=False)
    logged = log.actions[among[near.indices]]  # (steps, neighbours, action size)
    return torch.stack([near.values[:, 0], (actions[:, None] - logged).square().mean(-1).amin(1).sqrt()])
