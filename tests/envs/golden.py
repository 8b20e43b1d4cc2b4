"""Golden trajectories: a few numbers of one episode a task, recorded once and compared ever after.

``python -m tests.envs.golden TASK...`` records them anew, after a change of the dynamics that is meant.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.envs.playing import Played, play
from tracrl.envs.make import make_env
from tracrl.tasks.table import get_task

FILE = Path(__file__).with_name("golden.json")
SEED = 7


def steps_of(task: str) -> int:
    """On a road the traffic is met only after a while."""
    return 120 if get_task(task).suite == "MetaDrive" else 40


def numbers(played: Played) -> dict[str, float | list[float]]:
    """Few numbers that a change anywhere in the observation, the reward or the cost would move."""
    return {
        "steps": len(played.rewards),
        "return": float(played.rewards.sum()),
        "cost": float(played.costs.sum()),
        "rewards": [float(reward) for reward in played.rewards[::8]],
        "first": [float(value) for value in played.observations[0][:6]],
        "last": [float(value) for value in played.observations[-1][:6]],
        # Weighted, so that exchanged coordinates show.
        "all": [float(np.dot(row, np.arange(1, len(row) + 1))) for row in played.observations[::8].astype(float)],
    }


def check_golden(task: str) -> None:
    expected = json.loads(FILE.read_text())[task]
    env = make_env(task)
    found = numbers(play(env, SEED, steps_of(task)))
    env.close()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        # Exact on one machine; another one's C library may differ in a last bit, which the steps enlarge.
        assert found[key] == pytest.approx(value, rel=1e-4, abs=1e-4), key


if __name__ == "__main__":
    golden = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in sys.argv[1:]:
        made = make_env(name)
        golden[name] = numbers(play(made, SEED, steps_of(name)))
        made.close()
    FILE.write_text(json.dumps(dict(sorted(golden.items())), indent=1) + "\n")
