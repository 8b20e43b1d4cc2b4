"""Episodes from tables with a row per step: CSV, Parquet and Arrow files, pandas and polars frames; and back.

Files are read batch by batch into float32, so that no more than about twice the result is in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracrl.data.arrow import (
    BATCH,
    batches,
    first_line,
    in_order,
    matrix,
    names_of,
    orders,
    pyarrow,
    rows_of,
    vector,
    whole,
)
from tracrl.data.checks import check_continuous
from tracrl.data.columns import ColumnChoice, Columns
from tracrl.data.episodes import Episodes
from tracrl.data.order import Order
from tracrl.errors import TracrlError

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float32]
Progress = Callable[[int, int | None], None]
"""rows read, rows in all where that is known"""


def read_tables(
    paths: Sequence[Path],
    choice: ColumnChoice | None = None,
    *,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    progress: Progress | None = None,
) -> tuple[Episodes, Columns]:
    """The episodes of these files together, and the columns that they were read from."""
    pyarrow()
    total = rows_of(paths)
    rows = Rows(where=str(paths[0]) if len(paths) == 1 else f"{len(paths)} files in {paths[0].parent}")
    choice = choice or ColumnChoice()
    columns = choice.among(names_of(paths[0]), str(paths[0]))
    for path in paths:
        for batch in batches(path, columns.all, columns.numbers):
            columns = columns if rows.count else _with_usable_step(columns, choice, batch, str(path))
            rows.add(batch, columns, path)
            if progress is not None:
                progress(rows.count, total)
    return rows.episodes(columns, action_low=action_low, action_high=action_high), columns


def from_frame(
    frame: Any,
    choice: ColumnChoice | None = None,
    *,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
) -> Episodes:
    """The episodes of a pandas or polars frame, or of anything else that speaks Arrow."""
    arrow = pyarrow()
    try:
        table = frame if isinstance(frame, arrow.Table) else arrow.table(frame)
    except (arrow.ArrowException, TypeError, ValueError) as error:
        raise TracrlError(
            f"A {type(frame).__name__} cannot be read as a table ({first_line(error)}); expected a pandas or polars "
            "frame, or an Arrow table."
        ) from error
    where = f"the {type(frame).__name__}"
    choice = choice or ColumnChoice()
    columns = choice.among(table.schema.names, where)
    rows = Rows(where=where)
    for batch in table.to_batches(max_chunksize=BATCH):
        columns = columns if rows.count else _with_usable_step(columns, choice, batch, where)
        rows.add(batch, columns, None)
    return rows.episodes(columns, action_low=action_low, action_high=action_high)


def to_arrow(episodes: Episodes) -> pa.Table:
    """A row per step under names that :class:`ColumnChoice` guesses: episode, step, obs_0 …, act_0 …, reward, cost …"""
    arrow = pyarrow()
    rows, lengths = episodes.rows, episodes.lengths
    ends = episodes.offsets[1:] - 1
    terminated, truncated = np.zeros(rows, bool), np.zeros(rows, bool)
    terminated[ends], truncated[ends] = episodes.terminated, ~episodes.terminated
    columns: dict[str, Any] = {
        "episode": np.repeat(np.arange(len(episodes)), lengths),
        "step": np.arange(rows) - np.repeat(episodes.offsets[:-1], lengths),
        **{f"obs_{i}": episodes.observations[:, i] for i in range(episodes.observation_size)},
        **{f"act_{i}": episodes.actions[:, i] for i in range(episodes.action_size)},
        "reward": episodes.rewards,
        "cost": episodes.costs,
        "terminated": terminated,
        "truncated": truncated,
    }
    if episodes.final_observations is not None:
        following = episodes.next_observations()
        columns |= {f"next_obs_{i}": following[:, i] for i in range(episodes.observation_size)}
    return arrow.table(columns)


@dataclass
class Rows:
    """Rows of one or more tables as they come in, in float32."""

    where: str
    """for messages"""
    count: int = 0
    _numbers: dict[str, list[Floats]] = field(default_factory=dict)
    _episode: list[Any] = field(default_factory=list)
    _step: list[Any] = field(default_factory=list)
    _file: list[NDArray[np.int32]] = field(default_factory=list)
    _files: list[Path] = field(default_factory=list)
    _times: bool = False

    def add(self, batch: pa.RecordBatch, columns: Columns, path: Path | None) -> None:
        """The next rows of a table."""
        where = self.where if path is None else str(path)
        if missing := [name for name in columns.all if name not in batch.schema.names]:
            raise TracrlError(f"{where}: the column {missing[0]!r} is missing, which the first file has.")
        if path is not None and (not self._files or self._files[-1] != path):
            self._files.append(path)
        self._file.append(np.full(len(batch), max(len(self._files) - 1, 0), np.int32))
        groups = {"observations": columns.observations, "actions": columns.actions}
        groups |= {"next_observations": columns.next_observations} if columns.next_observations else {}
        for name, of in groups.items():
            self._numbers.setdefault(name, []).append(matrix(batch, of, where, self.count))
        for name in ("reward", "cost", "terminated", "truncated"):
            if (column := getattr(columns, name)) is not None:
                self._numbers.setdefault(name, []).append(vector(batch, column, where, self.count))
        if columns.episode is not None:
            self._episode.append(whole(batch, columns.episode, where, self.count))
        if columns.step is not None:
            steps, self._times = in_order(whole(batch, columns.step, where, self.count), columns.step, where)
            self._step.append(steps)
        self.count += len(batch)

    def episodes(
        self, columns: Columns, *, action_low: ArrayLike | None = None, action_high: ArrayLike | None = None
    ) -> Episodes:
        """All rows, sorted by episode and step. The rows given so far are used up."""
        if self.count == 0:
            raise TracrlError(f"{self.where}: there are no rows; at least one whole episode is needed.")
        order, first = self._order(columns).sorting()
        pyarrow().default_memory_pool().release_unused()  # what reading took is not to stand beside the result
        arrays = {}
        for name in list(self._numbers):
            joined = np.concatenate(self._numbers.pop(name))
            arrays[name] = joined if order is None else joined[order]
            del joined
        ends = np.concatenate([first[1:], [True]]) if first is not None else None
        terminals, timeouts = self._ends(arrays, ends)
        low, high = self._box(arrays["actions"], action_low, action_high)
        following = {"next_observations": arrays["next_observations"]} if "next_observations" in arrays else {}
        return Episodes.from_arrays(
            {
                "observations": arrays["observations"],
                "actions": arrays["actions"],
                "rewards": arrays["reward"],
                "costs": arrays["cost"],
                "terminals": terminals,
                "timeouts": timeouts,
                **following,
            },
            where=self.where,
            action_low=low,
            action_high=high,
            metadata={"imported_from": self._source(), **_names(columns, arrays)},
        )

    def _source(self) -> list[str]:
        return [path.name for path in self._files[:20]] or ["a frame"]

    def _order(self, columns: Columns) -> Order:
        """The keys of the rows, which are used up."""
        steps = np.concatenate(self._step) if columns.step else None
        order = Order(self.where, columns, self._episode, steps, np.concatenate(self._file), self._times)
        self._episode, self._step, self._file = [], [], []
        return order

    def _ends(
        self, arrays: dict[str, NDArray[Any]], ends: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which rows end an episode by themselves, and which are only its last."""
        nothing = np.zeros(self.count, bool)
        terminated = arrays["terminated"] != 0 if "terminated" in arrays else nothing
        truncated = arrays["truncated"] != 0 if "truncated" in arrays else nothing
        if ends is None:
            return terminated, truncated
        if (early := (terminated | truncated) & ~ends).any():
            raise TracrlError(
                f"{self.where}: row {int(np.argmax(early))} (in order of episodes) ends an episode, but the next row "
                "has the same episode: check --episode, --terminated and --truncated."
            )
        if "terminated" not in arrays and "truncated" not in arrays:
            warnings.warn(
                f"{self.where}: no column says how episodes end; all are taken as cut by time (truncated).",
                stacklevel=2,
            )
        return terminated, ends & ~terminated

    def _box(
        self, actions: Floats, low: ArrayLike | None, high: ArrayLike | None
    ) -> tuple[ArrayLike | None, ArrayLike | None]:
        """The action box as told; else [-1, 1] where the log stays in it; else the log's own range, which is said."""
        if low is not None or high is not None or not np.isfinite(actions).all() or np.abs(actions).max() <= 1:
            return low, high
        check_continuous(actions, self.where)
        lowest, highest = actions.min(axis=0), actions.max(axis=0)
        if constant := np.flatnonzero(lowest == highest).tolist():
            raise TracrlError(
                f"{self.where}: action column {constant[0]} is {lowest[constant[0]]:g} in every row: leave it out, or "
                "give the action box with --action-low and --action-high."
            )
        warnings.warn(
            f"{self.where}: the action box is the range of the logged actions, {np.round(lowest, 4).tolist()} to "
            f"{np.round(highest, 4).tolist()}; give the true one with --action-low and --action-high.",
            stacklevel=2,
        )
        return lowest, highest


def _with_usable_step(columns: Columns, choice: ColumnChoice, batch: pa.RecordBatch, where: str) -> Columns:
    """A column that was only guessed to order the rows is left out where it cannot."""
    if columns.step is None or choice.step is not None or columns.step not in batch.schema.names:
        return columns
    if orders(batch, columns.step):
        return columns
    warnings.warn(
        f"{where}: the column {columns.step!r} holds neither numbers nor times as in 2026-01-31 23:59:00 and is not "
        "used: rows are taken in the order of the table.",
        stacklevel=3,
    )
    return replace(columns, step=None)


def _names(columns: Columns, arrays: dict[str, NDArray[Any]]) -> dict[str, list[str]]:
    """What the columns were called, for messages; not where there are so many that a file's header cannot hold them."""
    named = {f"{key}_columns": list(getattr(columns, key)) for key in ("observations", "actions")}
    fits = all(len(named[f"{key}_columns"]) == arrays[key].shape[1] for key in ("observations", "actions"))
    return named if fits and sum(len(name) for names in named.values() for name in names) < 16_000 else {}
