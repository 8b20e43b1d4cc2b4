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
def test_a_speed_is_kept_softly_and_changes_little_on_the_way() -> None:
    driver = Driver("test")
    wanted = driver.speed(0.4)
    assert wanted > 20
    orders = [Order(0, 3, 0.4, noise=0), Order(0, 3, 0.4, noise=1), Order(0, 3, 0.4, 150, later_penalty=0.9, noise=0)]
    with EnvPool(EnvSpec("easysparse", max_steps=250), 1) as pool:
        exact, noisy, slowing = (10 + 100 * rollout.costs[200:] for rollout in pool.play({0: driver}, orders, 250))
    assert exact.mean() == pytest.approx(wanted, rel=0.1), "a step costs 0.01 for each km/h above 10"
    assert noisy.std() > 3 * exact.std()
    assert slowing.mean() == pytest.approx(0.8 * wanted, rel=0.1)
