"""``tracrl estimate``, ``tracrl gate`` and ``tracrl choose``: what policies will return and cost, from a log alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from tracrl.cli.console import console, say_aside
from tracrl.cli.data import Flag
from tracrl.errors import TracrlError

if TYPE_CHECKING:
    from tracrl.data.episodes import Episodes
    from tracrl.ope.estimates import Estimates
    from tracrl.policies.base import Policy
    from tracrl.train.directory import RunDirectory


PICTURES = (".png", ".svg", ".pdf")


@dataclass
class _LogOptions:
    runs: tyro.conf.Positional[tuple[Path, ...]]
    """run directories or policy files"""
    data: str | None = None
    """the log: a file, or a task whose data are at hand; without it, the first run's own data"""
    confidence: float = 0.9
    """of intervals and bounds"""
    holdout: float | None = None
    """use only this share of the episodes, chosen by --seed, or all of them (0); without it, those that the runs held
    out of their training, where they did"""
    seed: int = 0
    """determines the estimates"""
    device: str = "auto"
    """auto, cpu or cuda"""
    out: Path | None = None
    """also write the estimates as JSON"""


@dataclass
class EstimateOptions(_LogOptions):
    """Estimate what policies will return and cost, from logged episodes alone: nothing is played."""

    save: Flag = False
    """keep estimates and picture in each run directory, for its card, its exported policies and reports"""
    picture: Path | None = None
    """draw them, with their intervals and the limits: a .png, .svg or .pdf"""


@dataclass
class GateOptions(_LogOptions):
    """Exit 0 if all policies of a run are estimated to cost at most --limit, 3 if that is not shown."""

    limit: float = tyro.MISSING
    """what an episode may cost"""
    policy: int | None = None
    """only this policy of the stack, counted from 0"""
    saved: Flag = False
    """decide on the estimates that `tracrl estimate RUN --save` kept, in place of new ones"""


@dataclass
class ChooseOptions(_LogOptions):
    """Of all policies that pass the gate, the one with the highest lower bound of return; exit 3 if there is none.

    A policy for every limit (trac-any) is asked at several inner limits: it may pass for --limit at a higher one.
    """

    limit: float = tyro.MISSING
    """what an episode may cost"""


def estimate(options: EstimateOptions) -> int:
    from tracrl.report.estimate_figures import plot_estimates
    from tracrl.train.directory import RunDirectory

    if options.picture is not None and options.picture.suffix not in PICTURES:
        raise TracrlError(f"--picture is {str(options.picture)!r}; expected a file ending in {', '.join(PICTURES)}.")
    directories = [RunDirectory(path) for path in options.runs]
    for directory in directories if options.save else ():
        if not directory.config.exists():
            raise TracrlError(f"--save: {directory.path} is no run directory; --out writes the estimates elsewhere.")
    estimates = _estimates(options, _policies(options))
    console.print(estimates.table("Estimated from the log"))
    pictures = []
    for directory in directories if options.save else ():
        mine = estimates.take([i for i, name in enumerate(estimates.names) if name == str(directory.path)])
        mine.save(directory.estimates)
        console.print(f"Estimates: {directory.estimates}", soft_wrap=True)
        pictures.append((mine, directory.estimates.with_suffix(".png")))
    if options.picture is not None:
        pictures.append((estimates, options.picture))
    for shown, path in pictures:
        plot_estimates(shown, path, _played(shown, directories))
        console.print(f"Picture: {path}", soft_wrap=True)
    return 0


def gate(options: GateOptions) -> int:
    from tracrl.ope.gate import NOT_SHOWN, check_limit
    from tracrl.ope.gate import gate as decide

    check_limit(options.limit)
    stacks = _policies(options)
    if options.policy is not None:
        if len(stacks) > 1:
            raise TracrlError("--policy is a place in one stack, but several runs are named: name one.")
        ((name, stack),) = stacks.items()
        if not 0 <= options.policy < len(stack):
            raise TracrlError(f"--policy is {options.policy}; {name} holds {len(stack)} policies, counted from 0.")
        stacks = {name: stack[[options.policy]]}
    estimates = _saved(options, stacks) if options.saved else _estimates(options, stacks)
    decisions = decide(estimates, options.limit, options.confidence)
    for decision in decisions:
        console.print(decision.verdict, soft_wrap=True)
    console.print(decisions[0].basis, soft_wrap=True)
    return 0 if all(decision.passed for decision in decisions) else NOT_SHOWN


