from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from tracrl.collect.learner import Learner, LearnerSettings, pack, unpack
from tracrl.collect.ppo import PPOSettings
from tracrl.collect.progress import Silence
from tracrl.collect.recorder import Recorder
from tracrl.collect.rollout import Order
from tracrl.collect.run import CollectSettings, default_settings
from tracrl.collect.views import VIEWS, ant_on_circle
from tracrl.envs.environment import EnvSpec
from tracrl.envs.pool import EnvPool

VELOCITY, SPIN, FORWARD, UPWARD = (slice(start, start + 3) for start in (0, 3, 6, 9))
PLACE = slice(34, 37)


@pytest.fixture(scope="module")
def pool() -> Iterator[EnvPool]:
    pytest.importorskip("bullet_safety_gym")
    with EnvPool(EnvSpec("AntCircle"), 1) as pool:
        yield pool


def observed(x: float, y: float, yaw: float) -> NDArray[np.float32]:
    """An ant there, upright, with some velocity, spin, joints and feet."""
    numbers = np.arange(34, dtype=np.float32)
    numbers[:3] = x, y, 0.05
    numbers[3:6] = 0.1, -0.3, 0.2
    numbers[6:10] = 0, 0, math.sin(yaw / 2), math.cos(yaw / 2)
    numbers[10:13] = 1, 2, 3
    numbers[33] = math.hypot(x, y) - 0.7
    return numbers


def turned(observation: NDArray[np.float32], angle: float) -> NDArray[np.float32]:
    """The same in a world that was turned by an angle."""
    c, s = math.cos(angle), math.sin(angle)
    new = observation.astype(np.float64)
    for start in (0, 3, 10):
        a, b = observation[start : start + 2]
        new[start : start + 2] = c * a - s * b, s * a + c * b
    i, j, k, w = observation[6:10]
    c, s = math.cos(angle / 2), math.sin(angle / 2)
    new[6:10] = c * i - s * j, c * j + s * i, c * k + s * w, c * w - s * k
    return new.astype(np.float32)


