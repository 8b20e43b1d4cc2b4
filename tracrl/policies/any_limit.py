"""A policy for every cost limit of a range: an MLP that is told the limit beside the observation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from tracrl.errors import TracrlError
from tracrl.policies.base import Floats, Policy, PolicyMetadata, require
from tracrl.policies.layers import forward, layer_names, layers_of, named_layers
from tracrl.policies.mlp import MLPPolicy


def told(limit: float, lowest: float, highest: float) -> float:
    """What the network is told of a limit: −1 at the lowest, 1 at the highest, by the root of its share of the range,
    so that low limits are told apart as well as high ones."""
    share = min(max((limit - lowest) / (highest - lowest), 0.0), 1.0)
    return 2 * math.sqrt(share) - 1


class LimitRangePolicy(Policy):
    """What policies for every limit have in common: MLPs whose last input is told the limit.

    Tensors as :class:`MLPPolicy` has them; the last row of ``weight0`` is that of the limit. Each policy of a stack
    acts at its own limit, ``metadata.limits``; ``policy.at([10, 20])`` is the same stack at other limits.
    """

    def __init__(
        self,
        metadata: PolicyMetadata,
        tensors: Mapping[str, Floats],
        single: bool = False,
        *,
        lowest: float,
        highest: float,
    ):
        """``lowest`` and ``highest`` are the ends of the range of limits that it was trained for."""
        super().__init__(metadata, tensors, single)
        for name, value in (("lowest limit", lowest), ("highest limit", highest)):
            require(isinstance(value, int | float) and math.isfinite(value), name, value)
        require(lowest < highest, "highest limit", highest)
        self.lowest, self.highest = float(lowest), float(highest)
        """in the units of the data"""
        for limit in metadata.limits:
            self._check_attainable(limit)

    @classmethod
    def from_layers(
        cls, metadata: PolicyMetadata, layers: Sequence[tuple[Any, Any]], lowest: float, highest: float
    ) -> Self:
        """From the (weight, bias) tensors of a trained network, which are copied."""
        return cls(metadata, named_layers({"": layers}), lowest=lowest, highest=highest)

    def settings(self) -> dict[str, Any]:
        return {"lowest": self.lowest, "highest": self.highest}

    @property
    def limit_range(self) -> tuple[float, float]:
        """The lowest and the highest limit that it was trained for, in the task's own units."""
        return self.lowest * self.metadata.cost_unit, self.highest * self.metadata.cost_unit

    @property
    def observation_size(self) -> int:
        return int(self.tensors["weight0"].shape[1]) - 1

    def tensor_names(self) -> set[str]:
        return layer_names(layers_of(self.tensors))

    def at(self, limits: Sequence[float]) -> Self:
        """The same policies, one for each of these limits."""
        if len(limits) != len(self):
            raise TracrlError(f"There are {len(limits)} limits for {len(self)} policies; expected one for each.")
        for limit in limits:
            if not math.isfinite(limit):
                raise TracrlError(f"The limit is {limit!r}; expected a cost.")
            self._check_attainable(limit)
        lowest, highest = self.limit_range
        if max(limits) > highest * (1 + 1e-9):
            warnings.warn(
                f"A limit of {max(limits):g} is above those that this policy was trained for, {lowest:g} to "
                f"{highest:g}: it acts as at {highest:g}.",
                stacklevel=3,
            )
        metadata = replace(self.metadata, limits=tuple(float(limit) for limit in limits))
        return self._remade(metadata, self.tensors, self.single)

    def _check_attainable(self, limit: float) -> None:
        lowest, highest = self.limit_range
        if limit < lowest - 1e-9 * max(1.0, lowest):
            raise TracrlError(
                f"A limit of {limit:g} is below those that this policy was trained for, {lowest:g} to {highest:g}: it "
                "has not learnt to keep to it; ask for a higher one, or train on data with more episodes as safe."
            )


