"""The command line as a process, as a user meets it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.conftest import make_small_data
from tracrl.data.hdf5 import write_hdf5

TINY = ["--updates", "20", "--clone-updates", "10", "--batch-size", "4", "--hidden", "8", "8"]
TASKS = 38
BUNDLED = Path(__file__).parents[1] / "tracrl/data/bundled/BallRun.hdf5"


def tracrl(*words: object, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tracrl.cli", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=280, check=False)


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a command that said no."""
    assert result.returncode not in (0, -signal.SIGKILL), result.stdout
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("tracrl: ")]
    assert len(lines) == 1, result.stderr
    return lines[0].removeprefix("tracrl: ")


@pytest.fixture(scope="module")
def own_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "my.hdf5"
    write_hdf5(make_small_data(), path)
    return path


def test_without_a_command_it_lists_them(tmp_path: Path) -> None:
    result = tracrl(cwd=tmp_path)
    assert result.returncode == 2
    for command in ("tasks", "data inspect", "data fetch", "train", "evaluate", "sims"):
        assert f"\n  {command}" in result.stdout
    assert tracrl("--help", cwd=tmp_path).returncode == 0


def test_tasks_are_listed_with_their_data(tmp_path: Path) -> None:
    result = tracrl("tasks", cwd=tmp_path)
    assert result.returncode == 0
    rows = [line for line in result.stdout.splitlines() if re.search(r" (10 20 40|20 40 80) ", line)]
    assert len(rows) == TASKS
    assert "bundled" in next(line for line in rows if line.startswith("BallRun "))


def test_help_shows_the_settings_of_the_tasks_suite(tmp_path: Path) -> None:
    result = tracrl("train", "trac", "PointGoal1", "--help", cwd=tmp_path)
    assert result.returncode == 0
    text = re.sub(r"[│\s]+", " ", result.stdout)
    assert (
        "--ratio FLOAT segment length as a share of the longest episode; a share above 0 and up to 1 (default: 0.75)"
        in text
    )
    assert "--alpha FLOAT" in text
    fast = re.sub(r"[│\s]+", " ", tracrl("train", "trac", "--preset", "fast", "--help", cwd=tmp_path).stdout)
    assert "(default: 100000)" in text
    assert "(default: 100000)" not in fast


