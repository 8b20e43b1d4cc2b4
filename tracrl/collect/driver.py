"""The behaviour for MetaDrive: its own driver model, which keeps its lane and its distance, at a speed of its own.

There a step costs 0.01 for each km/h above 10, and nothing else costs much. So the wanted speed is the trade-off
between reward and cost, and nothing has to be learned. But half a km/h decides whether an episode is safe, and what a
driver wants is not observed. Three things make such drivers something to learn from:

- They want a few speeds that lie apart (``WISHES``), as policies trained for a few limits would. Where drivers want
  every speed, each speed is seen kept, and a policy that is cloned from them keeps to none. For each of the cost limits
  10, 20 and 40 one wish is safe, with room for the errors of who learns from it, and the next one is not.
- Short pushes lead a driver off its speed and off the middle of its lane, and it is seen on its way back. Between two
  pushes, all that is done follows from what is observed.
- The last throttle is observed, and who is cloned from smooth driving repeats it. A little noise, too little to be a
  brake, tells the two apart.

Poorer episodes come from drivers who do not look ahead, and from those who want less than the speed that costs nothing.
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
SURGE, ASIDE = 0.4, 0.7
"""share of the wanted speed by which a push changes it at most, and metres by which it changes the place in the lane"""
LASTS, EVERY = 15, 60
"""steps of a push, and steps until the next one on average"""
WISHES = {25.0: 1, 20.0: 2, 16.0: 2, 13.5: 3, 11.8: 3, 10.4: 5, 7.5: 1, 5.0: 1, 3.0: 1}
"""wanted speeds in km/h, and how many drivers want each beside the others"""


@dataclass(frozen=True)
class Driver:
    """A style of driving; what does not matter to a style is the driver model's own default."""

    name: str
    gap: float = 10.0
    """metres to the car ahead that the driver wants when standing"""
    headway: float = 1.5
    """and seconds more when driving"""
    sees_others: bool = True
    highest_penalty: float = 0.9
    """with which the lowest speed is wanted"""
    pull: float = 0.1
    """throttle, or brake, for each km/h that is missing, or too many"""
    deviation: tuple[float, float] = (0.05, 0.02)
    """of the noise on steering and on throttle and brake"""

    def speed(self, penalty: float) -> float:
        """The wanted speed in km/h: the higher the penalty, the slower, in steps."""
        shares = np.cumsum(list(WISHES.values())) / sum(WISHES.values())
        place = int(np.searchsorted(shares, min(penalty / self.highest_penalty, 1.0), side="right"))
        return list(WISHES)[min(place, len(WISHES) - 1)]

    def begin(self, env: Environment, seed: int) -> Callable[[float], tuple[Decide, Floats]]:
        parts = [importlib.import_module(f"metadrive.{name}") for name in ("policy.idm_policy", "utils.math_utils")]
        model, wrap_to_pi = parts[0].IDMPolicy, parts[1].wrap_to_pi
        vehicle = env.env.unwrapped.vehicle  # type: ignore[attr-defined]
        driver = model(vehicle, seed % 2**32)
        driver.DISTANCE_WANTED, driver.TIME_WANTED = self.gap, self.headway
        driver.LANE_CHANGE_FREQ = NEVER  # but where the road asks for it: who wants to overtake is not observed
        deviation = np.array(self.deviation, np.float32)
        generator = np.random.default_rng(seed)
        surge, aside, steps_left = 0.0, 0.0, 0

        def steering(lane: Any) -> float:
            along, beside = lane.local_coordinates(vehicle.position)
            turn = wrap_to_pi(lane.heading_theta_at(along + 1) - vehicle.heading_theta)
            return float(0.3 * (beside - aside) - 1.7 * turn)

        def acceleration(ahead: Any, distance: float) -> float:
            # The model's wanted speed: ours, or a crawl where it waits for a gap in the lane that it has to take.
            throttle = min(max(self.pull * (driver.target_speed * (1 + surge) - vehicle.speed), -1.0), 1.0)
            if ahead is not None and self.sees_others:
                throttle -= (driver.desired_gap(vehicle, ahead) / max(distance, 0.1)) ** 2
            return throttle

        driver.steering_control, driver.acceleration = steering, acceleration

        def act(_: Floats) -> Floats:
            nonlocal surge, aside, steps_left
            steps_left -= 1
            if steps_left < 0:
                surge = aside = 0.0
                if generator.random() < 1 / EVERY:
                    surge, aside = generator.uniform(-1, 1, 2) * (SURGE, ASIDE)
                    steps_left = LASTS
            return np.clip(driver.act(), -1, 1).astype(np.float32)

        def at(penalty: float) -> tuple[Decide, Floats]:
            # Both: the model goes back to its normal speed after each change of lane.
            driver.NORMAL_SPEED = driver.target_speed = self.speed(penalty)
            return act, deviation

        return at


# From poor to good, as snapshots of a training are.
DRIVERS = (Driver("blind", sees_others=False), Driver("hasty", gap=5.0, headway=0.8), Driver("careful"))
