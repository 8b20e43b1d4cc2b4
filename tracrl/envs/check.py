"""Whether the tasks run here: each is made, reset and stepped once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tracrl.envs.make import make_env
from tracrl.envs.simulators import SIMULATORS, require
from tracrl.errors import TracrlError
from tracrl.processes import python_command
from tracrl.tasks.table import Task, all_tasks, get_task


@dataclass(frozen=True)
class Row:
    """What came of one task."""

    task: str
    suite: str
    ok: bool
    observation_size: int
    action_size: int
    message: str = ""
    """why it does not run; empty if it does"""


def check_all(names: Iterable[str] | None = None) -> Iterator[Row]:
    """Check the named tasks (all 38 without names), one row after the other.

    Each simulator runs in a process of its own, so that one that crashes does not take the others along.
    """
    tasks = [get_task(name) for name in names] if names is not None else list(all_tasks().values())
    for simulator in SIMULATORS.values():
        pending = [task for task in tasks if task.suite == simulator.suite]
        if not pending:
            continue
        try:
            require(pending[0])
        except TracrlError:
            how = f"the simulator is not installed: tracrl sims install {simulator.name}"
            yield from (_row(task, how) for task in pending)
            continue
        yield from _check_elsewhere(pending)


def check(task: Task) -> str:
    """Step the task once in this process; returns what is wrong with it, or nothing."""
    try:
        env = make_env(task)
        try:
            observation, _ = env.reset(seed=0)
            stepped, reward, _, _, info = env.step(np.zeros(task.action_size, np.float32))
        finally:
            env.close()
    except Exception as error:  # a simulator may raise anything, and the row is there to say it
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    if observation.shape != (task.observation_size,) or stepped.shape != (task.observation_size,):
        return f"the observation has the shape {observation.shape}, expected ({task.observation_size},)"
    if not (np.isfinite(stepped).all() and np.isfinite([reward, info["cost"]]).all()):
        return "the first step is not finite"
    return ""


def _row(task: Task, message: str) -> Row:
    return Row(task.name, task.suite, not message, task.observation_size, task.action_size, message)


def _check_elsewhere(tasks: list[Task]) -> Iterator[Row]:
    """A row for each task; a process that dies is blamed on the task it was at, and the rest go to another."""
    pending = list(tasks)
    while pending:
        command = python_command("tracrl.envs.check", *(task.name for task in pending))
        said = ""
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                name, mark, message = line.rstrip("\n").partition(_MARK)
                if mark and pending and name == pending[0].name:
                    yield _row(pending.pop(0), message)
                else:
                    said = line.strip() or said
        if pending:
            ended = f"the process ended with status {process.returncode}"
            yield _row(pending.pop(0), f"{ended}: {said}" if said else ended)


_MARK = "\t"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(f"{argument}{_MARK}{check(get_task(argument))}", flush=True)
