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

    @property
    def of_model(self) -> Floats:
        """(policies, 2): of its members together"""
        return np.einsum("mps,ms->ps", self.played, self.replays.weights)

    @property
    def model_variance(self) -> Floats:
        """(policies, 2): between its members; a few of them show less of it than there is"""
        weights = self.replays.weights[:, None]
        spread = (weights * np.square(self.played - self.of_model)).sum(axis=0)
        several = 1 - np.square(weights).sum(axis=0)
        return np.where(several > 0, spread / np.maximum(several, 1e-3), 0.0)

    def weighed(self) -> tuple[Floats, Floats]:
        """(policies, 2) each: estimates and their standard errors.

        The estimate is the mean of a mixture, the error its standard deviation. The model weighs what it is worth: the
        share of the variance between logged episodes, not fitted to, that it brings back.
        """
        alone = np.isnan(self.fitted[0])
        weight = np.where(alone, 1.0, self.replays.skill)
        of_played = self.of_model
        of_fitted = np.where(alone, of_played, self.fitted.mean(0))
        mean = (1 - weight) * of_fitted + weight * of_played
        variance = (
            (1 - weight) * np.where(alone, 0.0, _variance(self.fitted))
            + weight * (self.model_variance + self.replays.errors(of_played) ** 2)
            + np.maximum(weight * (1 - weight), DOUBT * (1 - DOUBT) * weight) * (of_fitted - of_played) ** 2
        )
        error = np.hypot(np.sqrt(variance), self.ood_shares[:, None] * self.anything)
        floor = min(max(self.replays.floor, FLOOR[0] * self.most_cost), FLOOR[1] * self.most_cost)
        none = (of_played[:, 1] <= floor) & (mean[:, 1] <= 2 * error[:, 1])
        # Below what the model tells apart from nothing all costs are the same; the error then holds the difference.
        error[none, 1] = np.hypot(error[none, 1], mean[none, 1])
        mean[none, 1] = 0.0
        return mean, error


def _variance(opinions: Floats) -> Floats:
    return opinions.var(axis=0, ddof=1) if len(opinions) > 1 else np.zeros(opinions.shape[1:])
