"""A made-up reactor: the plant of docs/own-data.md, its log as a table, and its simulator to check the policy in.

    python examples/reactor.py reactor.csv [--episodes 1000] [--units plain|clutter|si|micro]

The hotter it runs, the more it makes, and too hot is a cost of 1 per minute. Operators hold a temperature of their own
choice, some of them too hot; what they wanted is not in the log. The units are what logs have: none to speak of, one
column more that says nothing in thousands, kelvin and pascal, millionths.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

Units = Literal["plain", "clutter", "si", "micro"]
MINUTES = 200
TOO_HOT = 1.0
COLUMNS = ("obs_temperature", "obs_pressure")


class Reactor(gymnasium.Env[NDArray[np.float64], NDArray[np.float32]]):
    """Temperature and pressure, moved by heating (1) and cooling (-1)."""

    def __init__(self, units: Units = "plain", minutes: int = MINUTES):
        self.units, self.minutes = units, minutes
        size = len(COLUMNS) + (units == "clutter")
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        super().reset(seed=seed)
        self.minute = 0
        self.temperature, self.pressure = self.np_random.normal(-1.0, 0.3, 2)
        return self.seen(), {"cost": 0.0}

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        heating = float(np.clip(action, -1, 1)[0])
        noise = self.np_random.normal(0, 0.05)
        self.temperature += 0.15 * heating - 0.05 * self.temperature + noise
        self.pressure += 0.2 * (self.temperature - self.pressure)
        self.minute += 1
        made = max(0.0, 0.5 + 0.5 * self.temperature)
        cost = float(self.temperature > TOO_HOT)
        return self.seen(), made, False, self.minute >= self.minutes, {"cost": cost}

    def seen(self) -> NDArray[np.float64]:
        """What the instruments show, in their units."""
        plain = np.array([self.temperature, self.pressure])
        if self.units == "clutter":
            return np.append(plain, self.np_random.normal(5_000, 1_000))
        if self.units == "si":  # kelvin and pascal
            return np.array([350.0, 101_325.0]) + np.array([10.0, 2_000.0]) * plain
        return plain * 1e-6 if self.units == "micro" else plain


# One class for each, so that a command line can name it: --env examples/reactor.py is on the path as reactor:SIReactor.
class ClutterReactor(Reactor):
    def __init__(self) -> None:
        super().__init__("clutter")


class SIReactor(Reactor):
    def __init__(self) -> None:
        super().__init__("si")


class MicroReactor(Reactor):
    def __init__(self) -> None:
        super().__init__("micro")


def log(path: Path, episodes: int, units: Units = "plain", minutes: int = MINUTES, seed: int = 0) -> None:
    """Write what operators did as a table with a row per minute."""
    env = Reactor(units, minutes)
    generator = np.random.default_rng(seed)
    size = env.observation_space.shape[0]
    names = [*COLUMNS, "obs_clutter"][:size]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["episode", "step", *names, "act_heating", "reward", "cost"])
        for episode in range(episodes):
            observation, _ = env.reset(seed=int(generator.integers(2**31)))
            wanted, gain = generator.uniform(-1.0, 2.0), generator.uniform(1.0, 3.0)
            over = False
            while not over:
                hold = wanted / 3 + gain * (wanted - env.temperature)
                action = np.clip([hold + generator.normal(0, 0.2)], -1, 1)
                before = observation
                observation, reward, _, over, info = env.step(action)
                numbers = [f"{value:.9g}" for value in (*before, *action, reward, info["cost"])]
                table.writerow([episode, env.minute - 1, *numbers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--units", choices=("plain", "clutter", "si", "micro"), default="plain")
    options = parser.parse_args()
    log(options.out, options.episodes, options.units)


if __name__ == "__main__":
    main()
