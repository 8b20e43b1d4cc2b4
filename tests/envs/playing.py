"""Play episodes with actions that depend on nothing but the step; for the tests of all simulators."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tracrl.envs.make import make_env


@dataclass(frozen=True)
class Played:
    """One episode, as far as it was played."""

    observations: NDArray[np.float32]
    rewards: NDArray[np.float64]
    costs: NDArray[np.float64]
    terminated: bool
    truncated: bool

    @property
    def digest(self) -> str:
        """The same for two episodes only if they are equal bit for bit."""
        whole = hashlib.sha256()
        end = np.array([self.terminated, self.truncated])
        for part in (self.observations, self.rewards, self.costs, end):
            whole.update(np.ascontiguousarray(part).tobytes())
        return whole.hexdigest()


def action_at(step: int, size: int) -> NDArray[np.float32]:
    """Smooth, different for each coordinate, and rounded so that every machine computes the same number."""
    return np.round(np.sin(0.3 * step + 1.7 * np.arange(size) + 1.0), 3).astype(np.float32)


def drive(observation: NDArray[np.float32], step: int) -> NDArray[np.float32]:
    """Keep to the lane of a MetaDrive road, now faster, now slower; most episodes end far down the road."""
    heading, offset = float(observation[2]) - 0.5, float(observation[8]) - 0.5
    steering = np.clip(8 * heading + 4 * offset, -1, 1)
    return np.round([steering, 0.35 + 0.3 * np.sin(0.1 * step)], 3).astype(np.float32)


def play(env: gymnasium.Env, seed: int, steps: int) -> Played:
    observation, _ = env.reset(seed=seed)
    driving = env.unwrapped.task.suite == "MetaDrive"
    observations, rewards, costs = [observation], [], []
    terminated = truncated = False
    while not (terminated or truncated) and len(rewards) < steps:
        step = len(rewards)
        action = drive(observation, step) if driving else action_at(step, env.action_space.shape[0])
        observation, reward, terminated, truncated, info = env.step(action)
        observations.append(observation)
        rewards.append(reward)
        costs.append(info["cost"])
    return Played(np.array(observations), np.array(rewards), np.array(costs), terminated, truncated)


def digests_elsewhere(tasks: list[str], seed: int, steps: int) -> list[str]:
    """The digest of the episode of each task, played by a fresh process."""
    command = [sys.executable, "-m", "tests.envs.playing", str(seed), str(steps), *tasks]
    root = Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split()


if __name__ == "__main__":
    for name in sys.argv[3:]:
        made = make_env(name)
        print(play(made, int(sys.argv[1]), int(sys.argv[2])).digest)
        made.close()
