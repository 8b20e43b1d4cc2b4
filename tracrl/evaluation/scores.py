"""What episodes score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from tracrl.errors import TracrlError
from tracrl.files import read_json, write_json
from tracrl.tasks.normalise import normalised_cost, normalised_reward
from tracrl.tasks.table import get_task

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """Episodes of a stack of policies in one task."""

    task: str
    limits: tuple[float, ...]
    seeds: tuple[int, ...]
    returns: Floats
    """(policies, episodes)"""
    costs: Floats
    """(policies, episodes)"""
    lengths: NDArray[np.int64]
    """(policies, episodes)"""

    @property
    def rewards(self) -> Floats:
        """(policies, episodes): normalised"""
        return normalised_reward(get_task(self.task), self.returns)

    @property
    def normalised_costs(self) -> Floats:
        """(policies, episodes)"""
        return normalised_cost(self.costs, np.array(self.limits)[:, None])

    @property
    def safe(self) -> NDArray[np.bool_]:
        """(policies,): mean normalised cost at most 1"""
        return self.normalised_costs.mean(axis=1) <= 1

    def take(self, policies: Sequence[int]) -> Scores:
        """The scores of some of the policies."""
        return Scores(
            self.task,
            tuple(self.limits[i] for i in policies),
            tuple(self.seeds[i] for i in policies),
            self.returns[policies],
            self.costs[policies],
            self.lengths[policies],
        )

    def joined_with(self, other: Scores) -> Scores:
        """These policies, then the other's, over the same episodes."""
        return Scores(
            self.task,
            self.limits + other.limits,
            self.seeds + other.seeds,
            np.concatenate([self.returns, other.returns]),
            np.concatenate([self.costs, other.costs]),
            np.concatenate([self.lengths, other.lengths]),
        )

    def means(self) -> dict[str, list[float]]:
        """Over the episodes, a value for each policy."""
        return {
            "return": self.returns.mean(axis=1).tolist(),
            "cost": self.costs.mean(axis=1).tolist(),
            "normalised_reward": self.rewards.mean(axis=1).tolist(),
            "normalised_cost": self.normalised_costs.mean(axis=1).tolist(),
        }

    def better_than(self, other: Scores) -> NDArray[np.bool_]:
        """(policies,): safe and of higher reward; or safe where the other is not; or, both unsafe, of lower cost."""
        mine, theirs = self.rewards.mean(axis=1), other.rewards.mean(axis=1)
        lower = self.normalised_costs.mean(axis=1) < other.normalised_costs.mean(axis=1)
        both = self.safe & other.safe
        return np.where(both, mine > theirs, np.where(self.safe == other.safe, lower, self.safe))

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "limits": list(self.limits),
            "seeds": list(self.seeds),
            "returns": self.returns.tolist(),
            "costs": self.costs.tolist(),
            "lengths": self.lengths.tolist(),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Scores:
        try:
            scores = cls(
                value["task"],
                tuple(value["limits"]),
                tuple(value["seeds"]),
                np.array(value["returns"], np.float64),
                np.array(value["costs"], np.float64),
                np.array(value["lengths"], np.int64),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TracrlError(f"These scores were not written by tracrl, or were edited ({error!r}).") from error
        if not (len(scores.limits) == len(scores.seeds) == len(scores.returns) == len(scores.costs)):
            raise TracrlError("These scores were edited or cut: their limits, seeds and episodes do not match.")
        return scores

    def save(self, path: Path) -> None:
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: Path) -> Scores:
        return cls.from_dict(read_json(path))

    def table(self, title: str) -> Table:
        """A row for each limit and the mean of all."""
        episodes = self.returns.shape[1]
        table = Table(title=title, title_justify="left", caption_justify="left")
        table.caption = (
            f"mean ± standard deviation over seeds × {episodes} episodes; normalised with DSRL's constants for "
            f"{self.task}; safe: normalised cost at most 1"
        )
        for column in ("limit", "seeds", "return", "cost", "norm. reward", "norm. cost", "safe"):
            table.add_column(column, justify="center" if column == "safe" else "right")
        limits = np.array(self.limits)
        for limit in dict.fromkeys(self.limits):
            self._row(table, f"{limit:g}", limits == limit)
        if len(set(self.limits)) > 1:
            table.add_section()
            self._row(table, "all", np.ones(len(limits), bool))
        return table

    def _row(self, table: Table, name: str, which: NDArray[np.bool_]) -> None:
        cost = self.normalised_costs[which]
        safe = bool(cost.mean() <= 1)
        table.add_row(
            name,
            str(len(set(np.array(self.seeds)[which]))),
            _spread(self.returns[which], 1),
            _spread(self.costs[which], 1),
            _spread(self.rewards[which], 2),
            _spread(cost, 2),
            "yes" if safe else "NO",
            style=None if safe else "red",
        )


def _spread(values: Floats, digits: int) -> str:
    return f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"
