"""``tracrl evaluate``: a look changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import make_small_data
from tracrl.cli import main
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import write_hdf5
from tracrl.evaluation.evaluate import Evaluator
from tracrl.evaluation.scores import Scores
from tracrl.methods.bc import BCAll
from tracrl.train.fit import fit


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was evaluated in an environment of one's own."""
    evaluator = Evaluator("tiny_envs:Field", episodes=2, workers=1)
    method = BCAll(updates=4, hidden=(8,))
    fit(method, make_small_data(), limits=[3, 6], out=tmp_path / "run", evaluator=evaluator, evaluations=1)
    return tmp_path / "run"


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_look_changes_nothing_and_save_replaces(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(run)
    assert main(["evaluate", str(run), "--episodes", "1", "--seed", "7", "--workers", "1"]) == 0
    assert "episodes of seed 7" in " ".join(capsys.readouterr().out.split())
    assert contents(run) == before
    assert main(["evaluate", str(run), "--episodes", "1", "--seed", "7", "--workers", "1", "--save"]) == 0
    protocol = Scores.load(run / "scores.json").protocol
    assert protocol is not None
    assert (protocol.episodes, protocol.seed, protocol.env) == (1, 7, "tiny_envs:Field")
    best = Scores.load(run / "best_scores.json").protocol
    assert best == protocol


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--env", "tiny_envs:Mortal"], "is a run on tiny_envs:Field, and these would be scores in tiny_envs:Mortal"),
        (["--task", "BallRun"], "is a run on tiny_envs:Field, and these would be scores in BallRun"),
        (["--limit", "3"], "leave out --limit"),
        (["--limit", "4"], "--limit is 4, but .* was trained for 3 6"),
        (["--task", "BallRun", "--env", "tiny_envs:Field"], "give one of them"),
    ],
)
def test_what_does_not_belong_to_the_run_is_not_saved(
    run: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run)
    assert main(["evaluate", str(run), "--save", *options]) == 1
    assert __import__("re").search(words, " ".join(capsys.readouterr().err.split()))
    assert contents(run) == before


def test_a_video_of_the_policy_of_a_limit(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film = tmp_path / "film.gif"
    assert main(["evaluate", str(run), "--video", str(film), "--limit", "6", "--seed", "3"]) == 0
    assert "limit 6, seed 0: 10 steps" in " ".join(capsys.readouterr().out.split())
    with Image.open(film) as pictures:
        assert pictures.n_frames == 11


def test_training_on_ones_own_data_is_evaluated_in_ones_own_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_hdf5(make_small_data(), tmp_path / "own.hdf5")
    out = tmp_path / "run"
    words = f"train bc-all --data {tmp_path / 'own.hdf5'} --limits 4 --updates 4 --hidden 8 --out {out} --episodes 2"
    assert main([*words.split(), "--env", "tiny_envs:Field", "--cost-key", "price", "--evaluations", "2"]) == 0
    assert "norm. reward" not in capsys.readouterr().out
    assert Scores.load(out / "scores.json").costs.tolist() == [[20.0, 20.0]]
    assert (out / "scores.png").exists()
    assert (out / "curves.png").exists()
    assert main(["evaluate", str(out), "--episodes", "2"]) == 0, "the run knows its environment and the cost's key"
    assert "20.0 ± 0.0" in capsys.readouterr().out


def test_a_plant_that_is_none_of_the_38_tasks_by_its_name(tmp_path: Path) -> None:
    """As in docs/own-data.md: the simulator is a class in a file of the current folder."""
    generator = np.random.default_rng(0)
    ends = np.arange(200) % 20 == 19
    arrays = {
        "observations": generator.normal(size=(200, 2)),
        "actions": generator.uniform(-1, 1, size=(200, 1)),
        "rewards": np.ones(200),
        "costs": np.zeros(200),
        "timeouts": ends,
    }
    data = Episodes.from_arrays(arrays, action_low=[-1], action_high=[1])
    with pytest.warns(UserWarning, match="no nearer to the log"):
        fit(BCAll(updates=4, hidden=(8,)), data, limits=[3], out=tmp_path / "run")
    words = f"evaluate {tmp_path / 'run'} --env reactor:Reactor --episodes 2 --workers 1 --max-steps 30 --save"
    result = subprocess.run(
        [sys.executable, "-m", "tracrl.cli", *words.split()],
        cwd=Path(__file__).parents[2] / "examples", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "in reactor:Reactor;" in " ".join(result.stdout.split())
    scores = Scores.load(tmp_path / "run" / "scores.json")
    assert scores.protocol is not None
    assert (scores.task, scores.protocol.env, scores.protocol.max_steps) == (None, "reactor:Reactor", 30)
    assert scores.lengths.tolist() == [[30, 30]]
