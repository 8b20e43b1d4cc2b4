"""Environments of a few lines for the tests of collecting."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

__version__ = "1.2.3"


class Road(gymnasium.Env[Any, Any]):
    """Twenty steps at a speed between 0 and 4 m/s: speed is reward, and each step above 1 m/s costs 1.

    The wind, which is observed, adds up to half a metre per second.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(0.0, 4.0, (1,), np.float32)
    cost_key = "cost"
    steps = 20

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        speed = float(action[0]) + self.wind
        self.time += 1
        info = {self.cost_key: float(speed > 1), "note": "made up"}
        return self._observe(), speed, False, self.time == self.steps, info

    def _observe(self) -> Any:
        self.wind = float(self.np_random.uniform(-0.5, 0.5))
        return np.array([self.wind, 1000 + self.time, 7.0])  # one number far away, one that never changes


class Cliff(Road):
    """The road ends at the tenth step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.time == 10, truncated, info


class Endless(Road):
    steps = 10**9


class Unpriced(Road):
    cost_key = "price"


class Refunding(Road):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"cost": -1.0}


class Foggy(Road):
    def _observe(self) -> Any:
        observation = super()._observe()
        if self.time == 3:
            observation[1] = np.nan
        return observation


class Switch(Road):
    action_space = gymnasium.spaces.Discrete(2)  # type: ignore[assignment]


class Boundless(Road):
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Pair(Road):
    observation_space = gymnasium.spaces.Dict({"left": Road.observation_space})  # type: ignore[assignment]


class Broken(Road):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        raise ZeroDivisionError("the axle broke")


class Field(gymnasium.Env[Any, Any]):
    """Observations of size 3, as those of the small data; costs where the first action is high."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.normal(size=3), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        cost = float(action[0] > 0)
        return self.np_random.normal(size=3), float(sum(action)), False, self.time == 10, {"cost": cost, "price": 2.0}

    def render(self) -> Any:
        return np.full((60, 80, 3), 20 * self.time, np.uint8)


class Mortal(Field):
    """Its process is killed while there is a file at $MORTAL."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if Path(os.environ["MORTAL"]).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed)


gymnasium.register("TinyRoad-v0", entry_point="tiny_envs:Road", max_episode_steps=12)
