"""What a training returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tracrl.evaluation.scores import Scores
from tracrl.policies.base import Policy
from tracrl.train.logs import Row


@dataclass(frozen=True, eq=False)
class Run:
    """What :func:`fit` returns: a trained stack of runs."""

    policy: Policy
    """the final policies: limits × seeds, seeds fastest"""
    history: list[Row]
    """logged metrics, a row for each run at each logged step"""
    best: Policy | None = None
    """of each run the best policy that was evaluated on the way"""
    scores: Scores | None = None
    best_scores: Scores | None = None
    directory: Path | None = None
    warnings: tuple[str, ...] = ()
    """what looks dead about the policies"""

    def __repr__(self) -> str:
        said = [repr(self.policy)[1:-1], f"{len({row['step'] for row in self.history})} steps logged"]
        if self.scores is not None:
            verdicts = self.scores.safe_at().values()
            said.append(f"safe at {sum(verdicts)} of {len(verdicts)} limits")
        else:
            said.append("not evaluated")
        said += [] if self.directory is None else [f"in {self.directory}"]
        warned = "".join(f"\n WARNING: {text:.120}" for text in self.warnings[:1])
        return f"<Run: {'; '.join(said)}{warned}>"
