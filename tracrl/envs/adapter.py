"""What the three simulators have in common once they are adapted: the contract of an environment."""

from __future__ import annotations

import abc
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tracrl.errors import TracrlError
from tracrl.tasks.table import Task

Observation = NDArray[np.float32]
Action = NDArray[np.float32]


class SafeEnv(gymnasium.Env[Observation, Action], abc.ABC):
    """A task as a plain Gymnasium environment whose ``info["cost"]`` is the cost of the step.

    ``reset(seed=s)`` determines the whole episode: the same seed and actions give the same episode bit for
    bit, whatever was run before in this object or process.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise TracrlError(f'{task.name}: render_mode is {render_mode!r}, expected None or "rgb_array".')
        self.task = task
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (task.observation_size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (task.action_size,), np.float32)
        self._steps: int | None = None  # None outside an episode
        self._begun = False
        self._closed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode. Without a seed, the next one follows from the last seed that was given."""
        if self._closed:
            raise TracrlError(f"{self.task.name}: the environment is closed; make a new one.")
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**32))
        # The simulators' own generators take 32 bits.
        observation = self._begin(seed % 2**32)
        self._steps, self._begun = 0, True
        return np.asarray(observation, dtype=np.float32), {"cost": 0.0}

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Act once. Actions outside [-1, 1] are clipped."""
        if self._steps is None:
            raise TracrlError(f"{self.task.name}: call reset before step.")
        command = np.asarray(action, dtype=np.float64)
        if command.shape != self.action_space.shape or not np.isfinite(command).all():
            expected = f"{self.task.action_size} finite numbers"
            raise TracrlError(f"{self.task.name}: the action must be {expected}, found {action!r}.")
        observation, reward, cost, terminated = self._advance(np.minimum(np.maximum(command, -1.0), 1.0))
        self._steps += 1
        truncated = self._steps >= self.task.max_steps
        if terminated or truncated:
            self._steps = None
        return (
            np.asarray(observation, dtype=np.float32),
            float(reward),
            terminated,
            truncated,
            {"cost": float(cost)},
        )

    def render(self) -> NDArray[np.uint8] | None:
        """The picture of the present state, height × width × 3; None without a render mode."""
        if self.render_mode is None:
            return None
        if not self._begun or self._closed:
            raise TracrlError(f"{self.task.name}: call reset before render.")
        return self._picture()

    def close(self) -> None:
        """Free the simulator; may be repeated."""
        if not self._closed:
            self._closed = True
            self._steps = None
            self._shut()

    @abc.abstractmethod
    def _begin(self, seed: int) -> NDArray[Any]:
        """Put the simulator into the first state of the episode of ``seed``; return the observation."""

    @abc.abstractmethod
    def _advance(self, action: NDArray[np.float64]) -> tuple[NDArray[Any], float, float, bool]:
        """Apply an action within [-1, 1]; return observation, reward, cost, whether it ended the episode."""

    @abc.abstractmethod
    def _picture(self) -> NDArray[np.uint8]: ...

    @abc.abstractmethod
    def _shut(self) -> None: ...
