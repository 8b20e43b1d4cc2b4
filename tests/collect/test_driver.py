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
    assert slow.costs.sum() == 0
    np.testing.assert_array_equal(slowing.actions[:40], fast.actions[:40])
    assert 0 < slowing.costs.sum() < fast.costs.sum()
    np.testing.assert_array_equal(slowing.observations, again.observations)
