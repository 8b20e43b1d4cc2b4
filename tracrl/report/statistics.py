"""Aggregates of few runs, as Agarwal et al. define them ("Deep Reinforcement Learning at the Edge of the Statistical
Precipice", NeurIPS 2021; the library rliable): interquartile means and stratified bootstrap intervals.

Scores come in strata. A stratum is a task at a limit, which are not drawn at random; its members are runs with
different seeds, which are, and so are the episodes that a run is scored by. So runs are drawn again within each
stratum, then episodes within each run that was drawn; tasks and limits stay. A run's mean varies with its episodes
already, so the intervals are a little too wide rather than too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Strata = Sequence[Sequence[ArrayLike]]
"""of runs, each with its episodes"""

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A value and its percentile interval; None where there is but one episode of one run in each stratum."""

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
    """An aggregate over the runs' means, with the interval that drawing runs, then episodes, again gives."""
    runs = [[np.atleast_1d(np.asarray(run, np.float64)) for run in stratum] for stratum in strata]
    value = aggregate(np.array([run.mean() for stratum in runs for run in stratum]))
    if all(len(stratum) < 2 and all(len(run) < 2 for run in stratum) for stratum in runs):
        return Interval(value, None, None)
    generator = np.random.default_rng(seed)
    drawn = np.concatenate([_drawn(stratum, resamples, generator) for stratum in runs], axis=1)
    values = [aggregate(row) for row in drawn]
    tail = 50 * (1 - confidence)
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(value, float(low), float(high))


def _drawn(stratum: Sequence[Floats], resamples: int, generator: np.random.Generator) -> Floats:
    """(resamples, runs): means of runs that are drawn again, over episodes that are drawn again."""
    picked = generator.integers(0, len(stratum), size=(resamples, len(stratum)))
    means = np.empty(picked.shape)
    for number, run in enumerate(stratum):
        places = picked == number
        episodes = generator.integers(0, len(run), size=(np.count_nonzero(places), len(run)))
        means[places] = run[episodes].mean(axis=1)
    return means
