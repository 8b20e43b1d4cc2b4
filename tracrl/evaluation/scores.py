"""What episodes score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from tracrl.errors import TracrlError
from tracrl.evaluation.risk import Verdict, cvar, percent, share_above
from tracrl.files import read_json, write_json
from tracrl.tasks.normalise import normalised_cost, normalised_reward
from tracrl.tasks.table import get_task

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EvaluationProtocol:
    """How episodes were played: what scores must have in common to be compared."""

    env: str
    """a task's name, or which environment else"""
    episodes: int
    seed: int
    """determines the episodes"""
    on_the_way: bool = False
    """the episodes that choose the best policy during a training, which are others than those of final scores"""
    cost_key: str = "cost"
    max_steps: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """of tracrl, Python and everything else that shapes an episode"""

    def differences(self, other: EvaluationProtocol) -> list[str]:
        """What differs, in words: ``episodes 20 and 100``. Of the versions, those of what simulates."""
        names = [f.name for f in fields(self) if f.name != "versions"]
        pairs = [(name.replace("_", " "), getattr(self, name), getattr(other, name)) for name in names]
        simulating = sorted({*self.versions, *other.versions} - {"tracrl", "python"})
        pairs += [(name, self.versions.get(name, "none"), other.versions.get(name, "none")) for name in simulating]
        return [f"{name} {mine} and {theirs}" for name, mine, theirs in pairs if mine != theirs]


