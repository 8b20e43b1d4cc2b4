"""Held-out episodes: recorded by a run, found again, and never mistaken for those that trained it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tracrl
from tests.conftest import make_small_data
from tracrl.cli import main
from tracrl.data.holdout import Holdout, split
from tracrl.train.directory import RunDirectory
from tracrl.train.its_data import find_data, held_out, trained_on

TRAIN = "train bc-all --data own.hdf5 --limits 4 --updates 3 --batch-size 8 --hidden 8"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_small_data().save("own.hdf5")
    return tmp_path


@pytest.mark.filterwarnings("ignore:BC-All")
def test_a_run_knows_what_was_held_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN.split(), "--holdout", "0.2", "--out", "runs/parted"]) == 0
    assert "12 of 60 episodes are held out of the training." in capsys.readouterr().out
    assert main([*TRAIN.split(), "--out", "runs/whole"]) == 0
    parted, whole = (RunDirectory(Path("runs") / name) for name in ("parted", "whole"))
    config, other = parted.read_config(), whole.read_config()
    assert config["data"]["episodes"] == 48
    assert config["identity"] != other["identity"]
    assert "holdout" not in other
    data = find_data(parted.path, config)
    assert data is not None
    assert len(data) == 60
    held = held_out(data, [config])
    assert held is not None
    rest, expected = split(tracrl.load_dataset("own.hdf5"), 0.2)
    assert held.fingerprint == expected.fingerprint
    assert rest.fingerprint == config["data"]["fingerprint"]
    assert not set(np.round(held.returns, 4)) & set(np.round(rest.returns, 4))
    assert held_out(data, [config, other]) is None, "the other run was trained on them"
    assert held_out(rest, [config]) is None
    assert trained_on(config) == [rest.fingerprint, data.fingerprint]
    Path("own.hdf5").unlink()
    assert find_data(parted.path, config) is None


@pytest.mark.filterwarnings("ignore:BC-All")
def test_estimates_use_what_was_held_out_and_say_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Short of the estimating itself, which takes long: which episodes it is given."""
    from tracrl.ope.estimate import _episodes

    assert main([*TRAIN.split(), "--holdout", "0.2", "--out", "run"]) == 0
    config = json.loads(Path("run/config.json").read_text())
    data = tracrl.load_dataset("own.hdf5")
    held = held_out(data, [config])
    assert held is not None
    assert "were held out" in _episodes(held, 0.0, 0, [config["data"]["fingerprint"]])[1]
    assert "these very episodes" in _episodes(data, 0.0, 0, trained_on(config))[1]
    # A part that only says it was held out is not believed.
    lying = replace(data.select(range(10)), metadata=held.metadata)
    assert "were held out" not in _episodes(lying, 0.0, 0, [config["data"]["fingerprint"]])[1]


def test_parts_keep_what_they_are_through_a_file(here: Path) -> None:
    rest, held = split(make_small_data(), 0.5, seed=3)
    held.save("held.hdf5")
    found = Holdout.of(tracrl.load_dataset("held.hdf5").metadata)
    assert found == Holdout.of(rest.metadata)
    assert found is not None
    assert found.held_out == held.fingerprint
    for nonsense in ({}, {"holdout": "0.1"}, {"holdout": {"share": "much"}}, {"holdout": None}):
        assert Holdout.of(nonsense) is None


@pytest.mark.parametrize("share", ["0", "1", "-0.1", "nan", "0.001"])
def test_shares_that_are_none_are_refused(share: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN.split(), "--holdout", share, "--out", "run"]) == 1
    assert "--holdout" in capsys.readouterr().err
    assert not Path("run").exists()
