"""Options of ``tracrl train``: which settings a task gets, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracrl.cli import main
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import write_hdf5
from tracrl.tasks.table import get_task

QUICK = ["--batch-size", "4", "--hidden", "8", "--no-eval", "--device", "cpu", "--out", "run"]


def data_of(task: str) -> Episodes:
    """A few episodes of the task's sizes; cost and return grow together."""
    facts, episodes, steps = get_task(task), 12, 10
    generator = np.random.default_rng(0)
    rows = episodes * steps
    timeouts = np.zeros(rows, bool)
    timeouts[steps - 1 :: steps] = True
    boldness = np.repeat(np.arange(episodes) / episodes, steps)
    made = Episodes.from_arrays(
        {
            "observations": generator.normal(size=(rows, facts.observation_size)),
            "actions": generator.uniform(-1, 1, size=(rows, facts.action_size)),
            "rewards": boldness + 0.1,
            "costs": (boldness > 0.4).astype(float),
            "timeouts": timeouts,
        }
    )
    return replace(made, metadata={"task": task})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for task in ("PointGoal1", "mediummean", "BallRun"):
        write_hdf5(data_of(task), tmp_path / f"{task}.hdf5")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    return " ".join((out + err).split())


def test_the_settings_are_those_of_the_suite_that_the_file_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "trac", "--data", "PointGoal1.hdf5", "--limits", "5", "--updates", "4", *QUICK]
    assert main(words) == 0
    text = said(capsys)
    assert "Settings (SafetyGymnasium's, full): updates 4, clone_updates 1," in text
    assert "ratio 0.75, alpha 0.1," in text
    assert '"ratio": 0.75' in (here / "run" / "config.json").read_text()


def test_phases_follow_updates_and_that_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "trac", "BallRun", "--data", "BallRun.hdf5", "--limits", "5", "--preset", "fast"]
    assert main([*words, "--updates", "10", *QUICK]) == 0
    text = said(capsys)
    assert "note: TraC: --clone-updates 3 and --warmup 0 go along with --updates 10" in text
    assert "updates 10, clone_updates 3," in text


def test_settings_are_judged_by_the_tasks_own_suite(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "trac", "mediummean", "--data", "mediummean.hdf5", "--limits", "5", "--updates", "4"]
    assert main([*words, "--y", "75", *QUICK]) == 0  # its x is 25, not Bullet's 50
    assert "x 25.0, y 75.0" in said(capsys)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rate", "1e-3"], "--rate is called --lr now"),
        (["--clone-rate=1e-3"], "--clone-rate is called --bc-lr now"),
        (["--lr", "-1"], "--lr is -1.0; expected a number from 0 to 1"),
        (["--alpha", "nan"], "--alpha is nan"),
        (["--eta", "1e38"], "--eta is 1e+38"),
        (["--dropout", "0.9999"], "--dropout is 0.9999"),
        (["--hidden", "0"], "--hidden is (0,)"),
        (["--hidden", *["1"] * 100], "expected 1 to 16 values"),
        (["--updates", "1" + "0" * 30], "expected a whole number from 1 to 1 000 000 000"),
        (["--warmup", "-1"], "--warmup is -1"),
        (["--seeds", str(2**63)], "--seeds is 9223372036854775808"),
        (["--limits", "10", "10.0000001"], "differ by less than the six digits"),
        (["--evaluations", "10000000000"], "--evaluations is 10000000000"),
        (["--clone-updates", "5", "--updates", "4"], "--clone-updates is 5; expected 0 to --updates (4)"),
    ],
)
def test_what_is_out_of_range_is_refused_before_anything_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["train", "trac", "BallRun", "--data", "BallRun.hdf5", "--out", "run", *options]) == 1
    assert words in said(capsys)
    assert not (here / "run").exists()
