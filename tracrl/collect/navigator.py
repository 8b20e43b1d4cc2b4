"""The behaviour for SafetyGymnasium's Push tasks: it steers by what its lidars see, with some care.

What is dangerous there lies elsewhere in each episode, and a policy that is learned from scratch needs many millions of
steps before care makes a difference to its cost. But nothing has to be learned: the observation says in which direction
the goal and the obstacles lie, and how far. A navigator looks in 32 directions and takes the one that leads to the goal
and past the obstacles, which it sees larger the more care it takes. Without care it does not see them, and with less
than none it likes to meet them. Care is a constant of the episode, everything else a function of the observation.

Whoever is cloned is cloned inexactly, so navigators either keep a berth of which some may be lost, or take no care at
all: an episode is safe because of who played it, and not by luck.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from tracrl.collect.behaviour import Decide, Floats
from tracrl.envs.environment import Environment

if TYPE_CHECKING:  # a simulator's adapter is imported where one of its tasks is made
    from tracrl.envs.safety_gymnasium import SafetyGymnasiumEnv

Vector = NDArray[np.float64]
BINS, FAR = 16, 3.0
"""of a lidar: directions, counted from straight ahead to the left, and metres to where it sees nothing any more"""
WIDTH = 2 * math.pi / BINS
SEEN = np.stack([np.cos((np.arange(BINS) + 0.5) * WIDTH), np.sin((np.arange(BINS) + 0.5) * WIDTH)], 1)
ANGLES = np.arange(32) * (2 * math.pi / 32)
DIRECTIONS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1)
OBSTACLES = {"hazards": 0.2, "vases": 0.2, "gremlins": 0.5, "buttons": 0.3, "pillars": 0.3, "push_box": 0.3}
"""metres around its middle that belong to an obstacle, with half of the robot, and where a gremlin may be soon"""
AMONG_GREMLINS = 0.8
"""share of the speed that is taken where obstacles move"""
AHEAD = 0.25
"""seconds: obstacles are judged from where the robot will be"""
HABIT = 0.15
"""weight of the present direction, against that of the goal"""
SAME = 0.35
"""metres between two lidars' views of one thing"""


def steers(task: str) -> bool:
    """Whether a task is played by navigators. In Goal and Button tasks they know their way too, but clones of those who
    have practised (:mod:`tracrl.collect.practised`) are more careful: ``benchmarks.cloning_gap`` compares both."""
    return re.fullmatch("(Point|Car)Push[12]", task) is not None


@dataclass(frozen=True)
class Navigator:
    """A style of moving; the penalty says how much care is taken."""

    name: str
    speed: float = 1.0
    """wanted, in metres a second"""
    careless: tuple[float, float] = (-0.25, -0.12)
    """the care taken without any penalty, and with one just below ``careful_from``"""
    careful: tuple[float, float] = (0.8, 1.3)
    """with a penalty of ``careful_from``, and with the highest"""
    careful_from: float = 0.36
    highest_penalty: float = 0.9
    margin: float = 0.25
    """metres that an obstacle is seen larger for each unit of care"""
    weight: float = 2.0
    """of an obstacle 0.8 m ahead, against turning away from the goal"""
    sight: float = 1.2
    """metres ahead in which obstacles matter"""
    brake: float = 0.6
    """share of the speed that is given up, for each unit of care, where the way is blocked"""
    deviation: float = 0.3
    """of the noise on the actions"""

    def begin(self, env: Environment, seed: int) -> Callable[[float], tuple[Decide, Floats]]:
        parts = cast("SafetyGymnasiumEnv", env.env.unwrapped).parts
        deviation = np.full(len(env.low), self.deviation, np.float32)
        return lambda penalty: (Pilot(self, self.care_at(penalty), parts).act, deviation)

    def care_at(self, penalty: float) -> float:
        """Nobody takes half the care: such episodes are safe or not by chance."""
        if penalty < self.careful_from:
            (least, most), share = self.careless, penalty / self.careful_from
        else:
            (least, most) = self.careful
            share = (penalty - self.careful_from) / (self.highest_penalty - self.careful_from)
        return least + (most - least) * min(share, 1.0)


