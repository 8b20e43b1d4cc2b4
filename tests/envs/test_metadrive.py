from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.envs.contract import check_contract, check_determinism, check_vector
from tests.envs.golden import check_golden
from tests.envs.playing import digests_elsewhere, drive, play
from tracrl.envs import metadrive
from tracrl.envs.make import make_env
from tracrl.errors import TracrlError
from tracrl.tasks.table import all_tasks

TASKS = [task.name for task in all_tasks().values() if task.suite == "MetaDrive"]
EACH_ROAD = ["easydense", "mediummean", "hardsparse"]
STEPS = 115  # until the traffic of each road has been met


def test_the_same_seed_gives_the_same_episode_here_and_in_another_process() -> None:
    here = [check_determinism(task, STEPS) for task in EACH_ROAD]
    assert digests_elsewhere(EACH_ROAD, 3, STEPS) == here


@pytest.mark.slow
def test_the_same_seed_gives_the_same_episode_on_all_roads() -> None:
    here = [check_determinism(task, 400) for task in TASKS]
    assert digests_elsewhere(TASKS, 3, 400) == here


@pytest.mark.parametrize("task", TASKS)
def test_golden_trajectory(task: str) -> None:
    check_golden(task)


@pytest.mark.filterwarnings("ignore:.*Box observation space m.*imum value is")
@pytest.mark.parametrize("task", EACH_ROAD)
def test_the_contract(task: str) -> None:
    check_contract(task)


PLAINLY = """
import sys
from tests.envs.playing import play
from tracrl.envs import metadrive
from tracrl.envs.make import make_env
metadrive.speed_up = lambda _: None
for task, seed in zip(sys.argv[1::2], sys.argv[2::2]):
    env = make_env(task)
    print(play(env, int(seed), 400).digest)
    env.close()
"""


def test_the_faster_simulator_is_bit_for_bit_the_plain_one() -> None:
    """Every road, with other cars awake and within sight; some of the second leave the road and begin anew."""
    seeds = {"easydense": 4, "mediumdense": 0, "harddense": 4}
    ours = {}
    for task, seed in seeds.items():
        env = make_env(task)
        ours[task] = play(env, seed, 400)
        assert env._simulator.engine.traffic_manager.traffic_vehicles
        env.close()
        assert ours[task].observations[:, -metadrive.LASERS :].min() < 1
    words = [str(word) for pair in seeds.items() for word in pair]
    command = [sys.executable, "-c", PLAINLY, *words]
    root = Path(__file__).parents[2]
    plainly = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert plainly.stdout.split() == [played.digest for played in ours.values()]


def test_every_task_has_its_road_and_its_traffic() -> None:
    found = {task: metadrive.settings(task) for task in TASKS}
    assert len({(each["map_config"]["config"], each["traffic_density"]) for each in found.values()}) == 9
    hard = found["harddense"]
    assert (hard["start_seed"], hard["map_config"]["config"], hard["traffic_density"]) == (200, "TRO", 0.2)


def test_settings_reach_the_simulator() -> None:
    env = make_env("mediummean")
    config = env._simulator.config
    assert config["map_config"]["type"] == "block_sequence"
    assert config["map_config"]["config"] == "XST"
    assert (config["traffic_density"], config["traffic_mode"], config["random_traffic"]) == (0.15, "hybrid", True)
    assert (config["start_seed"], config["accident_prob"], config["horizon"]) == (100, 0.0, 1000)
    assert config["crash_vehicle_penalty"] == 0.0
    env.close()


def test_speed_costs_from_ten_km_an_hour_and_a_crash_ends_with_one() -> None:
    env = make_env("easydense")
    observation, _ = env.reset(seed=3)
    terminated, step = False, 0
    while not terminated:
        observation, _, terminated, truncated, info = env.step(drive(observation, step))
        assert not truncated
        speed, nearest = env._simulator.vehicle.speed, observation[-240:].min()
        expected = max(0.0, (speed - 10) / 100) + max(0.0, 0.1 - nearest) ** 2 / 100
        assert info["cost"] == pytest.approx(expected + (1.0 if terminated else 0.0), abs=1e-6)
        step += 1
    assert env._simulator.vehicle.crash_vehicle
    env.close()


