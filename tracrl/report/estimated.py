"""What was estimated from a log alone, beside what was played: read from run directories, and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracrl.deploy.about import Known
from tracrl.errors import TracrlError
from tracrl.ope.estimates import ASSUMPTIONS
from tracrl.report.grid import Entry, Grid, Line
from tracrl.report.results import Floats, Result
from tracrl.tasks.normalise import normalised_cost, normalised_reward
from tracrl.tasks.table import get_task
from tracrl.train.directory import RunDirectory


@dataclass(frozen=True)
class Estimated:
    """One policy, normalised as its scores are."""

    reward: tuple[float, float, float]
    """the estimate, and both ends of its interval"""
    cost: tuple[float, float, float]
    shown: bool
    """the upper bound of the cost is within the limit"""
    confidence: float
    ood_share: float
    notes: tuple[str, ...]

    def in_words(self) -> tuple[str, str]:
        reward, cost = (f"{value:.2f} ({low:.2f} to {high:.2f})" for value, low, high in (self.reward, self.cost))
        return reward, cost


def estimated_of(results: Sequence[Result]) -> tuple[dict[str, Estimated], list[str]]:
    """By the key of each run that keeps estimates of its final policy; and what cannot be read of them."""
    found, problems = {}, []
    for path in dict.fromkeys(result.stack.path for result in results):
        if not RunDirectory(path).estimates.exists():
            continue
        try:
            known = Known.of(path)
            pairs = list(zip(known.policy.metadata.limits, known.policy.metadata.seeds, strict=True))
            for result in results:
                if result.stack.path == path:
                    place = known.estimated(pairs.index((result.limit, result.seed)))
                    if place is None:
                        problems.append(f"{RunDirectory(path).estimates} is of other policies: estimate them anew.")
                        break
                    found[result.key] = _normalised(known, place, result)
        except TracrlError as error:
            problems.append(str(error))
    return found, problems


def _normalised(known: Known, place: int, result: Result) -> Estimated:
    estimates = known.estimates
    assert estimates is not None
    returns = estimates.returns[place], *estimates.return_intervals[place]
    costs = estimates.costs[place], *estimates.cost_intervals[place]
    rewards = normalised_reward(get_task(result.stack.task), returns)
    return Estimated(
        _three(rewards),
        _three(normalised_cost(costs, result.limit)),
        bool(estimates.shown(result.limit, estimates.confidence)[place]),
        estimates.confidence,
        float(estimates.ood_shares[place]),
        estimates.notes,
    )


def _three(values: Sequence[float] | Floats) -> tuple[float, float, float]:
    value, low, high = map(float, values)
    return value, low, high


def estimates_grid(results: Sequence[Result], estimated: Mapping[str, Estimated]) -> Grid:
    """A row for each estimated policy."""
    lines = []
    for result in results:
        one = estimated.get(result.key)
        if one is None:
            continue
        reward, cost = one.in_words()
        lines.append(
            Line(
                f"{result.stack.task}, {result.stack.title}, limit {result.limit:g}, seed {result.seed}",
                (
                    Entry(reward),
                    Entry(f"{result.rewards.mean():.2f}"),
                    Entry(cost),
                    Entry(f"{result.costs.mean():.2f}"),
                    Entry("yes" if one.shown else "NO"),
                    Entry(f"{one.ood_share:.0%}"),
                ),
            )
        )
    levels = sorted({f"{one.confidence:.0%}" for one in estimated.values()})
    notes = dict.fromkeys(note for one in estimated.values() for note in one.notes)
    return Grid(
        title="Estimated from the log alone, beside what was played",
        caption=(
            f"Normalised, final policy; in brackets {' and '.join(levels)} intervals. Shown: the upper bound of the "
            "cost at this confidence is within the limit. Out of data: share of steps that no logged step was like.",
            *notes,
            ASSUMPTIONS,
        ),
        corner="policy",
        heads=("reward, estimated", "played", "cost, estimated", "played", "shown within limit", "out of data"),
        lines=tuple(lines),
        marked=False,
    )
