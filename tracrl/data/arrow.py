"""Arrow's files and columns: tables read batch by batch, their columns as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tracrl.data.checks import IMAGES_ARE_NOT, check_no_pixels
from tracrl.errors import TracrlError

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float32]
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".arrow", ".feather", ".ipc")
BLOCK = 1 << 22
"""bytes of a CSV file that are parsed at a time"""
BATCH = 1 << 16
"""rows of other files that are read at a time"""


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


def rows_of(paths: Sequence[Path]) -> int | None:
    """How many rows there are, where the files say it."""
    arrow = pyarrow()
    total = 0
    for path in paths:
        if path.suffix not in (".parquet", ".pq"):
            return None
        with _reading(path):
            total += arrow.parquet.read_metadata(path).num_rows
    return total


def batches(path: Path) -> Iterator[pa.RecordBatch]:
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


def matrix(batch: pa.RecordBatch, names: Sequence[str], where: str, first_row: int) -> Floats:
    """(rows, columns) of these columns side by side; ``first_row`` is the batch's in the table, for messages."""
    kinds = {batch.schema.field(name).type for name in names}
    check_no_pixels(kinds == {pyarrow().uint8()}, len(names), f"{where}: {names[0]!r} and what follows it")
    parts = [_numbers(batch.column(name), name, where, first_row) for name in names]
    return np.concatenate(parts, axis=1) if len(parts) != 1 else parts[0]


def vector(batch: pa.RecordBatch, name: str, where: str, first_row: int) -> Floats:
    """(rows,) of a column that holds one number a step."""
    numbers = _numbers(batch.column(name), name, where, first_row)
    if numbers.shape[1] != 1:
        raise TracrlError(
            f"{where}: the column {name!r} holds lists of {numbers.shape[1]} numbers; one a step is supported (one "
            "reward, one cost): add them, or choose one."
        )
    return numbers[:, 0]


def whole(batch: pa.RecordBatch, name: str, where: str, first_row: int) -> pa.Array:
    """A column without empty cells."""
    column = batch.column(name)
    _no_gaps(column, name, where, first_row)
    return column


def in_order(column: pa.Array, name: str, where: str) -> NDArray[Any]:
    """Steps: numbers, or times as numbers, also where they were written as text."""
    arrow = pyarrow()
    if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type):
        column = _times(column, name, where)
    if arrow.types.is_temporal(column.type):
        column = column.cast(arrow.int32() if column.type.bit_width == 32 else arrow.int64())
    if not (arrow.types.is_integer(column.type) or arrow.types.is_floating(column.type)):
        raise TracrlError(f"{where}: the column {name!r} holds {column.type}; expected numbers or times.")
    return column.to_numpy(zero_copy_only=False)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _times(column: pa.Array, name: str, where: str) -> pa.Array:
    arrow = pyarrow()
    for kind in (arrow.timestamp("us"), arrow.timestamp("us", "UTC"), arrow.float64()):
        try:
            return column.cast(kind)
        except arrow.ArrowInvalid:
            continue
    raise TracrlError(
        f"{where}: the column {name!r} holds text (for example {_example(column)}); expected numbers, or times as in "
        "2026-01-31 23:59:00."
    )


def _numbers(column: pa.Array, name: str, where: str, first_row: int) -> Floats:
    """(rows, 1), or (rows, n) for a column of lists of equal length."""
    arrow = pyarrow()
    _no_gaps(column, name, where, first_row)
    kind, width = column.type, 1
    if arrow.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if _is_list(kind):
        inner = column.flatten()
        _no_gaps(inner, name, where, first_row)
        width, uneven = divmod(len(inner), max(len(column), 1))
        lengths = arrow.compute.list_value_length(column)
        if uneven or len(lengths.unique()) > 1 or width == 0:
            raise TracrlError(f"{where}: {name!r} holds lists of different lengths; expected one length.")
        check_no_pixels(inner.type == arrow.uint8(), width, f"{where}: {name!r}")
        column, kind = inner, inner.type
    if (
        _is_list(kind)
        or arrow.types.is_binary(kind)
        or arrow.types.is_large_binary(kind)
        or arrow.types.is_struct(kind)
    ):
        raise TracrlError(
            f"{where}: the column {name!r} holds {column.type}, more than a row of numbers a step: {IMAGES_ARE_NOT}."
        )
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


def _is_list(kind: pa.DataType) -> bool:
    types = pyarrow().types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _no_gaps(column: pa.Array, name: str, where: str, first_row: int) -> None:
    if column.null_count:
        row = int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False))) + first_row
        raise TracrlError(
            f"{where}: {name!r} is empty in {column.null_count} rows, first in row {row}: fill or drop such rows."
        )


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
            raise TracrlError(f"{self.path} cannot be read as a table ({first_line(error)}).") from error


def _example(column: Any) -> str:
    text = str(column[0].as_py()) if len(column) else "nothing"
    return repr(text[:40])
