"""Two opinions on each policy become one estimate with its error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FLOOR = (0.0005, 0.01)
"""as shares of the most that an episode can cost: below the first is nothing, above the second is something"""
NEAREST = 20
"""episodes that tell how far an estimate may be off; of a few, a third, since the nearest of all are no neighbours"""
TAKEN_OFF = 0.5
"""of what was off on average for held-out episodes of about the same cost; they are not the policy's own"""


@dataclass(frozen=True, eq=False)
class Opinions:
    """What is known of each policy before it is weighed; the last dimension is return and cost."""

    fitted: Floats
    """(replicas, policies, 2): fitted Q evaluation; NaN where it has no opinion"""
    played: Floats
    """(members, policies, 2): episodes in the model"""
    foretold: Floats
    """(replicas, policies, episodes, 2): fitted Q evaluation of logged episodes that nothing was fitted to"""
    retraced: Floats
    """(members, policies, episodes, 2): the same in the model"""
    logged: Floats
    """(episodes, 2): what they truly brought"""
    ood_shares: Floats
    """(policies,): of the steps in the model"""
    ood_in_log: Floats
    """(policies,): of the logged states"""
    anything: Floats
    """(2,): the error where nothing is known"""
    most_cost: float
    """of an episode"""

    @cached_property
    def weight(self) -> Floats:
        """(policies, 2): the model's, from 0 to 1; the rest is fitted Q evaluation's. Of all weights the one with which
        both together foretell the held-out episodes best, in the mean square."""
        fitted, model = self.foretold.mean(axis=0), self.retraced.mean(axis=0)
        apart = fitted - model
        share = ((fitted - self.logged) * apart).sum(axis=1) / np.maximum(np.square(apart).sum(axis=1), 1e-12)
        weight: Floats = np.where(np.isnan(share), 1.0, np.clip(share, 0, 1))
        return weight

    @cached_property
    def together(self) -> Floats:
        """(policies, episodes, 2): what both, so weighed, foretell for the held-out episodes"""
        weight, model = self.weight[:, None], self.retraced.mean(axis=0)
        fitted = self.foretold.mean(axis=0)
        both: Floats = weight * model + (1 - weight) * np.where(np.isnan(fitted), 0.0, fitted)
        return both

    @property
    def skill(self) -> Floats:
        """(policies, 2): the share of the variance between held-out episodes that both foretell, from 0 to 1"""
        return brought_back(self.together, self.logged)

    def weighed(self, taken_off: float = TAKEN_OFF) -> tuple[Floats, Floats]:
        """(policies, 2) each: estimates and their standard errors.

        Members of the model and replicas of fitted Q evaluation vote. The estimate is the mean of the middle half of
        the votes, so that a few that went astray count for nothing, less a part of what was off on average for held-out
        episodes of about the same return or cost. What remains of that is error, and half of what differs from episode
        to episode: an estimate is a mean of episodes, but those of one policy are alike.
        """
        weight, alone = self.weight, np.isnan(self.fitted[0])
        members, replicas = len(self.played), len(self.fitted)
        votes = np.concatenate([self.played, np.where(alone, 0.0, self.fitted)])
        estimate = middle_half(votes, np.stack([weight / members] * members + [(1 - weight) / replicas] * replicas))
        off, differs = nearby(self.together, self.logged, estimate)
        estimate = estimate - taken_off * off
        spread = weight * _variance(self.played) + np.where(alone, 0.0, (1 - weight) * _variance(self.fitted))
        # What votes disagree on is a part of what they were off for logged episodes: the larger counts.
        variance = np.maximum(np.square((1 - taken_off) * off) + differs / 2, spread)
        # Where the model leads is out of the data as far as the model is believed. For the rest it must be so in logged
        # states too, many of which a policy may never get to.
        both = np.minimum(self.ood_shares, self.ood_in_log)[:, None]
        ood = weight * self.ood_shares[:, None] + (1 - weight) * both
        error = np.hypot(np.sqrt(variance), ood * self.anything)
        estimate[:, 1] = np.maximum(estimate[:, 1], 0.0)
        cost, doubt = estimate[:, 1], error[:, 1]
        none = (cost <= self._floor()) & (cost <= 2 * doubt)
        # Below what can be told apart from nothing all costs are the same; the error then holds the difference.
        doubt[none] = np.hypot(doubt[none], cost[none])
        cost[none] = 0.0
        return estimate, error

    def _floor(self) -> Floats:
        """(policies,): the cost that is foretold where in truth there was none: no difference is seen below."""
        free = self.together[:, self.logged[:, 1] == 0, 1]
        floor = np.quantile(free, 0.9, axis=1) if free.shape[1] else np.zeros(len(free))
        return np.clip(floor, FLOOR[0] * self.most_cost, FLOOR[1] * self.most_cost)


def brought_back(foretold: Floats, logged: Floats) -> Floats:
    """(policies, episodes, 2), (episodes, 2) → (policies, 2): the share of the variance that is foretold; 0 to 1"""
    error = np.square(foretold - logged).mean(axis=1)
    share: Floats = np.clip(1 - error / np.maximum(logged.var(axis=0), 1e-12), 0, 1)
    return share


def nearby(foretold: Floats, logged: Floats, values: Floats) -> tuple[Floats, Floats]:
    """(policies, 2) each: how far episodes ``foretold`` (policies, episodes, 2) were off what was ``logged``, on
    average and in the variance between them, where about these ``values`` (policies, 2) were foretold.

    The nearer an episode, the more it counts (Cleveland's tricube weights): at a cost of 0 all neighbours lie on one
    side, and far ones would lend their errors to it.
    """
    count = min(NEAREST, max(8, len(logged) // 3), len(logged))
    distance = np.abs(foretold - values[:, None])
    reach = np.sort(distance, axis=1)[:, count - 1, None] * (1 + 1e-4) + 1e-9
    share = np.clip(1 - (distance / reach) ** 3, 0, None) ** 3
    share /= share.sum(axis=1, keepdims=True)
    off = foretold - logged
    mean = (share * off).sum(axis=1)
    return mean, (share * np.square(off - mean[:, None])).sum(axis=1)


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
