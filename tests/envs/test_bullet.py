# ruff: noqa: NPY002  (the simulator draws from NumPy's global generator)
from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.envs.contract import check_contract, check_determinism, check_vector
from tests.envs.golden import check_golden
from tests.envs.playing import action_at, digests_elsewhere, play
from tracrl.envs.make import make_env, make_vec_env
from tracrl.envs.quiet import quiet
from tracrl.errors import TracrlError
from tracrl.tasks.table import all_tasks, get_task

TASKS = [task.name for task in all_tasks().values() if task.suite == "Bullet"]


def test_the_same_seed_gives_the_same_episode_here_and_in_another_process() -> None:
    here = [check_determinism(task, 120) for task in TASKS]
    assert digests_elsewhere(TASKS, 3, 120) == here


@pytest.mark.parametrize("task", TASKS)
def test_golden_trajectory(task: str) -> None:
    check_golden(task)


@pytest.mark.filterwarnings("ignore:.*Box observation space m.*imum value is")
@pytest.mark.parametrize("task", TASKS)
def test_the_contract(task: str) -> None:
    check_contract(task)


@pytest.mark.parametrize("task", ["BallRun", "CarCircle"])
def test_an_episode_is_truncated_at_its_limit(task: str) -> None:
    played = play(make_env(task), 0, 10_000)
    assert len(played.rewards) == get_task(task).max_steps
    assert played.truncated
    assert not played.terminated


def test_a_fallen_ant_ends_the_episode() -> None:
    played = play(make_env("AntCircle"), 0, 10_000)
    assert played.terminated
    assert len(played.rewards) < get_task("AntCircle").max_steps


def test_actions_are_clipped_and_checked() -> None:
    env = make_env("BallRun")
    outcomes = []
    for scale in (1.0, 50.0):
        env.reset(seed=0)
        outcomes.append(env.step(np.array([scale, -scale], np.float32))[0])
    np.testing.assert_array_equal(*outcomes)
    for wrong in ([np.nan, 0.0], [0.0], [0.0, 0.0, 0.0]):
        with pytest.raises(TracrlError, match="BallRun: the action must be 2 finite numbers"):
            env.step(np.array(wrong, np.float32))


def test_a_step_outside_an_episode_is_refused() -> None:
    env = make_env("BallRun")
    with pytest.raises(TracrlError, match="call reset before step"):
        env.step(np.zeros(2, np.float32))
    play(env, 0, 10_000)
    with pytest.raises(TracrlError, match="call reset before step"):
        env.step(np.zeros(2, np.float32))


def test_unseeded_resets_differ_and_follow_from_the_last_seed() -> None:
    env = make_env("BallCircle")
    runs = []
    for _ in range(2):
        env.reset(seed=1)
        runs.append([env.reset()[0], env.reset()[0]])
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0][0], runs[0][1])


def test_the_callers_random_numbers_are_left_alone() -> None:
    np.random.seed(0)
    expected = np.random.random(3)
    np.random.seed(0)
    env = make_env("CarCircle")
    env.reset(seed=9)
    env.step(action_at(0, 2))
    np.testing.assert_array_equal(np.random.random(3), expected)


def test_the_simulator_is_silent() -> None:
    code = "from tracrl.envs.make import make_env; e = make_env('DroneRun'); e.reset(seed=0); e.close()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr == ""


@pytest.mark.parametrize("task", TASKS)
def test_an_episode_is_that_of_the_original_simulator(task: str) -> None:
    """The mends are invisible: bit for bit what a fresh original plays, before it is rounded to float32."""
    ours = play(make_env(task), 3, 80)
    original = original_simulator(task)
    np.random.seed(3)
    observation, _ = original.reset()
    np.testing.assert_array_equal(ours.observations[0], observation.astype(np.float32))
    for step, (reward, cost) in enumerate(zip(ours.rewards, ours.costs, strict=True)):
        observation, *outcome, info = original.step(action_at(step, len(original.action_space.low)).astype(float))
        np.testing.assert_array_equal(ours.observations[step + 1], observation.astype(np.float32))
        assert (outcome[0], info["cost"]) == (reward, cost)
    original.close()


def original_simulator(task: str) -> Any:
    with quiet():
        return gymnasium.make(f"Safety{task}-v0", disable_env_checker=True).unwrapped


def first_two_steps(simulator: Any, seed: int) -> list[float]:
    np.random.seed(seed)
    simulator.reset(seed=seed)
    return list(np.concatenate([simulator.step(action_at(step, 2).astype(float))[0] for step in range(2)]))


def test_mend_global_numpy_seed_is_still_needed() -> None:
    simulator = original_simulator("BallCircle")
    np.random.seed(0)
    positions = [simulator.reset(seed=1)[0] for _ in range(2)]
    assert not np.array_equal(*positions), "reset(seed=...) is obeyed now: drop global_numpy_seed"


@pytest.mark.parametrize("task", ["CarRun", "BallCircle"])
def test_mend_rebuild_is_still_needed(task: str) -> None:
    simulator = original_simulator(task)
    episodes = [first_two_steps(simulator, 123) for _ in range(3)]
    assert episodes[0] != episodes[1] or episodes[1] != episodes[2], "a reset is complete now: drop rebuild"


def test_mend_blind_builder_drops_the_visual_shapes_and_is_still_needed() -> None:
    shapes = {}
    for mode in (None, "rgb_array"):
        simulator = make_env("DroneRun", render_mode=mode)._simulator
        shapes[mode] = [shape[4] for shape in simulator.bc.getVisualShapeData(simulator.agent.body_id)]
    assert not any(shapes[None])  # the names of the files read
    assert any(shapes["rgb_array"]), "the Drone has no mesh any more: drop BlindBuilder"


@pytest.mark.parametrize("workers", [1, 3])
def test_vector_workers_play_the_episodes_of_their_seeds(workers: int) -> None:
    check_vector("CarCircle", workers)


def test_vector_in_one_process() -> None:
    vector = make_vec_env("BallRun", 2, processes=False)
    observations, _ = vector.reset(seed=0)
    np.testing.assert_array_equal(observations[1], make_env("BallRun").reset(seed=1)[0])
    vector.close()


def test_an_unknown_render_mode_is_refused() -> None:
    with pytest.raises(TracrlError, match="render_mode is 'human'"):
        make_env("BallRun", render_mode="human")
