"""The whole budget used: which inner limit a policy for every limit is to act at, so that it keeps to a wanted one.

A policy that acts at limit κ often costs less than κ, sometimes more. From the log alone it is estimated at several
inner limits; of those whose bound of cost is within κ, the one with the highest bound of return is taken. The simulator
may judge the choice afterwards; it takes no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from tracrl.ope.estimates import ASSUMPTIONS, Estimates, check_confidence
from tracrl.policies.any_limit import AnyLimitPolicy
from tracrl.policies.mlp import MLPPolicy

COUNT = 8
"""inner limits that are tried beside the wanted ones"""


@dataclass(frozen=True)
class Choice:
    """The inner limit of one seed's policy for one wanted limit."""

    limit: float
    seed: int
    inner: float
    """the wanted limit itself, or the lowest, where nothing was shown"""
    shown: bool
    """whether the bound of cost is within the wanted limit"""
    cost: float
    cost_bound: float
    estimated_return: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """Choices for wanted limits × seeds, and the policies that follow from them."""

    policy: MLPPolicy
    """ordinary policies; each says the limit that it is wanted for"""
    choices: tuple[Choice, ...]
    confidence: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "confidence": self.confidence,
            "choices": [asdict(choice) for choice in self.choices],
            "notes": [*self.notes, ASSUMPTIONS],
        }

    def table(self) -> Table:
        """A row for each choice; what is not shown to be safe says so."""
        table = Table(title="Inner limits, chosen from the log alone", title_justify="left", caption_justify="left")
        table.caption = "\n".join([*self.notes, ASSUMPTIONS])
        for column in ("limit", "seed", "inner limit", "cost", f"at most ({self.confidence:.0%})", "return", "shown"):
            table.add_column(column, justify="right")
        for c in self.choices:
            said = "yes" if c.shown else "NO: acts at the limit itself, or the nearest it knows"
            numbers = (f"{c.cost:.1f}", f"{c.cost_bound:.1f}", f"{c.estimated_return:.1f}")
            table.add_row(f"{c.limit:g}", str(c.seed), f"{c.inner:g}", *numbers, said, style=None if c.shown else "red")
        return table


def inner_limits(policy: AnyLimitPolicy, wanted: Sequence[float]) -> list[float]:
    """The wanted limits, and others over all of the range that the policy was trained for, the denser the lower. A
    limit below that range may yet be kept at an inner limit within it."""
    low, high = policy.limit_range
    spread = [low + (high - low) * (i / COUNT) ** 2 for i in range(1, COUNT + 1)]
    rounded = [min(max(float(f"{limit:.3g}"), low), high) for limit in spread]
    return sorted({*rounded, low, *(float(limit) for limit in wanted if limit >= low)})


def candidates(policy: AnyLimitPolicy, wanted: Sequence[float]) -> AnyLimitPolicy:
    """Every seed's policy at every inner limit: one stack to be estimated."""
    return policy.over(inner_limits(policy, wanted))


def calibrate(
    policy: AnyLimitPolicy, estimates: Estimates, limits: Sequence[float], confidence: float = 0.9
) -> Calibration:
    """An inner limit for each wanted limit and seed, from estimates of the :func:`candidates`."""
    check_confidence(confidence)
    bounds, returns = estimates.cost_bounds(confidence), estimates.return_bounds(confidence)
    networks = policy.networks()
    choices, places = [], []
    for limit in limits:
        for place in networks:
            mine = [i for i, seed in enumerate(estimates.seeds) if seed == policy.metadata.seeds[place]]
            passing = [i for i in mine if bounds[i] <= limit]
            best = (
                max(passing, key=lambda i: float(returns[i]))
                if passing
                else min(mine, key=lambda i: abs(estimates.limits[i] - limit))
            )
            choices.append(
                Choice(
                    limit=float(limit),
                    seed=policy.metadata.seeds[place],
                    inner=estimates.limits[best],
                    shown=bool(passing),
                    cost=float(estimates.costs[best]),
                    cost_bound=float(bounds[best]),
                    estimated_return=float(estimates.returns[best]),
                )
            )
            places.append(place)
    plain = policy[places].at([choice.inner for choice in choices]).plain()
    return Calibration(plain.at([choice.limit for choice in choices]), tuple(choices), confidence, estimates.notes)
