"""Logs come in kelvin, pascal and millionths; networks want numbers around 1. The units between the two.

Observations: mean and deviation of each column over the training data, in float64, because a float32 pascal has no
digits left for a square. A column that hardly varies against its own size keeps its small swing: an accelerometer that
reads 9.8 ± 0.005 must not become noise of size 1. Rewards and costs are divided by a power of two, which is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracrl.data.episodes import Episodes

FLOOR = 1e-3
"""the least deviation that is taken for signal, as a share of a column's own size"""
ROUNDING = 1e-7
"""a deviation below this share of a column's size is the rounding of float32"""
ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Units:
    """What one unit of the network is in the log's numbers."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    """of each column of the observations"""
    reward: float = 1.0
    cost: float = 1.0
    """powers of two"""

    @classmethod
    def of(cls, data: Episodes, *, observations_alone: bool = False) -> Units:
        """The units of these data."""
        mean, deviation, size = moments(data.observations)
        scale = np.maximum(deviation, FLOOR * size)
        # A column that never changes is 0 in training whatever its scale: in its own size, a change that comes later is
        # no thousand units.
        scale = np.where(deviation > ROUNDING * size, scale, size)
        scale[scale == 0] = 1.0  # a column of zeros
        units = cls(tuple(map(float, mean)), tuple(map(float, scale)))
        if observations_alone:
            return units
        return replace(units, reward=_usual_size(data.rewards), cost=_usual_size(data.costs))

    def observations(self, raw: ArrayLike) -> NDArray[np.float32]:
        """As the network sees them."""
        numbers = np.asarray(raw, np.float64)
        return ((numbers - np.array(self.mean)) / np.array(self.scale)).astype(np.float32)


def standardised(data: Episodes, units: Units) -> Episodes:
    """The same episodes in these units."""
    observations = np.empty_like(data.observations)
    for start in range(0, len(observations), ROWS_AT_ONCE):  # in parts: float64 of all of it would be twice the data
        part = slice(start, start + ROWS_AT_ONCE)
        observations[part] = units.observations(data.observations[part])
    final = data.final_observations
    return replace(
        data,
        observations=observations,
        final_observations=None if final is None else units.observations(final),
        rewards=data.rewards / np.float32(units.reward),
        costs=data.costs / np.float32(units.cost),
    )


def moments(
    observations: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, standard deviation and root mean square of each column, in two passes of float64."""
    parts = [observations[start : start + ROWS_AT_ONCE] for start in range(0, len(observations), ROWS_AT_ONCE)]
    mean = sum(part.sum(axis=0, dtype=np.float64) for part in parts) / len(observations)
    variance = sum(np.square(part - mean).sum(axis=0) for part in parts) / len(observations)
    return mean, np.sqrt(variance), np.sqrt(variance + mean**2)


def _usual_size(steps: NDArray[np.float32]) -> float:
    """The power of two next to the median of the sizes that are not 0: 1 for costs of 0 and 1, 1024 for 0 and 1000."""
    sizes = np.abs(steps[steps != 0]).astype(np.float64)
    return float(2.0 ** np.round(np.log2(np.median(sizes)))) if len(sizes) else 1.0
