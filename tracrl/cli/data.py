"""``tracrl data``: import, inspect, check and fetch data sets."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tyro

from tracrl.bars import RowsBar
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
    allow_external: Flag = False
    """also read arrays that a file takes from other files (external links, virtual data sets)"""

    def reading(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(DataOptions)}


@dataclass
class ImportOptions:
    """Bring logs in: tables (CSV, Parquet, Arrow), folders of them, Minari (minari:ID), HDF5 or npz."""

    sources: tyro.conf.Positional[tuple[str, ...]]
    """files, folders of tables, or minari:ID"""
    out: Path
    """the file to write, such as my.hdf5"""
    episode: str | None = None
    """column that tells episodes apart; columns that are not named are guessed and shown"""
    step: str | None = None
    """column by which the rows of an episode are ordered"""
    observations: tuple[str, ...] = ()
    """columns, or patterns such as 'obs_*'"""
    actions: tuple[str, ...] = ()
    """columns, or patterns such as 'act_*'"""
    reward: str | None = None
    cost: str | None = None
    """column of the cost; for Minari, the entry of infos"""
    terminated: str | None = None
    """column that is set where an episode ended by itself"""
    truncated: str | None = None
    """column that is set where an episode was cut by time"""
    next_observations: tuple[str, ...] = ()
    """columns of what followed each action"""
    action_low: float | None = None
    """low end of the action box; without it, -1, or the lowest logged actions where they leave [-1, 1]"""
    action_high: float | None = None
    """high end of the action box"""
    allow_external: Flag = False
    """also read arrays that an HDF5 file takes from other files (external links, virtual data sets)"""
    overwrite: Flag = False
    """replace the file where it is there already"""


def data_import(options: ImportOptions) -> int:
    from tracrl.data.columns import ColumnChoice
    from tracrl.data.sources import import_episodes

    if options.out.suffix not in (".hdf5", ".h5"):
        raise TracrlError(f"--out is {str(options.out)!r}; expected a file ending in .hdf5.")
    if options.out.exists() and not options.overwrite:
        raise TracrlError(f"{options.out} is there already: choose another --out, or add --overwrite.")
    choice = ColumnChoice(**{f.name: getattr(options, f.name) for f in fields(ColumnChoice)})
    with RowsBar(console) as bar:
        episodes, columns = import_episodes(
            options.sources,
            choice,
            action_low=options.action_low,
            action_high=options.action_high,
            allow_external=options.allow_external,
            progress=bar.show,
        )
    if columns is not None:
        console.print(f"{columns}\n")
    episodes.save(options.out)
    console.print(f"{options.out}: {len(episodes)} episodes, {episodes.rows} steps")
    console.print(f"Look at it: tracrl data inspect {options.out}")
    return 0


@dataclass
class InspectOptions(DataOptions):
    """What a data set holds, and a picture of its desirable and undesirable episodes."""

    source: tyro.conf.Positional[str]
    """a task's name or a file"""
    limits: tuple[float, ...] = ()
    """cost limits; without any, the task's own, or such as divide the data"""
    x: float = 50.0
    """per cent of the safe episodes that are desirable"""
    y: float = 0.0
    """per cent of the safe episodes that are undesirable"""
    task: str | None = None
    """the task that a file's episodes belong to, where the file does not say it"""
    out: Path = Path()
    """a directory for the picture <name>-scatter.png, or a file (.png, .svg or .pdf)"""


def data_inspect(options: InspectOptions) -> int:
    from tracrl.data.locate import load_dataset
    from tracrl.data.scatter import plot_scatter
    from tracrl.data.summary import summarise
    from tracrl.data.summary_table import print_summary

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
    limits: tuple[float, ...] = ()
    """cost limits to train for; without any, the task's own, or such as divide the data"""
    task: str | None = None
    """the task that a file's episodes belong to, where the file does not say it"""


def data_check(options: CheckOptions) -> int:
    from tracrl.data.check_file import check
    from tracrl.methods.foresight import Refusal, foresee

    checked = check(options.source, limits=options.limits, task=options.task, **options.reading())
    foreseen = list(foresee(checked.episodes, checked.limits))
    findings = [*checked.findings, *foreseen]
    for finding in findings:
        console.print(f"{'warning' if finding.warning else 'note'}: {finding.text}")
    refused = [f"{finding.limit:g}" for finding in foreseen if isinstance(finding, Refusal)]
    if options.limits and refused:
        raise TracrlError(f"{options.source} cannot be trained on at limit {', '.join(refused)}: see above.")
    mind = "" if not findings else ", with what is said above"
    limits = ", ".join(f"{limit:g}" for limit in checked.limits)
    console.print(
        f"{options.source} is in order{mind} (cost {'limit' if len(checked.limits) == 1 else 'limits'} {limits})."
    )
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
