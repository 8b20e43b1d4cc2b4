"""``tracrl estimate``, ``tracrl gate`` and ``tracrl choose``: what policies will return and cost, from a log alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from tracrl.cli.console import console, say_aside
from tracrl.errors import TracrlError

if TYPE_CHECKING:
    from tracrl.ope.estimates import Estimates
    from tracrl.policies.base import Policy


@dataclass
class _LogOptions:
    runs: tyro.conf.Positional[tuple[Path, ...]]
    """run directories or policy files"""
    data: str | None = None
    """the log: a file, or a task whose data are at hand; without it, the task of the first run"""
    confidence: float = 0.9
    """of intervals and bounds"""
    holdout: float = 0.0
    """use only this share of the episodes, chosen by --seed: the one that `tracrl.ope.holdout.split` holds out"""
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
    from tracrl.data.locate import load_dataset
    from tracrl.ope.estimate import estimate as estimate_policies
    from tracrl.train.directory import RunDirectory

    source = options.data or next(iter(stacks.values())).metadata.task
    if source is None:
        raise TracrlError(f"{options.runs[0]} does not say which task it is for: name the log with --data.")
    directories = [RunDirectory(path) for path in options.runs]
    configs = [directory.read_config() for directory in directories if directory.config.exists()]
    estimates = estimate_policies(
        stacks,
        load_dataset(source),
        confidence=options.confidence,
        holdout=options.holdout,
        trained_on=[str(config["data"]["fingerprint"]) for config in configs if "data" in config],
        seed=options.seed,
        device=options.device,
        progress=lambda text: say_aside(f"{text} ..."),
    )
    if options.out is not None:
        estimates.save(options.out)
        console.print(f"Estimates: {options.out}", soft_wrap=True)
    return estimates
