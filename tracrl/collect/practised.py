"""The behaviours for SafetyGymnasium's Goal, Button and Push tasks: learned beforehand, in a sketch of these tasks.

What is dangerous there lies elsewhere in each episode. A policy that learns in the simulator does not mind it after
millions of steps, and one that is steered by rules is hard to clone, since rules jump where a network cannot. So a
network has practised in a sketch of each task (``tools/practise.py``), a hundred million steps in minutes, and lies
beside this file. Like everybody who is cloned it is a function of what is observed, told how much costs matter.

Nobody takes half the care: an episode is to be safe because of who played it, and not by luck. Nor is a safe episode
poor because its map was: in some episodes a careful robot is lost, and takes the goal to lie beside where it lies.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tracrl.collect.behaviour import Decide, Floats, GaussianBehaviour
from tracrl.collect.learner import unpacked
from tracrl.envs.environment import Environment

FOLDER = Path(__file__).parent / "practised"
BINS, FAR = 16, 3.0
"""of a lidar: directions, counted from straight ahead to the left, and metres to where it sees nothing any more"""
BEFORE_LIDARS = {"Point": 12, "Car": 24}
"""numbers of an observation that its sensors come first with"""
LOOKED_AT = {"Point": (3, 4), "Car": (4, 8)}
"""of these, what a behaviour looks at: both velocities of a Point, a Car's forward velocity and its spin"""
REACH = {"Point": (0.2, 1.0), "Car": (0.08, 0.08)}
"""of the action box: motors saturate at 0.05 (Point, forward) and 0.02 (Car), so that a policy of the whole box would
know on and off alone, and what is learned from such small actions is too coarse in units of the whole"""
CARELESS, CAREFUL, CAREFUL_FROM, HIGHEST = (0.0, 0.3), (0.7, 0.9), 0.36, 0.9
"""the penalties that networks are told, for penalties below ``CAREFUL_FROM`` and from there on"""
LOST, TURNS = 0.35, (-4, -3, 3, 4)
"""share of the episodes in which the goal is taken to lie elsewhere, and by how many of a lidar's directions; not where
a box is pushed, which is lost easily"""


def has_practised(task: str) -> bool:
    """Whether there is a behaviour for this task."""
    return re.fullmatch("(Point|Car)(Goal|Button|Push)[12]", task) is not None


def robot_of(task: str) -> str:
    return "Car" if task.startswith("Car") else "Point"


def reach_of(task: str) -> tuple[float, ...]:
    """How much of the action box a task's behaviour uses."""
    return REACH[robot_of(task)]


@dataclass(frozen=True)
class Look:
    """Some columns of an observation."""

    columns: tuple[int, ...]

    def __call__(self, observation: Floats) -> Floats:
        return np.take(observation, self.columns, axis=-1)


@dataclass(frozen=True)
class Practised:
    """A network that has practised, at the controls of the real robot."""

    name: str
    behaviour: GaussianBehaviour
    goal: slice
    """where an observation has the goal's lidar"""
    share_lost: float = LOST

    def begin(self, env: Environment, seed: int) -> Callable[[float], tuple[Decide, Floats]]:
        turn = self.turn_of(seed)
        return self.lost(turn) if turn else self.at

    def turn_of(self, seed: int) -> int:
        """By how many directions the goal of an episode is taken to lie beside where it lies; 0: it is found."""
        generator = np.random.default_rng((seed, 1))
        return int(generator.choice(TURNS)) if generator.random() < self.share_lost else 0

    def at(self, penalty: float) -> tuple[Decide, Floats]:
        return self.behaviour.at(told(penalty))

    def lost(self, turn: int) -> Callable[[float], tuple[Decide, Floats]]:
        """Careful with any penalty, and on the way to where the goal does not lie."""

        def at(penalty: float) -> tuple[Decide, Floats]:
            decide, deviation = self.behaviour.at(CAREFUL[0] + (CAREFUL[1] - CAREFUL[0]) * min(penalty / HIGHEST, 1.0))
            return (lambda observation: decide(self.turned(observation, turn))), deviation

        return at

    def turned(self, observation: Floats, turn: int) -> Floats:
        """What would be observed if the goal lay so many directions further to the left."""
        seen = observation.copy()
        seen[self.goal] = np.roll(seen[self.goal], turn)
        return seen


def told(penalty: float) -> float:
    """What a network is told in place of a penalty."""
    careful = penalty >= CAREFUL_FROM
    (low, high), first, last = (CAREFUL, CAREFUL_FROM, HIGHEST) if careful else (CARELESS, 0.0, CAREFUL_FROM)
    return low + (high - low) * min((penalty - first) / (last - first), 1.0)


@functools.cache
def practised(task: str) -> Practised:
    """The behaviour of a task."""
    robot = robot_of(task)
    tensors = {name: array.astype(np.float32) for name, array in load_file(FOLDER / f"{task}.safetensors").items()}
    looked_at, first = LOOKED_AT[robot], BEFORE_LIDARS[robot]
    lidars = len(tensors["mean"]) - len(looked_at)
    behaviour = unpacked(tensors, Look((*looked_at, *range(first, first + lidars))))
    goal = first + BINS if "Button" in task else first  # whose own lidar comes before
    return Practised("practised", behaviour, slice(goal, goal + BINS), 0.0 if "Push" in task else LOST)
