"""The benchmark's normalised reward and cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracrl.tasks.table import Task


def normalised_reward(task: Task, returns: ArrayLike) -> NDArray[np.float64]:
    """(R − r_min) / (r_max − r_min), with the range of DSRL's data for the task."""
    return (np.asarray(returns, np.float64) - task.min_return) / (task.max_return - task.min_return)


def normalised_cost(costs: ArrayLike, limit: ArrayLike) -> NDArray[np.float64]:
    """(C + ε) / (κ + ε), with ε = 1 only where κ = 0; up to 1 is safe."""
    limit = np.asarray(limit, np.float64)
    epsilon = (limit == 0).astype(np.float64)
    return (np.asarray(costs, np.float64) + epsilon) / (limit + epsilon)
