"""What work takes where nothing was measured yet: rates of one core of an AMD EPYC, for plans alone.

Steps of simulators are those of ``python -m benchmarks.simulators speed`` (docs/simulators.md), updates those of
``python -m benchmarks.trac_update`` and ``python -m benchmarks.baselines`` (docs/performance.md). Another machine may
well take twice or half as long; ``--calibrate`` measures.
"""

from __future__ import annotations

from dataclasses import asdict

import torch

from tracrl.collect.run import default_settings, untrained
from tracrl.study.collecting import CollectionSpec
from tracrl.study.stack import StackSpec
from tracrl.tasks.table import all_tasks, get_task
from tracrl.train.devices import choose_precision

STEPS_PER_SECOND = {
    "AntCircle": 1153, "AntRun": 1454, "BallCircle": 3970, "BallRun": 4857, "CarCircle": 1002, "CarRun": 1431,
    "DroneCircle": 1976, "DroneRun": 2674, "CarButton1": 1006, "CarButton2": 876, "CarCircle1": 2545,
    "CarCircle2": 2127, "CarGoal1": 1604, "CarGoal2": 638, "CarPush1": 1046, "CarPush2": 1015, "PointButton1": 1852,
    "PointButton2": 1156, "PointCircle1": 5688, "PointCircle2": 4760, "PointGoal1": 2874, "PointGoal2": 810,
    "PointPush1": 1788, "PointPush2": 1648, "AntVelocity": 3338, "HalfCheetahVelocity": 19507, "HopperVelocity": 9381,
    "SwimmerVelocity": 14791, "Walker2dVelocity": 7721, "easysparse": 1023, "easymean": 934, "easydense": 721,
    "mediumsparse": 1522, "mediummean": 1241, "mediumdense": 1029, "hardsparse": 1260, "hardmean": 1036,
    "harddense": 846,
}  # fmt: skip
"""whole episodes, resets included"""
LEARNING_SECONDS = 0.0004
"""of a collection, for each step beside the simulator's: PointCircle1's 2 million took 22 minutes of one core"""
TRAC_ROW_SECONDS = 5.8e-6
"""TraC, for each step of each segment of a batch"""
UPDATE_SECONDS = {
    "bc-all": 0.0024, "bc-safe": 0.0025, "cdt": 0.18, "bcq-lag": 0.15, "bear-lag": 0.14, "cpq": 0.05,
    "coptidice": 0.024,
}  # fmt: skip
"""of one run, with the presets' batches"""
ROUNDED_SHARE = 0.6
"""of that time with products in bfloat16; CDT has more to do beside them"""
ROUNDED_SHARE_OF_CDT = 0.75


def collecting_seconds(spec: CollectionSpec) -> float:
    """Of one core."""
    task = get_task(spec.task)
    if untrained(spec.task):
        return (
            default_settings(spec.task).recorder.candidates
            * spec.episodes
            * task.max_steps
            / STEPS_PER_SECOND[spec.task]
        )
    return spec.steps * (1 / STEPS_PER_SECOND[spec.task] + LEARNING_SECONDS)


def training_seconds(stack: StackSpec, device: str) -> float | None:
    """Of one core; None for methods and devices that there is no table for."""
    if device != "cpu":
        return None
    settings, runs = asdict(stack.method), len(stack.trained)
    if stack.method.name == "trac":
        task = all_tasks().get(stack.task)
        longest = task.max_steps if task is not None else stack.data.longest if stack.data is not None else 0
        update = TRAC_ROW_SECONDS * settings["batch_size"] * settings["ratio"] * longest
    elif stack.method.name in UPDATE_SECONDS:
        update = UPDATE_SECONDS[stack.method.name]
    else:
        return None
    rounded = choose_precision(stack.precision, torch.device(device), stack.method) == "bfloat16"
    share = ROUNDED_SHARE_OF_CDT if stack.method.name == "cdt" else ROUNDED_SHARE
    return update * stack.method.updates * runs * (share if rounded else 1.0)


def evaluating_seconds(stack: StackSpec) -> float | None:
    """Of one core; None for environments that there is no table for."""
    if stack.environment is None:
        return 0.0
    if stack.environment.task is None:
        return None
    name = stack.environment.task
    episodes = (stack.evaluations + 2) * len(stack.runs) * stack.episodes
    return episodes * get_task(name).max_steps / STEPS_PER_SECOND[name]
