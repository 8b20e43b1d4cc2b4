from __future__ import annotations

import numpy as np
import pytest

from tracrl.collect.driver import DRIVERS, Driver
from tracrl.collect.rollout import Order
from tracrl.envs.environment import EnvSpec
from tracrl.envs.pool import EnvPool
from tracrl.envs.simulators import installed


def test_the_higher_the_penalty_the_slower() -> None:
    for driver in DRIVERS:
        speeds = [driver.speed(penalty) for penalty in np.linspace(0, 0.9, 20)]
        assert speeds == sorted(speeds, reverse=True)
        assert (speeds[0], speeds[-1]) == (driver.highest_speed, driver.lowest_speed)


@pytest.mark.skipif(not installed("metadrive"), reason="needs MetaDrive")
def test_the_driver_model_drives_and_a_penalty_on_the_way_slows_it_down() -> None:
    driver = Driver("test")
    orders = [
        Order(0, seed=3, penalty=0.0, noise=0),
        Order(0, seed=3, penalty=0.9, noise=0),
        Order(0, seed=3, penalty=0.0, change_at=40, later_penalty=0.9, noise=0),
        Order(0, seed=3, penalty=0.0, change_at=40, later_penalty=0.9, noise=0),
    ]
    with EnvPool(EnvSpec("easysparse", max_steps=80), 1) as pool:
        fast, slow, slowing, again = pool.play({0: driver}, orders, 80)
    assert fast.rewards.sum() > 2 * slow.rewards.sum() > 0
    assert slow.costs.sum() < 0.5
    np.testing.assert_array_equal(slowing.actions[:40], fast.actions[:40])
    assert 0 < slowing.costs.sum() < fast.costs.sum()
    np.testing.assert_array_equal(slowing.observations, again.observations)


@pytest.mark.skipif(not installed("metadrive"), reason="needs MetaDrive")
def test_a_driver_is_faster_on_the_left_of_its_lane_and_changes_little_on_the_way() -> None:
    driver = Driver("test")
    wanted = driver.speed(0.4)
    assert wanted > 20
    orders = [Order(0, 3, 0.4, noise=1), Order(0, 3, 0.4, 150, later_penalty=0.9, noise=1)]
    with EnvPool(EnvSpec("easysparse", max_steps=300), 1) as pool:
        steady, slowing = pool.play({0: driver}, orders, 300)
    speeds = 10 + 100 * steady.costs[100:]  # a step costs 0.01 for each km/h above 10
    offsets = steady.observations[101:, 8]  # from left to right
    assert speeds.mean() == pytest.approx(wanted, rel=0.1)
    assert np.corrcoef(speeds, offsets)[0, 1] < -0.8
    assert np.ptp(speeds) > 0.1 * wanted
    assert 10 + 100 * slowing.costs[200:].mean() == pytest.approx(0.8 * wanted, rel=0.15)


@pytest.mark.skipif(not installed("metadrive"), reason="needs MetaDrive")
def test_what_is_done_depends_on_what_is_observed_and_the_wish_alone() -> None:
    """A straight line through the observed numbers tells throttle and steering of a driver on a free road."""
    with EnvPool(EnvSpec("easysparse", max_steps=300), 1) as pool:
        (played,) = pool.play({0: Driver("test")}, [Order(0, 5, 0.6, noise=0)], 300)
    heading, speed, offset = (played.observations[50:-1, at] for at in (2, 3, 8))
    known = np.stack([heading, speed, offset, np.ones_like(speed)], 1)
    throttle = played.actions[50:, 1]
    left = throttle - known @ np.linalg.lstsq(known, throttle, rcond=None)[0]
    assert left.std() < 0.1 * throttle.std()
