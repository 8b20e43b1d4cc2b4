"""From a table to a gated, exported policy, as docs/deploy.md has it, with a small plant."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tracrl
from tracrl.cli import main
from tracrl.ope.estimate import Effort
from tracrl.ope.fqe import FQE
from tracrl.ope.model import Dynamics

REACTOR = Path(__file__).parents[2] / "examples" / "reactor.py"
SHORT = Effort(
    FQE(updates=20, hidden=(8,)), Dynamics(updates=50, hidden=(16,), batch_size=64, starts=5), replicas=1, members=1
)


def reactor() -> Any:
    spec = importlib.util.spec_from_file_location("reactor_of_the_whole_way", REACTOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
def test_from_a_table_to_an_exported_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tracrl.ope.estimate.CPU", SHORT)
    reactor().log(Path("reactor.csv"), episodes=30, units="si", minutes=20)
    train = "train bc-safe --data reactor.hdf5 --limits 10 --updates 100 --batch-size 64 --hidden 16 --holdout 0.2"
    for words, status in (
        ("data import reactor.csv --out reactor.hdf5", 0),
        (f"{train} --out runs/reactor", 0),
        ("estimate runs/reactor --device cpu --save", 0),
        ("gate runs/reactor --saved --limit 1000", 0),
        ("gate runs/reactor --saved --limit 0", 3),
        ("export runs/reactor --out policy.onnx", 0),
        ("card runs/reactor", 0),
    ):
        assert main(words.split()) == status, words
    said = " ".join(capsys.readouterr().out.split())
    assert "These 6 episodes were held out" in said
    assert "Passed for a limit of 1000." in said
    assert "Not shown for a limit of 0." in said
    assert "](estimates.png)" in Path("runs/reactor/card.md").read_text()
    states = tracrl.load_dataset("reactor.hdf5").observations
    session = onnxruntime.InferenceSession("policy.onnx")
    (actions,) = session.run(["action"], {"observation": states})
    np.testing.assert_allclose(actions, tracrl.load_policy("runs/reactor")[0].act(states), atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["limit"] == "10.0"
