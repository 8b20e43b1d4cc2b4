"""A data set made with Minari's own collector is read, and what we write Minari reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tracrl.data.episodes import Episodes
from tracrl.data.sources import import_episodes
from tracrl.errors import TracrlError

minari = pytest.importorskip("minari")


class Slope(gymnasium.Env[Any, Any]):
    """A number that the action moves; costs where it is high."""

    observation_space = gymnasium.spaces.Box(-100, 100, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.normal()), 0
        return np.array([self.x, 0.0]), {"cost": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x += float(action[0])
        self.t += 1
        info = {"cost": float(self.x > 1)}
        return np.array([self.x, self.t]), self.x, self.x > 4, self.t >= 6, info


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.fixture
def collected() -> tuple[Any, list[dict[str, Any]]]:
    """Minari's data set, and what was seen while it was collected."""
    env = minari.DataCollector(Slope(), record_infos=True)
    seen: list[dict[str, Any]] = []
    generator = np.random.default_rng(0)
    for seed in range(4):
        observation, _ = env.reset(seed=seed)
        episode: dict[str, Any] = {"observations": [observation], "actions": [], "rewards": [], "costs": []}
        over = False
        while not over:
            action = generator.uniform(-1, 2, 1).astype(np.float32)
            observation, reward, terminated, truncated, info = env.step(action)
            episode["observations"].append(observation)
            episode["actions"].append(action)
            episode["rewards"].append(reward)
            episode["costs"].append(info["cost"])
            over = terminated or truncated
        seen.append({**episode, "terminated": terminated})
    return env.create_dataset("slope/test-v0"), seen


def test_minaris_collector(collected: tuple[Any, list[dict[str, Any]]]) -> None:
    expected = Episodes.from_episodes(collected[1], action_low=-2, action_high=2)
    assert Episodes.from_minari("slope/test-v0").fingerprint == expected.fingerprint
    assert import_episodes(["minari:slope/test-v0"])[0].fingerprint == expected.fingerprint
    assert expected.total_costs.sum() > 0


def test_a_path(collected: tuple[Any, list[dict[str, Any]]], tmp_path: Path) -> None:
    by_path, _ = import_episodes([tmp_path / "minari" / "slope" / "test-v0"])
    assert by_path.fingerprint == Episodes.from_minari("slope/test-v0").fingerprint


def test_there_and_back(collected: tuple[Any, list[dict[str, Any]]]) -> None:
    episodes = Episodes.from_minari("slope/test-v0")
    episodes.to_minari("slope/again-v0", author="us", author_email="us@example.org", code_permalink="none")
    assert Episodes.from_minari("slope/again-v0").fingerprint == episodes.fingerprint


def test_what_is_missing_is_said(collected: tuple[Any, list[dict[str, Any]]]) -> None:
    with pytest.raises(TracrlError, match="There is no Minari data set 'nobody/none-v0'"):
        Episodes.from_minari("nobody/none-v0")
    with pytest.raises(TracrlError, match=r"no infos\['harm'\] \(found cost\): say which entry"):
        Episodes.from_minari("slope/test-v0", cost_key="harm")
