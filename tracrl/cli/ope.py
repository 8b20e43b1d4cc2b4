"""``tracrl estimate``, ``tracrl gate`` and ``tracrl choose``: what policies will return and cost, from a log alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from tracrl.cli.console import console, say_aside
from tracrl.errors import TracrlError

if TYPE_CHECKING:
    from tracrl.ope.estimates import Estimates


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
    console.print(_estimates(options).table("Estimated from the log"))
    return 0


def gate(options: GateOptions) -> int:
    from tracrl.ope.gate import NOT_SHOWN, check_limit
    from tracrl.ope.gate import gate as decide

    check_limit(options.limit)
    estimates = _estimates(options)
    decisions = decide(estimates, options.limit, options.confidence)
    if options.policy is not None:
        if not 0 <= options.policy < len(decisions):
            raise TracrlError(f"--policy is {options.policy}; expected 0 to {len(decisions) - 1}.")
        decisions = [decisions[options.policy]]
    for decision in decisions:
        console.print(decision.verdict, soft_wrap=True)
    console.print(decisions[0].basis, soft_wrap=True)
    return 0 if all(decision.passed for decision in decisions) else NOT_SHOWN


def choose(options: ChooseOptions) -> int:
    from tracrl.ope.gate import check_limit
    from tracrl.ope.gate import choose as decide

    check_limit(options.limit)
    decision = decide(_estimates(options), options.limit, options.confidence)
    console.print(decision.verdict, soft_wrap=True)
    console.print(decision.basis, soft_wrap=True)
    return decision.status


def _estimates(options: _LogOptions) -> Estimates:
    from tracrl.data.locate import load_dataset
    from tracrl.ope.estimate import estimate as estimate_policies
    from tracrl.ope.estimates import check_confidence
    from tracrl.policies.load import load_policy
    from tracrl.train.directory import RunDirectory

    check_confidence(options.confidence)
    if not options.runs:
        raise TracrlError("No policy is named: give a run directory or a policy file.")
    stacks = {str(path): load_policy(path) for path in options.runs}
    source = options.data or next(iter(stacks.values())).metadata.task
    if source is None:
        raise TracrlError(f"{options.runs[0]} does not say which task it is for: name the log with --data.")
    data = load_dataset(source)
    configs = [RunDirectory(path).read_config() for path in options.runs if RunDirectory(path).config.exists()]
    known = [str(dict(config.get("data", {})).get("fingerprint")) for config in configs]
    estimates = estimate_policies(
        stacks,
        data,
        confidence=options.confidence,
        holdout=options.holdout,
        trained_on=known,
        seed=options.seed,
        device=options.device,
        progress=lambda text: say_aside(f"{text} ..."),
    )
    if options.out is not None:
        estimates.save(options.out)
        console.print(f"Estimates: {options.out}", soft_wrap=True)
    return estimates
