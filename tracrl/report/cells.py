"""One cell of a table: a method on a task, over all episodes of all its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracrl.evaluation.risk import cvar, share_above
from tracrl.report.results import Result


@dataclass(frozen=True)
class Cell:
    """Mean and standard deviation, and whether every limit is kept.

    The paper calls a task solved where the mean normalised cost over all limits is at most 1. A mean can hide a limit
    that is violated, so a cell is safe only where it is at most 1 at each of them.
    """

    reward: float
    reward_std: float
    cost: float
    cost_std: float
    runs: int
    episodes: int
    """in all"""
    safe_parts: int
    """limits at which the mean cost is at most 1; of an average, cells that are safe"""
    parts: int
    """limits; of an average, cells"""
    share_above: float | None = None
    """of the episodes, those that cost more than their limit; None where single episodes are not known"""
    cost_cvar: float | None = None
    """mean cost of the worst tenth of the episodes"""

    @property
    def solved(self) -> bool:
        return self.cost <= 1

    @property
    def safe(self) -> bool:
        return self.solved and self.safe_parts == self.parts

    @classmethod
    def of(cls, results: Sequence[Result], policy: str) -> Cell | None:
        """Over limits × seeds × episodes; None where a run has no such policy."""
        scored = [(result.limit, *pair) for result in results if (pair := result.scored(policy)) is not None]
        if not scored or len(scored) < len(results):
            return None
        rewards, costs = (np.concatenate([run[i] for run in scored]) for i in (1, 2))
        limits = {limit: np.concatenate([c for at, _, c in scored if at == limit]) for limit, _, _ in scored}
        return cls(
            reward=float(rewards.mean()),
            reward_std=float(rewards.std()),
            cost=float(costs.mean()),
            cost_std=float(costs.std()),
            runs=len(results),
            episodes=len(rewards),
            safe_parts=sum(bool(at_limit.mean() <= 1) for at_limit in limits.values()),
            parts=len(limits),
            share_above=share_above(costs, 1.0),
            cost_cvar=cvar(costs),
        )

    @classmethod
    def at_limits(cls, results: Sequence[Result], policy: str) -> dict[float, Cell]:
        """A cell for each limit; none where a run has no such policy."""
        cells = {
            limit: cls.of([result for result in results if result.limit == limit], policy)
            for limit in sorted({result.limit for result in results})
        }
        return {limit: cell for limit, cell in cells.items() if cell is not None}

    @classmethod
    def average(cls, cells: Sequence[Cell | None]) -> Cell | None:
        """Of the tasks' means, with the standard deviation over tasks, as the paper has it; only if none is missing."""
        there = [cell for cell in cells if cell is not None]
        if not there or len(there) < len(cells):
            return None
        rewards, costs = np.array([c.reward for c in there]), np.array([c.cost for c in there])
        return cls(
            reward=float(rewards.mean()),
            reward_std=float(rewards.std()),
            cost=float(costs.mean()),
            cost_std=float(costs.std()),
            runs=sum(c.runs for c in there),
            episodes=sum(c.episodes for c in there),
            safe_parts=sum(c.safe for c in there),
            parts=len(there),
            share_above=_mean_of([c.share_above for c in there]),
            cost_cvar=_mean_of([c.cost_cvar for c in there]),
        )


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def runs_in_words(results: Sequence[Result]) -> str:
    """What a mean is over."""
    limits = sorted({r.limit for r in results})
    seeds = sorted({r.seed for r in results})
    episodes = sorted({len(r.rewards) for r in results})
    return (
        f"limits {' '.join(f'{limit:g}' for limit in limits)} × seeds {' '.join(map(str, seeds))} × "
        f"{' or '.join(map(str, episodes))} episodes"
    )
