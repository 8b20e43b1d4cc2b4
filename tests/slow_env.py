"""An environment in which an episode takes a minute."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np


class SlowEnv(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.step_number = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        time.sleep(0.6)
        return np.zeros(2, np.float32), 0.0, False, self.step_number == 100, {"cost": 0.0}
