"""The command line: one function a command, no logic of its own."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from tracrl.errors import TracrlError
from tracrl.study.command import ReportOptions, StudyOptions, report, study

if TYPE_CHECKING:
    from tracrl.data.episodes import Episodes
    from tracrl.methods.method import Method

console = Console(highlight=False)
if not console.is_terminal:
    console.width = 120  # a file or a pipe has no width: tables need not fold at 80
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
            "installed" if installed(simulator.name) else "[dim]missing[/]",
            f"{found[1]}" if found else "[dim]missing[/]",
        )
    console.print(table)
    console.print("\nA missing simulator: tracrl sims install NAME. Missing data: tracrl data fetch TASK.", style="dim")
    return 0


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
        console.print(f"note: {notice}", markup=False)
    console.print(f"{options.source} is in order{'' if not notices else ', with the notes above'}.", markup=False)
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
        console.print(f"{task.name}: {fetch(task, directory=options.out, console=console)}", markup=False)
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
        console.print(f"[bold]{method.title}[/] ({name})")
        console.print(f"  {method.optimises}\n  {method.paper}", markup=False)
        shown = ", ".join(f"{f.name} {getattr(settings, f.name)}" for f in fields(settings))
        console.print(f"  {shown}\n", style="dim", markup=False)
    return 0


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
    """of TraC's matrix products: auto is bfloat16 on a GPU (where float32 means TF32) and float32 on a CPU, where
    bfloat16 is faster but needs a processor that has it (avx512_bf16); other methods are always float32"""
    out: Path | None = None
    """the run directory; without it, runs/<task>-<method>-<identity>"""
    resume: Flag = False
    """go on where a run in the same directory stopped"""
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
    from tracrl.train.directory import default_directory
    from tracrl.train.fit import fit
    from tracrl.train.progress import Terminal

    if not arguments or arguments[0] in ("-h", "--help"):
        console.print(f"usage: tracrl train {{{','.join(METHODS)}}} [TASK] [OPTIONS]\n")
        console.print("Options of a method: tracrl train METHOD --help")
        return 0 if arguments else 2
    options, method = _parse_training(get_method(arguments[0]), arguments[1:])
    data = _training_data(options)
    limits = options.limits or _limits_of(data)
    out = options.out or default_directory(method, data, limits, options.seeds)
    name = data.task or data.metadata.get("file", "the data")
    console.print(f"{method.title} on {name}: {len(data)} episodes from {data.metadata.get('file')}", markup=False)
    run = fit(
        method,
        data,
        limits=limits,
        seeds=options.seeds,
        out=out,
        resume=options.resume,
        device=options.device,
        precision=options.precision,
        evaluate_on=_simulator_for(data, options),
        evaluations=options.evaluations,
        episodes=options.episodes,
        wandb=options.wandb,
        progress=Terminal(console),
    )
    _show_run(out)
    if run.scores is None and data.task is not None:
        console.print(f"Evaluate it where {data.task} runs: tracrl evaluate {out}", markup=False)
    return 0


@dataclass
class EvaluateOptions:
    """Play the policies of a run in their simulator and print what they score."""

    run: tyro.conf.Positional[Path]
    """a run directory or a policy file"""
    task: str | None = None
    """the task, where the run does not say it"""
    episodes: int = 20
    """episodes for each policy"""
    seed: int = 0
    """determines the episodes"""
    workers: int | None = None
    """simulator processes; without it, one a core"""
    video: Path | None = None
    """record one episode of the first policy as .mp4 or .gif"""


def evaluate(options: EvaluateOptions) -> int:
    from tracrl.evaluation.evaluate import SimulatorPool
    from tracrl.policies.load import load_policy
    from tracrl.train.checksums import renew
    from tracrl.train.directory import RunDirectory

    directory = RunDirectory(options.run) if options.run.is_dir() else None
    policy = load_policy(options.run)
    task = options.task or policy.metadata.task
    if task is None:
        raise TracrlError(f"{options.run} does not say which task it is for: add --task.")
    if options.video is not None:
        return _record(policy, task, options)
    with SimulatorPool(task, options.workers) as pool:
        scores = pool.evaluate(policy, episodes=options.episodes, seed=options.seed)
        if directory is None:
            console.print(scores.table(f"{options.run}"))
            return 0
        scores.save(directory.scores)
        if directory.best.exists():
            best = pool.evaluate(load_policy(directory.best), episodes=options.episodes, seed=options.seed)
            best.save(directory.best_scores)
    renew(directory.path)
    _show_run(directory.path)
    return 0


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
    """simulator processes; without it, one a core"""
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
    from tracrl.collect.environment import EnvSpec
    from tracrl.collect.progress import Terminal
    from tracrl.collect.run import collect as run

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


def _parse_training(kind: type[Method], arguments: Sequence[str]) -> tuple[TrainOptions, Method]:
    """Options and settings; the settings' defaults are the preset of the task's suite, so they are parsed twice."""
    from tracrl.tasks.table import get_task

    training = make_dataclass("Training", [("run", TrainOptions), ("settings", kind)])
    training.__doc__ = f"{TrainOptions.__doc__}\n\n{kind.__doc__}"

    def parse(default: Method, given: Sequence[str]) -> tuple[TrainOptions, Method]:
        parsed: Any = tyro.cli(
            tyro.conf.OmitArgPrefixes[training],  # type: ignore[misc, valid-type]
            prog=f"tracrl train {kind.name}",
            args=list(given),
            default=training(TrainOptions(), default),
        )
        return parsed.run, parsed.settings

    options, _ = parse(kind.preset(), [word for word in arguments if word not in ("-h", "--help")])
    suite = "Bullet" if options.task is None else get_task(options.task).suite
    return parse(kind.preset(suite, options.preset), arguments)


def _training_data(options: TrainOptions) -> Episodes:
    from tracrl.data.locate import load_dataset

    if options.task is None and options.data is None:
        raise TracrlError("Say what to train on: a task (tracrl train trac BallRun) or a file (--data my.hdf5).")
    source = options.data or options.task
    assert source is not None
    return load_dataset(source, task=options.task, **options.reading())


def _limits_of(data: Episodes) -> tuple[float, ...]:
    from tracrl.tasks.table import all_tasks, get_task

    if data.task not in all_tasks():
        raise TracrlError("Say which cost an episode may have: for example --limits 25 (tracrl data inspect helps).")
    return get_task(data.task).limits


def _simulator_for(data: Episodes, options: TrainOptions) -> str | None:
    """The task to evaluate on: the one that was asked for, else the file's own if its simulator is there."""
    from tracrl.envs.simulators import installed, require, simulator_of
    from tracrl.tasks.table import all_tasks

    if options.no_eval or data.task not in all_tasks():
        return None
    if options.task is not None:
        require(options.task)
        return options.task
    return data.task if installed(simulator_of(data.task).name) else None


