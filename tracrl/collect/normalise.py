"""Running means and deviations, so that no scale of an environment needs to be known beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


@dataclass
class RunningMoments:
    """Mean and variance of all rows seen so far, merged batch by batch (Chan, Golub and LeVeque 1983)."""

    size: int
    count: float = 0.0
    mean: Doubles = field(default_factory=lambda: np.empty(0))
    variance: Doubles = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if not self.mean.size:
            self.mean, self.variance = np.zeros(self.size), np.ones(self.size)

    def update(self, rows: NDArray[np.floating]) -> None:
        n = len(rows)
        mean, variance = rows.mean(0, dtype=np.float64), rows.var(0, dtype=np.float64)
        total = self.count + n
        apart = mean - self.mean
        squares = self.variance * self.count + variance * n + apart**2 * self.count * n / total
        self.mean = self.mean + apart * n / total
        self.variance = squares / total
        self.count = total

    def scale(self) -> Doubles:
        """One over the deviation; 0 where a number has never changed and so says nothing."""
        deviation = np.sqrt(self.variance)
        still = deviation < 1e-6 * np.maximum(1.0, np.abs(self.mean))
        return np.where(still, 0.0, 1.0 / np.where(still, 1.0, deviation))
