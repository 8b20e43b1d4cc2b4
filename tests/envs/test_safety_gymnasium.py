from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import yaml

from tests.envs.contract import check_contract, check_determinism, check_vector
from tests.envs.golden import check_golden
from tests.envs.playing import action_at, digests_elsewhere, play
from tracrl.envs import safety_gymnasium
from tracrl.envs.make import make_env
from tracrl.envs.simulators import MUJOCO
from tracrl.tasks.table import all_tasks, get_task

TASKS = [task.name for task in all_tasks().values() if task.suite == "SafetyGymnasium"]
NAVIGATION = [task for task in TASKS if not task.endswith("Velocity")]


def test_the_same_seed_gives_the_same_episode_here_and_in_another_process() -> None:
    here = [check_determinism(task, 40) for task in TASKS]
    assert digests_elsewhere(TASKS, 3, 40) == here


@pytest.mark.skipif(MUJOCO != "2.3.3", reason="the numbers are those of mujoco 2.3.3")
@pytest.mark.parametrize("task", TASKS)
def test_golden_trajectory(task: str) -> None:
    assert mujoco.__version__ == MUJOCO
    check_golden(task)


@pytest.mark.filterwarnings("ignore:.*Box observation space m.*imum value is")
@pytest.mark.parametrize("task", TASKS)
def test_the_contract(task: str) -> None:
    check_contract(task)


@pytest.mark.parametrize("task", ["PointCircle1", "HalfCheetahVelocity"])
def test_an_episode_is_truncated_at_its_limit(task: str) -> None:
    played = play(make_env(task), 0, 10_000)
    assert len(played.rewards) == get_task(task).max_steps
    assert played.truncated
    assert not played.terminated


def test_a_fallen_hopper_ends_the_episode() -> None:
    played = play(make_env("HopperVelocity"), 0, 10_000)
    assert played.terminated
    assert len(played.rewards) < 100


def test_reaching_a_goal_pays_and_sets_another() -> None:
    """Steer to the goal by its lidar; the reward of the arrival is 1, and the episode goes on."""
    env = make_env("PointGoal1")
    observation, _ = env.reset(seed=2)
    rewards = []
    for _ in range(400):
        goal = observation[12:28]
        angle = 2 * np.pi * (goal.argmax() + 0.5) / 16
        turn = np.clip((angle + np.pi) % (2 * np.pi) - np.pi, -1, 1)
        observation, reward, terminated, truncated, _ = env.step(np.array([np.cos(angle), turn], np.float32))
        assert not terminated
        assert not truncated
        rewards.append(reward)
    assert max(rewards) > 0.9


def test_a_hazard_costs_one_a_step() -> None:
    costs = play(make_env("PointGoal1"), 0, 300).costs
    assert set(costs) == {0.0, 1.0}


@pytest.mark.parametrize("workers", [1, 2])
def test_vector_workers_play_the_episodes_of_their_seeds(workers: int) -> None:
    check_vector("PointGoal1", workers)


@pytest.mark.parametrize("task", ["CarButton1", "HopperVelocity"])
def test_the_simulator_is_silent(task: str) -> None:
    code = f"from tracrl.envs.make import make_env; e = make_env({task!r}); e.reset(seed=0); e.close()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("mend", "error"),
    [
        ("register_without_init = lambda _: None", "Error"),
        ("array_defaults = contextlib.nullcontext", "mutable default"),
        ("unpack_joint_ids = lambda: None", "incompatible function arguments"),
    ],
)
def test_mends_of_the_import_are_still_needed(mend: str, error: str) -> None:
    code = (
        "import contextlib\n"
        "from tracrl.envs import safety_gymnasium\n"
        f"safety_gymnasium.{mend}\n"
        "from tracrl.envs.make import make_env\n"
        "make_env('CarGoal1')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0, f"it works without {mend.split(maxsplit=1)[0]}: drop it"
    assert error in done.stderr


def test_mend_build_first_world_is_still_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety_gymnasium, "build_first_world", lambda _: None)
    env = make_env("CarButton1")
    first, second = play(env, 3, 40), play(env, 3, 40)
    np.testing.assert_allclose(first.rewards, second.rewards, rtol=0, atol=1e-12)
    assert first.digest != second.digest, "the first world is like the others now: drop build_first_world"


PLAINLY = """
import sys
import gymnasium
from tests.envs.playing import play
from tracrl.envs import safety_gymnasium
from tracrl.envs.make import make_env
safety_gymnasium.speed_up = lambda _: None
safety_gymnasium.Observed = gymnasium.spaces.Dict
for task, seed in zip(sys.argv[1::2], sys.argv[2::2]):
    print(play(make_env(task), int(seed), 200).digest)
"""


def test_navigation_is_bit_for_bit_that_of_the_plain_package() -> None:
    """Both agents, every kind of obstacle and of goal, and each episode has costs."""
    seeds = {"CarGoal2": 5, "PointButton2": 4, "CarButton1": 2, "PointPush2": 12, "PointCircle2": 4}
    ours = {task: play(make_env(task), seed, 200) for task, seed in seeds.items()}
    assert all(played.costs.sum() > 0 for played in ours.values())
    words = [str(word) for pair in seeds.items() for word in pair]
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "ignore", "-c", PLAINLY, *words]
    plainly = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert plainly.stdout.split() == [played.digest for played in ours.values()]


def original_generator_class() -> Any:
    """The class as the package has it, in a module of its own."""
    path = safety_gymnasium.import_part("safety_gymnasium.utils.random_generator").__file__
    spec = importlib.util.spec_from_file_location("original_random_generator", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RandomGenerator


@pytest.mark.parametrize("task", ["PointButton2", "CarGoal2"])
def test_mend_sample_layout_finds_the_same_layouts_faster(task: str) -> None:
    env = make_env(task)
    env.reset(seed=0)
    ours, original = env._simulator.task.random_generator, original_generator_class()()
    assert type(ours).sample_layout is safety_gymnasium.sample_layout
    original.set_placements_info(ours.placements, ours.placements_extents, ours.placements_margin)
    seconds = {ours: 0.0, original: 0.0}
    for seed in range(6):
        layouts = []
        for generator in seconds:
            generator.set_random_seed(seed)
            start = time.process_time()
            layouts.append(generator.build_layout())
            seconds[generator] += time.process_time() - start
        assert layouts[0].keys() == layouts[1].keys()
        for name, spot in layouts[0].items():
            np.testing.assert_array_equal(spot, layouts[1][name])
    if task == "PointButton2":  # 3 to 6 times, where it is long enough to measure
        assert seconds[original] > 1.3 * seconds[ours], "the original is fast now: drop sample_layout"


@pytest.mark.parametrize("task", ["PointPush1", "CarButton1"])
def test_mend_assets_reader_drops_the_stars_and_nothing_else(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(task)
    without = play(env, 3, 40)
    small = env._simulator.task.model.ntexdata
    monkeypatch.setattr(safety_gymnasium.import_part("safety_gymnasium.world"), "yaml", yaml)
    assert play(env, 3, 40).digest == without.digest
    large = env._simulator.task.model.ntexdata
    assert large > 50 * small, "the sky is small now: drop AssetsReader"


def test_numbers_of_an_action_are_used_as_they_are() -> None:
    """Not rounded to float32 and not scaled: the simulators' own boxes are [-1, 1] already."""
    env = make_env("HalfCheetahVelocity")
    env.reset(seed=0)
    action = action_at(1, 6).astype(float) + 1e-9
    env.step(action)
    np.testing.assert_array_equal(env._simulator.data.ctrl, action)
