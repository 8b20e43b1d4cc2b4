"""``tracrl evaluate``, and how a run directory is shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.progress import TaskID

from tracrl.bars import TerminalBars
from tracrl.cli.console import console
from tracrl.cli.data import Flag
from tracrl.errors import TracrlError
from tracrl.tasks.table import get_task

if TYPE_CHECKING:
    from tracrl.data.episodes import Episodes
    from tracrl.envs.environment import EnvSpec
    from tracrl.evaluation.evaluate import Evaluator
    from tracrl.evaluation.scores import Scores
    from tracrl.ope.alarm import OutOfData
    from tracrl.policies.base import Policy
    from tracrl.train.directory import RunDirectory


@dataclass
class EvaluateOptions:
    """Play the policies of a run and print what they score. Changes nothing, unless --save says so."""

    run: tyro.conf.Positional[Path]
    """a run directory or a policy file"""
    task: str | None = None
    """the task, where the run does not say it"""
    env: str | None = None
    """an environment of your own, in place of a task: a Gymnasium id, module:Class or module:EnvId"""
    cost_key: str | None = None
    """the key of info that holds a step's cost; without it, "cost", or what the run was trained with"""
    max_steps: int | None = None
    """cut episodes after so many steps; without it, the environment's own limit"""
    episodes: int = 20
    """episodes for each policy"""
    seed: int = 0
    """determines the episodes"""
    limit: float | None = None
    """only the policies that were trained for this cost limit"""
    limits: tuple[float, ...] = ()
    """at these cost limits, for policies that serve every limit: those of trac-any, cdt and bc-all"""
    workers: int | None = None
    """simulator processes; without it, one per core"""
    save: Flag = False
    """replace the run's scores by these; with --limits, keep them beside these for the page's curve over limits"""
    ood: Flag = False
    """also say how often the policies do what no logged step was like, in logged states and where they go"""
    data: str | None = None
    """the log for --ood: a file or a task; without it, the run's own data where they are at hand"""
    method: str | None = None
    """module:Class of a method of your own, where its policies act in a way of their own"""
    video: Path | None = None
    """record the first of the episodes, of the first policy, as .mp4 or .gif"""


def evaluate(options: EvaluateOptions) -> int:
    from tracrl.evaluation.evaluate import Evaluator
    from tracrl.methods.registry import get_method
    from tracrl.policies.load import load_policy
    from tracrl.train.checksums import renew
    from tracrl.train.directory import RunDirectory

    if options.method is not None:
        get_method(options.method)  # whose file defines the policy's kind
    if options.data is not None and not options.ood:
        raise TracrlError("--data is the log that --ood compares with: add --ood, or leave it out.")
    directory = RunDirectory(options.run) if options.run.is_dir() else None
    policy = _of_limit(load_policy(options.run), options)
    spec = _environment(policy, directory, options)
    if options.save:
        _may_save(directory, spec, options)
    if options.video is not None:
        return _record(policy, spec, options)
    data = _log(policy, directory, options) if options.ood else None
    evaluator = Evaluator(spec, episodes=options.episodes, seed=options.seed, workers=options.workers)
    with evaluator, _Bars("episodes") as bars:
        scores = evaluator.evaluate(policy, progress=bars.played)
        best = None
        if directory is not None and directory.best.exists() and not options.limits:
            best = _of_limit(load_policy(directory.best), options)
            best_scores = evaluator.evaluate(best, progress=bars.played)
        strayed = None if data is None else _strayed(policy, data, evaluator)
    if options.save and directory is not None and options.limits:
        _save_further(scores, directory)
    elif options.save and directory is not None:
        scores.save(directory.scores)
        if best is not None:
            best_scores.save(directory.best_scores)
        renew(directory.path)
        if strayed is not None:
            strayed.save(directory.out_of_data)
        show_run(directory.path)
        if strayed is not None:
            console.print(strayed.table("Out of the data"))
        return 0
    if best is not None:
        console.print(best_scores.table(f"{options.run}: best policy on the way"), style="dim")
    console.print(scores.table(f"{options.run}: final policy" if directory else f"{options.run}"))
    if strayed is not None:
        console.print(strayed.table("Out of the data"))
    _show_warnings(directory)
    return 0


