from __future__ import annotations

import numpy as np
import pytest

from tracrl.report.statistics import bootstrap, interquartile_mean, mean


def test_interquartile_means_by_hand() -> None:
    assert interquartile_mean([1, 2, 3, 4, 5, 6, 7, 100]) == pytest.approx(4.5)  # two cut off at each end
    assert interquartile_mean([[9, 1], [2, 3]]) == pytest.approx(2.5)  # whatever the shape
    assert interquartile_mean([5, 1, 3]) == pytest.approx(3)  # a quarter of three, rounded down, is none
    assert interquartile_mean([0, 1, 2, 3, 4, 5, 60]) == pytest.approx((1 + 2 + 3 + 4 + 5) / 5)
    assert interquartile_mean([7]) == 7
    with pytest.raises(ValueError, match="at least one score"):
        interquartile_mean([])


def test_it_is_the_trimmed_mean_that_rliable_uses() -> None:
    """scipy.stats.trim_mean(scores, 0.25) of these, computed once: SciPy is no dependency of ours."""
    scores = np.random.default_rng(7).normal(size=(5, 9))
    assert interquartile_mean(scores) == pytest.approx(-0.28838871840645036)
    assert interquartile_mean(scores[:, :2]) == pytest.approx(-0.1567024591912029)


def test_an_interval_by_hand() -> None:
    """One stratum of two runs, 0 and 1: a sample's mean is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4."""
    interval = bootstrap([[0.0, 1.0]], mean, confidence=0.40)
    assert (interval.value, interval.low, interval.high) == (0.5, 0.5, 0.5)
    interval = bootstrap([[0.0, 1.0]], mean, confidence=0.95)
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_runs_are_drawn_within_their_stratum() -> None:
    """Two strata far apart whose runs agree: drawing across them would make the interval wide."""
    interval = bootstrap([[0.0, 0.0, 0.0], [10.0, 10.0, 10.0]], mean)
    assert (interval.value, interval.low, interval.high) == (5.0, 5.0, 5.0)


def test_its_width_is_that_of_the_standard_error() -> None:
    generator = np.random.default_rng(0)
    strata = [generator.normal(size=50) for _ in range(8)]
    interval = bootstrap(strata, mean)
    assert interval.low is not None
    assert interval.high is not None
    error = np.sqrt(np.mean([s.var() for s in strata]) / 400)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_strata_of_different_sizes() -> None:
    interval = bootstrap([[1.0], [2.0, 4.0]], mean)
    assert interval.value == pytest.approx(7 / 3)
    assert (interval.low, interval.high) == (pytest.approx(5 / 3), pytest.approx(3.0))


def test_one_episode_of_one_run_has_no_interval() -> None:
    interval = bootstrap([[1.0], [2.0]])
    assert (interval.value, interval.low, interval.high) == (1.5, None, None)


def test_the_same_scores_give_the_same_interval() -> None:
    scores = [np.random.default_rng(1).normal(size=5)]
    assert bootstrap(scores) == bootstrap(scores)


def test_an_interval_covers_the_episodes_of_a_run() -> None:
    """One run of two episodes, 0 and 1: as by hand with two runs of one."""
    interval = bootstrap([[[0.0, 1.0]]], mean)
    assert (interval.value, interval.low, interval.high) == (0.5, 0.0, 1.0)


def test_it_covers_runs_and_episodes_together() -> None:
    """Runs that agree in the mean, with episodes that do not: drawing runs alone would give an interval of no width."""
    generator = np.random.default_rng(0)
    episodes = generator.normal(size=(40, 25))
    runs = list(episodes - episodes.mean(axis=1, keepdims=True))
    interval = bootstrap([runs], mean)
    assert interval.low is not None
    assert interval.high is not None
    error = np.sqrt(np.mean([run.var() for run in runs]) / (40 * 25))
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.1)
