"""``tracrl train``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tracrl.cli.console import console, say_aside
from tracrl.cli.data import DataOptions, Flag
from tracrl.cli.evaluate import show_run
from tracrl.cli.method_options import parse_training
from tracrl.errors import TracrlError

if TYPE_CHECKING:
    from tracrl.data.episodes import Episodes
    from tracrl.evaluation.evaluate import Evaluator
    from tracrl.policies.base import Policy


@dataclass
class TrainOptions(DataOptions):
    """Train limits × seeds runs of a method as one stack, then evaluate them."""

    task: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = None
    """the task whose data and simulator are used; none for a file of your own"""
    data: Path | None = None
    """a file of episodes, in place of the task's own"""
    limits: tuple[float, ...] = ()
    """cost limits; without any, the task's own"""
    seeds: tuple[int, ...] = (0,)
    preset: Literal["full", "fast"] = "full"
    """the published settings, or a tenth of the work or less"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """of matrix products: auto is bfloat16 on GPUs and on processors that have instructions for it (avx512_bf16), for
    methods whose scores it leaves as they are; else float32 (on a GPU: TF32)"""
    standardise: Literal["auto", "on", "off"] = "auto"
    """train in the data's own units, which the policy keeps: auto is on for your own data, and for the fast preset on
    MetaDrive and SafetyGymnasium's maps; off for the other tasks, and for published settings"""
    strict: Flag = False
    """a training that looks dead (one action everywhere, no better than chance) is an error, not a warning"""
    holdout: float | None = None
    """train on all but this share of the episodes, such as 0.1: estimates then use those held out"""
    calibrate: Flag = False
    """trac-any: for each limit, choose from the log alone the inner limit and x whose estimated cost is at most that
    limit; trains with --least-x 6 --eta 1 and, by the fast preset, three times its updates, where nothing else is asked
    for"""
    confidence: float = 0.9
    """how sure --calibrate must be that a policy keeps to its limit"""
    out: Path | None = None
    """the run directory; without it, runs/<task>-<method>-<identity>"""
    resume: Flag = False
    """go on where a run in the same directory stopped"""
    env: str | None = None
    """evaluate in an environment of your own: a Gymnasium id, module:Class or module:EnvId"""
    cost_key: str = "cost"
    """the key of its info that holds a step's cost"""
    max_steps: int | None = None
    """cut its episodes after so many steps; without it, the environment's own limit"""
    no_eval: Flag = False
    """do not evaluate: no simulator is needed"""
    episodes: int = 20
    """episodes for each policy in each evaluation"""
    evaluations: int = 10
    """evaluations along the training, the last at its end"""
    wandb: str | None = None
    """also log to this Weights & Biases project"""


def train(arguments: Sequence[str]) -> int:
    from tracrl.methods.registry import METHODS, get_method
    from tracrl.methods.trac_any import TraCAny
    from tracrl.ope.estimates import check_confidence
    from tracrl.settings import Episodes as EpisodeCount
    from tracrl.settings import checked
    from tracrl.tasks.table import get_task
    from tracrl.train.directory import default_directory
    from tracrl.train.fit import fit, standardise_or_not
    from tracrl.train.progress import Terminal

    if not arguments or arguments[0] in ("-h", "--help"):
        console.print(f"usage: tracrl train {{{','.join(METHODS)},module:Class}} [TASK] [OPTIONS]\n")
        console.print("Options of a method: tracrl train METHOD --help")
        return 0 if arguments else 2
    kind = get_method(arguments[0])
    options, changes = parse_training(kind, TrainOptions, arguments[1:])
    if options.calibrate and (kind.name != "trac-any" or changes.get("told") == "remaining"):
        raise TracrlError("--calibrate chooses inner limits: it is for trac-any with --told limit alone.")
    check_confidence(options.confidence)
    # The suite follows the task, however it is found; where it is named, settings are judged before data are read.
    named = None if options.task is None else get_task(options.task)
    read = None if named else _training_data(options)
    task = named if read is None else read[0].known_task
    suite = task.suite if task else "Bullet"
    if options.calibrate:
        changes = {**TraCAny.to_calibrate(suite, options.preset), **changes}
    method = kind.preset(suite, options.preset, **changes)
    checked("--episodes", options.episodes, EpisodeCount)
    data, held_out = read or _training_data(options)
    limits = options.limits or _limits_of(data)
    own_units = standardise_or_not(options.standardise, data.known_task, method)
    out = options.out or default_directory(method, data, limits, options.seeds, own_units)
    name = data.task or data.metadata.get("file", "the data")
    console.print(f"{method.title} on {name}: {len(data)} episodes from {data.metadata.get('file')}")
    whose = f"{suite}'s" if task else f"no known task, so {suite}'s"
    shown = ", ".join(f"{f.name} {getattr(method, f.name)}" for f in fields(method))
    console.print(f"Settings ({whose}, {options.preset}): {shown}", style="dim")
    if own_units:
        console.print("Observations are standardised (--standardise off: as they are).", style="dim")
    if along := kind.scaled_along(suite, options.preset, changes):
        console.print(f"note: {kind.scaling_note(method.updates, along)}")
    run = fit(
        method,
        data,
        limits=limits,
        seeds=options.seeds,
        out=out,
        resume=options.resume,
        device=options.device,
        precision=options.precision,
        standardise=options.standardise,
        strict=options.strict,
        evaluator=_evaluator_for(data, options),
        evaluations=options.evaluations,
        wandb=options.wandb,
        progress=Terminal(console),
    )
    show_run(out)
    if options.calibrate:
        calibrate(run.policy, data if held_out is None else held_out, data, limits, out, options)
    if run.scores is None and data.task is not None:
        console.print(f"Evaluate it where {data.task} runs: tracrl evaluate {out} --save")
    return 0


