"""Policies as they act on a device: (policies, rows, observation size) → (policies, rows, action size)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tracrl.policies.any_limit import AnyLimitPolicy
from tracrl.policies.base import Policy
from tracrl.policies.mlp import MLPPolicy

ROWS_AT_ONCE = 8_192


class Actor:
    """A stack of policies, each of which acts in rows of its own, in whole episodes from :meth:`reset` on."""

    def __init__(self, policy: Policy, device: torch.device, seed: int):
        if isinstance(policy, AnyLimitPolicy):
            policy = policy.plain()  # an MLP, once the limit is fixed
        self.policies = [policy[i] for i in range(len(policy))]
        self.seed, self.device = seed, device
        # An MLP needs no way through NumPy: its layers act where the states are.
        self.layers: list[tuple[Tensor, Tensor]] | None = None
        if type(policy) is MLPPolicy:
            names = range(len(policy.tensors) // 2)
            self.layers = [(self._there(policy, f"weight{i}"), self._there(policy, f"bias{i}")) for i in names]
            size = policy.observation_size
            metadata = policy.metadata
            self.mean = torch.tensor(metadata.observation_mean or (0.0,) * size, dtype=torch.float64, device=device)
            self.scale = torch.tensor(metadata.observation_scale or (1.0,) * size, dtype=torch.float64, device=device)

    def _there(self, policy: Policy, name: str) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(policy.tensors[name])).to(self.device)

    def __len__(self) -> int:
        return len(self.policies)

    def reset(self) -> None:
        for one in self.policies:
            one.reset(self.seed)

    def act(self, observations: Tensor) -> Tensor:
        """In [−1, 1]."""
        if self.layers is None:
            each = [p.act_scaled(p.seen(o.cpu().numpy()))[0] for p, o in zip(self.policies, observations, strict=True)]
            return torch.from_numpy(np.stack(each)).to(self.device)
        x = ((observations.double() - self.mean) / self.scale).float()
        for weight, bias in self.layers[:-1]:
            x = torch.relu(torch.baddbmm(bias, x, weight))
        weight, bias = self.layers[-1]
        return torch.tanh(torch.baddbmm(bias, x, weight))

    def observe(self, brought: Tensor) -> None:
        """``brought`` (policies, rows, 2): reward and cost of the last step."""
        for one, each in zip(self.policies, brought, strict=True):
            one.observe(*each.cpu().numpy().T)


def actions_of(policy: Policy, observations: Tensor, draws: int = 1, seed: int = 0) -> Tensor:
    """(draws, policies, rows, action size): what each policy does in each state."""
    result = torch.empty(draws, len(policy), len(observations), len(policy.metadata.action_low))
    result = result.to(observations.device)
    for draw in range(draws):
        actor = Actor(policy, observations.device, seed + draw)
        actor.reset()
        for start in range(0, len(observations), ROWS_AT_ONCE):
            part = observations[start : start + ROWS_AT_ONCE]
            result[draw, :, start : start + len(part)] = actor.act(part.expand(len(policy), -1, -1))
    return result
