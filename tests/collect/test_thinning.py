from __future__ import annotations

import numpy as np
import pytest

from tracrl.collect.thinning import Region, cell_of, extremes, nearness, thin

Plane = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def plane() -> Plane:
    """A dense cloud of unsafe episodes and a thin trail of safe ones."""
    generator = np.random.default_rng(1)
    costs = np.concatenate([generator.normal(70, 3, 900), generator.uniform(0, 60, 100)])
    returns = np.concatenate([generator.normal(50, 2, 900), generator.uniform(0, 40, 100)])
    return np.maximum(costs, 0), returns


def test_the_wanted_number_each_once_ascending_and_repeatable(plane: Plane) -> None:
    kept = thin(*plane, 200, limits=(10, 20, 40), seed=3)
    assert len(kept) == 200
    assert (np.diff(kept) > 0).all()
    np.testing.assert_array_equal(kept, thin(*plane, 200, limits=(10, 20, 40), seed=3))
    assert not np.array_equal(kept, thin(*plane, 200, limits=(10, 20, 40), seed=4))


def test_all_of_them_where_there_are_no_more(plane: Plane) -> None:
    np.testing.assert_array_equal(thin(*plane, 1000), np.arange(1000))
    np.testing.assert_array_equal(thin(*plane, 5000), np.arange(1000))


def test_the_ends_stay(plane: Plane) -> None:
    costs, returns = plane
    kept = thin(costs, returns, 12, limits=(10, 20, 40))
    ends = {costs.argmin(), costs.argmax(), returns.argmin(), returns.argmax()}
    ends |= {np.flatnonzero(costs <= limit)[returns[costs <= limit].argmax()] for limit in (10, 20, 40)}
    assert ends <= set(kept)
    assert ends == set(extremes(costs, returns, (10, 20, 40)))


def test_dense_cells_give_first(plane: Plane) -> None:
    cells = cell_of(*plane)
    kept = thin(*plane, 150, front=0)
    assert set(cells[kept]) == set(cells), "no cell that was occupied is empty"
    before, after = (np.bincount(c, minlength=400) for c in (cells, cells[kept]))
    thinned = after < before
    assert thinned.any()
    # No cell is fuller than those that gave, but for the last one handed out and the extremes, which always stay.
    ends = np.bincount(cells[extremes(*plane, ())], minlength=400)
    assert (after <= after[thinned].min() + 1 + ends).all()


@pytest.mark.parametrize("limits", [(10.0,), (10.0, 20.0, 40.0), (65.0, 72.0)])
def test_safe_and_unsafe_are_kept_at_each_limit_or_all_there_are(plane: Plane, limits: tuple[float, ...]) -> None:
    costs, returns = plane
    kept = thin(costs, returns, 100, limits=limits, share=0.3)
    for limit in limits:
        for members in (costs <= limit, costs > limit):
            assert members[kept].sum() >= min(30, members.sum())


def test_cells_near_the_front_keep_more_and_no_cell_is_emptied() -> None:
    generator = np.random.default_rng(0)
    costs = generator.uniform(0, 100, 4000)
    returns = generator.uniform(0, 1, 4000) * (50 + costs / 2)
    even, near = (thin(costs, returns, 1000, limits=(20, 40), front=front) for front in (0.0, 3.0))
    share = returns / (50 + costs / 2)
    assert share[near].mean() > share[even].mean() + 0.1
    assert (share[near] < 0.3).sum() > 50
    cells = cell_of(costs, returns)
    assert set(cells[near]) == set(cells)


def test_the_front_is_the_best_return_for_no_more_cost() -> None:
    costs, returns = np.array([0.0, 5.0, 10.0, 20.0]), np.array([1.0, 3.0, 2.0, 1.0])
    np.testing.assert_allclose(nearness(costs, returns, Region(), 2.0), np.exp([0.0, 0.0, -1.0, -2.0]))
    np.testing.assert_allclose(nearness(costs, returns, Region(10.0), 2.0), [*np.exp([0.0, 0.0, -1.0]), 0.0])


def test_what_lies_outside_the_region_goes_first_but_for_kinds_that_are_missing_inside() -> None:
    generator = np.random.default_rng(0)
    costs, returns = generator.uniform(0, 300, 2000), generator.uniform(-50, 50, 2000)
    region = Region(highest_cost=100, lowest_return=0)
    inside = region.holds(costs, returns)
    assert 200 < inside.sum() < 400
    kept = thin(costs, returns, 200, limits=(20, 40), region=region)
    assert inside[kept].all()
    kept = thin(costs, returns, 200, limits=(20, 100), region=region)
    assert (costs[kept] > 100).sum() == 40, "a fifth is to be unsafe at 100 too"
    assert inside[kept].sum() == 160
    assert len(thin(costs, returns, 1000, limits=(20, 40), region=region)) == 1000, "for want of others"
    assert Region(-1.0).holds(costs, returns).all(), "nothing would be left"


def test_episodes_that_are_all_alike() -> None:
    assert len(thin(np.zeros(10), np.ones(10), 4, limits=(0.0, 5.0))) == 4
