"""``tracrl collect``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tracrl.cli.console import console
from tracrl.cli.data import Flag, InspectOptions, data_inspect
from tracrl.errors import TracrlError


@dataclass
class CollectOptions:
    """Collect a data set: train a behaviour that covers the plane of cost and return, record it, thin it."""

    task: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = None
    """one of the 38 tasks"""
    env: str | None = None
    """an environment of your own: a Gymnasium id, module:Class or module:EnvId"""
    steps: int = 1_000_000
    """environment steps that the behaviour learns from"""
    episodes: int = 1_000
    """episodes in the file"""
    limits: tuple[float, ...] = ()
    """cost limits at which both safe and unsafe episodes are wanted; without any, the task's own"""
    out: Path | None = None
    """the file; without it, <task>.hdf5 in this directory"""
    seed: int = 0
    workers: int | None = None
    """simulator processes; without it, one per core"""
    cost_key: str = "cost"
    """the key of info that holds a step's cost"""
    max_steps: int | None = None
    """cut episodes after so many steps; without it, the environment's own limit"""
    compact: Flag = False
    """half the size, without next_observations, which other libraries want"""
    observation_bits: int = 24
    """significant bits kept of each observation; with 12 instead of all 24 the file is about a third smaller"""
    resume: Flag = False
    """go on where a collection into the same file stopped"""


def collect(options: CollectOptions) -> int:
    from tracrl.collect.progress import Terminal
    from tracrl.collect.run import collect as run
    from tracrl.envs.environment import EnvSpec

    named = options.env or options.task
    if named is None or (options.env and options.task):
        raise TracrlError("Say what to collect from: a task (tracrl collect BallRun) or --env my_package:MyEnv-v0.")
    path = run(
        EnvSpec(named, options.cost_key, options.max_steps),
        steps=options.steps,
        episodes=options.episodes,
        out=options.out,
        seed=options.seed,
        limits=options.limits or None,
        workers=options.workers,
        resume=options.resume,
        compact=options.compact,
        observation_bits=options.observation_bits,
        progress=Terminal(console),
    )
    return data_inspect(InspectOptions(str(path), limits=options.limits, out=path.with_suffix(".png")))
