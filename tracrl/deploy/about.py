"""What is known of a policy that goes out of the door: its run, its data, what it scored, what was estimated."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracrl.data.episodes import Episodes
from tracrl.data.locate import load_dataset
from tracrl.deploy.export import NOT_SHOWN
from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.ope.alarm import OutOfData
from tracrl.ope.estimates import ASSUMPTIONS, Estimates
from tracrl.ope.gate import gate
from tracrl.policies.any_limit import AnyLimitPolicy, LimitRangePolicy
from tracrl.policies.base import Policy
from tracrl.policies.load import load_policy
from tracrl.train.directory import RunDirectory
from tracrl.train.its_data import find_data


@dataclass(frozen=True, eq=False)
class Known:
    """A stack of policies, and what its run directory says of it; a policy file of its own has none."""

    path: Path
    policy: Policy
    config: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    scores: Scores | None = None
    estimates: Estimates | None = None
    out_of_data: OutOfData | None = None

    @classmethod
    def of(cls, path: Path) -> Known:
        """Of a run directory or a policy file; one that lies in a run directory is known by it."""
        policy = load_policy(path)
        directory = RunDirectory(path if path.is_dir() else path.parent)
        if not directory.config.exists():
            return cls(path, policy)
        final = path.is_dir() or path.name == directory.policy.name
        scores = directory.scores if final else directory.best_scores
        return cls(
            path,
            policy,
            directory.read_config(),
            directory.read_warnings(),
            Scores.load(scores) if scores.exists() and (final or path.name == directory.best.name) else None,
            Estimates.load(directory.estimates) if directory.estimates.exists() else None,
            OutOfData.load(directory.out_of_data) if directory.out_of_data.exists() else None,
        )

    def to_export(self, limit: float | None, seed: int | None) -> tuple[Policy, dict[str, Any]]:
        """The one policy that is meant, and what is known of it."""
        metadata = self.policy.metadata
        pairs = list(zip(metadata.limits, metadata.seeds, strict=True))
        found = [i for i, (its, own) in enumerate(pairs) if limit in (None, its) and seed in (None, own)]
        if isinstance(self.policy, LimitRangePolicy):  # a seed's policies are one, told the limit
            of_seed = [i for i, own in enumerate(metadata.seeds) if seed in (None, own)]
            if of_seed and len(self.policy[of_seed].networks()) == 1:
                one = self.policy[of_seed[0]]
                if limit is None or not isinstance(one, AnyLimitPolicy):
                    return one, self.for_export(of_seed)
                return one.at(limit), self.for_export(found)
        if len(found) == 1:
            return self.policy[found[0]], self.for_export(found)
        there = "; ".join(f"--limit {limit:g} --seed {seed}" for limit, seed in pairs[:12])
        what = "holds none of this limit and seed" if not found else f"holds {len(found)} such policies"
        raise TracrlError(f"{self.path} {what}: name one of {there}{' and more' if len(pairs) > 12 else ''}.")

    def scored(self, place: int) -> dict[str, Any] | None:
        """What one policy scored in an environment."""
        scores, metadata = self.scores, self.policy.metadata
        if scores is None or (scores.limits, scores.seeds) != (metadata.limits, metadata.seeds):
            return None
        return {
            "limit": metadata.limits[place],
            "environment": scores.protocol.env if scores.protocol else scores.task,
            "episodes": int(scores.returns.shape[1]),
            "return": float(scores.returns[place].mean()),
            "cost": float(scores.costs[place].mean()),
        }

    def estimated(self, place: int) -> int | None:
        """Where one policy is among the estimates; none where they are of others, or of it before it was changed."""
        if self.estimates is None:
            return None
        mine = self.policy.fingerprints()[place]
        return self.estimates.policies.index(mine) if mine in self.estimates.policies else None

    def strayed(self, place: int) -> float | None:
        """The share of one policy's steps out of the data, along its own episodes."""
        known, mine = self.out_of_data, self.policy.fingerprints()[place]
        if known is None or known.played is None or mine not in known.policies:
            return None
        return known.played[known.policies.index(mine)]

    def safety(self, place: int) -> str:
        """What is known of the cost, and what that rests on."""
        said = []
        if (i := self.estimated(place)) is not None and self.estimates is not None:
            decision = gate(self.estimates, self.policy.metadata.limits[place], self.estimates.confidence)[i]
            said.append(f"Estimated from the log alone: {decision.verdict} {' '.join(decision.basis.splitlines())}")
        if (scored := self.scored(place)) is not None:
            said.append(
                f"In {scored['environment']} it cost {scored['cost']:.1f} in the mean of {scored['episodes']} "
                f"episodes, where {self.policy.metadata.limits[place]:g} was allowed."
            )
        if said and (share := self.strayed(place)) is not None:
            said.append(f"Along its episodes {share:.0%} of its steps were out of the data.")
        return " ".join(said or [NOT_SHOWN])

    def for_export(self, places: Sequence[int]) -> dict[str, Any]:
        """Metadata of an exported file: of one policy, or of one that takes several limits at each of them."""
        known: dict[str, Any] = {"safety": " ".join(dict.fromkeys(map(self.safety, places))) or NOT_SHOWN}
        if self.config is not None:
            known["data_fingerprint"] = self.config["data"].get("fingerprint", "")
            known["data_episodes"] = self.config["data"].get("episodes", 0)
            known["data_file"] = self.config["data_source"].get("file", "")
            known["trained_with"] = f"tracrl {self.config['versions'].get('tracrl', 'of an unknown version')}"
            known["warnings"] = list(self.warnings)
        known["scores"] = [scored for place in places if (scored := self.scored(place)) is not None]
        known["estimates"] = [self._estimate(i) for place in places if (i := self.estimated(place)) is not None]
        return known

    def _estimate(self, i: int) -> dict[str, Any]:
        estimates = self.estimates
        assert estimates is not None
        return {
            "limit": estimates.limits[i],
            "return": float(estimates.returns[i]),
            "return_interval": estimates.return_intervals[i].tolist(),
            "cost": float(estimates.costs[i]),
            "cost_interval": estimates.cost_intervals[i].tolist(),
            "confidence": estimates.confidence,
            "out_of_data": float(estimates.ood_shares[i]),
            "data": dict(estimates.data),
            "notes": list(estimates.notes),
            "assumptions": ASSUMPTIONS,
        }

    def data(self, source: str | None = None) -> Episodes | None:
        """The log: what is named, else the data of the run, where they are at hand."""
        if source is not None:
            return load_dataset(source)
        if self.config is not None:
            return find_data(self.path, self.config)
        if self.policy.metadata.task is None:
            return None
        with contextlib.suppress(TracrlError):
            return load_dataset(self.policy.metadata.task)
        return None
