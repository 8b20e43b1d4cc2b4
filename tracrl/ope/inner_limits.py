"""The whole budget used: which inner limit a policy for every limit is to act at, so that it keeps to a wanted one.

A policy that acts at limit κ often costs less than κ, sometimes more. From the log alone it is estimated at several
inner limits, and where it is told x too, at several x; of those whose bound of cost is within κ, the one with the
highest bound of return is taken. Where there is none, estimates have not earned that anything be done on their word
that is bolder than to be told κ and the largest x: of what is no bolder it is the one with the highest bound of return
among those that are estimated to cost no more than κ and no more than that policy, or else the one with the lowest
bound of cost. The simulator may judge the choice afterwards; it takes no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.table import Table

from tracrl.errors import TracrlError
from tracrl.files import read_json, write_json
from tracrl.ope.estimate import CPU, GPU, Effort
from tracrl.ope.estimates import ASSUMPTIONS, Estimates, check_confidence
from tracrl.policies.any_limit import AnyLimitPolicy, AnyXPolicy
from tracrl.policies.load import load_policy
from tracrl.policies.mlp import MLPPolicy
from tracrl.train.devices import choose_device
from tracrl.train.directory import RunDirectory

COUNT = 8
"""inner limits that are tried beside the wanted ones"""
MANY = replace(GPU, fqe=replace(GPU.fqe, updates=8_000), replicas=1)
"""on a GPU, what estimates of a hundred candidates are worth: a short fitted Q evaluation of each"""
ON_CPU = replace(
    CPU,
    fqe=replace(CPU.fqe, batch_size=512),
    dynamics=replace(CPU.dynamics, updates=8_000),
    members=4,
    rows=100_000,
    updates_in_all=0,
    together=True,
)
"""on a CPU: a member of each kind for longer, and one fitted Q evaluation of all candidates of a seed"""
X_COUNT = 4
"""x that are tried, where the policy is told x"""
TITLE = "Inner limits, chosen from the log alone"
HEADS = ("inner limit", "x", "cost", "at most", "return", "shown")
"""what is told of each choice behind its limit and seed"""
NO_BOLDER = "What is not shown to be within its limit acts no bolder than to be told it."
"""of calibrations since version 0.14.0"""


@dataclass(frozen=True)
class Choice:
    """The inner limit of one seed's policy for one wanted limit."""

    limit: float
    seed: int
    inner: float
    x: float | None
    """None where the policy is not told x"""
    shown: bool
    """whether its cost is shown to be within the wanted limit"""
    cost: float
    cost_bound: float
    estimated_return: float

    def in_words(self) -> tuple[str, ...]:
        """As the ``HEADS`` say."""
        x = "–" if self.x is None else f"{self.x:g}"
        numbers = (f"{number:.1f}" for number in (self.cost, self.cost_bound, self.estimated_return))
        return f"{self.inner:g}", x, *numbers, "yes" if self.shown else "NO"


@dataclass(frozen=True, eq=False)
class Calibration:
    """Choices for wanted limits × seeds, and the policies that follow from them."""

    policy: MLPPolicy
    """ordinary policies; each says the limit that it is wanted for"""
    choices: tuple[Choice, ...]
    confidence: float
    notes: tuple[str, ...]

    @classmethod
    def load(cls, directory: RunDirectory) -> Calibration:
        """What was saved in a run directory."""
        stored, policy = read_json(directory.calibration), load_policy(directory.calibrated)
        try:
            choices = tuple(_checked(Choice(**choice)) for choice in stored["choices"])
            confidence, notes = float(stored["confidence"]), tuple(map(str, stored["notes"]))
            check_confidence(confidence)
            marks = policy.fingerprints()
            saved_with = tuple(stored.get("policies", marks))  # which files before version 0.14.0 lack
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise TracrlError(f"{directory.calibration} holds no calibration of tracrl ({error}).") from error
        told = list(zip(policy.metadata.limits, policy.metadata.seeds, strict=True))
        asked = [(choice.limit, choice.seed) for choice in choices]
        if not isinstance(policy, MLPPolicy) or asked != told or saved_with != marks:
            raise TracrlError(
                f"{directory.calibration} is of other policies than those of {directory.calibrated.name}: train with "
                "--calibrate anew."
            )
        return cls(policy, choices, confidence, tuple(note for note in notes if note != ASSUMPTIONS))

    def save(self, directory: RunDirectory) -> None:
        write_json(directory.calibration, self.to_dict())
        self.policy.save(directory.calibrated)

    def to_dict(self) -> dict[str, Any]:
        return {
            "confidence": self.confidence,
            "choices": [asdict(choice) for choice in self.choices],
            "notes": [*self.notes, ASSUMPTIONS],
            "policies": list(self.policy.fingerprints()),
        }

    @property
    def basis(self) -> list[str]:
        """What the choices rest on; they are never to be shown without."""
        return [f"At most: with {self.confidence:.0%} confidence.", *self.notes, ASSUMPTIONS]

    def table(self) -> Table:
        """A row for each choice; what is not shown to be safe says so."""
        table = Table(title=TITLE, title_justify="left", caption_justify="left")
        table.caption = "\n".join(self.basis)
        for column in ("limit", "seed", *HEADS):
            table.add_column(column, justify="right")
        for choice in self.choices:
            asked = (f"{choice.limit:g}", str(choice.seed))
            table.add_row(*asked, *choice.in_words(), style=None if choice.shown else "red")
        return table