def _save_further(scores: Scores, directory: RunDirectory) -> None:
    """Keep the scores at limits that are not the run's own, with those that were kept before."""
    from tracrl.evaluation.scores import Scores
    from tracrl.train.checksums import renew
    from tracrl.train.finished import read_metadata

    own = {run.limit for run in read_metadata(directory.path).runs}
    if there := sorted(own & set(scores.limits)):
        told = " ".join(f"{limit:g}" for limit in there)
        console.print(
            f"note: At its own limits ({told}) the run keeps the scores that it has: --save without --limits."
        )
    further = scores.take([i for i, limit in enumerate(scores.limits) if limit not in own])
    if not further.limits:
        return
    if directory.further_scores.exists():
        before = Scores.load(directory.further_scores)
        others = before.take([i for i, limit in enumerate(before.limits) if limit not in further.limits])
        alike = (
            before.protocol is not None
            and further.protocol is not None
            and not before.protocol.differences(further.protocol)
        )
        if others.limits and alike:
            further = others.joined_with(further)
        elif others.limits:
            console.print("note: Scores at other limits were of other episodes: they are gone.")
    further.save(directory.further_scores)
    renew(directory.path)


def _log(policy: Policy, directory: RunDirectory | None, options: EvaluateOptions) -> Episodes:
    """The log that the policies are held against."""
    from tracrl.data.locate import load_dataset
    from tracrl.ope.log import check_policy
    from tracrl.train.its_data import find_data

    data = None
    if options.data is not None:
        data = load_dataset(options.data)
    elif directory is not None:
        data = find_data(directory.path, directory.read_config())
    if data is None:
        raise TracrlError(f"--ood: the data of {options.run} are not at hand: name the log with --data.")
    check_policy(policy, data)
    return data


def _strayed(policy: Policy, data: Episodes, evaluator: Evaluator) -> OutOfData:
    from tracrl.evaluation.visited import visited_steps
    from tracrl.ope.alarm import out_of_data

    return out_of_data(policy, data, visited_steps(evaluator, policy))


def _show_warnings(directory: RunDirectory | None) -> None:
    for sentence in () if directory is None else directory.read_warnings():
        console.print(f"Warning: {sentence}", style="red", soft_wrap=True)


def _of_limit(policy: Policy, options: EvaluateOptions) -> Policy:
    if options.limits:
        return _at_limits(policy, options)
    if options.limit is None:
        return policy
    which = [i for i, limit in enumerate(policy.metadata.limits) if limit == options.limit]
    if not which:
        there = " ".join(f"{limit:g}" for limit in dict.fromkeys(policy.metadata.limits))
        raise TracrlError(f"--limit is {options.limit:g}, but {options.run} was trained for {there}.")
    return policy[which]


def _at_limits(policy: Policy, options: EvaluateOptions) -> Policy:
    """One policy serves every limit: each of its seeds at each limit that is asked for."""
    from tracrl.methods.registry import known_method
    from tracrl.settings import check_limits

    if options.limit is not None:
        raise TracrlError("--limit and --limits both say which limits are evaluated: give one of them.")
    limits = check_limits(options.limits)
    method = known_method(policy.metadata.method)
    if method is None or method.depends_on_limit:
        there = " ".join(f"{limit:g}" for limit in dict.fromkeys(policy.metadata.limits))
        raise TracrlError(
            f"--limits is for policies that serve every limit, such as those of trac-any; {options.run} was trained "
            f"for {there}: choose one of them with --limit."
        )
    return policy.over(limits)


