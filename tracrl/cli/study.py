"""``tracrl study``: its options, the plan in a table, and how the whole thing ended.

Nothing heavy is imported before it is needed: the command line lists its commands without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from tracrl.cli.console import console
from tracrl.stopping import Stopped

if TYPE_CHECKING:
    from tracrl.study.local import Machine
    from tracrl.study.plan import Plan
    from tracrl.study.store import Store

StudyName = Literal[
    "main", "x", "y", "sides", "delta", "eta", "alpha", "no-pretraining", "uniform-reference"
]  # fmt: skip


@dataclass
class StudyOptions:
    """Run one of the paper's studies: what is done is skipped, what was stopped goes on."""

    study: tyro.conf.Positional[StudyName]
    """the main table, or an ablation of TraC"""
    suite: Literal["bullet", "safety-gymnasium", "metadrive", "all"] | None = None
    """the study's tasks of one suite; without it, all of the study's"""
    tasks: tuple[str, ...] = ()
    """tasks by name, in place of the study's"""
    methods: tuple[str, ...] = ("all",)
    """methods of the main study by name; all: the eight of the paper's table, to which others can be added by name"""
    limits: tuple[float, ...] = ()
    """cost limits; without any, each task's own"""
    seeds: tuple[int, ...] = (0, 10, 20)
    preset: Literal["full", "fast"] = "full"
    """the published settings, or a tenth of the work or less"""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = ()
    """changes of settings: updates=500 for every method that has it, trac.batch_size=32 for one"""
    episodes: int = 20
    """episodes for each policy in each evaluation"""
    evaluations: int = 10
    """evaluations along the training, the last at its end"""
    data: Path | None = None
    """a file of episodes of your own, in place of the tasks' data"""
    env: str | None = None
    """with --data: where policies are played, a Gymnasium id, module:Class or module:EnvId; without it, nowhere"""
    cost_key: str = "cost"
    """the key of its info that holds a step's cost"""
    max_steps: int | None = None
    """cut its episodes after so many steps; without it, the environment's own limit"""
    collect: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """where a task has no data, collect them first (tracrl collect), into $DSRL_DATASET_DIR or tracrl's cache"""
    collect_steps: int | None = None
    """steps that the behaviour of a collection learns from; without it, a million"""
    collect_episodes: int | None = None
    """episodes of a collected data set; without it, a thousand"""
    out: Path = Path("runs")
    """where run directories lie; studies share them"""
    plan: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """show what would run, how long it would take and what it needs; start nothing"""
    calibrate: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """with --plan: first measure some seconds of each kind of run whose rate is not known"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """of matrix products: auto is bfloat16 where the machine is faster at it and a method's scores stay as they are"""
    workers: int | None = None
    """processes side by side; without it, as many as cores and memory allow"""
    retries: int = 2
    """of a run whose process or machine died; each goes on from its last checkpoint"""
    backend: Literal["local", "ray"] = "local"
    """processes on this machine, or a Ray cluster (pip install 'tracrl[ray]')"""
    address: str = "auto"
    """of the Ray cluster"""
    cores_per_run: int = 1
    """cores that Ray sets aside for each stack of runs"""


