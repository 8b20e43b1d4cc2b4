"""The paper's numbers, as printed: its full table, and its tables of ablations. All of them are on DSRL's data."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib import resources

CITATION = "Gong, Kumar and Varakantham, AAAI 2025"


@dataclass(frozen=True)
class Published:
    """Normalised reward and cost of one method on one task."""

    reward: float
    reward_std: float | None
    cost: float
    cost_std: float | None


@functools.cache
def published_results() -> dict[tuple[str, str], Published]:
    """(task, method's title) → numbers; the suites' averages are left out, as they follow from the tasks."""
    return {
        (row["task"], row["algorithm"]): Published(
            *(float(row[name]) for name in ("reward_mean", "reward_std", "cost_mean", "cost_std"))
        )
        for row in _rows("published_results.csv")
        if not row["task"].endswith("Average")
    }


@functools.cache
def published_ablations() -> dict[tuple[str, str, str], Published]:
    """(varied setting, task, value) → numbers."""
    return {
        (row["setting"], row["task"], row["value"]): Published(float(row["reward"]), None, float(row["cost"]), None)
        for row in _rows("published_ablations.csv")
    }


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