def choose(options: ChooseOptions) -> int:
    from tracrl.ope.gate import check_limit
    from tracrl.ope.gate import choose as decide
    from tracrl.ope.inner_limits import candidates
    from tracrl.policies.any_limit import AnyLimitPolicy

    check_limit(options.limit)
    given = _policies(options)
    stacks: dict[str, Policy] = {}
    called = {}
    for name, policy in given.items():
        if not isinstance(policy, AnyLimitPolicy):
            stacks[name] = policy
            continue
        tried = candidates(policy, [options.limit], name)
        stacks |= tried.stacks
        for stack, x in zip(tried.stacks, tried.x, strict=True):
            called[stack] = f"tracrl.load_policy({name!r})" + (f".at_x({x:g})" if x is not None else "")
    estimates = _estimates(options, stacks)
    decision = decide(estimates, options.limit, options.confidence)
    console.print(str(decision), soft_wrap=True)
    chosen = decision.policy
    if chosen is not None and estimates.names[chosen] in called:
        inner, seed, how = estimates.limits[chosen], estimates.seeds[chosen], called[estimates.names[chosen]]
        console.print(
            f"Its inner limit is {inner:g}: {how}.at({inner:g}), the policy of seed {seed}.",
            soft_wrap=True,
        )
    return decision.status


def _policies(options: _LogOptions) -> dict[str, Policy]:
    from tracrl.policies.load import load_policy

    if not options.runs:
        raise TracrlError("No policy is named: give a run directory or a policy file.")
    return {str(path): load_policy(path) for path in options.runs}


def _estimates(options: _LogOptions, stacks: Mapping[str, Policy]) -> Estimates:
    from tracrl.ope.estimate import estimate as estimate_policies
    from tracrl.train.directory import RunDirectory
    from tracrl.train.its_data import held_out, trained_on

    # A policy file that lies in a run directory is known by it.
    directories = [RunDirectory(path if path.is_dir() else path.parent) for path in options.runs]
    configs = [directory.read_config() for directory in directories if directory.config.exists()]
    data = _log(options, next(iter(stacks.values())), configs)
    marks = [mark for config in configs for mark in trained_on(config)]
    if options.holdout is None and len(configs) == len(options.runs):
        held = held_out(data, configs)
        if held is not None:
            data, marks = held, [str(config["data"]["fingerprint"]) for config in configs]
    elif len(configs) < len(options.runs) and data.fingerprint not in marks:
        marks = []  # of some runs it is not known what they were trained on
    estimates = estimate_policies(
        stacks,
        data,
        confidence=options.confidence,
        holdout=options.holdout or 0.0,
        trained_on=marks,
        seed=options.seed,
        device=options.device,
        progress=lambda text: say_aside(f"{text} ..."),
    )
    if options.out is not None:
        estimates.save(options.out)
        console.print(f"Estimates: {options.out}", soft_wrap=True)
    return estimates


def _played(estimates: Estimates, directories: Sequence[RunDirectory]) -> dict[int, tuple[float, float]]:
    """Mean return and cost of those policies that were evaluated too, by their place among the estimates."""
    from tracrl.deploy.about import Known

    found = {}
    for directory in directories:
        if directory.scores.exists():
            known = Known.of(directory.path)
            for place, mark in enumerate(known.policy.fingerprints()):
                if mark in estimates.policies and (scored := known.scored(place)) is not None:
                    found[estimates.policies.index(mark)] = scored["return"], scored["cost"]
    return found


def _saved(options: GateOptions, stacks: Mapping[str, Policy]) -> Estimates:
    """Those of a run directory, if they are of these very policies."""
    from tracrl.ope.estimates import Estimates
    from tracrl.train.directory import RunDirectory

    if len(options.runs) > 1 or not RunDirectory(options.runs[0]).estimates.exists():
        raise TracrlError(
            f"--saved: expected one run directory with estimates; tracrl estimate {options.runs[0]} --save makes them."
        )
    estimates = Estimates.load(RunDirectory(options.runs[0]).estimates)
    (stack,) = stacks.values()
    marks = stack.fingerprints()
    if missing := set(marks) - set(estimates.policies):
        raise TracrlError(
            f"--saved: the estimates in {options.runs[0]} are not of {len(missing)} of its policies as they are now; "
            f"tracrl estimate {options.runs[0]} --save makes them anew."
        )
    return estimates.take([estimates.policies.index(mark) for mark in marks])


def _log(options: _LogOptions, policy: Policy, configs: Sequence[Mapping[str, Any]]) -> Episodes:
    """The episodes to estimate from: those that are named, else those of the first run."""
    from tracrl.data.locate import load_dataset
    from tracrl.train.its_data import find_data

    if options.data is not None:
        return load_dataset(options.data)
    data = find_data(options.runs[0], configs[0]) if configs else None
    if data is not None:
        return data
    if policy.metadata.task is None:
        raise TracrlError(f"The data of {options.runs[0]} are not at hand: name the log with --data.")
    return load_dataset(policy.metadata.task)
