"""``tracrl data``: inspect, check and fetch data sets."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tyro

from tracrl.cli.console import console
from tracrl.errors import TracrlError

Flag = tyro.conf.FlagCreatePairsOff[bool]


@dataclass(kw_only=True)
class DataOptions:
    """How a file is read."""

    action_low: float | None = None
    """low end of a file's action box, where it is not -1"""
    action_high: float | None = None
    """high end of a file's action box, where it is not 1"""
    clip_actions: Flag = False
    """cut logged actions to the box instead of refusing them"""

    def reading(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(DataOptions)}


@dataclass
class InspectOptions(DataOptions):
    """What a data set holds, and a picture of its desirable and undesirable episodes."""

    source: tyro.conf.Positional[str]
    """a task's name or a file"""
    limits: tuple[float, ...] = ()
    """cost limits; without any, the task's own, or quartiles of the costs"""
    x: float = 50.0
    """per cent of the safe episodes that are desirable"""
    y: float = 0.0
    """per cent of the safe episodes that are undesirable"""
    task: str | None = None
    """the task that a file's episodes belong to, where the file does not say it"""
    out: Path = Path()
    """a directory for the picture <name>-scatter.png, or a file (.png, .svg or .pdf)"""


def data_inspect(options: InspectOptions) -> int:
    from tracrl.data.inspect import plot_scatter, print_summary, summarise
    from tracrl.data.locate import load_dataset

    episodes = load_dataset(options.source, task=options.task, **options.reading())
    print_summary(console, summarise(episodes, options.limits or None, x=options.x, y=options.y))
    path = options.out if options.out.suffix else options.out / f"{Path(options.source).stem}-scatter.png"
    plot_scatter(episodes, path, options.limits or None, x=options.x, y=options.y)
    console.print(f"\nPicture: {path}")
    return 0


@dataclass
class CheckOptions(DataOptions):
    """Check a file of episodes: everything that training would refuse or warn about."""

    source: tyro.conf.Positional[str]
    """a file or a task's name"""
    task: str | None = None
    """the task that a file's episodes belong to, where the file does not say it"""


def data_check(options: CheckOptions) -> int:
    from tracrl.data.inspect import check

    notices = check(options.source, task=options.task, **options.reading())
    for notice in notices:
        console.print(f"note: {notice}")
    console.print(f"{options.source} is in order{'' if not notices else ', with the notes above'}.")
    return 0


@dataclass
class FetchOptions:
    """Download DSRL's data sets of these tasks; what is already there is not fetched again."""

    tasks: tyro.conf.Positional[tuple[str, ...]]
    out: Path | None = None
    """the directory; without it, tracrl's cache"""


def data_fetch(options: FetchOptions) -> int:
    from tracrl.data.fetch import fetch
    from tracrl.tasks.table import get_task

    if not options.tasks:
        raise TracrlError("Say which tasks to fetch: for example tracrl data fetch BallRun.")
    for task in [get_task(name) for name in options.tasks]:
        console.print(f"{task.name}: {fetch(task, directory=options.out, console=console)}")
    return 0
