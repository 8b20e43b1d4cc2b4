"""``tracrl data check`` as it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import make_small_data
from tracrl.cli.data import CheckOptions, data_check
from tracrl.errors import TracrlError


@pytest.fixture
def mine(tmp_path: Path) -> str:
    make_small_data(episodes=400).save(tmp_path / "mine.hdf5")
    return str(tmp_path / "mine.hdf5")


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_in_order(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert data_check(CheckOptions(mine, limits=(4, 6))) == 0
    assert printed(capsys) == f"{mine} is in order (cost limits 4, 6)."


def test_limits_are_proposed(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert data_check(CheckOptions(mine)) == 0
    assert printed(capsys) == f"{mine} is in order (cost limits 2, 5, 7)."


def test_a_limit_that_training_would_refuse(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TracrlError, match=r"mine.hdf5 cannot be trained on at limit 20: see above\."):
        data_check(CheckOptions(mine, limits=(4, 20)))
    assert printed(capsys).startswith("warning: limit 20 would be refused: Every episode is safe at cost limit 20")
