"""Estimates that stay with a run: which episodes they use, where they are kept, and who believes them later."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tracrl
from tests.conftest import make_small_data
from tests.deploy.made_up import made_up_estimates, untrained_run
from tracrl.cli import main
from tracrl.ope.estimate import Effort
from tracrl.ope.fqe import FQE
from tracrl.ope.model import Dynamics

SHORT = Effort(FQE(updates=2, hidden=(8,)), Dynamics(updates=2, hidden=(8,), starts=5), replicas=1, members=1)
TRAIN = "train bc-all --data own.hdf5 --limits 2 6 --updates 3 --batch-size 8 --hidden 8 --holdout 0.2 --out runs/own"


@pytest.fixture(scope="module")
def the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.filterwarnings("ignore:BC-All")
def test_a_run_is_estimated_from_what_it_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tracrl.ope.estimate.CPU", SHORT)
    make_small_data().save("own.hdf5")
    assert main(TRAIN.split()) == 0
    capsys.readouterr()
    assert main(["estimate", "runs/own", "--device", "cpu", "--save", "--picture", "own.svg"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "These 12 episodes were held out: the policies were not trained on them." in said
    kept = tracrl.Estimates.load("runs/own/estimates.json")
    assert kept.data["episodes"] == 12
    assert kept.policies == tracrl.load_policy("runs/own").fingerprints()
    assert Path("runs/own/estimates.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in Path("own.svg").read_text()
    assert main(["estimate", "runs/own", "--device", "cpu", "--holdout", "0"]) == 0
    assert "trained on these very episodes" in " ".join(capsys.readouterr().out.split())
    assert main(["estimate", "runs/own/policy.safetensors", "--device", "cpu"]) == 0
    assert "These 12 episodes were held out" in " ".join(capsys.readouterr().out.split())
    Path("alone").mkdir()
    shutil.copy("runs/own/policy.safetensors", "alone/policy.safetensors")
    other = make_small_data(seed=1)
    other.save("other.hdf5")
    assert main(["estimate", "runs/own", "alone/policy.safetensors", "--data", "other.hdf5", "--device", "cpu"]) == 0
    assert "Whether the policies were trained on these episodes is not known." in " ".join(
        capsys.readouterr().out.split()
    )
    Path("own.hdf5").unlink()
    assert main(["estimate", "runs/own", "--device", "cpu"]) == 1
    assert "The data of runs/own are not at hand: name the log with --data." in capsys.readouterr().err


def test_a_gate_believes_saved_estimates_of_the_same_policies_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained_run(tmp_path / "run")
    gate = ["gate", str(run), "--saved", "--limit", "2"]
    assert main(gate) == 1
    assert "--save makes them" in capsys.readouterr().err
    estimates = made_up_estimates(tracrl.load_policy(run))
    estimates.save(run / "estimates.json")
    assert main([*gate, "--policy", "0"]) == 0
    assert "Passed for a limit of 2. run, limit 2, seed 0" in capsys.readouterr().out
    assert main(gate) == 3
    replace(estimates, policies=("another", estimates.policies[1])).save(run / "estimates.json")
    assert main(gate) == 1
    assert "not of 1 of its policies as they are now" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("estimate {} --picture own.txt", "--picture is 'own.txt'; expected a file ending in .png, .svg, .pdf."),
        ("estimate {}/policy.safetensors --save", "is no run directory"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_it_is_made(
    words: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained_run(tmp_path / "run")
    assert main(words.format(run).split()) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"costs": [1.0]},
        {"costs": ["much", 2.0]},
        {"costs": [1.0, float("nan")]},
        {"names": ["one"]},
        {"policies": ["one"]},
        {"confidence": 5},
        {"data": {}},
        {"data": {"episodes": "many", "horizon": 12, "fingerprint": "f1"}},
        {"notes": [1]},
        {"opinions": None},
    ],
)
def test_edited_estimates_are_refused_wherever_they_are_read(
    change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], the_run: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(the_run, run)
    made_up_estimates(tracrl.load_policy(run)).save(run / "estimates.json")
    whole = json.loads((run / "estimates.json").read_text())
    (run / "estimates.json").write_text(json.dumps({**whole, **change}))
    for words in (
        f"gate {run} --saved --limit 2",
        f"card {run}",
        f"export {run} --limit 2 --out {tmp_path}/policy.onnx",
    ):
        assert main(words.split()) == 1
        assert "estimates.json holds no estimates of tracrl, or was edited" in capsys.readouterr().err
    assert not (run / "card.md").exists()
    assert not (tmp_path / "policy.onnx").exists()
