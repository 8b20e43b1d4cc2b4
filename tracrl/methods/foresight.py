"""What training would say of data at a cost limit, found out before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracrl.data.episodes import Episodes
from tracrl.data.learning import Finding
from tracrl.data.partition import is_safe
from tracrl.errors import TracrlError
from tracrl.methods.method import RunSpec
from tracrl.methods.trac import TraC

SHORTER = (0.5, 0.25, 0.1)
"""segment ratios that are tried where no whole episode is safe"""


@dataclass(frozen=True)
class Refusal(Finding):
    """A limit at which training would not begin."""

    limit: float = 0.0


def foresee(data: Episodes, limits: Sequence[float]) -> Iterator[Finding]:
    """Why TraC's published settings would be refused at a limit, and which would not; or what they would warn of."""
    task = data.known_task
    method, fast = (TraC.preset(task.suite if task else "Bullet", preset) for preset in ("full", "fast"))
    for limit in limits:
        try:
            parts = method.partition(data, RunSpec(limit, 0))
        except TracrlError as error:
            yield Refusal(f"limit {limit:g} would be refused: {error} {_way_out(method, data, limit)}", True, limit)
            continue
        kind = "episodes" if method.ratio == 1 else f"segments of {parts.segments.horizon} steps"
        if parts.safe < method.batch_size:
            few = parts.safe < fast.batch_size
            yield Finding(
                f"only {parts.safe} {kind} are safe at limit {limit:g}, fewer than a batch ({method.batch_size}; fast "
                f"preset {fast.batch_size}): each is drawn several times for a batch"
                f"{', and what is learnt from so few need not hold elsewhere' if few else ''}.",
                warning=True,
            )
        if parts.undesirable < fast.batch_size:
            yield Finding(
                f"only {parts.undesirable} {kind} are undesirable at limit {limit:g}: there is little to learn from "
                "about what to avoid; lower the limit, or call the poorest safe ones undesirable with --x 50 --y 50.",
                warning=True,
            )


def _way_out(method: TraC, data: Episodes, limit: float) -> str:
    """With which settings it would train."""
    if _trains(replace(method, x=50.0, y=50.0), data, limit):
        return "With --x 50 --y 50 it would not."
    for ratio in SHORTER:
        shorter = replace(method, ratio=ratio)
        if ratio < method.ratio and _trains(shorter, data, limit):
            parts = shorter.partition(data, RunSpec(limit, 0))
            return (
                f"With --ratio {ratio:g} it would not: {parts.safe} of {len(parts.scaled_return)} segments of "
                f"{parts.segments.horizon} steps keep to their share of it."
            )
    if is_safe(data.total_costs, limit).any():
        return "No setting mends that."
    enough = min(len(data), method.batch_size) - 1
    return (
        f"With --limits {np.sort(data.total_costs)[enough]:.4g} it would not: {enough + 1} episodes cost no more. "
        "BC-Safe would refuse it too; the other methods would begin, with nothing safe to learn from."
    )


def _trains(method: TraC, data: Episodes, limit: float) -> bool:
    try:
        method.partition(data, RunSpec(limit, 0))
    except TracrlError:
        return False
    return True
