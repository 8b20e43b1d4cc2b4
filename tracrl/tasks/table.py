"""The 38 tasks of the DSRL benchmark: one table of facts, read from ``tasks.csv``.

Return ranges and maximum costs are those of DSRL's data sets; they define the normalised scores.
"""

from __future__ import annotations

import csv
import difflib
import functools
from dataclasses import dataclass
from importlib import resources

from tracrl.errors import TracrlError

SUITES = ("Bullet", "SafetyGymnasium", "MetaDrive")


@dataclass(frozen=True)
class Task:
    """The constants of one task."""

    name: str
    suite: str
    dataset_file: str
    episodes: int
    """Episodes in DSRL's data set."""
    observation_size: int
    action_size: int
    max_steps: int
    min_return: float
    max_return: float
    max_cost: float
    limits: tuple[float, ...]
    """The cost limits of the benchmark's protocol."""


@functools.cache
def all_tasks() -> dict[str, Task]:
    """Every task by name, in the order of the table."""
    text = resources.files(__package__).joinpath("tasks.csv").read_text(encoding="utf-8")
    return {
        row["task"]: Task(
            name=row["task"],
            suite=row["suite"],
            dataset_file=row["dataset_file"],
            episodes=int(row["episodes"]),
            observation_size=int(row["obs_dim"]),
            action_size=int(row["act_dim"]),
            max_steps=int(row["max_steps"]),
            min_return=float(row["min_return"]),
            max_return=float(row["max_return"]),
            max_cost=float(row["max_cost"]),
            limits=tuple(float(limit) for limit in row["cost_limits"].split()),
        )
        for row in csv.DictReader(text.splitlines())
    }


def get_task(name: str) -> Task:
    """The task called ``name``; an unknown name is answered with the nearest known ones."""
    tasks = all_tasks()
    if name in tasks:
        return tasks[name]
    by_lower = {known.lower(): known for known in tasks}
    if name.lower() in by_lower:
        near = [by_lower[name.lower()]]
    else:
        near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "`tracrl tasks` lists all 38."
    raise TracrlError(f"There is no task called {name!r}: {hint}")
