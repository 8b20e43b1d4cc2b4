"""A simulator process: plays whole episodes with a NumPy policy and sends back what they scored."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from tracrl.envs.make import make_env

if TYPE_CHECKING:
    from tracrl.envs.adapter import SafeEnv
    from tracrl.policies.base import Policy

Outcome = tuple[float, float, int]
"""return, cost, steps"""


def play(env: SafeEnv, policy: Policy, seed: int) -> Outcome:
    """One episode."""
    policy.reset(seed)
    observation, _ = env.reset(seed=seed)
    total_reward, total_cost, steps, over = 0.0, 0.0, 0, False
    while not over:
        observation, reward, terminated, truncated, info = env.step(policy.act(observation))
        cost = float(info["cost"])
        policy.observe(float(reward), cost)
        total_reward += float(reward)
        total_cost += cost
        steps += 1
        over = terminated or truncated
    return total_reward, total_cost, steps


def serve(connection: Connection, task: str) -> None:
    """Play what is asked for until the other side hangs up."""
    env = make_env(task)
    try:
        while True:
            policy, seeds = connection.recv()
            connection.send([play(env, policy, seed) for seed in _as_integers(seeds)])
    except (EOFError, ConnectionError):
        pass
    finally:
        env.close()


def _as_integers(seeds: Iterable[int]) -> list[int]:
    return [int(seed) for seed in seeds]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    serve(Connection(int(sys.argv[1])), sys.argv[2])
