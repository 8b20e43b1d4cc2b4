from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tiny_envs
from numpy.testing import assert_array_equal
from rich.console import Console

from tracrl.claims import BusyError
from tracrl.collect import EnvSpec, collect
from tracrl.collect.learner import LearnerSettings
from tracrl.collect.ppo import PPOSettings
from tracrl.collect.progress import Coverage, Front, Silence, Terminal
from tracrl.collect.run import CollectSettings, rounded
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import read_hdf5
from tracrl.errors import TracrlError

# Hardly any learning: enough for what does not depend on how well the behaviour learned.
QUICK = CollectSettings(learner=LearnerSettings(fewest_steps=400, rounds=10, ppo=PPOSettings(epochs=1, minibatches=2)))
RECIPE: dict[str, Any] = {"steps": 2_000, "episodes": 30, "seed": 7, "limits": [15, 17], "settings": QUICK}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collect("tiny_envs:Road", out=tmp_path_factory.mktemp("data") / "road.hdf5", workers=1, **RECIPE)


@pytest.fixture(scope="module")
def episodes(made: Path) -> Episodes:
    return read_hdf5(made)


def test_whole_episodes_in_the_environments_own_units(episodes: Episodes) -> None:
    assert len(episodes) == 30
    assert set(episodes.lengths) == {20}
    assert not episodes.terminated.any()
    np.testing.assert_array_equal((episodes.action_low, episodes.action_high), ([0.0], [4.0]))
    assert episodes.actions.min() >= 0
    assert episodes.actions.max() > 2
    # The environment's own rules hold in every row, so actions, rewards and costs belong to one another.
    speed = episodes.actions[:, 0] + episodes.observations[:, 0]
    np.testing.assert_allclose(episodes.rewards, speed, atol=1e-5)
    np.testing.assert_array_equal(episodes.costs, speed > 1)
    np.testing.assert_array_equal(episodes.observations[:20, 1], 1000 + np.arange(20))
    assert episodes.final_observations is not None
    assert (episodes.final_observations[:, 1] == 1020).all()


def test_safe_and_unsafe_at_each_limit(episodes: Episodes) -> None:
    for limit in (15, 17):
        assert (episodes.total_costs <= limit).sum() >= 6
        assert (episodes.total_costs > limit).sum() >= 6


def test_the_file_says_what_made_it_and_others_can_read_it(made: Path, episodes: Episodes) -> None:
    facts = episodes.metadata
    assert facts["environment"] == "tiny_envs:Road"
    assert facts["made_by"].startswith("tracrl collect --env tiny_envs:Road --steps=2000 --episodes=30 --seed=7")
    assert facts["recipe"]["seed"] == 7
    assert facts["recipe"]["settings"]["learner"]["ppo"]["epochs"] == 1
    assert "halfhearted" not in facts["recipe"]["settings"]["recorder"], "nor was it before one could ask for it"
    assert facts["versions"]["tiny_envs"] == "1.2.3"
    assert {"tracrl", "python", "torch", "numpy", "gymnasium"} <= facts["versions"].keys()
    assert sum(snapshot["episodes"] for snapshot in facts["behaviours"]) == 30
    assert facts["behaviours"][0]["step"] == 0
    with h5py.File(made) as file:
        assert file["next_observations"].shape == file["observations"].shape


def test_the_same_seed_gives_the_same_file_with_any_number_of_processes(made: Path, tmp_path: Path) -> None:
    other = collect("tiny_envs:Road", out=tmp_path / "two.hdf5", workers=3, **RECIPE)
    assert other.read_bytes() == made.read_bytes()
    third = collect("tiny_envs:Road", out=tmp_path / "three.hdf5", workers=2, **{**RECIPE, "seed": 8})
    assert read_hdf5(third).fingerprint != read_hdf5(made).fingerprint


def test_going_on_after_being_killed(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "road.hdf5"
    script = tmp_path / "killed.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(tiny_envs.__file__).parent)!r}]\n"
        "import test_collect\n"
        "from tracrl.collect import collect, learner\n"
        "learner.CHECKPOINT_SECONDS = 0\n"
        f"collect('tiny_envs:Road', out={str(out)!r}, progress=test_collect.Slow(), workers=2, **test_collect.RECIPE)\n"
    )
    for awaited in ("learner.safetensors", "round03.safetensors"):
        process = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
        deadline = time.monotonic() + 60
        while not (tmp_path / "road.hdf5.part" / awaited).exists() and time.monotonic() < deadline:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert not out.exists()
        assert _ended(process.pid), "the simulator processes end with the collection"
        text = script.read_text()
        script.write_text(text.replace("workers=2,", "workers=2, resume=True,") if "resume" not in text else text)
    with pytest.raises(TracrlError, match=r"holds a collection that can go on: go on with --resume"):
        collect("tiny_envs:Road", out=out, **RECIPE)
    with pytest.raises(TracrlError, match=r"whose seed differs \(7 there, 8 here\)"):
        collect("tiny_envs:Road", out=out, resume=True, **{**RECIPE, "seed": 8})
    console = Console(record=True, width=200, file=(tmp_path / "log").open("w"))
    resumed = collect("tiny_envs:Road", out=out, resume=True, progress=Terminal(console), **RECIPE)
    assert resumed.read_bytes() == made.read_bytes()
    assert re.search(r"recording: going on after \d+ episodes", console.export_text()), (
        "the rate is that of the new ones"
    )
    assert not (tmp_path / "road.hdf5.part").exists()


