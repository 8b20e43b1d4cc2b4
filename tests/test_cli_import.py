"""``tracrl data import`` as a process: a table in, a file out that trains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.data.made_up import steps_of

pd = pytest.importorskip("pandas")


def tracrl(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracrl", *words], cwd=cwd, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Forty episodes in kelvin and per cent, some of them costly, as plants log them: names for runs, times as text, a
    sensor that never changes, columns with text and holes that nobody needs."""
    lengths = (12,) * 40
    frame = pd.DataFrame(steps_of(lengths, terminated=(False,) * 40))
    bold = np.repeat(np.linspace(0, 1, 40), 12)
    frame = frame.assign(obs_1=300 + 20 * frame["obs_1"], act_0=100 * bold, reward=bold, cost=(bold > 0.6) * 1.0)
    times = pd.to_datetime("2026-03-01") + pd.to_timedelta(15 * frame["step"], unit="min")
    frame = frame.assign(
        episode=frame["episode"].map("batch {}".format),
        step=times.dt.strftime("%Y-%m-%d %H:%M:%S"),
        site=7,
        operator="anna",
        ambient=np.where(frame["step"] % 5, frame["obs_0"], np.nan),
    )
    frame.rename(columns={"obs_1": "temperature", "obs_0": "level", "act_0": "valve"}).to_csv(
        tmp_path / "plant.csv", index=False
    )
    return tmp_path / "plant.csv"


def test_from_a_csv_to_a_policy(table: Path, tmp_path: Path) -> None:
    columns = ("--observations", "level", "temperature", "site", "--actions", "valve")
    done = tracrl("data", "import", "plant.csv", *columns, "--out", "plant.hdf5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "observations      level, temperature, site" in done.stdout
    assert "40 episodes, 480 steps" in done.stdout
    assert "the action box is the range of the logged actions" in done.stderr
    again = tracrl("data", "import", "plant.csv", *columns, "--out", "plant.hdf5", cwd=tmp_path)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    checked = tracrl("data", "check", "plant.hdf5", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    said = " ".join(checked.stdout.split())
    assert "column 2 (site) is 7. Nothing can be learnt from it" in said
    assert "on very different scales: column 1 (temperature) is of size" in said
    assert "plant.hdf5 is in order, with what is said above (cost limit 10)." in said
    holes = tracrl(
        "data", "import", "plant.csv", "--observations", "ambient", *columns[4:], "--out", "x.h5", cwd=tmp_path
    )
    assert holes.returncode == 1
    assert "'ambient' is empty in 120 of the first 480 rows, first in row 0: leave the column out" in holes.stderr
    small = ("--updates", "20", "--clone-updates", "10", "--warmup", "2", "--batch-size", "4", "--hidden", "8")
    trained = tracrl("train", "trac", "--data", "plant.hdf5", "--limits", "5", *small, "--out", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "run" / "policy.safetensors").exists()


def test_a_table_that_cannot_be_guessed(table: Path, tmp_path: Path) -> None:
    failed = tracrl("data", "import", "plant.csv", "--out", "plant.hdf5", cwd=tmp_path)
    assert failed.returncode == 1
    assert "no column is called observations or like it: say which with --observations" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "plant.hdf5").exists()
