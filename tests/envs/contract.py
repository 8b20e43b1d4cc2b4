"""What every task promises, whatever its simulator."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tests.envs.playing import action_at, drive, play
from tracrl.envs.make import make_env, make_vec_env
from tracrl.errors import TracrlError
from tracrl.tasks.table import get_task


def check_determinism(task: str, steps: int) -> str:
    """The same seed gives the same episode, whatever was played before; returns its digest."""
    env = make_env(task)
    first = play(env, 3, steps)
    for broken_off in (0, 1, 30):  # commands still set, contacts made, goals reached
        play(env, 4, broken_off)
        assert play(env, 3, steps).digest == first.digest, f"after {broken_off} steps of another episode"
    env.close()
    fresh = make_env(task)
    assert play(fresh, 4, steps).digest != first.digest
    assert play(fresh, 3, steps).digest == first.digest
    fresh.close()
    return first.digest


def check_contract(task: str) -> None:
    env, facts = make_env(task), get_task(task)
    check_env(env, skip_render_check=True, skip_close_check=True)
    observation, info = env.reset(seed=0)
    assert env.action_space.shape == (facts.action_size,)
    assert (env.action_space.low == -1).all()
    assert (env.action_space.high == 1).all()
    np.testing.assert_array_equal(env._simulator.action_space.low, env.action_space.low)
    np.testing.assert_array_equal(env._simulator.action_space.high, env.action_space.high)
    assert observation.shape == (facts.observation_size,)
    assert observation.dtype == np.float32
    assert info["cost"] == 0.0
    observation, reward, terminated, truncated, info = env.step(np.zeros(facts.action_size, np.float32))
    assert observation.shape == (facts.observation_size,)
    assert observation.dtype == np.float32
    assert (type(reward), type(terminated), type(truncated), type(info["cost"])) == (float, bool, bool, float)
    env.close()
    env.close()
    with pytest.raises(TracrlError, match="closed"):
        env.reset(seed=0)


def check_vector(task: str, workers: int, steps: int = 5) -> None:
    """Each worker plays the episode of its seed, however many there are."""
    expected = []
    for index in range(workers):
        single = make_env(task)
        expected.append(play(single, 10 + index, steps))
        single.close()
    vector = make_vec_env(task, workers)
    observations, _ = vector.reset(seed=10)
    for step in range(steps):
        for index in range(workers):
            np.testing.assert_array_equal(observations[index], expected[index].observations[step])
        if get_task(task).suite == "MetaDrive":
            actions = [drive(observation, step) for observation in observations]
        else:
            actions = [action_at(step, vector.single_action_space.shape[0])] * workers
        observations, rewards, _, _, infos = vector.step(np.stack(actions))
        np.testing.assert_array_equal(rewards, [played.rewards[step] for played in expected])
        np.testing.assert_array_equal(infos["cost"], [played.costs[step] for played in expected])
    vector.close()
