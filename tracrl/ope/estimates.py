"""What estimates are: a return and a cost for each policy of a stack, how sure they are, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.table import Table

from tracrl.errors import TracrlError
from tracrl.files import read_json, write_json

Floats = NDArray[np.float64]
ASSUMPTIONS = (
    "Assumed: episodes begin, go on and are measured as those of the log were, and an observation tells all that "
    "matters of the past. Where a policy does what the log never did, an estimate means little."
)
MOST_OUT = 0.5
"""share of steps out of the data above which nothing is shown, whatever the bound: tests follow logged episodes"""
_ARRAYS = ("returns", "costs", "return_errors", "cost_errors", "ood_shares")


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimated from a log alone; nothing was played."""

    names: tuple[str, ...]
    """of each policy: its run and method"""
    limits: tuple[float, ...]
    seeds: tuple[int, ...]
    returns: Floats
    costs: Floats
    return_errors: Floats
    """standard error of each estimate"""
    cost_errors: Floats
    ood_shares: Floats
    """share of the steps, in the model of the dynamics, that no logged step was like; up to 0.02 is usual"""
    confidence: float
    """of the intervals, between both of their ends"""
    data: Mapping[str, Any]
    """the log: fingerprint, episodes, rows, horizon, task"""
    notes: tuple[str, ...] = ()
    """what a reader must know: which episodes were used, and what was done instead where a policy needed it"""
    opinions: Mapping[str, Mapping[str, list[float | None]]] = field(default_factory=dict)
    """each estimator's own numbers; none where it has no opinion"""
    policies: tuple[str, ...] = ()
    """the fingerprint of each policy, so that estimates of one are never taken for those of another"""
    ood_in_log: tuple[float, ...] = ()
    """share of the logged states in which a policy would do what no logged step was like; it may never get there"""

    def __len__(self) -> int:
        return len(self.limits)

    @property
    def return_intervals(self) -> Floats:
        """(policies, 2): low and high"""
        half = quantile((1 + self.confidence) / 2) * self.return_errors
        return np.stack([self.returns - half, self.returns + half], axis=1)

    @property
    def cost_intervals(self) -> Floats:
        """(policies, 2): low and high; costs are never negative"""
        half = quantile((1 + self.confidence) / 2) * self.cost_errors
        return np.stack([self.costs - half, self.costs + half], axis=1).clip(min=0)

    def cost_bounds(self, confidence: float) -> Floats:
        """(policies,): costs that are exceeded with a probability of at most 1 − ``confidence``"""
        return self.costs + quantile(confidence) * self.cost_errors

    def shown(self, limits: ArrayLike, confidence: float) -> NDArray[np.bool_]:
        """(policies,): whether each cost is shown to be within its limit (one for all, or one each)"""
        return is_shown(self.cost_bounds(confidence), self.ood_shares, limits)

    def return_bounds(self, confidence: float) -> Floats:
        """(policies,): returns that are missed with a probability of at most 1 − ``confidence``"""
        return self.returns - quantile(confidence) * self.return_errors

    def take(self, which: Sequence[int]) -> Estimates:
        """The estimates of some of the policies."""
        picked = list(which)
        arrays = {key: getattr(self, key)[picked] for key in _ARRAYS}
        words = {key: tuple(getattr(self, key)[i] for i in picked) for key in ("names", "limits", "seeds")}
        opinions = {
            name: {key: [values[i] for i in picked] for key, values in numbers.items()}
            for name, numbers in self.opinions.items()
        }
        for key in ("policies", "ood_in_log"):  # which files of version 0.5.0 lack
            words[key] = tuple(getattr(self, key)[i] for i in picked) if getattr(self, key) else ()
        changes: dict[str, Any] = {**arrays, **words, "opinions": opinions}
        return replace(self, **changes)

    def label(self, policy: int) -> str:
        """A policy in words."""
        return f"{self.names[policy]}, limit {self.limits[policy]:g}, seed {self.seeds[policy]}"

    def save(self, path: str | Path) -> None:
        """Write as JSON, the ends of the intervals included."""
        value = asdict(self)
        for key in _ARRAYS:
            value[key] = getattr(self, key).tolist()
        ends = {"return_intervals": self.return_intervals.tolist(), "cost_intervals": self.cost_intervals.tolist()}
        write_json(Path(path), {**value, **ends, "assumptions": ASSUMPTIONS})

    @classmethod
    def load(cls, path: str | Path) -> Estimates:
        value = read_json(Path(path))
        try:
            estimates = cls(
                tuple(map(str, value["names"])),
                tuple(map(float, value["limits"])),
                tuple(map(int, value["seeds"])),
                **{key: np.array(value[key], np.float64) for key in _ARRAYS},
                confidence=float(value["confidence"]),
                data=dict(value["data"]),
                notes=tuple(value["notes"]),
                opinions=dict(value["opinions"]),
                policies=tuple(map(str, value.get("policies", ()))),
                ood_in_log=tuple(map(float, value.get("ood_in_log", ()))),
            )
            estimates._check()
        except (AttributeError, KeyError, TypeError, ValueError, TracrlError) as error:
            raise TracrlError(f"{path} holds no estimates of tracrl, or was edited ({error!r}).") from error
        return estimates

    def _check(self) -> None:
        """Raise where a file holds what no estimates are."""
        lengths = {getattr(self, key).shape for key in _ARRAYS} | {(len(self.names),), (len(self.seeds),)}
        lengths |= {(len(more),) for more in (self.policies, self.ood_in_log) if more}
        if lengths != {(len(self),)}:
            raise ValueError("its lists differ in length")
        if not all(np.isfinite(getattr(self, key)).all() for key in (*_ARRAYS, "limits")):
            raise ValueError("a number is not finite")
        check_confidence(self.confidence)
        kinds = {"episodes": int, "horizon": int, "fingerprint": str}
        if not all(isinstance(self.data[key], kind) for key, kind in kinds.items()):
            raise ValueError("it does not say which data it rests on")
        if not all(isinstance(note, str) for note in self.notes):
            raise ValueError("a note is no text")
        for numbers in (numbers for said in self.opinions.values() for numbers in said.values()):
            if len(numbers) != len(self) or not all(n is None or np.isfinite(n) for n in numbers):
                raise ValueError("an opinion is not one number for each policy")

    def table(self, title: str) -> Table:
        """A row for each policy."""
        table = Table(title=title, title_justify="left", caption_justify="left")
        table.caption = "\n".join(
            [
                f"± and ranges: {self.confidence:.0%} intervals; estimated from {self.data['episodes']:,} logged "
                f"episodes of {self.data['horizon']} steps at most, nothing was played",
                "out of data: share of steps like no logged one, on the policy's way in the model"
                + (" / in the states of the log, where it may never get to" if self.ood_in_log else ""),
                *self.notes,
                ASSUMPTIONS,
            ]
        )
        for column in ("policy", "limit", "seed", "return", "cost", "cost lies in", "out of data"):
            table.add_column(column, justify="left" if column == "policy" else "right")
        for i, (low, high) in enumerate(self.cost_intervals):
            half = self.return_intervals[i, 1] - self.returns[i]
            table.add_row(
                self.names[i],
                f"{self.limits[i]:g}",
                str(self.seeds[i]),
                f"{self.returns[i]:.1f} ± {half:.1f}",
                f"{self.costs[i]:.1f}",
                f"{low:.1f} – {high:.1f}",
                f"{self.ood_shares[i]:.0%}" + (f" / {self.ood_in_log[i]:.0%}" if self.ood_in_log else ""),
            )
        return table


def is_shown(bounds: Floats, ood_shares: Floats, limits: ArrayLike) -> NDArray[np.bool_]:
    """The upper bound of a cost is within the limit, and no more than half of the steps are out of the data."""
    shown: NDArray[np.bool_] = (bounds <= np.asarray(limits)) & (ood_shares <= MOST_OUT)
    return shown


def quantile(share: float) -> float:
    """Of the standard normal distribution."""
    return NormalDist().inv_cdf(share)


def check_confidence(confidence: float) -> float:
    if not 0.5 <= confidence < 1:
        raise TracrlError(f"--confidence is {confidence!r}; expected a share from 0.5 to below 1, such as 0.9.")
    return float(confidence)
