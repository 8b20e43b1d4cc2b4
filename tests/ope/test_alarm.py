"""Whether a policy that does what nobody did is noticed: in logged states, and along its own episodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tracrl.cli import main
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.ope.alarm import OutOfData, out_of_data
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.mlp import MLPPolicy

PLANT = """
import numpy as np, gymnasium

class Plant(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(0.0, 10.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.x = 0, 100 + self.np_random.normal(0, 2)
        return np.array([self.x]), {"cost": 0.0}

    def step(self, action):
        self.x += float(action[0]) - 5
        self.steps += 1
        return np.array([self.x]), 1.0, False, self.steps >= 20, {"cost": 0.0}
"""


def log() -> Episodes:
    """Everybody keeps x at 100, by actions around 5."""
    generator = np.random.default_rng(0)
    x = 100 + generator.normal(0, 2, size=(40, 1))
    actions = np.clip(5 - 0.5 * (x + np.zeros(20) - 100) + generator.normal(0, 0.5, (40, 20)), 0, 10)
    for t in range(19):
        x = np.concatenate([x, x[:, -1:] + actions[:, t : t + 1] - 5], axis=1)
        actions[:, t + 1] = np.clip(5 - 0.5 * (x[:, t + 1] - 100) + generator.normal(0, 0.5, 40), 0, 10)
    timeouts = np.tile(np.arange(20) == 19, 40)
    flat = {"observations": x.reshape(-1, 1), "actions": actions.reshape(-1, 1), "rewards": np.ones(800)}
    return Episodes.from_arrays(
        {**flat, "costs": np.arange(800) % 7 == 0, "timeouts": timeouts}, action_low=0.0, action_high=10.0
    )


def policies() -> MLPPolicy:
    """The first does as the log does, the second pushes up without end."""
    metadata = PolicyMetadata("bc-all", (1.0, 1.0), (0, 1), (0.0,), (10.0,), None, (100.0,), (1.0,))
    weights = np.array([-0.1, 0.0], np.float32)[:, None, None]
    return MLPPolicy(metadata, {"weight0": weights, "bias0": np.array([0.0, 3.0], np.float32)[:, None, None]})


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("out_of_data_plant.py").write_text(PLANT)
    log().save("log.hdf5")
    policies().save("policy.safetensors")
    return tmp_path


def test_logged_states_and_steps() -> None:
    usual, strange = out_of_data(policies(), log()).logged
    assert usual < 0.05
    assert strange > 0.9
    away = np.stack([np.full(30, 300.0), np.full(30, 5.0)], axis=1)
    near = np.stack([np.full(30, 100.0), np.full(30, 5.0)], axis=1)
    found = out_of_data(policies(), log(), [near, away])
    assert found.played == (0.0, 1.0)
    with pytest.raises(TracrlError, match="different problems"):
        out_of_data(policies(), Episodes.from_arrays({
            "observations": np.zeros((4, 2)), "actions": np.zeros((4, 1)), "rewards": np.zeros(4),
            "costs": np.zeros(4), "timeouts": np.ones(4),
        }))  # fmt: skip


def test_the_command_looks_where_policies_go(plant: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play = "evaluate policy.safetensors --env out_of_data_plant:Plant --episodes 2 --workers 1"
    assert main([*play.split(), "--ood", "--data", "log.hdf5"]) == 0
    said = capsys.readouterr().out
    rows = [line.replace("│", " ").split() for line in said[said.index("Out of the data") :].splitlines()]
    shares = {row[1]: row[2:] for row in rows if row[:1] == ["1"]}
    assert int(shares["0"][1].rstrip("%")) < 10
    assert int(shares["1"][1].rstrip("%")) > 90
    assert main([*play.split(), "--ood"]) == 1
    assert "name the log with --data" in capsys.readouterr().err
    assert main([*play.split(), "--data", "log.hdf5"]) == 1
    assert "add --ood" in capsys.readouterr().err


def test_what_is_kept_is_read_again_or_refused(tmp_path: Path) -> None:
    found, path = out_of_data(policies(), log()), tmp_path / "out_of_data.json"
    found.save(path)
    assert OutOfData.load(path) == found
    for change in ({"logged": [0.1]}, {"policies": None}, {"more": 1}, {"played": ["much", "more"]}):
        path.write_text(json.dumps({**json.loads(json.dumps(found.__dict__)), **change}))
        with pytest.raises(TracrlError, match="was not written by tracrl, or was edited"):
            OutOfData.load(path)