def _environment(policy: Policy, directory: RunDirectory | None, options: EvaluateOptions) -> EnvSpec:
    """What to evaluate in: what was asked for, else what the run was evaluated in on the way, else its task."""
    from tracrl.envs.environment import EnvSpec

    if options.env is not None and options.task is not None:
        raise TracrlError("--task and --env both name an environment: give one of them.")
    if options.task is not None:
        get_task(options.task)
    before = None if directory is None else directory.environment()
    name = options.env or options.task or (before.name if before else policy.metadata.task)
    if name is None:
        raise TracrlError(f"{options.run} does not say which task it is for: add --task, or --env my_package:MyEnv.")
    spec = before if before is not None and before.name == name else EnvSpec(name)
    return EnvSpec.of(
        replace(spec, cost_key=options.cost_key or spec.cost_key, max_steps=options.max_steps or spec.max_steps)
    )


def _may_save(directory: RunDirectory | None, spec: EnvSpec, options: EvaluateOptions) -> None:
    """Scores that replace a run's are of all its policies, in its own environment."""
    from tracrl.evaluation.scores import Scores

    if directory is None:
        raise TracrlError(f"--save: {options.run} is a policy file; scores are saved in a run directory.")
    others = {"--limit": options.limit is not None, "--video": options.video is not None}
    if other := next((name for name, given in others.items() if given), None):
        raise TracrlError(f"--save replaces the scores of all policies of a run: leave out {other}.")
    if options.limits and options.ood:
        raise TracrlError("--save keeps what --ood says of a run at its own limits: leave out --limits, or --ood.")
    before = directory.environment()
    own = before.name if before is not None else directory.read_config()["task"]
    if own is None and directory.scores.exists():
        protocol = Scores.load(directory.scores).protocol
        own = None if protocol is None else protocol.env
    if own is not None and own != spec.name:
        raise TracrlError(
            f"--save: {options.run} is a run on {own}, and these would be scores in {spec.name}: look at them without "
            "--save."
        )


def _record(policy: Policy, spec: EnvSpec, options: EvaluateOptions) -> int:
    from tracrl.envs.video import record_video
    from tracrl.evaluation.evaluate import episode_seeds

    assert options.video is not None
    with _Bars("steps") as bars:
        score = record_video(spec, policy[0], options.video, episode_seeds(options.seed, 1)[0], progress=bars.played)
    limit, seed = policy.metadata.limits[0], policy.metadata.seeds[0]
    console.print(
        f"Video: {options.video} (limit {limit:g}, seed {seed}: {score.steps} steps, "
        f"return {score.episode_return:.1f}, cost {score.episode_cost:.1f})",
    )
    return 0


class _Bars(TerminalBars):
    """How many of the episodes, or of an episode's steps, have been played."""

    def __init__(self, unit: str):
        super().__init__(console)
        self._unit = unit
        self._task: TaskID | None = None

    def played(self, done: int, total: int | None) -> None:
        if self._task is None:
            self._task = self.bars.add_task(f"playing {self._unit}", total=total, rate="", note="")
        self.bars.update(self._task, completed=done)
        if done == total:  # what comes next has a bar of its own
            self._task = None


def show_run(path: Path) -> None:
    """Tables and pictures of a run directory."""
    from tracrl.evaluation.scores import Scores
    from tracrl.methods.registry import metadata_of
    from tracrl.report.run_figures import plot_curves, plot_scores
    from tracrl.train.directory import RunDirectory
    from tracrl.train.logs import read_log

    directory = RunDirectory(path)
    config = directory.read_config()
    method = metadata_of(config)
    title = f"{method.title} on {config['task'] or 'own data'}"
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
        phases = {int(row["step"]): row["phase"] for row in evaluations}
        ends = {phases[max(s for s in phases if s <= end)]: end for end in method.phase_ends if end >= min(phases)}
        plot_curves(evaluations, path / "curves.png", f"{title}: learning curves", ends)
        pictures.append(path / "curves.png")
    _show_warnings(directory)
    console.print(f"Run directory: {path}", soft_wrap=True)
    if pictures:
        console.print(f"Pictures: {' '.join(map(str, pictures))}", soft_wrap=True)
