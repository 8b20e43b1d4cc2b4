"""Episodes from tables with a row per step: CSV, Parquet and Arrow files, pandas and polars frames; and back.

Files are read batch by batch into float32, so that no more than about twice the result is in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracrl.data.arrow import BATCH, batches, first_line, in_order, matrix, pyarrow, rows_of, vector, whole
from tracrl.data.checks import check_continuous
from tracrl.data.columns import ColumnChoice, Columns
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float32]
Codes = NDArray[np.int32]
"""episodes as numbers, in the order in which they first appear"""
Progress = Callable[[int, int | None], None]
"""rows read, rows in all where that is known"""
ENOUGH = 100_000
"""rows from which the usual distance of two steps is taken"""


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
    columns: Columns | None = None
    for path in paths:
        for batch in batches(path):
            if columns is None:
                columns = (choice or ColumnChoice()).among(batch.schema.names, str(path))
            rows.add(batch, columns, path)
            if progress is not None:
                progress(rows.count, total)
    if columns is None:
        raise TracrlError(f"{rows.where}: there are no rows; at least one whole episode is needed.")
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
    columns = (choice or ColumnChoice()).among(table.schema.names, where)
    rows = Rows(where=where)
    for batch in table.to_batches(max_chunksize=BATCH):
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
            self._step.append(in_order(whole(batch, columns.step, where, self.count), columns.step, where))
        self.count += len(batch)

    def episodes(
        self, columns: Columns, *, action_low: ArrayLike | None = None, action_high: ArrayLike | None = None
    ) -> Episodes:
        """All rows, sorted by episode and step. The rows given so far are used up."""
        if self.count == 0:
            raise TracrlError(f"{self.where}: there are no rows; at least one whole episode is needed.")
        order, first = self._order(columns)
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

    def _order(self, columns: Columns) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
        """How to sort the rows (None: they are sorted), and where episodes begin (None: ends are marked instead)."""
        file = np.concatenate(self._file)
        steps = np.concatenate(self._step) if columns.step else None
        self._file, self._step = [], []
        if columns.episode is None:
            return self._order_without_ids(columns, file, steps)
        codes, names = self._codes()
        count = len(names)
        if self._ids_repeat_between_files(codes, file, steps):
            warnings.warn(
                f"{self.where}: the same values of {columns.episode!r} stand in several files: each file's are taken "
                "as episodes of their own.",
                stacklevel=2,
            )
            _, pairs = np.unique(np.stack([file, codes]), axis=1, return_inverse=True)
            codes, names = pairs.reshape(-1).astype(np.int32), None
            count = int(codes.max()) + 1
        changes = np.concatenate([[True], codes[1:] != codes[:-1]])
        comes_back = int(changes.sum()) > count
        in_order = not comes_back and (steps is None or bool(np.all((steps[1:] > steps[:-1]) | changes[1:])))
        if comes_back and steps is None:
            again = _first_return(codes)
            raise TracrlError(
                f"{self.where}: the episode {_shown(names, codes[again])} comes back in row {again}, after rows of "
                "others: give the column that orders an episode's rows with --step, or episodes names of their own."
            )
        if in_order:
            self._look_at_steps(codes, steps, names)
            return None, changes
        assert steps is not None
        order = np.lexsort((steps, codes))
        codes, steps = codes[order], steps[order]
        self._look_at_steps(codes, steps, names)
        warnings.warn(f"{self.where}: the rows were not in order and were sorted by episode and step.", stacklevel=2)
        return order, np.concatenate([[True], codes[1:] != codes[:-1]])

    def _order_without_ids(
        self, columns: Columns, file: NDArray[np.int32], steps: NDArray[Any] | None
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
        """No column of episodes: each file is one, or a step that goes back begins one, or ends are marked."""
        new_file = np.concatenate([[True], file[1:] != file[:-1]])
        if columns.terminated is not None or columns.truncated is not None:
            return None, None
        if steps is not None:
            return None, new_file | np.concatenate([[True], np.diff(steps) <= 0])
        if len(self._files) > 1:
            warnings.warn(f"{self.where}: each file is taken as one episode.", stacklevel=2)
            return None, new_file
        raise TracrlError(
            f"{self.where}: nothing says where an episode ends: give the column of episodes with --episode, or those "
            "that mark ends with --terminated and --truncated."
        )

    def _codes(self) -> tuple[Codes, Any]:
        """Episode ids as numbers, and what they stand for."""
        arrow = pyarrow()
        encoded = arrow.chunked_array(self._episode).dictionary_encode().combine_chunks()
        self._episode = []
        encoded = encoded if not isinstance(encoded, arrow.ChunkedArray) else encoded.chunk(0)
        return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary

    def _ids_repeat_between_files(self, codes: Codes, file: NDArray[np.int32], steps: NDArray[Any] | None) -> bool:
        """The same id in two files is one episode where its steps go on, and two where they begin anew."""
        if len(self._files) < 2:
            return False
        pairs = np.unique(np.stack([codes, file]), axis=1)
        if pairs.shape[1] == len(np.unique(codes)):
            return False
        if steps is None:
            return True
        keys = np.lexsort((steps, codes))
        return bool(np.any((np.diff(codes[keys]) == 0) & (np.diff(steps[keys]) == 0)))

    def _look_at_steps(self, codes: Codes, steps: NDArray[Any] | None, names: Any) -> None:
        """Steps twice are refused, missing ones said."""
        if steps is None or len(steps) < 2:
            return
        same = codes[1:] == codes[:-1]
        if len(twice := np.flatnonzero(same & (steps[1:] == steps[:-1]))):
            at = int(twice[0])
            raise TracrlError(
                f"{self.where}: step {steps[at]} of episode {_shown(names, codes[at])} stands there twice "
                f"({len(twice)} such rows in all): drop the duplicates, or give episodes names of their own."
            )
        if not same.any() or not np.issubdtype(steps.dtype, np.integer):
            return
        usual = np.median(np.diff(steps[:ENOUGH])[same[: ENOUGH - 1]]) if same[: ENOUGH - 1].any() else 1
        if len(gaps := np.flatnonzero(same & (steps[1:] - steps[:-1] > usual))):
            at = int(gaps[0])
            warnings.warn(
                f"{self.where}: steps are missing in {len(gaps)} places, first after step {steps[at]} of episode "
                f"{_shown(names, codes[at])}: what follows a gap is taken as the next step.",
                stacklevel=2,
            )

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


def _names(columns: Columns, arrays: dict[str, NDArray[Any]]) -> dict[str, list[str]]:
    """What the columns were called, for messages; not where there are so many that a file's header cannot hold them."""
    named = {f"{key}_columns": list(getattr(columns, key)) for key in ("observations", "actions")}
    fits = all(len(named[f"{key}_columns"]) == arrays[key].shape[1] for key in ("observations", "actions"))
    return named if fits and sum(len(name) for names in named.values() for name in names) < 16_000 else {}


def _first_return(codes: Codes) -> int:
    """The first row of an episode that has been there before, after rows of another."""
    changes = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    _, first = np.unique(codes[changes], return_index=True)
    return int(np.setdiff1d(changes, changes[first])[0])


def _shown(names: Any, code: np.int32) -> str:
    return repr(names[int(code)].as_py()) if names is not None else f"number {int(code)}"
