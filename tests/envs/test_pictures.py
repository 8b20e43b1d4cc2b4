from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.envs.playing import play
from tracrl.envs.make import make_env
from tracrl.errors import TracrlError

# One of each kind of picture: pybullet with and without meshes, a navigation task, a velocity task, a road.
TASKS = ["BallCircle", "CarRun", "CarPush1", "HopperVelocity", "mediumdense"]


def picture(env: Any) -> NDArray[np.uint8]:
    found = env.render()
    assert found.shape == (360, 480, 3)
    assert found.dtype == np.uint8
    return found


@pytest.mark.parametrize("task", TASKS)
def test_pictures_show_the_world_and_change_with_it(task: str) -> None:
    env = make_env(task, render_mode="rgb_array")
    env.reset(seed=1)
    first = picture(env)
    assert first.std() > 15, "an empty picture"
    assert np.array_equal(picture(env), first) or np.abs(picture(env) - first.astype(int)).mean() < 1
    size = env.action_space.shape[0]
    for _ in range(15):
        env.step(np.ones(size, np.float32))
    assert (picture(env) != first).any(axis=-1).mean() > 0.002
    env.close()


@pytest.mark.parametrize("task", ["CarRun", "PointGoal1", "AntVelocity", "easydense"])
def test_pictures_do_not_change_an_episode(task: str) -> None:
    env = make_env(task)
    expected = play(env, 3, 12).digest
    env.close()
    seen = make_env(task, render_mode="rgb_array")
    seen.reset(seed=1)
    seen.render()
    step = seen.step
    seen.step = lambda action: (seen.render(), step(action))[1]  # type: ignore[method-assign]
    assert play(seen, 3, 12).digest == expected
    seen.close()


@pytest.mark.parametrize("task", ["BallRun", "PointGoal1", "easymean"])
def test_without_a_render_mode_there_is_no_picture(task: str) -> None:
    env = make_env(task)
    env.reset(seed=0)
    assert env.render() is None
    env.close()


@pytest.mark.parametrize("task", ["BallRun", "PointGoal1", "easymean"])
def test_a_picture_outside_an_episode_is_refused_but_its_last_is_there(task: str) -> None:
    env = make_env(task, render_mode="rgb_array")
    with pytest.raises(TracrlError, match="call reset before render"):
        env.render()
    env.task = dataclasses.replace(env.task, max_steps=1)
    assert play(env, 0, 5).truncated
    picture(env)
    env.close()
    with pytest.raises(TracrlError, match="call reset before render"):
        env.render()


def test_mend_without_glow_lets_the_agent_be_seen() -> None:
    """The ball is black and white; with the glow around it there is a red one in its place."""
    env = make_env("BallCircle", render_mode="rgb_array")
    env.reset(seed=1)

    def red(found: NDArray[np.uint8]) -> int:
        return int(((found[..., 0] > 120) & (found[..., 1] < 30) & (found[..., 2] < 30)).sum())

    assert red(picture(env)) == 0
    assert red(env._simulator.render(mode="rgb_array")) > 50, "transparent balls are not drawn now: drop without_glow"
    env.close()


def test_the_obstacles_of_a_navigation_task_are_seen() -> None:
    """mujoco hides three kinds by default, and its switches are read wrongly under NumPy 2 (see ``whole``)."""
    env = make_env("PointGoal1", render_mode="rgb_array")
    env.reset(seed=1)
    found = picture(env).astype(int)
    green = ((found[..., 1] > found[..., 0] + 60) & (found[..., 1] > found[..., 2] + 60)).sum()
    blue = ((found[..., 2] > found[..., 0] + 60) & (found[..., 2] > found[..., 1] + 60)).sum()
    assert green > 100, "no goal"
    assert blue > 100, "no hazards"
    env.close()


def test_the_mend_whole_reads_all_numbers_of_a_small_array() -> None:
    import mujoco

    from tracrl.envs.safety_gymnasium import whole

    option = mujoco.MjvOption()
    assert whole(option.geomgroup).tolist() == [1, 1, 1, 0, 0, 0]
    if mujoco.__version__ == "2.3.3":
        assert option.geomgroup.tolist() != [1, 1, 1, 0, 0, 0], "the array is right now: drop whole"


@pytest.mark.parametrize("task", ["PointGoal1", "HopperVelocity", "easymean"])
def test_drawing_is_silent_also_when_it_is_left_open(task: str) -> None:
    code = (
        "from tracrl.envs.make import make_env\n"
        f"env = make_env({task!r}, render_mode='rgb_array')\n"
        "env.reset(seed=0)\n"
        "env.render()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
