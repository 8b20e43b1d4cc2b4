"""Decisions on estimates: may a policy pass, and which of several is to be taken."""

from __future__ import annotations

from dataclasses import dataclass

from tracrl.errors import TracrlError
from tracrl.ope.estimates import ASSUMPTIONS, MOST_OUT, Estimates, check_confidence

NOT_SHOWN = 3
"""exit status where a bound is not shown to be within the limit"""


@dataclass(frozen=True)
class Decision:
    """On one policy, or that none is to be taken."""

    passed: bool
    verdict: str
    basis: str
    """what the verdict rests on; it is never to be shown without"""
    policy: int | None = None
    """which policy of the estimates is meant"""

    @property
    def status(self) -> int:
        """The exit status of a command that ends with this decision."""
        return 0 if self.passed else NOT_SHOWN

    def __str__(self) -> str:
        return f"{self.verdict}\n{self.basis}"


def gate(estimates: Estimates, limit: float, confidence: float = 0.9) -> list[Decision]:
    """For each policy: is the upper bound of its cost at this confidence within the limit, and are most of its steps
    where the log has been?"""
    check_limit(limit)
    check_confidence(confidence)
    decisions, shown = [], estimates.shown(limit, confidence)
    for i, bound in enumerate(estimates.cost_bounds(confidence)):
        said = (
            f"{estimates.label(i)}: the cost is estimated to be {estimates.costs[i]:.1f}, and at most {bound:.1f} with "
            f"{confidence:.0%} confidence; {estimates.ood_shares[i]:.0%} of its steps are out of the data"
        )
        if shown[i]:
            verdict = f"Passed for a limit of {limit:g}. {said}."
        else:
            verdict = f"Not shown for a limit of {limit:g}. {said}. {_needed(estimates, i, limit)}"
        decisions.append(Decision(bool(shown[i]), verdict, _basis(estimates), i))
    return decisions


def choose(estimates: Estimates, limit: float, confidence: float = 0.9) -> Decision:
    """Of the policies that pass the gate, the one with the highest lower bound of return; there may be none."""
    decisions = gate(estimates, limit, confidence)
    passing = [decision.policy for decision in decisions if decision.policy is not None and decision.passed]
    lower = estimates.return_bounds(confidence)
    if not passing:
        nearest = int(estimates.cost_bounds(confidence).argmin())
        verdict = f"None of {len(estimates)} policies passes. The nearest: {decisions[nearest].verdict}"
        return Decision(False, verdict, _basis(estimates))
    best = max(passing, key=lambda i: float(lower[i]))
    verdict = (
        f"{decisions[best].verdict} Of {len(estimates)} policies {len(passing)} pass, and of these it has the highest "
        f"lower bound of return: at least {lower[best]:.1f} with {confidence:.0%} confidence, estimated to be "
        f"{estimates.returns[best]:.1f}."
    )
    basis = _basis(estimates)
    if len(estimates) > 1:
        basis = (
            f"The bounds are those of one policy; the best of {len(estimates)} by these very estimates is flattered by "
            f"them: estimate it once more from other episodes.\n{basis}"
        )
    return Decision(True, verdict, basis, best)


def check_limit(limit: float) -> None:
    if not 0 <= limit < float("inf"):
        raise TracrlError(f"--limit is {limit!r}; expected a cost of 0 or more.")


def _needed(estimates: Estimates, policy: int, limit: float) -> str:
    if estimates.costs[policy] > limit:
        return (
            f"The estimate itself is above the limit: train for a lower limit than {estimates.limits[policy]:g}, or "
            "add safe episodes to the log."
        )
    if estimates.ood_shares[policy] > MOST_OUT:
        return (
            "Most of its steps are where the log has not been, so no test on logged episodes speaks for the estimate: "
            "train for actions nearer to the logged ones, or log episodes like the policy's."
        )
    return (
        f"The estimate is within the limit, but its standard error of {estimates.cost_errors[policy]:.1f} is too "
        f"large{_apart(estimates, policy)}: more logged episodes like the policy's would narrow it, and so would "
        "episodes with the policy itself."
    )


def _apart(estimates: Estimates, policy: int) -> str:
    """What either opinion says, where they are further apart than the error."""
    said = [estimates.opinions.get(name, {}).get("costs") for name in ("fqe", "model")]
    values, model = (None if costs is None else costs[policy] for costs in said)
    if values is None or model is None or abs(values - model) <= estimates.cost_errors[policy]:
        return ""
    return f" (fitted Q evaluation says {values:.1f}, the model of the dynamics {model:.1f})"


def _basis(estimates: Estimates) -> str:
    return "\n".join((*estimates.notes, ASSUMPTIONS))
