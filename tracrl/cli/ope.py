"""``tracrl estimate``, ``tracrl gate`` and ``tracrl choose``: what policies will return and cost, from a log alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from tracrl.cli.console import console, say_aside
from tracrl.errors import TracrlError

if TYPE_CHECKING:
    from tracrl.data.episodes import Episodes
    from tracrl.ope.estimates import Estimates
    from tracrl.policies.base import Policy


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


@dataclass
class GateOptions(_LogOptions):
    """Exit 0 if all policies of a run are estimated to cost at most --limit, 3 if that is not shown."""

    limit: float = tyro.MISSING
    """what an episode may cost"""
    policy: int | None = None
    """only this policy of the stack, counted from 0"""


@dataclass
class ChooseOptions(_LogOptions):
    """Of all policies that pass the gate, the one with the highest lower bound of return; exit 3 if there is none."""

    limit: float = tyro.MISSING
    """what an episode may cost"""


def estimate(options: EstimateOptions) -> int:
    console.print(_estimates(options, _policies(options)).table("Estimated from the log"))
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
    decisions = decide(_estimates(options, stacks), options.limit, options.confidence)
    for decision in decisions:
        console.print(decision.verdict, soft_wrap=True)
    console.print(decisions[0].basis, soft_wrap=True)
    return 0 if all(decision.passed for decision in decisions) else NOT_SHOWN


def choose(options: ChooseOptions) -> int:
    from tracrl.ope.gate import check_limit
    from tracrl.ope.gate import choose as decide

    check_limit(options.limit)
    decision = decide(_estimates(options, _policies(options)), options.limit, options.confidence)
    console.print(str(decision), soft_wrap=True)
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

    directories = [RunDirectory(path) for path in options.runs]
    configs = [directory.read_config() for directory in directories if directory.config.exists()]
    data = _log(options, next(iter(stacks.values())), configs)
    marks = [mark for config in configs for mark in trained_on(config)]
    if options.holdout is None and len(configs) == len(options.runs):
        held = held_out(data, configs)
        if held is not None:
            data, marks = held, [str(config["data"]["fingerprint"]) for config in configs]
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