def test_what_is_finished_is_not_made_again(made: Path) -> None:
    before = made.stat().st_mtime_ns
    assert collect("tiny_envs:Road", out=made, resume=True, **RECIPE) == made
    assert made.stat().st_mtime_ns == before
    with pytest.raises(TracrlError, match=r"exists: choose another --out"):
        collect("tiny_envs:Road", out=made, **RECIPE)
    changed = replace(QUICK, cells=5)
    with pytest.raises(TracrlError, match="whose settings differs"):
        collect("tiny_envs:Road", out=made, resume=True, **{**RECIPE, "settings": changed})


def test_terminated_episodes_another_cost_key_and_the_lines_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracrl.collect.progress.SECONDS_BETWEEN_LINES", 0.0)
    console = Console(record=True, width=200, file=(tmp_path / "log").open("w"))
    out = collect(
        EnvSpec("tiny_envs:Cliff", max_steps=15),
        steps=1_000,
        episodes=10,
        out=tmp_path / "cliff.hdf5",
        workers=1,
        settings=QUICK,
        compact=True,
        observation_bits=10,
        progress=Terminal(console),
    )
    episodes = read_hdf5(out)
    assert episodes.terminated.all()
    assert set(episodes.lengths) == {10}
    assert episodes.metadata["made_by"].split(" (")[0].endswith("--max-steps=15 --compact --observation-bits=10")
    assert_array_equal(episodes.observations, rounded(episodes.observations, 10))
    said = console.export_text()
    assert "learning: 1,000 of 1,000 steps" in said
    assert "low penalty" in said
    assert "high penalty" in said
    assert "recording: 4 of 4 episodes" in said
    assert "cells" in said


def test_rounding_keeps_the_nearest_number_of_so_many_bits() -> None:
    numbers = np.array([0.0, 1.0, -1.0, 0.1, -3.3, 1e-30, 5e20, 0.9999], np.float32)
    # 0.1 is 0.11001100… × 2⁻³ in binary: 0.1100 with four bits; 3.3 is 0.1101 × 2², and 0.9999 becomes 1.
    assert_array_equal(rounded(numbers, 4)[:5], np.array([0, 1, -1, 0.1015625, -3.25], np.float32))
    assert rounded(numbers, 4)[-1] == 1.0
    np.testing.assert_allclose(rounded(numbers, 12), numbers, rtol=2.0**-12)
    assert_array_equal(rounded(numbers, 24), numbers)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "--steps is 0; expected a whole number from 1 to"),
        ({"episodes": -3}, "--episodes is -3"),
        ({"workers": 0}, "--workers is 0"),
        ({"limits": [-1.0]}, "--limits are -1.0"),
        ({"seed": -1}, "--seed is -1"),
        ({"observation_bits": 25}, "--observation-bits is 25; expected 1 to 24"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match=said):
        collect("BallRun", out=tmp_path / "no.hdf5", **options)
    assert not list(tmp_path.iterdir())


def test_what_fails_at_once_can_be_tried_again(tmp_path: Path) -> None:
    for name, said in (
        ("tiny_envs:Switch", "only continuous"),
        ("tiny_envs:Foggy", "holds nan"),
        ("tiny_envs:Foggy", "nan"),
    ):
        with pytest.raises(TracrlError, match=said):
            collect(name, out=tmp_path / "no.hdf5", workers=1, settings=QUICK)


class Slow(Silence):
    """Leaves time to be killed."""

    def learning(self, step: int, steps: int, front: Front) -> None:
        time.sleep(0.1)

    def recording(self, done: int, candidates: int, coverage: Coverage | None) -> None:
        time.sleep(0.02)


def _ended(session: int) -> bool:
    """Whether all processes of the session are gone within a few seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    os.killpg(session, signal.SIGKILL)
    return False


def test_one_collection_at_a_time_into_one_file(tmp_path: Path) -> None:
    """Two that start together would write one file from parts of both."""
    out = tmp_path / "road.hdf5"

    class Second(Silence):
        refused = ""

        def recording(self, done: int, candidates: int, coverage: Coverage | None) -> None:
            if not self.refused:
                with pytest.raises(BusyError) as busy:
                    collect("tiny_envs:Road", out=out, workers=1, **{**RECIPE, "seed": 8})
                self.refused = str(busy.value)

    first = Second()
    collect("tiny_envs:Road", out=out, workers=1, progress=first, **RECIPE)
    assert re.search(rf"Process {os.getpid()} .* is at work in {re.escape(str(out))}.part", first.refused)
    assert read_hdf5(out).metadata["recipe"]["seed"] == 7
    assert [file.name for file in tmp_path.iterdir()] == ["road.hdf5"]