@dataclass(frozen=True, eq=False)
class Scores:
    """Episodes of a stack of policies in one environment."""

    task: str | None
    """whose constants normalise returns; None for an environment that has none"""
    limits: tuple[float, ...]
    seeds: tuple[int, ...]
    returns: Floats
    """(policies, episodes)"""
    costs: Floats
    """(policies, episodes)"""
    lengths: NDArray[np.int64]
    """(policies, episodes)"""
    protocol: EvaluationProtocol | None = None
    """None where it is unknown: of files that were written before version 0.5"""

    def __repr__(self) -> str:
        where = self.task or (self.protocol.env if self.protocol is not None else "an environment")
        limits, safe = np.array(self.limits), self.safe_at()
        said = [
            f"limit {limit:g}: return {self.returns[limits == limit].mean():.4g}, cost "
            f"{self.costs[limits == limit].mean():.4g}, {'safe' if safe[limit] else 'NOT safe'}"
            for limit in list(safe)[:3]
        ]
        said += [f"safe at {sum(safe.values())} of {len(safe)} limits"] if len(safe) > 3 else []
        policies, episodes = self.returns.shape
        return f"<Scores in {where}: {policies} × {episodes} episodes; {'; '.join(said)}>"

    @property
    def rewards(self) -> Floats:
        """(policies, episodes): normalised; NaN without a task"""
        if self.task is None:
            return np.full_like(self.returns, np.nan)
        return normalised_reward(get_task(self.task), self.returns)

    @property
    def normalised_costs(self) -> Floats:
        """(policies, episodes)"""
        return normalised_cost(self.costs, np.array(self.limits)[:, None])

    @property
    def safe(self) -> NDArray[np.bool_]:
        """(policies,): mean normalised cost at most 1"""
        return self.normalised_costs.mean(axis=1) <= 1

    def verdicts(self) -> list[Verdict]:
        """For each limit, what the episodes of its policies come to."""
        return [self._verdict(limit) for limit in dict.fromkeys(self.limits)]

    def safe_at(self) -> dict[float, bool]:
        """For each limit, whether the mean cost over its policies is at most the limit."""
        return {verdict.limit: verdict.safe for verdict in self.verdicts()}

    def _verdict(self, limit: float) -> Verdict:
        which = np.array(self.limits) == limit
        costs = self.costs[which]
        return Verdict(
            limit=limit,
            episodes=costs.size,
            cost=float(costs.mean()),
            share_above=share_above(costs, limit),
            cost_cvar=cvar(costs),
            safe=bool(self.normalised_costs[which].mean() <= 1),
        )

    def take(self, policies: Sequence[int]) -> Scores:
        """The scores of some of the policies."""
        return replace(
            self,
            limits=tuple(self.limits[i] for i in policies),
            seeds=tuple(self.seeds[i] for i in policies),
            returns=self.returns[policies],
            costs=self.costs[policies],
            lengths=self.lengths[policies],
        )

    def joined_with(self, other: Scores) -> Scores:
        """These policies, then the other's, over the same episodes."""
        return replace(
            self,
            limits=self.limits + other.limits,
            seeds=self.seeds + other.seeds,
            returns=np.concatenate([self.returns, other.returns]),
            costs=np.concatenate([self.costs, other.costs]),
            lengths=np.concatenate([self.lengths, other.lengths]),
        )

    def means(self) -> dict[str, list[float]]:
        """Over the episodes, a value for each policy; no normalised reward without a task."""
        means = {
            "return": self.returns,
            "cost": self.costs,
            "normalised_reward": self.rewards,
            "normalised_cost": self.normalised_costs,
        }
        return {
            name: values.mean(axis=1).tolist()
            for name, values in means.items()
            if self.task is not None or name != "normalised_reward"
        }

    def better_than(self, other: Scores) -> NDArray[np.bool_]:
        """(policies,): safe and of higher return; or safe where the other is not; or, both unsafe, of lower cost."""
        mine, theirs = self.returns.mean(axis=1), other.returns.mean(axis=1)
        lower = self.normalised_costs.mean(axis=1) < other.normalised_costs.mean(axis=1)
        both = self.safe & other.safe
        return np.where(both, mine > theirs, np.where(self.safe == other.safe, lower, self.safe))

    def to_dict(self) -> dict[str, Any]:
        """As plain values. The verdicts are for readers: they follow from the episodes, and from those alone."""
        return {
            "task": self.task,
            "limits": list(self.limits),
            "seeds": list(self.seeds),
            "protocol": None if self.protocol is None else asdict(self.protocol),
            "verdicts": [asdict(verdict) for verdict in self.verdicts()],
            "returns": self.returns.tolist(),
            "costs": self.costs.tolist(),
            "lengths": self.lengths.tolist(),
        }

    @classmethod
    def from_dict(cls, value: Any, where: str = "These scores") -> Scores:
        """``where`` they come from, for the sentence that says what is wrong with them."""
        try:
            protocol = value.get("protocol")
            scores = cls(
                None if value["task"] is None else str(value["task"]),
                tuple(float(limit) for limit in value["limits"]),
                tuple(int(seed) for seed in value["seeds"]),
                np.array(value["returns"], np.float64),
                np.array(value["costs"], np.float64),
                np.array(value["lengths"], np.int64),
                None if protocol is None else EvaluationProtocol(**protocol),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise TracrlError(f"{where} were not written by tracrl, or were edited ({error!r}).") from error
        shapes = {array.shape for array in (scores.returns, scores.costs, scores.lengths)}
        shape = next(iter(shapes))
        if len(shapes) > 1 or len(shape) != 2 or {len(scores.limits), len(scores.seeds)} != {shape[0]} or not shape[1]:
            raise TracrlError(f"{where} were edited or cut off: their limits, seeds and episodes do not match.")
        if scores.task is not None:
            get_task(scores.task)
        return scores

    def save(self, path: Path) -> None:
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: Path) -> Scores:
        return cls.from_dict(read_json(path), f"The scores in {path}")

    def table(self, title: str) -> Table:
        """A row for each limit, and one for all of them. Without a task, returns are shown as they are."""
        table = Table(title_justify="left", caption_justify="left")
        table.title, table.caption = Text(title, "table.title"), Text(self._caption(), "table.caption")  # no markup
        rewards = [] if self.task is None else ["norm. reward"]
        costs = ["norm. cost", "above limit", "worst tenth"]
        for column in ("limit", "seeds", "return", "cost", *rewards, *costs, "safe"):
            table.add_column(column, justify="center" if column == "safe" else "right")
        limits, safe = np.array(self.limits), self.safe_at()
        for limit, verdict in safe.items():
            self._row(table, f"{limit:g}", limits == limit, "yes" if verdict else "NO", verdict)
        if len(safe) > 1:
            table.add_section()
            # A mean over limits hides one that is violated: all are safe only where each is.
            count = sum(safe.values())
            said = "yes" if count == len(safe) else f"{count} of {len(safe)}"
            self._row(table, "all", np.ones(len(limits), bool), said, count == len(safe))
        return table

    def _caption(self) -> str:
        episodes = self.returns.shape[1]
        said = [f"mean ± standard deviation over seeds × {episodes} episodes"]
        if self.protocol is not None:
            kind = "those that choose the best policy on the way" if self.protocol.on_the_way else "final ones"
            said.append(f"in {self.protocol.env}; episodes of seed {self.protocol.seed}, {kind}")
        if self.task is not None:
            said.append(f"rewards normalised with DSRL's constants for {self.task}")
        said.append("above limit: share of the episodes that cost more")
        said.append("worst tenth: mean cost of the worst 10 % of the episodes, at least of one")
        said.append("safe: mean cost at most the limit; the last row counts the limits at which it is")
        return "; ".join(said)

    def _row(self, table: Table, name: str, which: NDArray[np.bool_], verdict: str, safe: bool) -> None:
        table.add_row(
            name,
            str(len(set(np.array(self.seeds)[which]))),
            _spread(self.returns[which], 1),
            _spread(self.costs[which], 1),
            *([] if self.task is None else [_spread(self.rewards[which], 2)]),
            _spread(self.normalised_costs[which], 2),
            percent(share_above(self.costs[which], np.array(self.limits)[which, None])),
            f"{cvar(self.costs[which]):.1f}",
            verdict,
            style=None if safe else "red",
        )


def _spread(values: Floats, digits: int) -> str:
    return f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"