def test_own_file_from_training_to_policy_without_a_simulator(own_file: Path, tmp_path: Path) -> None:
    result = tracrl("train", "trac", "--data", own_file, "--limits", 4, "--alpha", 0.1, *TINY, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (directory,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"my-trac-[0-9a-f]{16}", directory.name)
    assert '"alpha": 0.1' in (directory / "config.json").read_text()
    assert (directory / "policy.safetensors").exists()
    assert "No" not in refused(tracrl("evaluate", directory, cwd=tmp_path))
    repeated = tracrl("train", "trac", "--data", own_file, "--limits", 4, "--alpha", 0.1, *TINY, cwd=tmp_path)
    assert "holds a finished run: go on with --resume" in refused(repeated)


def test_own_data_may_name_a_task_of_their_own(tmp_path: Path) -> None:
    write_hdf5(replace(make_small_data(), metadata={"task": "../My robot"}), tmp_path / "my.hdf5")
    assert "--limits 25" in refused(tracrl("train", "trac", "--data", "my.hdf5", *TINY, cwd=tmp_path))
    result = tracrl("train", "trac", "--data", "my.hdf5", "--limits", 4, *TINY, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (directory,) = (tmp_path / "runs").iterdir()
    assert directory.name.startswith("My-robot-trac-")


def test_nine_runs_of_a_task_in_one_process_then_evaluated(tmp_path: Path) -> None:
    options = ["--limits", 10, 20, 40, "--seeds", 0, 10, 20, "--episodes", 1, "--evaluations", 2, "--out", "run"]
    result = tracrl("train", "trac", "BallRun", *options, *TINY, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "TraC on BallRun: final policy" in result.stdout
    assert re.search(r"│\s+all │\s+3 │", result.stdout)
    for picture in ("scores.png", "curves.png"):
        assert (tmp_path / "run" / picture).stat().st_size > 10_000
    evaluated = tracrl("evaluate", "run", "--episodes", 2, cwd=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    assert "over seeds × 2 episodes" in evaluated.stdout
    reported = tracrl("report", "run", "--out", "report", cwd=tmp_path)
    assert reported.returncode == 0, reported.stderr


def test_trained_without_evaluation_then_evaluated(tmp_path: Path) -> None:
    trained = tracrl("train", "bc-all", "BallRun", "--no-eval", "--updates", 5, "--out", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert not (tmp_path / "run" / "scores.json").exists()
    assert "tracrl evaluate run --save" in trained.stdout
    assert tracrl("evaluate", "run", "--episodes", 1, "--save", cwd=tmp_path).returncode == 0
    assert (tmp_path / "run" / "scores.json").exists()


def test_ctrl_c_saves_and_says_how_to_go_on(own_file: Path, tmp_path: Path) -> None:
    words = [
        "train",
        "trac",
        "--data",
        own_file,
        "--limits",
        4,
        "--updates",
        100_000,
        "--batch-size",
        4,
        "--out",
        "run",
    ]
    command = [sys.executable, "-m", "tracrl.cli", *map(str, words)]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    log = tmp_path / "run" / "metrics.csv"
    while time.monotonic() < deadline and not (log.exists() and log.read_text().count("\n") > 1):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert re.search(r"tracrl: Stopped after \d+ of 100000 updates; all of them are kept in run\..*--resume", errors)
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_inspect_prints_and_draws(own_file: Path, tmp_path: Path) -> None:
    result = tracrl("data", "inspect", own_file, "--limits", 3, 5, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "60 episodes" in result.stdout
    assert (tmp_path / "my-scatter.png").stat().st_size > 10_000


def test_check_says_what_is_in_order(own_file: Path, tmp_path: Path) -> None:
    assert "is in order" in tracrl("data", "check", own_file, cwd=tmp_path).stdout


def test_methods_are_listed(tmp_path: Path) -> None:
    result = tracrl("methods", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "TraC (trac)" in result.stdout
    assert "AAAI 2025" in result.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train trac BalRun", "There is no task called 'BalRun': did you mean BallRun"),
        ("train trak BallRun", "There is no method called 'trak': did you mean trac?"),
        ("train trac", "Say what to train on"),
        ("train trac --data missing.hdf5 --limits 1", "There is no data file at missing.hdf5"),
        ("train trac AntCircle", "No data for AntCircle on this machine"),
        ("train trac BallRun --gamma 2", "--gamma is 2.0; expected a discount above 0 and up to 1"),
        ("train trac BallRun --limits 0.5 1000", "Every episode is safe at cost limit 1000"),
        ("train trac BallRun --limits -5", "--limits must be numbers of 0 or more"),
        ("train trac BallRun --device cuda", "PyTorch sees no CUDA GPU on this machine"),
        ("study main --tasks BallRun --device cuda", "PyTorch sees no CUDA GPU on this machine"),
        ("study main --tasks BallRun --plan --device cuda", "PyTorch sees no CUDA GPU on this machine"),
        ("evaluate nowhere", "There is no policy at nowhere"),
        ("data inspect PointGaol1", "There is no task called 'PointGaol1': did you mean PointGoal1"),
        ("data check BallRun --task CarRun", "BallRun is a task, and its episodes are not of CarRun"),
        ("data inspect BallRun --task CarRun", "BallRun is a task, and its episodes are not of CarRun"),
        (f"train trac CarRun --data {BUNDLED}", "holds episodes of BallRun, not of CarRun: name the task BallRun"),
        ("study main --tasks BallRun --workers 0", "--workers is 0; expected at least 1"),
        ("study main --tasks BallRun AntRun", "tracrl data fetch AntRun"),
        ("data fetch", "Say which tasks to fetch"),
        ("sims install mujoco", "mujoco"),
    ],
)
def test_bad_words_are_one_sentence(tmp_path: Path, words: str, sentence: str) -> None:
    hidden = {"HOME": str(tmp_path), "DSRL_DATASET_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    assert sentence in refused(tracrl(*words.split(), cwd=tmp_path, env={**hidden, "CUDA_VISIBLE_DEVICES": ""}))
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


def test_no_limit_for_own_data_is_said(own_file: Path, tmp_path: Path) -> None:
    assert "for example --limits 25" in refused(tracrl("train", "trac", "--data", own_file, cwd=tmp_path))


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    result = tracrl("train", "trac", "BallRun", "--alpah", "0.1", cwd=tmp_path)
    assert result.returncode == 2
    assert "--alpah" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_broken_file_is_one_sentence(own_file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.hdf5"
    broken.write_bytes(own_file.read_bytes()[:5000])
    assert "broken.hdf5" in refused(tracrl("train", "trac", "--data", broken, "--limits", 4, cwd=tmp_path))
    with h5py.File(broken, "w") as file, h5py.File(own_file) as whole:
        for key in whole:
            file[key] = whole[key][...]
        file["costs"][3] = np.nan
    assert "'costs' has NaN or infinity, first in row 3" in refused(
        tracrl("train", "trac", "--data", broken, "--limits", 4, cwd=tmp_path)
    )


def test_a_simulator_that_is_missing_is_named_before_training(tmp_path: Path) -> None:
    """Python without the simulators' packages: an import hook hides them."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.machinery, importlib.util\n"
        "find = importlib.util.find_spec\n"
        "hidden = ('bullet', 'pybullet')\n"
        "importlib.util.find_spec = lambda name, *a: None if name.startswith(hidden) else find(name, *a)\n"
    )
    result = tracrl("train", "trac", "BallRun", *TINY, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert "tracrl sims install bullet" in refused(result)
    assert not (tmp_path / "runs").exists()
    without = tracrl("train", "trac", "BallRun", "--no-eval", *TINY, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert without.returncode == 0, without.stderr


def test_importing_loads_neither_torch_nor_a_simulator() -> None:
    code = (
        "import sys, tracrl, tracrl.cli, tracrl.envs.make, tracrl.envs.worker, tracrl.evaluation.episode\n"
        "print([m for m in ('torch', 'pybullet', 'mujoco', 'metadrive', 'safety_gymnasium') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
