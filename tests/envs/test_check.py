from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tracrl.envs import check
from tracrl.envs.check import check_all
from tracrl.tasks.table import all_tasks, get_task


def test_all_38_tasks_run() -> None:
    rows = list(check_all())
    assert {row.task: row.message for row in rows if not row.ok} == {}
    assert [row.task for row in rows] == list(all_tasks())
    sizes = {row.task: (row.observation_size, row.action_size) for row in rows}
    assert sizes["PointGoal1"] == (60, 2)
    assert sizes["easymean"] == (259, 2)


def test_a_missing_simulator_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pybullet" else real(name))
    ball, hopper = check_all(["BallRun", "HopperVelocity"])
    assert not ball.ok
    assert ball.message == "the simulator is not installed: tracrl sims install bullet"
    assert hopper.ok


class Broken:
    """An environment with something wrong about it."""

    def __init__(self, size: int = 7, reward: float = 0.0, error: Exception | None = None) -> None:
        self.size, self.reward, self.error, self.closed = size, reward, error, False

    def reset(self, seed: int) -> Any:
        if self.error:
            raise self.error
        return np.zeros(self.size, np.float32), {}

    def step(self, _: Any) -> Any:
        return np.zeros(self.size, np.float32), self.reward, False, False, {"cost": 0.0}

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Broken(), ""),
        (Broken(size=8), "the observation has the shape (8,), expected (7,)"),
        (Broken(reward=np.nan), "the first step is not finite"),
        (Broken(error=RuntimeError("no luck\nat all")), "RuntimeError: no luck"),
    ],
)
def test_what_is_wrong_is_said(env: Broken, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "make_env", lambda _: env)
    assert check.check(get_task("BallRun")) == message
    assert env.closed


def test_a_process_that_dies_is_blamed_on_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second task takes the process along; the first and the third are still checked."""
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        "shift 2\n"
        'for task in "$@"; do\n'
        '  [ "$task" = BallRun ] && echo "Segmentation fault" >&2 && exit 139\n'
        '  printf "%s\\t\\n" "$task"\n'
        "done\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    rows = list(check_all(["AntRun", "BallRun", "CarRun"]))
    assert [(row.task, row.ok) for row in rows] == [("AntRun", True), ("BallRun", False), ("CarRun", True)]
    assert rows[1].message == "the process ended with status 139: Segmentation fault"
