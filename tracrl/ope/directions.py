"""Directions among the columns of an observation: sine and cosine of an angle, a unit vector, a quaternion.

Together they have the same length in every row of a log. A model that foretells their columns one by one leaves that
behind, and goes on from where no log has been. And q and −q are the same orientation: simulators write one of both,
that whose last component is not negative, or whose largest is not, so that all signs turn in one step, and between both
lies nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tracrl.ope.log import Log

WIDTHS = (2, 3, 4)
QUATERNION = 4
SAME = 0.01
"""a sum of squares varies less than this share of what its columns' squares do: they make up for one another"""
SELDOM = 0.01
"""a component that is negative in no more rows is kept from it"""
ROWS = 20_000
SIGNS = 1_000
"""logged quaternions among which the nearest is sought"""


@dataclass(frozen=True)
class Direction:
    """Columns of the same length in every row."""

    columns: slice
    length: float
    never_negative: int | None = None
    """of a quaternion: its column whose sign is given, if there is one"""
    logged: Tensor | None = None
    """(rows, 4): else some that were logged, the nearest of which gives the sign"""


class Directions:
    """Those of a log, in its standardised states."""

    def __init__(self, log: Log):
        self.mean, self.std = log.mean, log.std
        rows = torch.linspace(0, len(log.observations) - 1, min(ROWS, len(log.observations))).long()
        device = log.observations.device
        found = _found(log.observations[rows.to(device)].double().cpu())
        self.found = [replace(one, logged=None if one.logged is None else one.logged.to(device)) for one in found]

    def change(self, states: Tensor, following: Tensor) -> Tensor:
        """From one state to the following; a quaternion's from the one of both its signs that is nearer."""
        change = following - states
        for one in self.found:
            if one.columns.stop - one.columns.start == QUATERNION:
                here, there = self._raw(states, one), self._raw(following, one)
                turned = (here * there).sum(-1, keepdim=True) < 0
                near = torch.where(turned, -there, there)
                change[..., one.columns] = (near - here) / self.std[one.columns]
        return change

    def kept(self, states: Tensor) -> Tensor:
        """The same states with their directions at the length and the sign that the log has."""
        if not self.found:
            return states
        states = states.clone()
        for one in self.found:
            raw = self._raw(states, one)
            raw = raw * (one.length / raw.norm(dim=-1, keepdim=True).clamp(min=1e-3 * one.length))
            if one.never_negative is not None:
                sign = raw[..., one.never_negative - one.columns.start, None]
                raw = torch.where(sign < 0, -raw, raw)
            elif one.logged is not None:
                alike = raw @ one.logged.T
                raw = torch.where((-alike.amin(-1) > alike.amax(-1))[..., None], -raw, raw)
            states[..., one.columns] = (raw - self.mean[one.columns]) / self.std[one.columns]
        return states

    def _raw(self, states: Tensor, one: Direction) -> Tensor:
        return states[..., one.columns] * self.std[one.columns] + self.mean[one.columns]


def _found(rows: Tensor) -> list[Direction]:
    """The shortest first: two angles are no quaternion."""
    squares, found = rows.square(), []
    free = [True] * rows.shape[1]
    for width in WIDTHS:
        for start in range(rows.shape[1] - width + 1):
            columns = slice(start, start + width)
            total = squares[:, columns].sum(1)
            varies = squares[:, columns].std(0)
            if not all(free[columns]) or varies.min() <= 1e-9 * total.mean() or total.std() > SAME * varies.max():
                continue
            negative = (rows[:, columns] < 0).double().mean(0)
            if negative.max() <= SELDOM:  # one of several kinds, each a column of zeros and ones
                continue
            free[columns] = [False] * width
            one = Direction(columns, float(total.mean().sqrt()))
            if width == QUATERNION and negative.min() <= SELDOM:
                one = replace(one, never_negative=start + int(negative.argmin()))
            elif width == QUATERNION:
                some = torch.linspace(0, len(rows) - 1, min(SIGNS, len(rows))).long()
                one = replace(one, logged=rows[some][:, columns].float())
            found.append(one)
    return found
