"""The paper's studies, with their tasks and values; everything in them can be chosen otherwise."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tracrl.errors import TracrlError
from tracrl.tasks.table import all_tasks

PAPER_SEEDS = (0, 10, 20)
PAPER_ORDER = ("bc-all", "bc-safe", "cdt", "bcq-lag", "bear-lag", "cpq", "coptidice", "trac")
"""the columns of the paper's tables"""
ONE_OF_EACH = ("AntCircle", "CarPush1", "mediummean")
BULLET = tuple(task.name for task in all_tasks().values() if task.suite == "Bullet")


@dataclass(frozen=True)
class Study:
    """One of the paper's studies."""

    about: str
    tasks: tuple[str, ...]
    setting: str | None = None
    """the setting of TraC that is varied; None: every method as it is"""
    values: tuple[Any, ...] = ()
    """its values; the preset's own is always among them"""
    against: str | None = None
    """the values are compared with whatever the preset has, which the paper lists as this"""


STUDIES: dict[str, Study] = {
    "main": Study("Every method on every task: the main table", tuple(all_tasks())),
    # The paper's text gives no values for x, y and α, only figures; these span the range around its settings.
    "x": Study("x %: share of the safe that is desirable", ("AntCircle", "mediummean"), "x", (25.0, 50.0, 75.0, 100.0)),
    "y": Study("y %: share of the safe that is undesirable", ("AntCircle", "mediummean"), "y", (0.0, 25.0, 50.0, 75.0)),
    "sides": Study("One of the two sets alone, or both", ONE_OF_EACH, "sides", ("both", "desirable", "undesirable")),
    "delta": Study("δ: the lowest weight of a segment", ONE_OF_EACH, "delta", (0.0, 0.4, 0.7, 1.0)),
    "eta": Study("η: weight of the undesirable set", ONE_OF_EACH, "eta", (0.25, 0.5, 1.0, 2.0)),
    "alpha": Study("α: the score's temperature", ONE_OF_EACH, "alpha", (0.05, 0.1, 0.2, 0.4)),
    "no-pretraining": Study("The reference without cloning", BULLET, "clone_updates", (0,), against="30000"),
    "uniform-reference": Study("A constant in place of the reference", BULLET, "reference", ("cloned", "uniform")),
}  # fmt: skip


SYMBOLS = {
    "x": "x %",
    "y": "y %",
    "delta": "δ",
    "eta": "η",
    "alpha": "α",
    "clone_updates": "cloning updates",
    "sides": "sets",
}
"""settings as the paper writes them"""


def shown(value: Any) -> str:
    """A setting's value for people."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def get_study(name: str) -> Study:
    """The study called ``name``; an unknown name is answered with the nearest known one."""
    if name in STUDIES:
        return STUDIES[name]
    near = difflib.get_close_matches(name.lower(), STUDIES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(STUDIES)}."
    raise TracrlError(f"There is no study called {name!r}: {hint}")


def in_paper_order(names: Iterable[str]) -> list[str]:
    """Methods in the order of the paper's columns, others behind."""
    place = {name: i for i, name in enumerate(PAPER_ORDER)}
    return sorted(names, key=lambda name: place.get(name, len(place)))