def calibrate(
    policy: Policy, log: Episodes, trained: Episodes, limits: Sequence[float], out: Path, options: TrainOptions
) -> None:
    """Choose the inner limits of a finished run's policies from the log alone, and keep what was chosen."""
    from tracrl.ope.estimate import estimate
    from tracrl.ope.inner_limits import calibrate as chosen_limits
    from tracrl.ope.inner_limits import candidates, effort_on
    from tracrl.policies.any_limit import AnyLimitPolicy
    from tracrl.train.directory import RunDirectory

    assert isinstance(policy, AnyLimitPolicy)
    given = candidates(policy, limits)
    estimates = estimate(
        given.stacks,
        log,
        trained_on=[trained.fingerprint],
        device=options.device,
        effort=effort_on(options.device),
        candidates=True,
        progress=lambda text: say_aside(f"{text} ..."),
    )
    found = chosen_limits(given, estimates, limits, options.confidence)
    directory = RunDirectory(out)
    found.save(directory)
    console.print(found.table())
    console.print(f"Calibrated policies: {directory.calibrated}", soft_wrap=True)


def _training_data(options: TrainOptions) -> tuple[Episodes, Episodes | None]:
    """The episodes to train on, and those held out."""
    from tracrl.data.holdout import split
    from tracrl.data.locate import load_dataset

    if options.task is None and options.data is None:
        raise TracrlError("Say what to train on: a task (tracrl train trac BallRun) or a file (--data my.hdf5).")
    source = options.data or options.task
    assert source is not None
    data = load_dataset(source, task=options.task, **options.reading())
    if options.holdout is None:
        return data, None
    rest, held = split(data, options.holdout)
    console.print(f"{len(held)} of {len(data)} episodes are held out of the training.")
    return rest, held


def _limits_of(data: Episodes) -> tuple[float, ...]:
    from tracrl.tasks.table import all_tasks, get_task

    if data.task not in all_tasks():
        raise TracrlError("Say which cost an episode may have: for example --limits 25 (tracrl data inspect helps).")
    return get_task(data.task).limits


def _evaluator_for(data: Episodes, options: TrainOptions) -> Evaluator | None:
    """In the environment or the task that was asked for, else in the file's own task if its simulator is there."""
    from tracrl.envs.environment import EnvSpec
    from tracrl.envs.simulators import installed, simulator_of
    from tracrl.evaluation.evaluate import Evaluator
    from tracrl.tasks.table import all_tasks

    if options.no_eval and options.env is not None:
        raise TracrlError("--env says where to evaluate, and --no-eval that it is not done: leave out one of them.")
    name = options.env or options.task or data.task
    if options.no_eval or name is None or (options.env is None and name not in all_tasks()):
        return None
    if name == data.task != options.task and options.env is None and not installed(simulator_of(name).name):
        return None
    return Evaluator(EnvSpec(name, options.cost_key, options.max_steps), episodes=options.episodes)
