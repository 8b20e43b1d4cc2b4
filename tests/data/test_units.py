from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.data.made_up import dsrl_arrays
from tracrl.data.episodes import Episodes
from tracrl.data.units import FLOOR, Units, standardised


def data_with(*columns: np.ndarray) -> Episodes:
    """Episodes whose observations are these columns."""
    rows = len(columns[0])
    plain = Episodes.from_arrays(dsrl_arrays((rows // 2, rows - rows // 2)))
    return replace(plain, observations=np.stack(columns, axis=1).astype(np.float32), final_observations=None)


def test_columns_of_every_scale_come_out_alike() -> None:
    base = np.random.default_rng(0).normal(size=4_000)
    data = data_with(base, 350 + 10 * base, 101_325 + 2_000 * base, 1e-6 * base)
    seen = standardised(data, Units.of(data)).observations
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(seen.std(axis=0), 1, rtol=1e-4)
    for column in range(1, 4):
        np.testing.assert_allclose(seen[:, column], seen[:, 0], atol=2e-3)


def test_a_column_that_hardly_varies_does_not_become_noise() -> None:
    base = np.random.default_rng(0).normal(size=1_000)
    data = data_with(base, 9.8 + 0.005 * base)
    seen = standardised(data, Units.of(data)).observations
    assert seen[:, 1].std() == pytest.approx(0.005 / (9.8 * FLOOR), rel=0.05)


def test_constant_columns_are_zero() -> None:
    base = np.random.default_rng(0).normal(size=100)
    data = data_with(base, np.full(100, 273.15), np.zeros(100))
    seen = standardised(data, Units.of(data)).observations
    np.testing.assert_allclose(seen[:, 1:], 0, atol=1e-3)


def test_large_offsets_lose_no_digits() -> None:
    """float32 sums of squares of pascals would be off in the first digit of the deviation."""
    base = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    pressure = (np.float32(1e6) + 5_000 * base).astype(np.float32)
    units = Units.of(data_with(pressure))
    assert units.mean[0] == pytest.approx(pressure.astype(np.float64).mean(), rel=1e-12)
    assert units.scale[0] == pytest.approx(pressure.astype(np.float64).std(), rel=1e-9)


def test_rewards_and_costs_have_a_usual_size() -> None:
    data = Episodes.from_arrays(dsrl_arrays())
    assert Units.of(replace(data, costs=data.costs * 0 + 1_000 * (data.costs > 0))).cost == 1_024
    assert Units.of(replace(data, costs=np.zeros_like(data.costs))).cost == 1


def test_what_followed_the_last_action_is_standardised_too() -> None:
    data = Episodes.from_arrays(dsrl_arrays())
    units = Units.of(data)
    assert data.final_observations is not None
    final = standardised(data, units).final_observations
    assert final is not None
    np.testing.assert_allclose(final, units.observations(data.final_observations))