def test_an_ant_on_the_right_that_walks_down() -> None:
    seen = ant_on_circle(observed(0.65, 0.0, -math.pi / 2))
    assert seen.shape == (37,)
    np.testing.assert_allclose(seen[VELOCITY], [0.3, 0.1, 0.2], atol=1e-6)
    np.testing.assert_allclose(seen[SPIN], [-2, 1, 3], atol=1e-6)
    np.testing.assert_allclose(seen[FORWARD], [1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(seen[UPWARD], [0, 0, 1], atol=1e-6)
    np.testing.assert_array_equal(seen[12:33], [np.float32(0.05), *range(13, 33)])
    np.testing.assert_allclose(seen[33:], [-0.05, 0.05, 1, 0], atol=1e-6)


def test_where_it_looks_is_told_along_the_circle_and_away_from_it() -> None:
    at_the_top = observed(0.0, 0.5, math.pi / 2)  # faces outward, where clockwise is to the right
    np.testing.assert_allclose(ant_on_circle(at_the_top)[FORWARD], [0, 1, 0], atol=1e-6)
    at_the_top[6:10] = math.sin(0.1), 0, 0, math.cos(0.1)  # rolled to its right by 0.2, faces along the circle
    np.testing.assert_allclose(ant_on_circle(at_the_top)[FORWARD], [1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(ant_on_circle(at_the_top)[UPWARD], [0, -math.sin(0.2), math.cos(0.2)], atol=1e-6)
    np.testing.assert_allclose(ant_on_circle(at_the_top)[33:], [-0.2, -0.6, -1, 0], atol=1e-6)


@pytest.mark.parametrize("angle", [0.3, 1.7, math.pi, -2.6])
def test_the_same_ant_elsewhere_on_the_circle_looks_the_same(angle: float) -> None:
    ant = observed(0.3, -0.5, 1.1)
    ant[6:10] = np.array([0.1, -0.3, 0.5, 0.8]) / np.sqrt(0.99)
    seen, elsewhere = ant_on_circle(ant), ant_on_circle(turned(ant, angle))
    np.testing.assert_allclose(elsewhere[:34], seen[:34], atol=1e-5)
    if angle == math.pi:
        np.testing.assert_allclose(elsewhere[PLACE], seen[PLACE], atol=1e-6)
    else:
        assert np.abs(elsewhere[PLACE] - seen[PLACE]).max() > 0.1, "but it is known where the lines are"


def test_both_signs_of_a_quaternion_are_one() -> None:
    ant = observed(0.3, -0.5, 1.1)
    other = ant.copy()
    other[6:10] *= -1
    np.testing.assert_array_equal(ant_on_circle(other), ant_on_circle(ant))


def test_rows_at_once_are_rows_one_by_one_and_the_middle_is_no_trouble() -> None:
    rows = np.stack([observed(0.3, -0.5, 1.1), observed(0.0, 0.0, 0.0), observed(-0.7, 0.1, 3.0)])
    np.testing.assert_array_equal(ant_on_circle(rows), [ant_on_circle(row) for row in rows])
    assert np.isfinite(ant_on_circle(rows)).all()


def test_the_simulators_reward_can_be_read_from_it(pool: EnvPool) -> None:
    """The reward is the speed along the circle, the more the nearer it is; the cost is being beyond the lines."""
    behaviour = Learner(pool, 1, 0, LearnerSettings()).ppo.behaviour()
    rollout = pool.play({0: behaviour}, [Order(0, 3, 0.0, noise=0)], 500)[0]
    assert rollout.observations.shape[1] == 34, "recorded as the simulator gives it"
    seen = ant_on_circle(rollout.observations)
    np.testing.assert_allclose(seen[0, FORWARD], [1, 0, 0], atol=1e-3)
    np.testing.assert_allclose(seen[:, 33], rollout.observations[:, 33], atol=1e-6)
    off = 10 * seen[1:, 33]
    speed = seen[1:, VELOCITY][:, 0] / 0.3
    expected = 0.1 * (off + 7) * speed / (1 + np.abs(off))
    # Besides there is 0.01 a step for being alive, less what the motors take.
    np.testing.assert_allclose(rollout.rewards, expected, atol=0.02)
    np.testing.assert_array_equal(rollout.costs, seen[1:, 34] > 0)


def test_a_learner_of_the_task_sees_it_and_one_of_another_does_not(pool: EnvPool) -> None:
    learner = Learner(pool, 1, 0, LearnerSettings())
    behaviour = learner.ppo.behaviour()
    assert behaviour.view is ant_on_circle
    assert len(behaviour.mean) == 37
    again = unpack(pack(behaviour), learner.ppo.view)
    ant = observed(0.3, -0.5, 1.1)
    np.testing.assert_array_equal(again.at(0.3)[0](ant), behaviour.at(0.3)[0](ant))
    assert VIEWS.keys() == {"AntCircle"}
    with EnvPool(EnvSpec("tiny_envs:Road"), 1) as other:
        assert Learner(other, 1, 0, LearnerSettings()).ppo.behaviour().view is None


def test_what_the_ant_has_become_is_recorded_with_care_or_without(pool: EnvPool) -> None:
    ants = default_settings("AntCircle")
    learner = Learner(pool, 1, 0, ants.learner)
    snapshots = learner.run(None, Silence())
    assert [snapshot.step for snapshot in snapshots] == [learner.done]
    assert not len(learner.recording), "not what it did on the way"
    recorder = Recorder(
        pool, [snapshots[0].behaviour], 40, seed=0, limits=(10,), share=0.2, highest_penalty=0.9, settings=ants.recorder
    )
    orders = recorder.orders(40, np.random.default_rng(0), blind=True)
    assert {(order.change_at, order.random) for order in orders} == {(-1, 0.0)}
    assert all(order.noise <= 1 and not 0.3 < order.penalty < 0.8 for order in orders)


def test_the_ant_looks_as_far_ahead_as_one_that_runs_and_other_tasks_settings_are_the_same() -> None:
    ants = default_settings(EnvSpec("AntCircle")).learner.ppo
    assert ants.discount(500) == PPOSettings().discount(200) == 0.99
    assert default_settings(EnvSpec("BallCircle")) == default_settings(EnvSpec("AntRun")) == CollectSettings()
