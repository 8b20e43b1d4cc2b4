"""Aggregates of few runs, as Agarwal et al. define them ("Deep Reinforcement Learning at the Edge of the Statistical
Precipice", NeurIPS 2021; the library rliable): interquartile means and stratified bootstrap intervals.

Scores come in strata. A stratum is a task at a limit, which are not drawn at random; its members are runs with
different seeds, which are. So seeds are drawn again within each stratum, and tasks and limits stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Strata = Sequence[ArrayLike]

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A value and its percentile interval; None where there is but one run in each stratum, hence nothing to draw."""

    value: float
    low: float | None
    high: float | None


def interquartile_mean(scores: ArrayLike) -> float:
    """The mean of what is left when a quarter of the scores, rounded down, is cut off at each end."""
    ordered = np.sort(np.asarray(scores, np.float64), axis=None)
    if not len(ordered):
        raise ValueError("an interquartile mean needs at least one score")
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def mean(scores: ArrayLike) -> float:
    return float(np.mean(np.asarray(scores, np.float64)))


def bootstrap(
    strata: Strata,
    aggregate: Callable[[Floats], float] = interquartile_mean,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Interval:
    """An aggregate over all scores, with the interval that drawing runs again within each stratum gives."""
    arrays = [np.asarray(stratum, np.float64) for stratum in strata]
    value = aggregate(np.concatenate(arrays))
    if all(len(array) < 2 for array in arrays):
        return Interval(value, None, None)
    generator = np.random.default_rng(seed)
    drawn = np.concatenate(
        [array[generator.integers(0, len(array), size=(resamples, len(array)))] for array in arrays], axis=1
    )
    values = [aggregate(row) for row in drawn]
    tail = 50 * (1 - confidence)
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(value, float(low), float(high))