class Pilot:
    """A navigator with some care, at the controls of a Point or a Car."""

    def __init__(self, style: Navigator, care: float, parts: dict[str, slice]):
        self.style, self.care, self.parts = style, care, parts
        self.is_car = "ballquat_rear" in parts
        self.backs = "gremlins_lidar" in parts
        self.speed = style.speed * (AMONG_GREMLINS if self.backs else 1.0)
        kinds = [kind for kind in OBSTACLES if f"{kind}_lidar" in parts]
        self.rows = np.concatenate([np.arange(BINS) + parts[f"{kind}_lidar"].start for kind in kinds])
        self.units = np.tile(SEEN, (len(kinds), 1))
        self.reach = np.repeat([OBSTACLES[kind] for kind in kinds], BINS) + style.margin * max(care, 0.0)
        self.is_box = np.repeat([kind == "push_box" for kind in kinds], BINS)
        self.is_button = np.repeat([kind == "buttons" for kind in kinds], BINS)

    def act(self, observation: Floats) -> Floats:
        seen = observation.astype(np.float64)
        target, pushing = self.target(seen)
        angle, blocked = self.direction(seen, target, pushing)
        slide, forward = seen[self.parts["velocimeter"]][:2][::-1]
        if self.is_car:  # its front is where a Point's right is
            slide, forward, angle = forward, -slide, angle + math.pi / 2
        speed = self.speed * (1 - min(self.style.brake * max(self.care, 0.0) * blocked, 1.0))
        ahead, aside = speed * math.cos(angle), speed * math.sin(angle) - 0.5 * slide
        off = math.atan2(aside, ahead)
        turn = min(max(1.5 * off, -1.0), 1.0)
        # Who has to turn far stops first, but backs away from what comes nearer.
        push = min(max(3 * (ahead - forward) if abs(off) < 1.2 or self.backs else -2 * forward, -1.0), 1.0)
        if self.is_car:
            return np.array([0.3 * (push + turn), 0.3 * (push - turn)], np.float32)
        return np.array([push, turn], np.float32)

    def target(self, seen: Vector) -> tuple[Vector, bool]:
        """Where to go, seen from the robot, and whether the box may be touched on the way."""
        goal = place(seen[self.parts["goal_lidar"]])
        if "push_box_lidar" not in self.parts:
            return goal, False
        box = place(seen[self.parts["push_box_lidar"]])
        way = goal - box
        way = way / max(float(np.hypot(*way)), 1e-6)
        behind = float(box @ way)
        left = np.array([-way[1], way[0]])
        aside = float(-box @ left)
        if behind > 0.15 and abs(aside) < (0.37 if behind > 0.55 else 0.12):
            return box + 0.25 * way, True
        if behind > 0.2:
            return box - 0.5 * way, behind > 0.3
        return box - 0.3 * way + math.copysign(0.55, aside) * left, False

    def direction(self, seen: Vector, target: Vector, pushing: bool) -> tuple[float, float]:
        """The angle to take, and how much it is blocked, from 0 to 1."""
        distance = float(np.hypot(*target))
        velocity = seen[self.parts["velocimeter"]][:2]
        # Who goes round one side goes on so.
        score = DIRECTIONS @ (target / max(distance, 1e-6) + velocity * (HABIT / max(float(np.hypot(*velocity)), 0.3)))
        away = FAR * (1 - seen[self.rows])
        heeded = away < 1.3 * self.style.sight
        if pushing:
            heeded &= ~self.is_box
        if self.care and heeded.any():
            places = self.units[heeded] * away[heeded, None]
            # The button that is to be pressed is seen twice.
            minded = ~(self.is_button[heeded] & (np.hypot(*(places - target).T) < SAME))
            places = places[minded] - AHEAD * velocity
            reach = self.reach[heeded][minded][:, None]
            distances = np.hypot(*places.T)[:, None]
            ahead = places @ DIRECTIONS.T
            met = np.maximum(0, 1 - np.sqrt(np.maximum(distances**2 - ahead**2, 0)) / reach)
            met *= (ahead > 0) & (ahead < min(self.style.sight, distance + 0.1))
            met /= 0.2 + np.maximum(ahead, 0)
            met += np.maximum(0, 1 - distances / reach) * ahead / np.maximum(distances, 1e-6)  # too near already: away
            if len(met):
                score = score - self.style.weight * self.care * met.max(0)
        best = int(score.argmax())
        return float(ANGLES[best]), min(max((1 - float(score[best])) / 1.5, 0.0), 1.0)


def place(lidar: Vector) -> Vector:
    """Where the only thing is that this lidar sees; straight ahead where it sees none."""
    nearest = int(lidar.argmax())
    value = float(lidar[nearest])
    if value <= 0:
        return np.array([FAR, 0.0])
    # The next direction sees as much of it as it lies there.
    angle = (nearest + float(lidar[(nearest + 1) % BINS]) / value) * WIDTH
    return FAR * (1 - value) * np.array([math.cos(angle), math.sin(angle)])


# From poor to good, as snapshots of a training are.
NAVIGATORS = (Navigator("slow", speed=0.5), Navigator("steady"), Navigator("brisk", speed=1.2))
