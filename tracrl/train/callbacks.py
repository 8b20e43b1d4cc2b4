"""What whoever calls :func:`tracrl.fit` may be told while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tracrl.errors import TracrlError
from tracrl.train.logs import Row


@dataclass(frozen=True)
class Event:
    """Something that happened in a training."""

    kind: Literal["log", "evaluation", "end"]
    step: int
    """updates so far"""
    updates: int
    """of so many"""
    phase: str
    rows: tuple[Mapping[str, Any], ...]
    """for each run ``limit``, ``seed`` and numbers: a log's metrics, an evaluation's ``return`` and ``cost`` with their
    normalised ones; at the end those of the final policies, none where nothing was evaluated"""
    directory: Path | None = None
    """where the run is kept"""
    warnings: tuple[str, ...] = ()
    """at the end: what looks dead about the policies"""


Callback = Callable[[Event], object]


def as_callbacks(given: Callback | Sequence[Callback] | None) -> tuple[Callback, ...]:
    """One, several or none."""
    callbacks: Sequence[Any] = () if given is None else (given,) if callable(given) else tuple(given)
    for callback in callbacks:
        if not callable(callback):
            raise TracrlError(f"callbacks holds {callback!r:.80}; expected functions that take one event each.")
    return tuple(callbacks)


def rows_to_tell(rows: Sequence[Row]) -> tuple[Mapping[str, Any], ...]:
    """Limits as numbers, where logs have them as text."""
    return tuple({**row, "limit": float(row["limit"])} for row in rows)


def name_of(callback: Callback) -> str:
    return str(getattr(callback, "__qualname__", None) or type(callback).__qualname__)
