"""Play episodes with actions that depend on nothing but the step; for the tests of all simulators."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tracrl.tasks.make import make_env


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


def play(env: gymnasium.Env, seed: int, steps: int) -> Played:
    observation, _ = env.reset(seed=seed)
    observations, rewards, costs = [observation], [], []
    terminated = truncated = False
    while not (terminated or truncated) and len(rewards) < steps:
        action = action_at(len(rewards), env.action_space.shape[0])
        observation, reward, terminated, truncated, info = env.step(action)
        observations.append(observation)
        rewards.append(reward)
        costs.append(info["cost"])
    return Played(np.array(observations), np.array(rewards), np.array(costs), terminated, truncated)


def digests_elsewhere(tasks: list[str], seed: int, steps: int) -> list[str]:
    """The digest of the episode of each task, played by a fresh process."""
    command = [sys.executable, __file__, str(seed), str(steps), *tasks]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


if __name__ == "__main__":
    for name in sys.argv[3:]:
        made = make_env(name)
        print(play(made, int(sys.argv[1]), int(sys.argv[2])).digest)
        made.close()
