"""The behaviour that steers by its lidars."""

import math
from typing import cast

import numpy as np
import pytest

from tracrl.collect.navigator import BINS, FAR, NAVIGATORS, WIDTH, Navigator, Pilot, place, steers
from tracrl.collect.rollout import Order
from tracrl.envs.environment import Environment, EnvSpec
from tracrl.envs.safety_gymnasium import SafetyGymnasiumEnv
from tracrl.tasks.table import all_tasks


def seen(angle: float, distance: float) -> np.ndarray:
    """One thing on a lidar, as safety-gymnasium draws it."""
    lidar, share = np.zeros(BINS), angle / WIDTH % 1
    value, nearest = 1 - distance / FAR, int(angle / WIDTH)
    for bin_, part in ((nearest, 1.0), (nearest + 1, share), (nearest - 1, 1 - share)):
        lidar[bin_ % BINS] = value * part
    return lidar


@pytest.mark.parametrize(("angle", "distance"), [(0.1, 0.5), (1.7, 1.2), (6.1, 2.0)])
def test_a_lidar_tells_where_its_only_thing_is(angle: float, distance: float) -> None:
    assert place(seen(angle, distance)) == pytest.approx([distance * math.cos(angle), distance * math.sin(angle)])


def test_who_takes_care_goes_round_what_lies_on_the_way() -> None:
    parts = {"velocimeter": slice(0, 3), "goal_lidar": slice(3, 19), "hazards_lidar": slice(19, 35)}
    observation = np.concatenate([np.zeros(3), seen(0.01, 2.0), seen(0.2, 0.6)])
    target = place(observation[3:19])
    turned = {care: Pilot(Navigator("test"), care, parts).direction(observation, target, False) for care in (0, 1, -1)}
    assert turned[0] == (0.0, pytest.approx(0, abs=1e-3))
    angle, blocked = turned[1]
    assert math.pi < angle < 2 * math.pi, "to the right, since the hazard lies to the left"
    assert blocked > 0.05, "so it goes more slowly"
    assert 0 < turned[-1][0] < 0.5, "and who likes to meet it turns to it"


def test_nobody_takes_half_the_care() -> None:
    navigator = Navigator("test")
    cares = np.array([navigator.care_at(penalty) for penalty in np.linspace(0, 1, 101)])
    assert (np.diff(cares) >= 0).all(), "a higher penalty never means less care"
    assert not ((cares > 0.1) & (cares < 0.7)).any()
    assert 0.3 < np.mean(cares < 0.1) < 0.5
    assert cares[-1] == cares[90] == navigator.careful[1], "beyond the highest penalty as with the highest"


def test_who_goes_among_gremlins_goes_more_slowly() -> None:
    parts = {"velocimeter": slice(0, 3), "goal_lidar": slice(3, 19), "gremlins_lidar": slice(19, 35)}
    observation = np.concatenate([[0.7, 0, 0], seen(0.01, 2.0), np.zeros(BINS)]).astype(np.float32)
    style = Navigator("test", speed=0.8)
    among = Pilot(style, 1.0, parts).act(observation)
    alone = Pilot(style, 1.0, {"velocimeter": slice(0, 3), "goal_lidar": slice(3, 19), "hazards_lidar": slice(19, 35)})
    assert among[0] < 0 < alone.act(observation)[0]


def test_push_tasks_are_steered() -> None:
    assert [name for name in all_tasks() if steers(name)] == ["CarPush1", "CarPush2", "PointPush1", "PointPush2"]


def test_a_place_is_where_the_simulator_has_it() -> None:
    env = Environment(EnvSpec.of("CarPush1"))
    observation = env.reset(3)
    inner = cast(SafetyGymnasiumEnv, env.env.unwrapped)
    world = inner._simulator.task
    for name, thing in (("goal_lidar", world.goal), ("push_box_lidar", world.push_box)):
        true = (thing.pos - world.agent.pos) @ world.agent.mat
        assert place(observation[inner.parts[name]]) == pytest.approx(true[:2], abs=1e-3)
    assert inner.parts["push_box_lidar"].stop == len(observation)


@pytest.mark.parametrize("task", ["PointGoal1", "CarButton1"])
def test_care_costs_less(task: str) -> None:
    env, navigator = Environment(EnvSpec.of(task)), NAVIGATORS[-1]
    bold, careful = (
        [Order(0, seed, penalty, noise=0.3).play(env, navigator) for seed in range(2)] for penalty in (0.0, 0.9)
    )
    costs = [sum(float(rollout.costs.sum()) for rollout in rollouts) for rollouts in (bold, careful)]
    returns = [sum(float(rollout.rewards.sum()) for rollout in rollouts) for rollouts in (bold, careful)]
    assert costs[1] < 0.7 * costs[0]
    assert min(returns) > 1, "and both get to their goals"
