"""Opinions on each policy become one estimate with its error: fitted Q evaluation's, and the model's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FLOOR = (0.0005, 0.01)
"""as shares of the most that an episode can cost: below the first is nothing, above the second is something"""
NEAREST = 20
"""episodes that tell how far an estimate may be off; of a few, a third, since the nearest of all are no neighbours"""
CLEARLY = np.array([10.0, 2.5])
"""times the squared error of the best kind of members in held-out episodes, for returns and costs: a kind that is
further off is left out. Of returns those that see nothing of the past may pass that test best, and flatter a policy:
there the test leaves out few, and weighs gently what is left"""
TOGETHER = 0.005
"""of the most that an episode can cost: members of a kind that are nearer together than this are so by chance"""
AT_LEAST = 0.75
"""the model's weight for costs, where it has kinds of several members. The test on logged episodes is no fair one:
fitted Q evaluation is told where they went, and the model has to find out, with actions that do not look where it has
got to"""
FLATTERED = 2.0
"""times the error where nothing is known of a return: an estimate of it stands at the upper end of what may be, and not
in the middle, from where that is counted"""
TAKEN_OFF = 0.5
"""of what was off on average for held-out episodes of about the same cost, as far as those are foretold; they are not
the policy's own"""


@dataclass(frozen=True, eq=False)
class Opinions:
    """What is known of each policy before it is weighed; the last dimension is return and cost."""

    fitted: Floats
    """(replicas, policies, 2): fitted Q evaluation; NaN where it has no opinion"""
    played: Floats
    """(members, policies, 2): episodes in the model; of K kinds of members, each in its turn"""
    foretold: Floats
    """(replicas, policies, episodes, 2): fitted Q evaluation of logged episodes that nothing was fitted to"""
    retraced: Floats
    """(members, policies, episodes, 2): the same in the model"""
    logged: Floats
    """(episodes, 2): what they truly brought"""
    ood_shares: Floats
    """(K, policies): of the steps in the model, by a member of each kind"""
    ood_in_log: Floats
    """(policies,): of the logged states"""
    anything: Floats
    """(2,): the error where nothing is known"""
    most_cost: float
    """of an episode"""

    @cached_property
    def alike(self) -> Floats:
        """(K, policies, 2): of each kind of members that counts the same share, 1 together.

        A kind that brings held-out episodes back clearly worse than another counts for nothing: on one task members
        that see what was before drift away, on another they are the better ones. Nor does a kind count that says
        anything that is no number; where none is left, all shares are 0.
        """
        square = self._squares
        usable = np.isfinite(square) & (square <= CLEARLY * square.min(axis=0))
        shares: Floats = usable / np.maximum(usable.sum(axis=0), 1)
        return shares

    @cached_property
    def among(self) -> Floats:
        """(K, policies, 2): the share of each kind of members in what is estimated, 1 together or 0.

        For returns they count by the inverse of what they are off in held-out episodes (root mean square). For costs
        they count the more, the nearer together their own members are about the policy: what was before leads members
        astray, each elsewhere, where a policy does what the log does not. By how much a kind is the better with logged
        actions does not tell that.
        """
        certain = self.alike.copy()
        least = max(1e-6 * self.logged[:, 0].var(), 1e-300)
        certain[:, :, 0] /= np.sqrt(np.maximum(self._squares[:, :, 0], least))
        certain[:, :, 1] /= self._apart
        shares: Floats = certain / np.where(certain.any(axis=0), certain.sum(axis=0), 1.0)
        return shares

    @cached_property
    def _squares(self) -> Floats:
        """(K, policies, 2): the mean square of what each kind is off in held-out episodes; infinite where it says
        anything that is no number"""
        square = np.square(self.told_by_kinds - self.logged).mean(axis=2)
        return np.where(np.isfinite(self.of_kinds) & np.isfinite(square), square, np.inf)

    @cached_property
    def weights(self) -> Floats:
        """(1 + K, policies, 2): of fitted Q evaluation and of each kind of the model's members, 0 to 1 and 1 together;
        all 0 where nobody says a number.

        Of costs those with which fitted Q evaluation and the model foretell the held-out episodes best, in the mean
        square, but of the model no less than ``AT_LEAST``. Of single members nobody knows which are led astray: they
        have what they are tested for. Of returns the lower opinion has all: both are flattered, and tests of logged
        actions do not tell which the more.
        """
        by_fitted, by_model = self._there
        model = np.where(by_model[:, None], (self.among[:, :, None] * _known(self.told_by_kinds)).sum(axis=0), np.nan)
        values = np.where(by_fitted[:, None], self.foretold.mean(axis=0), np.nan)
        fitted, played = best_weights(np.stack([values, model]) - self.logged)
        if any(len(members) > 1 for members, _ in self._kinds):
            more = np.where(by_model[:, 1], np.clip(AT_LEAST - played[:, 1], 0, fitted[:, 1]), 0)
            fitted[:, 1], played[:, 1] = fitted[:, 1] - more, played[:, 1] + more
        alone = [_vote(self._parts[:1], by_fitted[None].astype(np.float64)), _vote(self._parts[1:], self.among)]
        lower = by_model & ~(by_fitted & (alone[0] < alone[1]))
        fitted[:, 0], played[:, 0] = (by_fitted & ~lower)[:, 0], lower[:, 0]
        return np.concatenate([fitted[None], played * self.among])

    @cached_property
    def _there(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(policies, 2) each: whether fitted Q evaluation has numbers, of the policy and of every held-out episode; and
        whether any kind of the model's members has."""
        tested = np.isfinite(self.foretold.mean(axis=0)).all(axis=1)
        return tested & np.isfinite(self.fitted.mean(axis=0)), self.among.sum(axis=0) > 0

    @property
    def _apart(self) -> Floats:
        """(K, policies): the variance between a kind's members about costs; of a single member the largest of the
        others that count."""
        own = np.full(self.ood_shares.shape, np.nan)
        for i, (played, _) in enumerate(self._kinds):
            if len(played) > 1:
                own[i] = _variance(_known(played))[:, 1]
        largest = np.where(np.isnan(own) | (self.alike[:, :, 1] == 0), 0.0, own).max(axis=0)
        least = max(TOGETHER * self.most_cost, 1e-6)
        apart: Floats = np.maximum(np.where(np.isnan(own), largest, own), least**2)
        return apart

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """(policies,): of which neither opinion says a number"""
        nobody: NDArray[np.bool_] = (self.weights.sum(axis=0) == 0).any(axis=1)
        return nobody

    @property
    def weight(self) -> Floats:
        """(policies, 2): the model's"""
        model: Floats = self.weights[1:].sum(axis=0)
        return model

    @property
    def out_of_data(self) -> Floats:
        """(policies,): the share of their steps in the model that are out of the data, where those kinds lead that
        count for costs; 1 where none does"""
        return self._share_out(self.among)[:, 1]

    def _share_out(self, of_kinds: Floats) -> Floats:
        """(policies, 2), by these shares of kinds"""
        share: Floats = (of_kinds * self._shares_of_kinds[:, :, None]).sum(axis=0)
        return np.where(of_kinds.sum(axis=0) > 0, share, 1.0)

    @cached_property
    def together(self) -> Floats:
        """(policies, episodes, 2): what all, so weighed, foretell for the held-out episodes"""
        told = np.stack([_known(tests.mean(axis=0)) for _, tests in self._parts])
        all_of_it: Floats = (self.weights[:, :, None] * told).sum(axis=0)
        return all_of_it

    @property
    def of_kinds(self) -> Floats:
        """(K, policies, 2): what each kind of members says of the policies"""
        return np.stack([played.mean(axis=0) for played, _ in self._kinds])

    @property
    def told_by_kinds(self) -> Floats:
        """(K, policies, episodes, 2): and of the held-out episodes"""
        return np.stack([tests.mean(axis=0) for _, tests in self._kinds])

    @property
    def _shares_of_kinds(self) -> Floats:
        """(K, policies): ``ood_shares``; where that is no number, all steps count as out of the data"""
        return np.where(np.isfinite(self.ood_shares), self.ood_shares, 1.0)

    @property
    def _kinds(self) -> list[tuple[Floats, Floats]]:
        """Of each kind what its members say of the policies, and of the held-out episodes."""
        count = len(self.ood_shares)
        return [(self.played[i::count], self.retraced[i::count]) for i in range(count)]

    @property
    def _parts(self) -> list[tuple[Floats, Floats]]:
        """Fitted Q evaluation, then each kind of members."""
        return [(self.fitted, self.foretold), *self._kinds]

    @property
    def skill(self) -> Floats:
        """(policies, 2): the share of the variance between held-out episodes that all together foretell, from 0 to 1"""
        return brought_back(self.together, self.logged)

    def weighed(self, taken_off: float = TAKEN_OFF) -> tuple[Floats, Floats]:
        """(policies, 2) each: estimates and their standard errors.

        Members of the model and replicas of fitted Q evaluation vote. The estimate is the mean of the middle half of
        the votes, so that a few that went astray count for nothing, less a part of what was off on average for held-out
        episodes of about the same return or cost. What remains of that is error, and half of what differs from episode
        to episode: an estimate is a mean of episodes, but those of one policy are alike.
        """
        votes = [_known(part) for part, _ in self._parts]
        estimate = _vote(self._parts, self.weights)
        off, differs = nearby(self.together, self.logged, estimate)
        # Episodes of which little is foretold are off by what is theirs alone, which a policy's mean is not.
        taken = taken_off * self.skill * off
        # Where all say that there is nothing, nothing is added: what was off for neighbours is error alone.
        taken[:, 1] = np.where(estimate[:, 1] <= self._floor(), np.maximum(taken[:, 1], 0.0), taken[:, 1])
        estimate = estimate - taken
        # Of votes that are a mixture: how far apart they are within each part, and how far the parts are.
        means = np.stack([part.mean(axis=0) for part in votes])
        within = np.stack([_variance(part) for part in votes])
        believed = self._believed()
        centre = (believed * means).sum(axis=0)
        spread = (believed * (within + np.square(means - centre))).sum(axis=0)
        # What votes disagree on is a part of what they were off for logged episodes: the larger counts.
        variance = np.maximum(np.square(off - taken) + differs / 2, spread)
        error = np.hypot(np.sqrt(variance), self._anywhere() * self.anything)
        estimate[:, 1] = np.maximum(estimate[:, 1], 0.0)
        cost, doubt = estimate[:, 1], error[:, 1]
        none = (cost <= self._floor()) & (cost <= 2 * doubt)
        # Below what can be told apart from nothing all costs are the same; the error then holds the difference.
        doubt[none] = np.hypot(doubt[none], cost[none])
        cost[none] = 0.0
        return estimate, error

    def _anywhere(self) -> Floats:
        """(policies, 2): how far what is out of the data leaves open where return and cost are."""
        # Where the model leads counts for costs as far as the model is believed. For the rest steps must be out of the
        # data in logged states too, many of which a policy may never get to.
        both = np.minimum(self.out_of_data, self.ood_in_log)
        known = (self.weights[1:, :, 1] * self._shares_of_kinds).sum(axis=0)
        of_costs = known + self.weights[0, :, 1] * both
        # For returns it counts whole: of the kinds of members that count for either, those that lead further out.
        return np.stack([FLATTERED * self._share_out(self.alike).max(axis=1), of_costs], axis=1)

    def _believed(self) -> Floats:
        """(1 + K, policies, 2): the weights by which votes are told to be apart.

        For returns both opinions count alike, whichever is the estimate: the error is told about the middle of both,
        half of what they are apart.
        """
        fitted, model = (says / np.maximum(np.sum(self._there, axis=0), 1) for says in self._there)
        alike = np.concatenate([fitted[None], model * self.among])
        alike[:, :, 1] = self.weights[:, :, 1]
        return alike

    def _floor(self) -> Floats:
        """(policies,): the cost that is foretold where in truth there was none: no difference is seen below."""
        free = self.together[:, self.logged[:, 1] == 0, 1]
        floor = np.quantile(free, 0.9, axis=1) if free.shape[1] else np.zeros(len(free))
        return np.clip(floor, FLOOR[0] * self.most_cost, FLOOR[1] * self.most_cost)


def best_weights(errors: Floats) -> Floats:
    """(opinions, policies, episodes, 2) → (opinions, policies, 2): the weights, 0 to 1 and 1 together, with which the
    mean of these errors is least in the mean square; none for an opinion of NaN. There are few opinions, so each choice
    of some of them is tried."""
    known = np.isfinite(errors.sum(axis=2))
    errors = np.nan_to_num(errors)
    products = np.einsum("gpek,hpek->pkgh", errors, errors)
    count = len(errors)
    best = np.full(products.shape[:2], np.inf)
    weights = np.zeros((*products.shape[:2], count))
    for bits in range(1, 2**count):
        some = [i for i in range(count) if bits >> i & 1]
        part = products[:, :, some][:, :, :, some]
        # Two that err alike share what they have: the rest of a rounding must not decide between them.
        ridge = 1e-6 * np.trace(part, axis1=2, axis2=3) + 1e-12
        part = part + ridge[..., None, None] * np.eye(len(some))
        found = np.linalg.solve(part, np.ones((*part.shape[:2], len(some), 1)))[..., 0]
        found = found / found.sum(axis=2, keepdims=True)
        left = np.einsum("pki,pkij,pkj->pk", found, part, found)
        valid = (found >= 0).all(axis=2) & known[some].all(axis=0) & (left < best)
        best = np.where(valid, left, best)
        filled = np.zeros_like(weights)
        filled[:, :, some] = found
        weights = np.where(valid[..., None], filled, weights)
    return np.moveaxis(weights, 2, 0)


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
    """(votes, …) → (…): the mean of what lies between the quarters, each vote with its share of 1; NaN where nobody has
    a share"""
    order = np.argsort(votes, axis=0, kind="stable")
    votes, shares = np.take_along_axis(votes, order, 0), np.take_along_axis(shares, order, 0)
    upto = np.cumsum(shares, axis=0)
    inside = np.clip(np.minimum(upto, 0.75) - np.maximum(upto - shares, 0.25), 0, None)
    total = inside.sum(axis=0)
    return np.divide((inside * votes).sum(axis=0), total, out=np.full_like(total, np.nan), where=total > 0)


def _vote(parts: Sequence[tuple[Floats, Floats]], weights: Floats) -> Floats:
    """(policies, 2): what these parts say of the policies, by the middle half of the votes of all who belong to them"""
    votes = [_known(part) for part, _ in parts]
    shares = [np.repeat(w[None] / len(part), len(part), axis=0) for w, part in zip(weights, votes, strict=True)]
    return middle_half(np.concatenate(votes), np.concatenate(shares))


def _known(values: Floats) -> Floats:
    """0 where there is no number; such parts have no weight."""
    return np.where(np.isfinite(values), values, 0.0)


def _variance(opinions: Floats) -> Floats:
    return opinions.var(axis=0, ddof=1) if len(opinions) > 1 else np.zeros(opinions.shape[1:])
