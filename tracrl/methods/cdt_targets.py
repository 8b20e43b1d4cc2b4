"""What CDT is asked for: target returns and the bounds of its augmentation, of the 38 tasks and of other data.

The figures of the 38 tasks are those behind CDT's published results, with two slips mended: CarCircle's third target
was meant for a limit of 40 (not 50), and mediumdense, which had been left with CarCircle's, has mediummean's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracrl.data.episodes import Episodes
from tracrl.tasks.table import all_tasks

# Target returns at the task's three limits, the highest return that augmentation asks for, and how far below the
# best return a trajectory may lie that stands in for such a target.
_TASKS: dict[str, tuple[tuple[float, float, float], float, float]] = {
    "AntCircle": ((300, 350, 400), 500, 100),
    "AntRun": ((700, 750, 800), 1000, 150),
    "BallCircle": ((700, 750, 800), 1000, 200),
    "BallRun": ((500, 500, 700), 1400, 200),
    "CarCircle": ((450, 500, 550), 600, 100),
    "CarRun": ((575, 575, 575), 600, 100),
    "DroneCircle": ((700, 750, 800), 1000, 100),
    "DroneRun": ((400, 500, 600), 700, 100),
    "CarButton1": ((35, 35, 35), 45, 10),
    "CarButton2": ((40, 40, 40), 50, 10),
    "CarCircle1": ((20, 22.5, 25), 30, 10),
    "CarCircle2": ((20, 21, 22), 30, 10),
    "CarGoal1": ((40, 40, 40), 50, 5),
    "CarGoal2": ((30, 30, 30), 35, 5),
    "CarPush1": ((15, 15, 15), 20, 5),
    "CarPush2": ((12, 12, 12), 15, 3),
    "PointButton1": ((40, 40, 40), 45, 5),
    "PointButton2": ((40, 40, 40), 50, 10),
    "PointCircle1": ((50, 52.5, 55), 65, 5),
    "PointCircle2": ((45, 47.5, 50), 55, 5),
    "PointGoal1": ((30, 30, 30), 35, 5),
    "PointGoal2": ((30, 30, 30), 35, 5),
    "PointPush1": ((15, 15, 15), 20, 5),
    "PointPush2": ((12, 12, 12), 15, 3),
    "AntVelocity": ((2800, 2800, 2800), 3000, 500),
    "HalfCheetahVelocity": ((3000, 3000, 3000), 3000, 500),
    "HopperVelocity": ((1750, 1750, 1750), 2000, 300),
    "SwimmerVelocity": ((160, 160, 160), 250, 50),
    "Walker2dVelocity": ((2800, 2800, 2800), 3600, 800),
    "easysparse": ((300, 350, 400), 500, 100),
    "easymean": ((300, 350, 400), 500, 100),
    "easydense": ((300, 350, 400), 500, 100),
    "mediumsparse": ((300, 300, 300), 300, 100),
    "mediummean": ((300, 300, 300), 300, 100),
    "mediumdense": ((300, 300, 300), 300, 100),
    "hardsparse": ((300, 350, 400), 500, 100),
    "hardmean": ((300, 350, 400), 500, 100),
    "harddense": ((300, 350, 400), 500, 100),
}


@dataclass(frozen=True)
class Targets:
    """What to ask for."""

    returns: tuple[tuple[float, float], ...]
    """(limit, return) in rising order of limits; a limit between two of them takes the lower one's return"""
    highest_return: float
    """augmentation asks for returns up to this"""
    slack: float
    """and lets a trajectory stand in whose return is this much below the best"""


def task_targets(name: str | None) -> Targets | None:
    """Those of a task of the table."""
    if name not in _TASKS:
        return None
    returns, highest, slack = _TASKS[name]
    return Targets(tuple(zip(all_tasks()[name].limits, returns, strict=True)), highest, slack)


def data_targets(data: Episodes) -> Targets:
    """Those that the data themselves suggest: at each limit the best return among the episodes within it."""
    order = np.lexsort((-data.returns, data.total_costs))
    costs, best = data.total_costs[order], np.maximum.accumulate(data.returns[order])
    better = np.flatnonzero(np.diff(best, prepend=-np.inf) > 0)
    span = float(data.returns.max() - data.returns.min())
    return Targets(
        tuple((float(costs[i]), float(best[i])) for i in better), float(data.returns.max()), max(0.1 * span, 1e-6)
    )