def test_standing_still_runs_to_the_horizon_at_no_cost() -> None:
    env = make_env("easysparse")
    env.reset(seed=0)
    costs, truncated, steps = 0.0, False, 0
    while not truncated:
        _, _, terminated, truncated, info = env.step(np.array([0.0, -1.0], np.float32))
        assert not terminated
        costs += info["cost"]
        steps += 1
    assert steps == 1000
    assert costs < 0.1
    env.close()


def test_arrival_ends_the_episode() -> None:
    env = make_env("easysparse")
    played = play(env, 3, 1000)
    assert played.terminated
    assert played.rewards[-1] == 10.0
    env.close()


def test_a_second_one_in_the_process_is_refused_and_a_later_one_is_not() -> None:
    env = make_env("easymean")
    with pytest.raises(TracrlError, match="runs a MetaDrive task already"):
        make_env("hardmean")
    env.close()
    later = make_env("hardmean")
    later.reset(seed=0)
    later.close()


def test_vector_workers_play_the_episodes_of_their_seeds() -> None:
    check_vector("easymean", 2, steps=12)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_simulator_is_silent_and_may_be_left_open() -> None:
    done = run("from tracrl.envs.make import make_env; e = make_env('hardmean'); e.reset(seed=0); e.step([0, 0])")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_mend_atexit_is_still_needed() -> None:
    done = run(
        "from tracrl.envs import metadrive\n"
        "metadrive.atexit.register = lambda _: None\n"
        "from tracrl.envs.make import make_env\n"
        "env = make_env('easymean')\n"
        "env.reset(seed=0)"
    )
    assert done.returncode != 0, "an open engine no longer crashes the exit: drop the atexit mend"


@pytest.mark.parametrize(
    ("mend", "error"),
    [
        ("gym_over_gymnasium = lambda: None", "gym"),
        ("colours = lambda: None", "seaborn"),
        ("old_numpy_names = lambda: None", "`np.float` was a deprecated alias"),
    ],
)
def test_mends_of_the_import_are_still_needed(mend: str, error: str) -> None:
    done = run(
        "from tracrl.envs import metadrive\n"
        f"metadrive.{mend}\n"
        "from tracrl.envs.make import make_env\n"
        "make_env('easymean').reset(seed=0)"
    )
    assert done.returncode != 0, f"it works without {mend.split(maxsplit=1)[0]}: drop it"
    assert error in done.stderr


def test_mend_register_without_init_is_still_needed() -> None:
    """Importing the whole package takes what we do not install, or fails on what is there."""
    done = run("import metadrive.envs")
    assert done.returncode != 0, "the package imports by itself now: drop register_without_init"


def test_stand_ins_are_seen_by_nobody_else() -> None:
    code = (
        "import sys, importlib.util\n"
        "before = [name in sys.modules for name in ('gym', 'seaborn')]\n"
        "from tracrl.envs.make import make_env\n"
        "make_env('easymean')\n"
        "print(before == [name in sys.modules for name in ('gym', 'seaborn')])"
    )
    assert run(code).stdout.strip() == "True"


def test_mend_force_destroy_is_still_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = metadrive.settings
    monkeypatch.setattr(metadrive, "settings", lambda name: original(name) | {"force_destroy": False})
    env = make_env("hardmean")
    digests = [play(env, seed, 60).digest for seed in (3, 4, 3, 5, 3)]
    env.close()
    assert len({digests[0], digests[2], digests[4]}) > 1, "parked cars start afresh now: drop force_destroy"


def test_mend_seed_traffic_is_still_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadrive, "seed_traffic", lambda *_: None)
    env = make_env("easydense")
    digests: set[str] = set()
    for _ in range(12):  # about every fourth episode meets no traffic, and those are alike
        digests.add(play(env, 3, 40).digest)
        if len(digests) > 1:
            break
    env.close()
    assert len(digests) > 1, "the traffic obeys the seed now: drop seed_traffic"
