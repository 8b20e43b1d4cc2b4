"""A small world with a known best safe policy, made up for the tests.

A road leads through country and town in turn. The action is the speed, from −1 (standing) to 1. A step's reward is
speed + 1; in town, a speed above 0.2 costs 1. Twenty steps make an episode, ten of them in town. At a limit below one
the best safe policy drives at 1 in the country and at 0.2 in town: a return of 32.

The log has two kinds of drivers, who differ in town alone: the cautious (about 0) and, more often, the bold (about
0.8). The mean of both is too fast.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracrl.data.episodes import Episodes
from tracrl.policies.base import Policy

STEPS = 20
TOWN_SPEED = 0.2
BEST_SAFE_RETURN = 32.0
COUNTRY, TOWN = np.eye(2, dtype=np.float32)


def drive(speed: float, town: bool) -> tuple[float, float]:
    """Reward and cost of one step."""
    return speed + 1, float(town and speed > TOWN_SPEED)


def log_of_drivers(episodes: int = 60, bold_share: float = 0.6, seed: int = 0) -> Episodes:
    generator = np.random.default_rng(seed)
    rows = episodes * STEPS
    bold = np.repeat(np.arange(episodes) < bold_share * episodes, STEPS)
    town = (np.arange(rows) % STEPS + np.repeat(np.arange(episodes) % 2, STEPS)) % 2 == 1
    speed = np.where(town, np.where(bold, 0.8, 0.0), 0.7) + np.where(town, 0.1, 0.2) * generator.normal(size=rows)
    speed = np.clip(speed, -1, 1)
    rewards, costs = np.array([drive(a, t) for a, t in zip(speed, town, strict=True)]).T
    timeouts = np.zeros(rows, bool)
    timeouts[STEPS - 1 :: STEPS] = True
    following = np.where(town, 0, 1)  # country follows town, and town country
    return Episodes.from_arrays(
        {
            "observations": np.eye(2)[town.astype(int)],
            "actions": speed[:, None],
            "rewards": rewards,
            "costs": costs,
            "timeouts": timeouts,
            "final_observations": np.eye(2)[following[STEPS - 1 :: STEPS]],
        }
    )


def play(policy: Policy, episodes: int = 6) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return and cost of each policy of a stack, averaged over episodes, each playing its own."""
    totals = np.zeros((len(policy), episodes, 2))
    for run in range(len(policy)):
        driver = policy[run]
        for episode in range(episodes):
            driver.reset(episode)
            town = bool(episode % 2)
            for _ in range(STEPS):
                reward, cost = drive(float(driver.act(TOWN if town else COUNTRY)[0]), town)
                driver.observe(reward, cost)
                totals[run, episode] += reward, cost
                town = not town
    return totals[..., 0].mean(1), totals[..., 1].mean(1)
