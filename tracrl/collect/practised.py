"""The behaviours for SafetyGymnasium's Goal and Button tasks: learned beforehand, in a sketch of these tasks.

What is dangerous there lies elsewhere in each episode. A policy that learns in the simulator does not mind it after
millions of steps, and one that is steered by rules is hard to clone, since rules jump where a network cannot. So a
network has practised in a sketch of each task (``tools/practise.py``), a hundred million steps in minutes, and lies
beside this file. Like everybody who is cloned it is a function of what is observed, told how much costs matter.

Nobody takes half the care: an episode is to be safe because of who played it, and not by luck.
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
BEFORE_LIDARS = {"Point": 12, "Car": 24}
"""numbers of an observation that its sensors come first with"""
LOOKED_AT = {"Point": (3, 4), "Car": (4, 8)}
"""of these, what a behaviour looks at: both velocities of a Point, a Car's forward velocity and its spin"""
ACTION_SCALE = {"Point": (0.2, 1.0), "Car": (0.08, 0.08)}
"""motors saturate at 0.05 (Point, forward) and 0.02 (Car): a policy of the whole box would know on and off alone"""
CARELESS, CAREFUL, CAREFUL_FROM, HIGHEST = (0.0, 0.3), (0.7, 0.9), 0.36, 0.9
"""the penalties that networks are told, for penalties below ``CAREFUL_FROM`` and from there on"""


def has_practised(task: str) -> bool:
    """Whether there is a behaviour for this task."""
    return re.fullmatch("(Point|Car)(Goal|Button)[12]", task) is not None


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
    action_scale: Floats

    def begin(self, env: Environment, seed: int) -> Callable[[float], tuple[Decide, Floats]]:
        return self.at

    def at(self, penalty: float) -> tuple[Decide, Floats]:
        decide, deviation = self.behaviour.at(told(penalty))
        return (lambda observation: decide(observation) * self.action_scale), deviation * self.action_scale


def told(penalty: float) -> float:
    """What a network is told in place of a penalty."""
    careful = penalty >= CAREFUL_FROM
    (low, high), first, last = (CAREFUL, CAREFUL_FROM, HIGHEST) if careful else (CARELESS, 0.0, CAREFUL_FROM)
    return low + (high - low) * min((penalty - first) / (last - first), 1.0)


@functools.cache
def practised(task: str) -> Practised:
    """The behaviour of a task."""
    robot = "Car" if task.startswith("Car") else "Point"
    tensors = {name: array.astype(np.float32) for name, array in load_file(FOLDER / f"{task}.safetensors").items()}
    looked_at = LOOKED_AT[robot]
    lidars = len(tensors["mean"]) - len(looked_at)
    columns = (*looked_at, *range(BEFORE_LIDARS[robot], BEFORE_LIDARS[robot] + lidars))
    return Practised("practised", unpacked(tensors, Look(columns)), np.array(ACTION_SCALE[robot], np.float32))
