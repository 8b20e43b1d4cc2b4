"""The table of collected data sets: what each holds, next to DSRL's constants, and which targets it misses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tracrl.data.locate import load_dataset
from tracrl.data.summary import Summary, summarise

FEWEST_EPISODES = 1_000
FEWEST_OF_A_KIND = 200
"""Safe episodes, and unsafe ones, at every limit."""
SHARE_OF_BEST = 0.6
"""Of DSRL's highest return, to be reached by the best safe episode at the highest limit."""
LARGEST = 8e6
"""Bytes."""

HEADER = (
    "file",
    "MB",
    "episodes",
    "returns (DSRL's)",
    "costs (DSRL's highest)",
    "coverage",
    "limits",
    "safe",
    "unsafe",
    "best safe return, normalised",
    "missed",
    "made by",
)


def markdown_table(paths: Sequence[Path]) -> str:
    """One row for each file."""
    rows = [HEADER, ["---"] * len(HEADER), *(_row(path) for path in paths)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def missed(summary: Summary, size: float) -> list[str]:
    """The targets that a data set of ``size`` bytes misses, in a few words each."""
    said = []
    if summary.episodes < FEWEST_EPISODES:
        said.append(f"{FEWEST_EPISODES:,} episodes")
    for at in summary.limits:
        for kind, count in (("safe", at.safe), ("unsafe", at.unsafe)):
            if count < FEWEST_OF_A_KIND:
                said.append(f"{FEWEST_OF_A_KIND} {kind} at {at.limit:g}")
    best = summary.limits[-1].best_safe_return
    if summary.dsrl is not None:
        wanted = SHARE_OF_BEST * summary.dsrl["highest_return"]
        if best is None or best < wanted:
            said.append(f"best safe return {wanted:.4g} at {summary.limits[-1].limit:g}")
    if size > LARGEST:
        said.append(f"{LARGEST / 1e6:g} MB")
    return said


def _row(path: Path) -> list[str]:
    size = path.stat().st_size
    summary = summarise(load_dataset(path), name=path.name)
    dsrl = summary.dsrl
    scores = [at.best_safe_score if at.best_safe_score is not None else at.best_safe_return for at in summary.limits]
    return [
        path.name,
        f"{size / 1e6:.1f}",
        f"{summary.episodes:,}" + (f" ({dsrl['episodes']:,})" if dsrl else ""),
        f"{summary.returns.low:.4g} … {summary.returns.high:.4g}"
        + (f" ({dsrl['lowest_return']:.4g} … {dsrl['highest_return']:.4g})" if dsrl else ""),
        f"{summary.costs.low:.3g} … {summary.costs.high:.4g}" + (f" ({dsrl['highest_cost']:.4g})" if dsrl else ""),
        f"{summary.coverage:.0%}",
        " / ".join(f"{at.limit:g}" for at in summary.limits),
        " / ".join(str(at.safe) for at in summary.limits),
        " / ".join(str(at.unsafe) for at in summary.limits),
        " / ".join("none" if score is None else f"{score:.2f}" for score in scores),
        ", ".join(missed(summary, size)) or "none",
        f"`{summary.made_by}`" if summary.made_by else "",
    ]
