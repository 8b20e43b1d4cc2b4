"""What ``benchmarks.any_limit`` measures: variants, tasks, their limits and data, and where everything is kept."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import tracrl
from tracrl.data.episodes import Episodes
from tracrl.data.partition import is_safe
from tracrl.evaluation.scores import Scores
from tracrl.tasks.normalise import normalised_reward
from tracrl.tasks.table import get_task

INNER = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0, 70.0, 80.0)
"""at which the default is played on Bullet tasks: from these an inner limit is chosen"""
SEEDS = (0, 10, 20)
VARIANTS: dict[str, dict[str, Any]] = {
    "trac": {},
    "any": {},
    "any x 25": {"x": 25.0},
    "any most 10": {"most": 10.0},
    "any sharp": {"delta": 0.0, "sharpness": 3.0},
    "any x 25, eta 1": {"x": 25.0, "eta": 1.0},
    "any 2 rounds": {"rounds": 2},
    "any alpha 0.5": {"alpha": 0.5},
    "any ratio 0.5": {"ratio": 0.5},
    "any remaining": {"told": "remaining"},
    "any batch 32": {"batch_size": 32},
    "any x told": {"least_x": 6.0},
    "any x told, eta 1": {"least_x": 6.0, "eta": 1.0},
    "any x told, eta 0.5": {"least_x": 6.0, "eta": 0.5},
    "any x told from 25, eta 1": {"x": 25.0, "least_x": 6.0, "eta": 1.0},
    "any x told, eta 1, ratio 0.5": {"least_x": 6.0, "eta": 1.0, "ratio": 0.5},
    "any x told from 25, eta 1, ratio 0.5": {"x": 25.0, "least_x": 6.0, "eta": 1.0, "ratio": 0.5},
    "any x 12.5": {"x": 12.5},
    "any eta 1": {"eta": 1.0},
    "any x 12.5, eta 1": {"x": 12.5, "eta": 1.0},
    "any eta 1, ratio 0.5": {"eta": 1.0, "ratio": 0.5},
    "any x 25, eta 1, ratio 0.5": {"x": 25.0, "eta": 1.0, "ratio": 0.5},
    "any x 12.5, eta 1, ratio 0.5": {"x": 12.5, "eta": 1.0, "ratio": 0.5},
    "any x told, ratio 0.5": {"least_x": 6.0, "ratio": 0.5},
    "any x told, eta 0.5, ratio 0.5": {"least_x": 6.0, "eta": 0.5, "ratio": 0.5},
    "any x told, eta 0.5, ratio 0.25": {"least_x": 6.0, "eta": 0.5, "ratio": 0.25},
    "any x told, eta 0.5, gamma 1": {"least_x": 6.0, "eta": 0.5, "gamma": 1.0, "alpha": 0.07},
    "any x told, eta 0.5, batch 32": {"least_x": 6.0, "eta": 0.5, "batch_size": 32},
    "any x told, eta 0.5, 30000 updates": {"least_x": 6.0, "eta": 0.5, "updates": 30_000},
    "any x told, 30000 updates": {"least_x": 6.0, "updates": 30_000},
    "any x told, eta 1, 30000 updates": {"least_x": 6.0, "eta": 1.0, "updates": 30_000},
    "any x told, eta 0.5, ratio 0.5, 30000 updates": {"least_x": 6.0, "eta": 0.5, "ratio": 0.5, "updates": 30_000},
}
POOLS: dict[str, dict[float, str]] = {
    "pool, eta 1": {50.0: "any eta 1", 25.0: "any x 25, eta 1", 12.5: "any x 12.5, eta 1"},
    "pool, eta 1, ratio 0.5": {
        50.0: "any eta 1, ratio 0.5",
        25.0: "any x 25, eta 1, ratio 0.5",
        12.5: "any x 12.5, eta 1, ratio 0.5",
    },
}
"""x → the variant that was trained with it alone: candidates from all of them, in place of one that is told x"""
TOLD_X = [name for name, changes in VARIANTS.items() if "least_x" in changes]
BOLD = 12.5
"""the x at which a policy that is told x is played, beside the careful one"""
CONFIDENCES = (0.5, 0.7, 0.75, 0.8, 0.9)
"""of the bounds by which the log chooses"""
TASKS = ("CarCircle", "DroneCircle", "BallRun", "BallCircle", "CarRun", "DroneRun", "AntRun", "AntCircle")
MEAN = "any, mean of seeds"


def limits_of(task: str) -> tuple[float, ...]:
    """Those that TraC and TraC-Any are compared at: the task's own."""
    return get_task(task).limits


def unseen_of(task: str) -> tuple[float, ...]:
    """Limits below, between and above them; 5, 15, 30 and 60 on Bullet tasks."""
    own = limits_of(task)
    return (own[0] / 2, *(1.5 * limit for limit in own))


def episodes_of(task: str, folder: str | None) -> Episodes:
    return tracrl.load_dataset(task if folder is None else Path(folder) / f"{task}.hdf5", task=task)


def file_of(options: argparse.Namespace, task: str, variant: str, suffix: str) -> Path:
    name = f"{task}-{variant.replace(' ', '-').replace(',', '')}{suffix}"
    return Path(options.out) / name


def parts_of(variant: str) -> list[str]:
    """The variants that were trained for it: itself, or those of a pool."""
    return list(POOLS[variant].values()) if variant in POOLS else [variant]


def best_safe(data: Episodes, limit: float) -> float | None:
    """The highest normalised return of an episode that keeps to the limit."""
    safe = is_safe(data.total_costs, limit)
    return float(normalised_reward(get_task(str(data.task)), data.returns[safe]).max()) if safe.any() else None


def summary(scores: Scores, limits: tuple[float, ...]) -> tuple[float, float, str]:
    """Mean normalised reward and cost over these limits, and how many of the policies are safe."""
    which = np.isin(scores.limits, limits)
    safe = scores.safe[which]
    return (
        float(scores.rewards[which].mean()),
        float(scores.normalised_costs[which].mean()),
        f"{int(safe.sum())} of {len(safe)}",
    )
