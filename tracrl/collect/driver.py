"""The behaviour for MetaDrive: its own driver model, which keeps its lane and its distance, at a speed of its own.

There the cost is mostly speed above 10 km/h, so the wanted speed is the trade-off between reward and cost, and nothing
has to be learned. What the driver wants is not observed. So that it can be learned nevertheless, a driver keeps to one
speed for an episode, and keeps it softly: noise leads it to speeds that it does not want, from which it returns. (Who
keeps every speed exactly is seen at each speed as somebody who goes on like that.) Nobody wants less than the speed
that costs nothing. Poorer episodes come from drivers who do not look ahead, and from noise.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracrl.collect.behaviour import Decide, Floats
from tracrl.envs.environment import Environment

NEVER = 10**9
"""Steps until the model thinks of overtaking."""


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
    lowest_speed: float = 10.5
    """with the highest"""
    highest_penalty: float = 0.9
    pull: float = 0.1
    """throttle, or brake, for each km/h that is missing, or too many"""
    change: float = 0.2
    """share of the wanted speed by which it may change on the way"""
    deviation: tuple[float, float] = (0.05, 0.4)
    """of the noise on steering and on throttle and brake"""

    def speed(self, penalty: float) -> float:
        """The wanted speed in km/h. Most penalties mean low speeds, where most of the cost limits are decided."""
        share = 1 - penalty / self.highest_penalty
        return self.lowest_speed + (self.highest_speed - self.lowest_speed) * max(share, 0.0) ** 2.5

    def begin(self, env: Environment, seed: int) -> Callable[[float], tuple[Decide, Floats]]:
        model = importlib.import_module("metadrive.policy.idm_policy").IDMPolicy
        vehicle = env.env.unwrapped.vehicle  # type: ignore[attr-defined]
        driver = model(vehicle, seed % 2**32)
        driver.DISTANCE_WANTED, driver.TIME_WANTED = self.gap, self.headway
        driver.LANE_CHANGE_FREQ = NEVER  # but where the road asks for it: who wants to overtake is not observed
        deviation = np.array(self.deviation, np.float32)
        base: list[float] = []

        def acceleration(ahead: Any, distance: float) -> float:
            # The model's wanted speed: ours, or a crawl where it waits for a gap in the lane that it has to take.
            throttle = min(max(self.pull * (driver.target_speed - vehicle.speed), -1.0), 1.0)
            if ahead is not None and self.sees_others:
                throttle -= (driver.desired_gap(vehicle, ahead) / max(distance, 0.1)) ** 2
            return throttle

        driver.acceleration = acceleration

        def at(penalty: float) -> tuple[Decide, Floats]:
            base.append(self.speed(penalty))
            low, high = (1 - self.change) * base[0], (1 + self.change) * base[0]
            # Both: the model goes back to its normal speed after each change of lane.
            driver.NORMAL_SPEED = driver.target_speed = min(max(base[-1], low), high)
            return lambda _: np.clip(driver.act(), -1, 1).astype(np.float32), deviation

        return at


# From poor to good, as snapshots of a training are.
DRIVERS = (Driver("blind", sees_others=False), Driver("hasty", gap=5.0, headway=0.8), Driver("careful"))
