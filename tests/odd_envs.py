"""Environments that do what no environment should."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


class SlowEnv(gymnasium.Env[Any, Any]):
    """An episode takes a minute."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    seconds, steps = 0.6, 100

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.step_number = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        time.sleep(self.seconds)
        return np.zeros(3, np.float32), 0.0, False, self.step_number == self.steps, {"cost": 0.0}


class DyingEnv(SlowEnv):
    """Ends its process in a step, so many times in all; ``deaths`` is a folder with a file for each."""

    seconds, steps = 0.0, 3

    def __init__(self, deaths: Path, times: int):
        self.deaths, self.times = deaths, times

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        count = len(list(self.deaths.iterdir()))
        if count < self.times:
            (self.deaths / str(count)).touch()
            os._exit(9)
        return super().step(action)
