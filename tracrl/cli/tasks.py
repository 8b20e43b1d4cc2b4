"""``tracrl tasks``, ``sims`` and ``methods``: what there is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import tyro
from rich.table import Table
from rich.text import Text

from tracrl.cli.console import console
from tracrl.cli.data import Flag
from tracrl.errors import TracrlError


@dataclass
class TasksOptions:
    """List the 38 tasks: which simulators are installed, which data are at hand."""

    check: Flag = False
    """step every task once"""


def tasks(options: TasksOptions) -> int:
    from tracrl.data.locate import find_dataset
    from tracrl.envs.simulators import installed, simulator_of
    from tracrl.tasks.table import all_tasks

    if options.check:
        return _check_tasks()
    table = Table(box=None, pad_edge=False)
    for column in ("task", "suite", "obs.", "act.", "steps", "limits", "simulator", "data"):
        table.add_column(column, no_wrap=column == "task")
    for task in all_tasks().values():
        found = find_dataset(task)
        simulator = simulator_of(task)
        table.add_row(
            task.name,
            task.suite,
            str(task.observation_size),
            str(task.action_size),
            str(task.max_steps),
            " ".join(f"{limit:g}" for limit in task.limits),
            "installed" if installed(simulator.name) else Text("missing", "dim"),
            found[1] if found else Text("missing", "dim"),
        )
    console.print(table)
    console.print("\nA missing simulator: tracrl sims install NAME. Missing data: tracrl data fetch TASK.", style="dim")
    return 0


def _check_tasks() -> int:
    from tracrl.envs.check import check_all

    rows = []
    for row in check_all():
        rows.append(row)
        state = "runs" if row.ok else f"does not run: {row.message}"
        console.print(
            f"{row.task:<20}{row.suite:<16} observation {row.observation_size:>3}, action {row.action_size}: {state}"
        )
    running = sum(row.ok for row in rows)
    console.print(f"{running} of {len(rows)} run")
    return 0 if running == len(rows) else 1


@dataclass
class SimsOptions:
    """List the simulators, or install them beside what is there: tracrl sims install bullet."""

    action: tyro.conf.Positional[Literal["list", "install"]] = "list"
    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """bullet, safety-gymnasium, metadrive, or all"""


def sims(options: SimsOptions) -> int:
    from tracrl.envs.simulators import SIMULATORS, install, installed

    if options.action == "install":
        if not options.names:
            raise TracrlError(f"Say which simulator to install: {', '.join(SIMULATORS)}, or all.")
        install(list(SIMULATORS) if "all" in options.names else options.names, console.print)
        return 0
    for name, simulator in SIMULATORS.items():
        state = "installed" if installed(name) else f"missing: tracrl sims install {name}"
        console.print(f"{name:<17}{simulator.suite:<16} {state}")
    return 0


@dataclass
class MethodsOptions:
    """The methods: what each optimises, its paper, its settings."""

    suite: Literal["Bullet", "SafetyGymnasium", "MetaDrive"] = "Bullet"
    """whose settings to show"""
    preset: Literal["full", "fast"] = "full"


def methods(options: MethodsOptions) -> int:
    from tracrl.methods.registry import METHODS

    for name, method in METHODS.items():
        settings = method.preset(options.suite, options.preset)
        console.print(Text.assemble((method.title, "bold"), f" ({name})"))
        console.print(f"  {method.optimises}\n  {method.paper}")
        shown = ", ".join(f"{f.name} {getattr(settings, f.name)}" for f in fields(settings))
        console.print(f"  {shown}\n", style="dim")
    return 0
