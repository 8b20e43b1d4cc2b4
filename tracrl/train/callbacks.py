"""What whoever calls :func:`tracrl.fit` may be told while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tracrl.errors import TracrlError
from tracrl.train.logs import Row

Kind = Literal["log", "evaluation", "end"]


@dataclass(frozen=True)
class Event:
    """Something that happened in a training."""

    kind: Kind
    step: int
    """updates so far"""
    updates: int
    """of so many"""
    phase: str
    rows: tuple[Mapping[str, Any], ...] = ()
    """for each run ``limit``, ``seed`` and numbers: a log's metrics, an evaluation's ``return`` and ``cost`` with their
    normalised ones; at the end those of the final policies, none where nothing was evaluated"""
    directory: Path | None = None
    """where the run is kept"""
    warnings: tuple[str, ...] = ()
    """at the end: what looks dead about the policies"""


Callback = Callable[[Event], object]


class Callbacks:
    """Tells one function, several or none. What is noted is told at the end of a turn, so that nothing of the turn is
    lost where a callback fails."""

    def __init__(self, given: Callback | Sequence[Callback] | None):
        self.functions: tuple[Any, ...] = () if given is None else (given,) if callable(given) else tuple(given)
        for function in self.functions:
            if not callable(function):
                raise TracrlError(f"callbacks holds {function!r:.80}; expected functions that take one event each.")
        self._untold: list[Event] = []

    def note(self, event: Event, rows: Sequence[Row]) -> None:
        """An event, and its rows as logs have them, with limits as text."""
        if self.functions:
            numbers = tuple({**row, "limit": float(row["limit"])} for row in rows)
            self._untold.append(replace(event, rows=numbers))

    def tell(self, keep: Callable[[], None]) -> None:
        """One that fails ends the training, after ``keep`` has saved what there is."""
        events, self._untold = self._untold, []
        for event in events:
            for function in self.functions:
                try:
                    function(event)
                except Exception as error:
                    name = getattr(function, "__qualname__", None) or type(function).__qualname__
                    why = (str(error).splitlines() or [""])[0]
                    keep()
                    raise TracrlError(
                        f"The callback {name} failed at update {event.step} of {event.updates} "
                        f"({type(error).__name__}: {why}); {_kept(event)}"
                    ) from error


def _kept(event: Event) -> str:
    if event.directory is None:
        return "nothing was kept: mend it, and give out= to keep a training that ends early."
    if event.kind == "end":
        return f"the training itself is finished, in {event.directory}."
    return f"the training is kept in {event.directory}: mend it, and go on with resume=True."
