"""The behaviour for MetaDrive: its own driver model, which keeps its lane, its distance and a wanted speed.

There the cost is mostly speed above 10 km/h, so the wanted speed is the trade-off between reward and cost, and nothing
has to be learned. Poorer episodes come from drivers who keep less distance, or none at all, and from noise.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracrl.collect.behaviour import Decide, Floats
from tracrl.envs.environment import Environment


@dataclass(frozen=True)
class Driver:
    """A style of driving; what does not matter to a style is the driver model's own default."""

    name: str
    gap: float = 10.0
    """metres to the car ahead that the driver wants when standing"""
    headway: float = 1.5
    """and seconds more when driving"""
    sees_others: bool = True
    highest_speed: float = 70.0
    """km/h, wanted without any penalty"""
    lowest_speed: float = 7.0
    """with the highest"""
    highest_penalty: float = 0.9
    deviation: tuple[float, float] = (0.08, 0.3)
    """of the noise on steering and on throttle and brake"""

    def speed(self, penalty: float) -> float:
        """The wanted speed in km/h. Most penalties mean low speeds, where most of the cost limits are decided."""
        share = 1 - penalty / self.highest_penalty
        return self.lowest_speed + (self.highest_speed - self.lowest_speed) * max(share, 0.0) ** 2.5

    def begin(self, env: Environment, seed: int) -> Callable[[float], tuple[Decide, Floats]]:
        model = importlib.import_module("metadrive.policy.idm_policy").IDMPolicy
        driver = model(env.env.unwrapped.vehicle, seed % 2**32)  # type: ignore[attr-defined]
        driver.DISTANCE_WANTED, driver.TIME_WANTED = self.gap, self.headway
        driver.disable_idm_deceleration = not self.sees_others
        deviation = np.array(self.deviation, np.float32)

        def at(penalty: float) -> tuple[Decide, Floats]:
            # Both: the model goes back to its normal speed after each change of lane.
            driver.NORMAL_SPEED = driver.target_speed = self.speed(penalty)
            return lambda _: np.clip(driver.act(), -1, 1).astype(np.float32), deviation

        return at


# From poor to good, as snapshots of a training are.
DRIVERS = (
    Driver("blind", sees_others=False),
    Driver("drunk", gap=5.0, headway=0.8, deviation=(0.4, 0.8)),
    Driver("pushing", gap=2.0, headway=0.2),
    Driver("hasty", gap=5.0, headway=0.8),
    Driver("careful"),
    Driver("steady", deviation=(0.02, 0.05)),
)
