from __future__ import annotations

from pathlib import Path

import pytest

from tests.study.made_up import write_ball_data

MARKERS = {"browser": "needs Chromium: make test-browser", "ray": "needs Ray and minutes: make test-ray"}


def pytest_configure(config: pytest.Config) -> None:
    for name, about in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {about}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need more than the package are run where they are asked for: pytest -m browser, pytest -m ray."""
    left_out = [name for name in MARKERS if name not in (config.option.markexpr or "")]
    away = [item for item in items if any(item.get_closest_marker(name) for name in left_out)]
    if away:
        config.hook.pytest_deselected(items=away)
        items[:] = [item for item in items if item not in away]


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
