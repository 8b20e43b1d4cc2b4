"""Two opinions on each policy become one estimate with its error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracrl.ope.playing import Replays

Floats = NDArray[np.float64]
FLOOR = (0.0005, 0.01)
"""as shares of the most that an episode can cost: below the first is nothing, above the second is something"""
DOUBT = 0.1
"""the least weight of how far the opinions are apart in the error, however well the model does"""


@dataclass(frozen=True, eq=False)
class Opinions:
    """What is known of each policy before it is weighed; the last dimension is return and cost."""

    fitted: Floats
    """(replicas, policies, 2): fitted Q evaluation; NaN where it has no opinion"""
    played: Floats
    """(members, policies, 2): episodes in the model"""
    replays: Replays
    """logged episodes in the model"""
    ood_shares: Floats
    """(policies,): of the steps in the model"""
    anything: Floats
    """(2,): the error where nothing is known"""
    most_cost: float
    """of an episode"""
    foretold: Floats | None = None
    """(replicas, policies, episodes, 2): what fitted Q evaluation says of the same logged episodes"""
    retraced: Floats | None = None
    """(members, policies, episodes, 2): these in the model, with an eye on where they go"""

    def weighed(self) -> tuple[Floats, Floats]:
        """(policies, 2) each: estimates and their standard errors.

        Members of the model and replicas of fitted Q evaluation vote. The model's votes weigh what it is worth
        together: the share of the variance between logged episodes, not fitted to, that it brings back. The estimate
        is the mean of the middle half of the votes, so that a few that went astray count for nothing. The error is the
        standard deviation of the mixture.
        """
        alone = np.isnan(self.fitted[0])
        weight = np.where(alone, 1.0, self.replays.skill)
        of_model = self.played.mean(axis=0)
        of_fitted = np.where(alone, of_model, self.fitted.mean(axis=0))
        votes = np.concatenate([self.played, np.where(alone, 0.0, self.fitted)])
        members, replicas = len(self.played), len(self.fitted)
        estimate = middle_half(votes, np.stack([weight / members] * members + [(1 - weight) / replicas] * replicas))
        apart = (of_fitted - of_model) ** 2
        # A single value function does not tell how far off it may be: as far as the model is from it.
        spread = np.where(alone, 0.0, _variance(self.fitted)) if replicas > 1 else apart
        variance = (
            (1 - weight) * spread
            # What members disagree on is a part of what they were off for logged episodes: the larger counts.
            + weight * np.maximum(_variance(self.played), self.replays.variances(of_model))
            + np.maximum(weight * (1 - weight), DOUBT * (1 - DOUBT) * weight) * apart
        )
        error = np.hypot(np.sqrt(variance), self.ood_shares[:, None] * self.anything)
        cost, doubt = estimate[:, 1], error[:, 1]
        floor = min(max(self.replays.floor, FLOOR[0] * self.most_cost), FLOOR[1] * self.most_cost)
        none = (cost <= floor) & (cost <= 2 * doubt)
        # Below what the model tells apart from nothing all costs are the same; the error then holds the difference.
        doubt[none] = np.hypot(doubt[none], cost[none])
        cost[none] = 0.0
        return estimate, error


def middle_half(votes: Floats, shares: Floats) -> Floats:
    """(votes, …) → (…): the mean of what lies between the quarters, each vote with its share of 1."""
    order = np.argsort(votes, axis=0, kind="stable")
    votes, shares = np.take_along_axis(votes, order, 0), np.take_along_axis(shares, order, 0)
    upto = np.cumsum(shares, axis=0)
    inside = np.clip(np.minimum(upto, 0.75) - np.maximum(upto - shares, 0.25), 0, None)
    mean: Floats = (inside * votes).sum(axis=0) / inside.sum(axis=0)
    return mean


def _variance(opinions: Floats) -> Floats:
    return opinions.var(axis=0, ddof=1) if len(opinions) > 1 else np.zeros(opinions.shape[1:])