class AnyLimitPolicy(LimitRangePolicy):
    """It is told the limit itself, in every step.

    ``policy.at(20)`` is an ordinary policy for that limit, ``policy.act(observation, limit=20)`` one action.
    """

    kind = "any-limit-mlp"

    def __init__(self, metadata: PolicyMetadata, tensors: Mapping[str, Floats], single: bool = False, **limits: float):
        super().__init__(metadata, tensors, single, **limits)
        (weight, bias), *others = layers_of(self.tensors)
        limits_told = [told(limit / metadata.cost_unit, self.lowest, self.highest) for limit in metadata.limits]
        at = np.array(limits_told, np.float32)[:, None, None]
        # A limit is the same in every state, so that its part of the first layer is a part of the bias.
        self._layers = [(weight[:, :-1], bias + at * weight[:, -1:]), *others]

    def act_scaled(self, observations: Floats) -> Floats:
        return np.tanh(forward(self._layers, observations[None]))

    def act(self, observation: ArrayLike, limit: float | None = None) -> Floats:
        """As any policy, at its own limit or at this one."""
        return super().act(observation) if limit is None else super().at([limit] * len(self)).act(observation)

    @overload
    def at(self, limits: float) -> MLPPolicy: ...
    @overload
    def at(self, limits: Sequence[float]) -> Self: ...
    def at(self, limits: float | Sequence[float]) -> MLPPolicy | Self:
        """For one limit, ordinary policies that know no other, one for each network of the stack; for as many limits
        as there are policies, the same stack at these."""
        if isinstance(limits, Sequence | np.ndarray):
            return super().at(limits)
        which = self.networks()
        plain = self[which].at([limits] * len(which)).plain()
        return plain[0] if self.single else plain

    def plain(self) -> MLPPolicy:
        """Ordinary policies that act as these do at their limits, and know no others."""
        return MLPPolicy(self.metadata, named_pairs(self._layers), self.single)


class AnyXPolicy(AnyLimitPolicy):
    """It is told x too, how large a share of the safe segments was desirable: the smaller, the bolder it acts.

    The row of x is the last but one of ``weight0``. By itself it acts as at the largest x, the most careful;
    ``policy.at_x(25)`` is a policy for every limit with that x.
    """

    kind = "any-limit-any-x-mlp"

    def __init__(
        self,
        metadata: PolicyMetadata,
        tensors: Mapping[str, Floats],
        single: bool = False,
        *,
        largest_x: float,
        least_x: float,
        **limits: float,
    ):
        super().__init__(metadata, tensors, single, **limits)
        require(isinstance(largest_x, int | float) and 0 < largest_x <= 100, "largest x", largest_x)
        require(isinstance(least_x, int | float) and 0 < least_x < largest_x, "least x", least_x)
        self.largest_x, self.least_x = float(largest_x), float(least_x)
        self._layers = self.at_x(self.largest_x)._layers

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "largest_x": self.largest_x, "least_x": self.least_x}

    @property
    def observation_size(self) -> int:
        return super().observation_size - 1

    def at_x(self, x: float) -> AnyLimitPolicy:
        """The same policies, told this x: in per cent, within the range that was trained for."""
        if not self.least_x * (1 - 1e-9) <= x <= self.largest_x * (1 + 1e-9):
            raise TracrlError(
                f"x is {x!r}; this policy was trained for {self.least_x:g} to {self.largest_x:g} per cent of the safe "
                "segments: ask for one of these."
            )
        bold = np.float32(2 * math.log(self.largest_x / x) / math.log(self.largest_x / self.least_x) - 1)
        weight, bias = self.tensors["weight0"], self.tensors["bias0"]
        first = {"weight0": np.delete(weight, -2, axis=1), "bias0": bias + bold * weight[:, -2:-1]}
        limits = {"lowest": self.lowest, "highest": self.highest}
        return AnyLimitPolicy(self.metadata, {**self.tensors, **first}, self.single, **limits)


class RemainingBudgetPolicy(LimitRangePolicy):
    """It is told in every step what is left of the limit: call ``observe(reward, cost)`` after each."""

    kind = "remaining-budget-mlp"

    def __init__(self, metadata: PolicyMetadata, tensors: Mapping[str, Floats], single: bool = False, **limits: float):
        super().__init__(metadata, tensors, single, **limits)
        self._layers = layers_of(self.tensors)
        self.reset(0)

    def reset(self, seed: int) -> None:
        self._left = np.array(self.metadata.limits, np.float64)[:, None] / self.metadata.cost_unit

    def observe(self, reward: float, cost: float) -> None:
        self._left = self._left - cost / self.metadata.cost_unit

    def act_scaled(self, observations: Floats) -> Floats:
        share = np.clip((self._left - self.lowest) / (self.highest - self.lowest), 0, 1)
        now = (2 * np.sqrt(share) - 1).astype(np.float32)
        count = len(observations)
        column = np.broadcast_to(now, (len(self), count))[..., None]
        states = np.broadcast_to(observations, (len(self), *observations.shape))
        return np.tanh(forward(self._layers, np.concatenate([states, column], -1)))


def named_pairs(layers: Sequence[tuple[Floats, Floats]]) -> dict[str, Floats]:
    """Layers in NumPy under the names that :func:`layers_of` finds."""
    return {f"{name}{i}": t for i, pair in enumerate(layers) for name, t in zip(("weight", "bias"), pair, strict=True)}
