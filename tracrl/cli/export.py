"""``tracrl export`` and ``tracrl card``: a policy as an ONNX file, and a page about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from tracrl.cli.console import console
from tracrl.errors import TracrlError


@dataclass
class ExportOptions:
    """Write one policy as ONNX: observation in, action out, with what is known of it; checked against the policy."""

    run: tyro.conf.Positional[Path]
    """a run directory or a policy file"""
    out: Path
    """the file to write, such as policy.onnx"""
    limit: float | None = None
    """the policy that was trained for this cost limit, where the run holds several; of one that serves every limit,
    its policy for this one, where the file would take cost_limit as a second input"""
    seed: int | None = None
    """the policy of this seed, where the run holds several"""
    data: str | None = None
    """states to check it on: a file or a task; without it, the run's own data where they are at hand"""
    method: str | None = None
    """module:Class of a method of your own, where its policies act in a way of their own"""


def export(options: ExportOptions) -> int:
    from tracrl.deploy.about import Known
    from tracrl.deploy.export import STATES
    from tracrl.deploy.export import export as write
    from tracrl.deploy.kinds import LimitRangeExporter, exporter_of
    from tracrl.methods.registry import get_method

    if options.out.suffix != ".onnx":
        raise TracrlError(f"--out is {str(options.out)!r}; expected a file that ends in .onnx.")
    if options.method is not None:
        get_method(options.method)  # whose file defines the policy's kind
    known = Known.of(options.run)
    policy, about = known.to_export(options.limit, options.seed)
    data = known.data(options.data)
    difference = write(policy, options.out, about=about, states=None if data is None else data.observations)
    exporter = exporter_of(policy)
    which = "any limit, " if isinstance(exporter, LimitRangeExporter) else f"limit {policy.metadata.limits[0]:g}, "
    tried = f"{STATES:,} random states" if data is None else f"{STATES:,} random states and states of {data.name}"
    console.print(f"{options.out}: {policy.metadata.method}, {which}seed {policy.metadata.seeds[0]}", soft_wrap=True)
    if exporter.more:
        console.print(f"Beside observation it takes {exporter.how_to_call()}.", soft_wrap=True)
    console.print(f"Its actions in onnxruntime are the policy's, to {difference:.1e} of half the action box ({tried}).")
    for sentence in known.warnings:
        console.print(f"Warning: {sentence}", style="red", soft_wrap=True)
    console.print(about["safety"], soft_wrap=True)
    return 0


@dataclass
class CardOptions:
    """Write a page about a run's policies: data, method, what they return and cost, what that rests on, how to load."""

    run: tyro.conf.Positional[Path]
    """a finished run directory"""
    out: Path | None = None
    """the file to write; without it, card.md in the run directory"""


def card(options: CardOptions) -> int:
    from tracrl.report.card import write_card

    if options.out is not None and options.out.suffix != ".md":
        raise TracrlError(f"--out is {str(options.out)!r}; expected a file that ends in .md.")
    console.print(f"Card: {write_card(options.run, options.out)}", soft_wrap=True)
    return 0
