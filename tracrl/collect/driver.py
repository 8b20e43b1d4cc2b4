"""The behaviour for MetaDrive: its own driver model, which keeps its lane and its distance, at a speed of its own.

There the cost is mostly speed above 10 km/h, so the wanted speed is the trade-off between reward and cost, and nothing
has to be learned. What a driver wants is not observed, and two things keep that from being learned:

- Who keeps a speed exactly is seen at each speed as somebody who goes on like that, and a policy that is cloned from
  such drivers keeps to no speed at all. So a driver wanders within its lane, which is observed, and goes faster on the
  left of it and slower on the right. At each place the drivers are seen above and below what they want there, and
  always on their way back to it.
- The brake is six times as strong as the engine. Noise on it slows a driver down, who then wants more on average, and a
  policy that does what is done on average, without the noise, gets faster and faster. So there is none.

Steering depends on nothing but where the car is and where it heads. Poorer episodes come from drivers who do not look
ahead. Nobody wants less than the speed that costs nothing.
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
EDGE = 0.35
"""metres from the middle of the lane, where a car is half a metre from its line"""
WANDER, MEMORY = 0.3, 40
"""deviation of the wandering in metres, and for how many steps it goes on"""


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
    lowest_speed: float = 10.0
    """with the highest"""
    highest_penalty: float = 0.9
    pull: float = 0.1
    """throttle, or brake, for each km/h that is missing, or too many"""
    aside: float = 0.3
    """share of the wanted speed by which a driver is faster on the left edge and slower on the right"""
    change: float = 0.2
    """share of the wanted speed by which it may change on the way"""
    deviation: tuple[float, float] = (0.05, 0.0)
    """of the noise on steering and on throttle and brake"""

    def speed(self, penalty: float) -> float:
        """The wanted speed in km/h. Most penalties mean low speeds, where most of the cost limits are decided."""
        share = 1 - penalty / self.highest_penalty
        return self.lowest_speed + (self.highest_speed - self.lowest_speed) * max(share, 0.0) ** 2.5

    def begin(self, env: Environment, seed: int) -> Callable[[float], tuple[Decide, Floats]]:
        parts = [importlib.import_module(f"metadrive.{name}") for name in ("policy.idm_policy", "utils.math_utils")]
        model, wrap_to_pi = parts[0].IDMPolicy, parts[1].wrap_to_pi
        vehicle = env.env.unwrapped.vehicle  # type: ignore[attr-defined]
        driver = model(vehicle, seed % 2**32)
        driver.DISTANCE_WANTED, driver.TIME_WANTED = self.gap, self.headway
        driver.LANE_CHANGE_FREQ = NEVER  # but where the road asks for it: who wants to overtake is not observed
        deviation = np.array(self.deviation, np.float32)
        generator = np.random.default_rng(seed)
        base: list[float] = []
        wandered = 0.0  # metres to the right

        def steering(lane: Any) -> float:
            nonlocal wandered
            wandered += WANDER * np.sqrt(2 / MEMORY) * generator.standard_normal() - wandered / MEMORY
            wandered = float(np.clip(wandered, -EDGE, EDGE))
            along, beside = lane.local_coordinates(vehicle.position)
            turn = wrap_to_pi(lane.heading_theta_at(along + 1) - vehicle.heading_theta)
            return float(0.3 * (beside - wandered) - 1.7 * turn)

        def acceleration(ahead: Any, distance: float) -> float:
            beside = vehicle.lane.local_coordinates(vehicle.position)[1]
            # The model's wanted speed: ours, or a crawl where it waits for a gap in the lane that it has to take.
            wanted = driver.target_speed * (1 - self.aside * min(max(beside / EDGE, -1.0), 1.0))
            throttle = min(max(self.pull * (wanted - vehicle.speed), -1.0), 1.0)
            if ahead is not None and self.sees_others:
                throttle -= (driver.desired_gap(vehicle, ahead) / max(distance, 0.1)) ** 2
            return throttle

        driver.steering_control, driver.acceleration = steering, acceleration

        def at(penalty: float) -> tuple[Decide, Floats]:
            base.append(self.speed(penalty))
            low, high = (1 - self.change) * base[0], (1 + self.change) * base[0]
            # Both: the model goes back to its normal speed after each change of lane.
            driver.NORMAL_SPEED = driver.target_speed = min(max(base[-1], low), high)
            return lambda _: np.clip(driver.act(), -1, 1).astype(np.float32), deviation

        return at


# From poor to good, as snapshots of a training are.
DRIVERS = (Driver("blind", sees_others=False), Driver("hasty", gap=5.0, headway=0.8), Driver("careful"))