def study(options: StudyOptions) -> int:
    """0: all is done; 1: something failed; 130 or 143: stopped."""
    import torch

    from tracrl.envs.environment import EnvSpec
    from tracrl.settings import Range, checked
    from tracrl.study.local import Machine, calibrate, run_locally
    from tracrl.study.plan import make_plan
    from tracrl.study.store import Store
    from tracrl.train.devices import choose_precision

    checked("--retries", options.retries, Annotated[int, Range(0, 1000)])
    store = Store(options.out)
    machine = Machine.this()
    # Plans are for this machine. A cluster's GPUs are not seen from here: that there are none is for it to say.
    elsewhere = options.backend == "ray" and options.device == "cuda"
    used = machine.device("auto" if elsewhere else options.device)
    plan = make_plan(
        options.study,
        suite=options.suite,
        tasks=options.tasks,
        methods=() if options.methods == ("all",) else options.methods,
        limits=options.limits,
        seeds=options.seeds,
        preset=options.preset,
        settings=options.settings,
        episodes=options.episodes,
        evaluations=options.evaluations,
        data=options.data,
        env=None if options.env is None else EnvSpec(options.env, options.cost_key, options.max_steps),
        collect=options.collect,
        collect_steps=options.collect_steps,
        collect_episodes=options.collect_episodes,
        precision=options.precision,
        known=store.data,
    )
    if options.backend == "local":  # now, and not by every process by itself
        for stack in plan.stacks:
            choose_precision(stack.precision, torch.device(used), stack.method)
    if options.plan:
        if options.calibrate and not plan.missing:
            calibrate(plan, store, console, machine, used)
        show_plan(store.remaining(plan), store, console, machine, used)
        store.data.remember()
        return 0
    if options.backend == "ray":
        from tracrl.study.ray_backend import run_on_ray

        board = run_on_ray(
            plan,
            store,
            console,
            address=options.address,
            device=options.device,
            cores=options.cores_per_run,
            retries=options.retries,
        )
    else:
        board = run_locally(
            plan, store, console, device=options.device, workers=options.workers, retries=options.retries
        )
    console.print(board.summary(), soft_wrap=True)
    inventory = store.inventory()
    stacks = board.stacks()
    for stack in stacks:
        if len(mixed := inventory.precisions(stack)) > 1:
            told = f"note: the runs of {stack.title} were trained in {' and '.join(sorted(mixed))}; tables mark it."
            console.print(told, soft_wrap=True)
    for entry in board.failures():
        log = store.assignment(entry.job).log
        console.print(f"failed: {entry.job.title}: {entry.reason} Log: {log}", soft_wrap=True)
    if board.all_done:
        show_tables(inventory.directories(stacks), console)
        console.print(f"Tables, figures and the page: tracrl report {options.out}", soft_wrap=True)
        return 0
    goes_on = "Nothing is lost: the same command goes on with what is not done."
    if board.stopped_with is not None:
        stopped = Stopped(f"Stopped. {goes_on}")
        stopped.exit_code = board.stopped_with
        raise stopped
    console.print(goes_on)
    return 1


def show_plan(plan: Plan, store: Store, console: Console, machine: Machine, used: str) -> None:
    """What would run, and what it would take on the machine's used device, as far as that was measured."""
    from tracrl.study.board import duration, state_of
    from tracrl.study.estimate import estimate
    from tracrl.study.measured import Rates, memory_of

    cores = len(machine.cores)
    rates, inventory = Rates.of(store), store.inventory()
    table = Table(box=None, pad_edge=False)
    for column in ("task", "method", "variant", "runs", "updates", "state", "time", "memory"):
        table.add_column(column, justify="right" if column in ("runs", "updates", "time", "memory") else "left")
    for stack in plan.stacks:
        seconds = rates.seconds(stack, used, cores)
        state = state_of(stack, store, inventory)
        table.add_row(
            stack.task,
            stack.method.title,
            stack.variant,
            str(len(stack.trained)),
            str(stack.method.updates),
            state,
            "" if state == "done" else "unknown" if seconds is None else duration(seconds),
            "" if state == "done" else f"{memory_of(stack, rates, used) / 2**30:.1f} GiB",
        )
    console.print(table)
    todo = [stack for stack in plan.stacks if stack.data is None or not inventory.done(stack)]
    total = estimate(plan, store, used, cores)
    where = f"on {cores} core{'s' if cores > 1 else ''}" + (f" and {machine.gpus} GPU" if used == "cuda" else "")
    for spec in plan.collections:
        state = "goes on" if spec.started else "to be collected"
        console.print(f"{spec.task}: {state}, {spec.episodes:,} episodes into {spec.file}", soft_wrap=True)
    runs = sum(len(stack.trained) for stack in todo)
    console.print(f"\n{plan.study}: {len(plan.stacks)} stacks, {len(todo)} to do ({runs} runs).")
    if not todo:
        console.print("Nothing is left to do.")
    for name, work in total.kinds.items():
        time = f"about {duration(work.seconds)} {where}" if work.seconds else "unknown"
        console.print(f"  {name}: {time} ({work.source})", highlight=False)
    if len(total.kinds) > 1:
        more = any(work.unknown for work in total.kinds.values())
        told = f"{'more than' if more else 'about'} {duration(total.seconds)}" if total.seconds else "unknown"
        console.print(f"  in all: {told} {where}; --calibrate measures what was not", highlight=False)
    if todo:
        console.print(
            f"Memory: about {total.memory / 2**30:.1f} GiB for the largest job, "
            f"{machine.memory / 2**30:.1f} GiB are free.",
        )
    if plan.missing:
        console.print("Missing, to be got first:", style="bold")
        for command in plan.missing.commands:
            console.print(f"  {command}", soft_wrap=True)


def show_tables(directories: Sequence[Path], console: Console) -> None:
    """What came out, as ``tracrl report`` shows it; that writes more, and this writes nothing."""
    from tracrl.report.build import show_results
    from tracrl.report.collection import collect

    show_results(collect(directories), console)
