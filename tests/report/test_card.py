"""The card of a run: what it must say, and what it must not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tracrl
from tests.conftest import make_small_data
from tests.deploy.made_up import made_up_estimates, untrained_run
from tracrl.cli import main
from tracrl.evaluation.scores import EvaluationProtocol, Scores
from tracrl.report.estimate_figures import plot_estimates


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return untrained_run(tmp_path / "run")


def card(run: Path) -> str:
    assert main(["card", str(run)]) == 0
    return (run / "card.md").read_text()


def test_without_estimates_and_scores_nothing_is_shown(run: Path) -> None:
    text = card(run)
    assert "**Not shown to be safe:** the policies were neither estimated nor played." in text
    assert "**Warning:** All 2 policies give the same action" in text
    for part in ("BC-All", "60 episodes", "cost limits: 2, 6", "the fast preset", "updates 3", "hidden [8]"):
        assert part in text, part
    assert tracrl.load_policy(run)[0].metadata.method == "bc-all"
    assert "tracrl.load_policy" in text
    assert "onnxruntime.InferenceSession" in text
    assert text.count("safe") == 1


def test_estimates_come_with_what_they_rest_on(run: Path) -> None:
    estimates = made_up_estimates(tracrl.load_policy(run))
    estimates.save(run / "estimates.json")
    plot_estimates(estimates, run / "estimates.png")
    text = card(run)
    assert "1 of 2 policies is shown to cost at most its limit" in text
    assert "| 2 | 0 | 5.0 (3.4 to 6.6) | 1.0 (0.7 to 1.3) | yes | 1% |" in text
    assert "| 6 | 0 | 7.0 (5.4 to 8.6) | 9.0 (8.5 to 9.5) | **no** | 50% |" in text
    for part in ("90% confidence", "- These are made up.", "- Assumed: ", "fingerprint `f1`", "](estimates.png)"):
        assert part in text, part
    replace(estimates, policies=("another", "one")).save(run / "estimates.json")
    text = card(run)
    assert "Not shown to be safe" in text
    assert "1.0 (0.7" not in text


def test_scores_are_said_to_be_of_their_environment(run: Path) -> None:
    protocol = EvaluationProtocol(env="my_plant:Plant", episodes=3, seed=0)
    costs = np.array([[1.0, 2.0, 3.0], [9.0, 9.0, 12.0]])
    Scores(None, (2.0, 6.0), (0, 0), costs * 10, costs, np.full((2, 3), 7), protocol).save(run / "scores.json")
    text = card(run)
    assert "1 of 2 policies costs at most its limit in the mean of 3 episodes played in my_plant:Plant" in text
    assert "| 2 | 0 | 20.0 | 2.0 |" in text
    assert "| 6 | 0 | 100.0 | 10.0 **above** |" in text


def test_what_is_no_run_has_no_card(tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, says in ((run / "policy.safetensors", "no run directory"), (tmp_path / "none", "no run directory")):
        assert main(["card", str(path)]) == 1
        assert says in capsys.readouterr().err
    (run / "policy.safetensors").unlink()
    assert main(["card", str(run)]) == 1
    assert "There is no policy" in capsys.readouterr().err
    assert not (run / "card.md").exists()
    assert main(["card", str(run), "--out", "card.pdf"]) == 1
    assert "ends in .md" in capsys.readouterr().err


def test_a_policy_for_every_limit_says_how_it_is_told(tmp_path: Path) -> None:
    method = tracrl.TraCAny(updates=12, clone_updates=4, batch_size=8, hidden=(8,), warmup=2)
    tracrl.fit(method, make_small_data(), limits=[2, 6], out=tmp_path / "run")
    text = card(tmp_path / "run")
    assert "`tracrl export run --out policy.onnx`" in text
    assert '{"observation": observations, "cost_limit": cost_limit}' in text
    assert "cost_limit (batch, 1): what an episode may cost" in text
