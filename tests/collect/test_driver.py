from __future__ import annotations

import numpy as np
import pytest

from tracrl.collect.driver import DRIVERS, WISHES, Driver
from tracrl.collect.rollout import Order
from tracrl.envs.environment import EnvSpec
from tracrl.envs.pool import EnvPool
from tracrl.envs.simulators import installed


def test_the_higher_the_penalty_the_slower() -> None:
    for driver in DRIVERS:
        speeds = [driver.speed(penalty) for penalty in np.linspace(0, 0.9, 200)]
        assert speeds == sorted(speeds, reverse=True)
        assert list(dict.fromkeys(speeds)) == list(WISHES)


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
def test_for_each_limit_one_wish_is_safe_with_room_to_spare_and_the_next_is_not() -> None:
    driver = Driver("test")
    penalties = {driver.speed(penalty): penalty for penalty in np.linspace(0, 0.9, 200)}
    wishes = [wish for wish in sorted(WISHES) if wish > 10][:4]
    orders = [Order(0, 3, penalties[wish]) for wish in wishes]
    with EnvPool(EnvSpec("easysparse", max_steps=300), 1) as pool:
        played = pool.play({0: driver}, orders, 300)
    # What a whole episode of 1 000 steps costs that goes on like that.
    costs = [1000 * rollout.costs[50:].mean() for rollout in played]
    for limit, safe, unsafe in zip((10, 20, 40), costs, costs[1:], strict=False):
        assert safe < 0.85 * limit < 1.05 * limit < unsafe


@pytest.mark.skipif(not installed("metadrive"), reason="needs MetaDrive")
def test_a_driver_is_pushed_off_its_speed_and_goes_straight_back_to_it() -> None:
    driver = Driver("test")
    wanted = driver.speed(0.6)
    with EnvPool(EnvSpec("easysparse", max_steps=500), 1) as pool:
        (played,) = pool.play({0: driver}, [Order(0, 3, 0.6, noise=0)], 500)
    heading, speed, offset = (played.observations[50:-1, at] for at in (2, 3, 8))
    speeds = 81 * speed - 1
    assert speeds.mean() == pytest.approx(wanted, rel=0.08)
    assert speeds.min() < 0.9 * wanted
    assert speeds.max() > 1.03 * wanted
    # Between two pushes, throttle and brake follow from the observed speed, and steering from place and heading.
    steering, throttle = played.actions[50:].T
    between = np.abs(throttle - driver.pull * (wanted - speeds)) < 0.01
    assert 0.6 < between.mean() < 1
    known = np.stack([heading, offset, np.ones_like(offset)], 1)[between]
    left = steering[between] - known @ np.linalg.lstsq(known, steering[between], rcond=None)[0]
    assert left.std() < 0.2 * steering[between].std()
