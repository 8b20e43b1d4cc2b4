from __future__ import annotations

from pathlib import Path

import pytest

from tests.study.made_up import write_ball_data
from tracrl.train.devices import rounds_by_itself


@pytest.fixture(autouse=True)
def no_data_but_the_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever data sets lie on this machine, the tests see none of them."""
    directory = tmp_path / "datasets"
    directory.mkdir()
    monkeypatch.setenv("DSRL_DATASET_DIR", str(directory))
    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def ball_data(tmp_path: Path) -> Path:
    """A small data set that is found as BallRun's, by us and by the processes that we start."""
    return write_ball_data(tmp_path / "datasets")


@pytest.fixture(autouse=True)
def products_as_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of their own train the stacks and know of no fixture; plans must agree with them."""
    monkeypatch.setattr("tracrl.train.devices.rounds_by_itself", rounds_by_itself)
