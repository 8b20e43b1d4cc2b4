"""Environments by task name."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from tracrl.envs.adapter import SafeEnv
from tracrl.envs.simulators import require
from tracrl.tasks.table import Task, get_task

# By name, so that a simulator is imported only when one of its tasks is made.
_ADAPTERS = {
    "Bullet": ("tracrl.envs.bullet", "BulletEnv"),
    "SafetyGymnasium": ("tracrl.envs.safety_gymnasium", "SafetyGymnasiumEnv"),
    "MetaDrive": ("tracrl.envs.metadrive", "MetaDriveEnv"),
}


def make_env(task: str | Task, render_mode: str | None = None) -> SafeEnv:
    """The task as a plain Gymnasium environment: five values a step, ``info["cost"]``, actions in [-1, 1].

    ``render_mode="rgb_array"`` makes ``env.render()`` return pictures, also without a screen.
    """
    task = get_task(task) if isinstance(task, str) else task
    require(task)
    module, name = _ADAPTERS[task.suite]
    adapter: type[SafeEnv] = getattr(importlib.import_module(module), name)
    return adapter(task, render_mode)


def make_vec_env(
    task: str | Task, n: int, render_mode: str | None = None, processes: bool = True, **options: Any
) -> VectorEnv[Any, Any, Any]:
    """``n`` environments of a task as one Gymnasium vector environment, each in a process of its own.

    ``reset(seed=s)`` gives environment i the seed s + i. ``options`` go to Gymnasium's ``AsyncVectorEnv``
    (``SyncVectorEnv`` with ``processes=False``, which MetaDrive does not allow for n > 1). The processes are
    spawned, so a script calls this under ``if __name__ == "__main__":``.
    """
    task = get_task(task) if isinstance(task, str) else task
    require(task)
    makers = [functools.partial(make_env, task, render_mode)] * n
    if not processes:
        return SyncVectorEnv(makers, **options)
    # Not forked: the parent may have run torch's threads, which do not survive a fork.
    return AsyncVectorEnv(makers, **{"context": "spawn", **options})