def _checked(choice: Choice) -> Choice:
    """As a file holds it; raises where none was saved so."""
    for name, value in asdict(choice).items():
        if name != "shown" and not (name == "x" and value is None) and not math.isfinite(value):
            raise ValueError(f"{name} is {value!r}")
    if not isinstance(choice.shown, bool) or (choice.shown and choice.cost_bound > choice.limit):
        raise ValueError(f"shown is {choice.shown!r}, with a bound of {choice.cost_bound!r} for {choice.limit!r}")
    return choice


def inner_limits(policy: AnyLimitPolicy, wanted: Sequence[float]) -> list[float]:
    """The wanted limits, and others over all of the range that the policy was trained for, the denser the lower. A
    limit below that range may yet be kept at an inner limit within it."""
    low, high = policy.limit_range
    spread = [low + (high - low) * (i / COUNT) ** 2 for i in range(1, COUNT + 1)]
    rounded = [min(max(float(f"{limit:.3g}"), low), high) for limit in spread]
    return sorted({*rounded, low, *(float(limit) for limit in wanted if limit >= low)})


@dataclass(frozen=True, eq=False)
class Candidates:
    """Every seed's policy at every inner limit, and with every x where it is told x."""

    stacks: Mapping[str, AnyLimitPolicy]
    """by name, to be estimated together; the most careful x first"""
    x: Sequence[float | None]
    """of each stack"""


def candidates(policy: AnyLimitPolicy, wanted: Sequence[float], name: str = "trac-any") -> Candidates:
    """What may be chosen for the wanted limits."""
    inner = inner_limits(policy, wanted)
    if not isinstance(policy, AnyXPolicy):
        return Candidates({name: policy.over(inner)}, [None])
    least, largest = policy.least_x, policy.largest_x
    spread = [largest * (least / largest) ** (i / (X_COUNT - 1)) for i in range(X_COUNT)]
    shares = [min(max(float(f"{x:.3g}"), least), largest) for x in spread]
    return Candidates({f"{name}, x {x:g}": policy.at_x(x).over(inner) for x in shares}, shares)


def effort_on(device: str) -> Effort:
    """What estimates of the candidates are worth there."""
    return MANY if choose_device(device).type == "cuda" else ON_CPU


def calibrate(given: Candidates, estimates: Estimates, limits: Sequence[float], confidence: float = 0.9) -> Calibration:
    """An inner limit (and x) for each wanted limit and seed, from estimates of the candidates' stacks."""
    stacks = list(given.stacks.values())
    plain = stacks[0].plain().joined_with([stack.plain() for stack in stacks[1:]])
    x = [x for x, stack in zip(given.x, stacks, strict=True) for _ in range(len(stack))]
    places, choices = choices_from(estimates, x, limits, confidence)
    policy = plain[places].at([choice.limit for choice in choices])
    more = () if all(choice.shown for choice in choices) else (NO_BOLDER,)
    return Calibration(policy, tuple(choices), confidence, (*estimates.notes, *more))


def choices_from(
    estimates: Estimates, x: Sequence[float | None], limits: Sequence[float], confidence: float
) -> tuple[list[int], list[Choice]]:
    """The places of those that are chosen, and the choices; ``x`` is that of each estimated policy, the most careful
    first. Needs the estimates alone."""
    check_confidence(confidence)
    bounds, returns = estimates.cost_bounds(confidence), estimates.return_bounds(confidence)
    choices, places = [], []
    for limit in limits:
        within = estimates.shown(limit, confidence)
        for seed in dict.fromkeys(estimates.seeds):
            mine = [i for i, its in enumerate(estimates.seeds) if its == seed]
            careful = min((i for i in mine if x[i] == x[0]), key=lambda i: abs(estimates.limits[i] - limit))
            shown = [i for i in mine if within[i]]
            no_bolder = [i for i in mine if x[i] == x[0] and estimates.limits[i] <= estimates.limits[careful]]
            likely = [i for i in no_bolder if estimates.costs[i] <= min(estimates.costs[careful], limit)]
            if shown or likely:
                best = max(shown or likely, key=lambda i: float(returns[i]))
            else:
                best = min(no_bolder, key=lambda i: float(bounds[i]))
            if not math.isfinite(bounds[best]):
                raise TracrlError(
                    f"Nothing can be estimated of what seed {seed} does at a limit of {limit:g} or below: look for "
                    "actions or logged numbers that are far too large (tracrl data check)."
                )
            choices.append(
                Choice(
                    limit=float(limit),
                    seed=seed,
                    inner=estimates.limits[best],
                    x=x[best],
                    shown=bool(shown),
                    cost=float(estimates.costs[best]),
                    cost_bound=float(bounds[best]),
                    estimated_return=float(estimates.returns[best]),
                )
            )
            places.append(best)
    return places, choices