def _show_run(path: Path) -> None:
    """Tables and pictures of a run directory."""
    from tracrl.evaluation.scores import Scores
    from tracrl.methods.registry import get_method
    from tracrl.report.run_figures import plot_curves, plot_scores
    from tracrl.train.directory import RunDirectory
    from tracrl.train.logs import read_log

    directory = RunDirectory(path)
    config = directory.read_config()
    title = f"{get_method(config['method']).title} on {config['task'] or 'own data'}"
    pictures = []
    if directory.scores.exists():
        scores = Scores.load(directory.scores)
        console.print()
        if directory.best_scores.exists():
            best = Scores.load(directory.best_scores)
            console.print(best.table(f"{title}: best policy on the way (chosen in the simulator)"), style="dim")
        console.print(scores.table(f"{title}: final policy"))
        plot_scores(scores, path / "scores.png", f"{title}: final policies, {scores.returns.shape[1]} episodes each")
        pictures.append(path / "scores.png")
    if evaluations := read_log(directory.evaluations):
        cloned = config["settings"].get("clone_updates")
        plot_curves(
            evaluations, path / "curves.png", f"{title}: learning curves", {"cloning": cloned} if cloned else {}
        )
        pictures.append(path / "curves.png")
    console.print(f"Run directory: {path}", markup=False, soft_wrap=True)
    if pictures:
        console.print(f"Pictures: {' '.join(map(str, pictures))}", markup=False, soft_wrap=True)


def _check_tasks() -> int:
    from tracrl.envs.check import check_all

    rows = []
    for row in check_all():
        rows.append(row)
        state = "runs" if row.ok else f"[red]does not run[/]: {row.message}"
        console.print(
            f"{row.task:<20}{row.suite:<16} observation {row.observation_size:>3}, action {row.action_size}: {state}"
        )
    running = sum(row.ok for row in rows)
    console.print(f"{running} of {len(rows)} run")
    return 0 if running == len(rows) else 1


def _record(policy: Any, task: str, options: EvaluateOptions) -> int:
    from tracrl.envs.video import record_video

    assert options.video is not None
    score = record_video(task, policy[0], options.video, options.seed)
    console.print(
        f"Video: {options.video} ({score.steps} steps, return {score.episode_return:.1f}, "
        f"cost {score.episode_cost:.1f})",
        markup=False,
    )
    return 0


# Words of the command -> what runs, and what it takes.
COMMANDS: dict[tuple[str, ...], tuple[Callable[[Any], int], type | None]] = {
    ("tasks",): (tasks, TasksOptions),
    ("sims",): (sims, SimsOptions),
    ("methods",): (methods, MethodsOptions),
    ("data", "inspect"): (data_inspect, InspectOptions),
    ("data", "check"): (data_check, CheckOptions),
    ("data", "fetch"): (data_fetch, FetchOptions),
    ("train",): (train, None),
    ("evaluate",): (evaluate, EvaluateOptions),
    ("collect",): (collect, CollectOptions),
    ("study",): (study, StudyOptions),
    ("report",): (report, ReportOptions),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors that the user can mend are one sentence, not a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = _note
    for words, (function, options) in COMMANDS.items():
        if tuple(given[: len(words)]) == words:
            rest = given[len(words) :]
            try:
                if options is None:
                    return function(rest)
                return function(tyro.cli(options, prog=f"tracrl {' '.join(words)}", args=rest))
            except TracrlError as error:
                return _fail(str(error))
            except KeyboardInterrupt as stop:  # with words where a training was saved first
                return _fail(str(stop) or "Stopped.", 130)
            except BrokenPipeError:  # the reader of a pipe has seen enough
                return 141
    _usage()
    return 0 if given and given[0] in ("-h", "--help", "help") else 2


def _usage() -> None:
    import tracrl

    console.print(
        f"tracrl {tracrl.__version__}: offline safe reinforcement learning\n\nusage: tracrl COMMAND [OPTIONS]\n"
    )
    for words, (_, options) in COMMANDS.items():
        text = (options or TrainOptions).__doc__ or ""
        console.print(f"  {' '.join(words):<14}{text.splitlines()[0]}", markup=False, soft_wrap=True)
    console.print("\nOptions of a command: tracrl COMMAND --help")


def _fail(message: str, status: int = 1) -> int:
    print(f"tracrl: {message}", file=sys.stderr)
    return status


def _note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        print(f"note: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
