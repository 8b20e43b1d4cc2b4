"""Episodes from tables with a row per step: CSV, Parquet and Arrow files, pandas and polars frames; and back.

Files are read batch by batch into float32, so that no more than about twice the result is in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".arrow", ".feather", ".ipc")
BLOCK = 1 << 22
"""bytes of a CSV file that are parsed at a time"""
BATCH = 1 << 16
"""rows of other files that are read at a time"""
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
    total = _rows_of(paths)
    rows = Rows(where=str(paths[0]) if len(paths) == 1 else f"{len(paths)} files in {paths[0].parent}")
    columns: Columns | None = None
    for path in paths:
        for batch in _batches(path):
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
            f"A {type(frame).__name__} cannot be read as a table ({_first_line(error)}); expected a pandas or polars "
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
            self._numbers.setdefault(name, []).append(self._matrix(batch, of, where))
        for name in ("reward", "cost", "terminated", "truncated"):
            if (column := getattr(columns, name)) is not None:
                self._numbers.setdefault(name, []).append(self._matrix(batch, (column,), where)[:, 0])
        if columns.episode is not None:
            self._episode.append(self._keys(batch, columns.episode, where))
        if columns.step is not None:
            self._step.append(self._in_numbers(self._keys(batch, columns.step, where), columns.step, where))
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
            metadata={"imported_from": self._source()},
        )

    def _source(self) -> list[str]:
        return [path.name for path in self._files[:20]] or ["a frame"]

    def _matrix(self, batch: pa.RecordBatch, names: Sequence[str], where: str) -> Floats:
        parts = [self._numeric(batch.column(name), name, where) for name in names]
        return np.concatenate(parts, axis=1) if len(parts) != 1 else parts[0]

    def _numeric(self, column: pa.Array, name: str, where: str) -> Floats:
        """(rows, 1), or (rows, n) for a column of lists of equal length."""
        arrow = pyarrow()
        self._no_gaps(column, name, where)
        kind, width = column.type, 1
        if arrow.types.is_dictionary(kind):
            column = column.dictionary_decode()
            kind = column.type
        if arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind):
            inner = column.flatten()
            self._no_gaps(inner, name, where)
            width, uneven = divmod(len(inner), max(len(column), 1))
            lengths = arrow.compute.list_value_length(column)
            if uneven or len(lengths.unique()) > 1 or width == 0:
                raise TracrlError(f"{where}: {name!r} holds lists of different lengths; expected one length.")
            column, kind = inner, inner.type
        if not (
            arrow.types.is_integer(kind)
            or arrow.types.is_floating(kind)
            or arrow.types.is_boolean(kind)
            or arrow.types.is_decimal(kind)
        ):
            raise TracrlError(
                f"{where}: the column {name!r} holds {kind} (for example {_example(column)}); expected numbers: encode "
                "it as numbers, or leave it out."
            )
        if arrow.types.is_boolean(kind) or arrow.types.is_decimal(kind):
            column = column.cast(arrow.float64())
        values = column.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            return values.astype(np.float32, copy=False).reshape(-1, width)

    def _keys(self, column: pa.Array, name: str, where: str) -> Any:
        self._no_gaps(column := column.column(name), name, where)
        return column

    def _in_numbers(self, column: pa.Array, name: str, where: str) -> NDArray[Any]:
        """Steps: numbers, or times as numbers."""
        arrow = pyarrow()
        if arrow.types.is_temporal(column.type):
            column = column.cast(arrow.int64())
        if not (arrow.types.is_integer(column.type) or arrow.types.is_floating(column.type)):
            raise TracrlError(f"{where}: the column {name!r} holds {column.type}; expected numbers or times.")
        return column.to_numpy(zero_copy_only=False)

    def _no_gaps(self, column: pa.Array, name: str, where: str) -> None:
        if column.null_count:
            row = int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False))) + self.count
            raise TracrlError(
                f"{where}: {name!r} is empty in {column.null_count} rows, first in row {row}: fill or drop such rows."
            )

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


def pyarrow() -> Any:
    """The library that reads tables, or a sentence that says how to get it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.feather
        import pyarrow.parquet
    except ImportError as error:
        raise TracrlError("Tables are read with pyarrow, which is missing: pip install 'tracrl[tables]'.") from error
    return pyarrow


def _rows_of(paths: Sequence[Path]) -> int | None:
    """How many rows there are, where the files say it."""
    arrow = pyarrow()
    total = 0
    for path in paths:
        if path.suffix not in (".parquet", ".pq"):
            return None
        with _reading(path):
            total += arrow.parquet.read_metadata(path).num_rows
    return total


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    arrow = pyarrow()
    name = path.name.lower()
    with _reading(path):
        if name.endswith((".parquet", ".pq")):
            with arrow.parquet.ParquetFile(path, pre_buffer=False) as file:
                yield from file.iter_batches(batch_size=BATCH, use_threads=False)
        elif name.endswith((".arrow", ".feather", ".ipc")):
            with arrow.memory_map(str(path)) as source, arrow.ipc.open_file(source) as file:
                for i in range(file.num_record_batches):
                    yield file.get_batch(i)
        else:
            delimiter = "\t" if ".tsv" in name else ","
            with arrow.csv.open_csv(
                path,
                read_options=arrow.csv.ReadOptions(block_size=BLOCK, use_threads=False),
                parse_options=arrow.csv.ParseOptions(delimiter=delimiter),
            ) as reader:
                yield from reader


class _reading:  # noqa: N801 (used like a function)
    """What goes wrong with a file is said with its name."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        arrow = pyarrow()
        if isinstance(error, FileNotFoundError):
            raise TracrlError(f"There is no data file at {self.path}.") from error
        if isinstance(error, arrow.ArrowException | OSError | UnicodeDecodeError):
            raise TracrlError(f"{self.path} cannot be read as a table ({_first_line(error)}).") from error


def _first_return(codes: Codes) -> int:
    """The first row of an episode that has been there before, after rows of another."""
    changes = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    _, first = np.unique(codes[changes], return_index=True)
    return int(np.setdiff1d(changes, changes[first])[0])


def _shown(names: Any, code: np.int32) -> str:
    return repr(names[int(code)].as_py()) if names is not None else f"number {int(code)}"


def _example(column: Any) -> str:
    text = str(column[0].as_py()) if len(column) else "nothing"
    return repr(text[:40])


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
