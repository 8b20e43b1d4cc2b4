"""Arrow's files and columns: tables read batch by batch, their columns as numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
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
PARQUET, IPC = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
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
        if not path.name.lower().endswith(PARQUET):
            return None
        with _reading(path):
            total += arrow.parquet.read_metadata(path).num_rows
    return total


def names_of(path: Path) -> list[str]:
    """The columns of a table."""
    arrow = pyarrow()
    name = path.name.lower()
    with _reading(path):
        if name.endswith(PARQUET):
            return list(arrow.parquet.read_schema(path).names)
        if name.endswith(IPC):
            with arrow.memory_map(str(path)) as source, arrow.ipc.open_file(source) as file:
                return list(file.schema.names)
        with _csv_reader(path) as reader:
            return list(reader.schema.names)


def batches(path: Path, columns: Collection[str], numbers: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these columns, or of those that there are, some at a time; ``numbers`` of them hold numbers."""
    arrow = pyarrow()
    name = path.name.lower()
    wanted = [column for column in names_of(path) if column in columns]
    with _reading(path):
        if name.endswith(PARQUET):
            with arrow.parquet.ParquetFile(path, pre_buffer=False) as file:
                yield from file.iter_batches(batch_size=BATCH, columns=wanted, use_threads=False)
        elif name.endswith(IPC):
            with arrow.memory_map(str(path)) as source, arrow.ipc.open_file(source) as file:
                for i in range(file.num_record_batches):
                    yield file.get_batch(i).select(wanted)
        else:
            with _csv_reader(path, wanted, numbers) as reader:
                yield from reader


def _csv_reader(path: Path, columns: Sequence[str] = (), numbers: Collection[str] = ()) -> Any:
    """Arrow takes the type of a column from the first rows: where these hold 0 and 1, a 0.5 further down would be an
    error. So columns of ``numbers`` are read as such from the beginning."""
    arrow = pyarrow()
    delimiter, decimal = _separators(path)

    def opened(**options: Any) -> Any:
        return arrow.csv.open_csv(
            path,
            read_options=arrow.csv.ReadOptions(block_size=BLOCK, use_threads=False),
            parse_options=arrow.csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow.csv.ConvertOptions(decimal_point=decimal, **options),
        )

    if not columns:
        return opened()
    with opened() as first:
        whole = [f.name for f in first.schema if arrow.types.is_integer(f.type) or arrow.types.is_null(f.type)]
    kinds = {name: arrow.float64() for name in whole if name in numbers}
    return opened(include_columns=list(columns), column_types=kinds)


def _separators(path: Path) -> tuple[str, str]:
    """Between fields, and in numbers: spreadsheets of half of Europe write 1,5;2,5."""
    if ".tsv" in path.name.lower():
        return "\t", "."
    with pyarrow().input_stream(str(path), compression="detect") as stream:
        head, *rows = stream.read(1 << 16).decode(errors="replace").splitlines() or [""]
    delimiter = max(",;\t", key=head.count)
    fields = [field for row in rows[:100] for field in row.split(delimiter)]
    commas = delimiter != "," and any(re.fullmatch(r"[-+]?\d+,\d+([eE][-+]?\d+)?", field) for field in fields)
    return delimiter, "," if commas else "."


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


def orders(batch: pa.RecordBatch, name: str) -> bool:
    """Whether a column could tell the order of rows."""
    try:
        in_order(batch.column(name), name, "")
    except TracrlError:
        return False
    return True


def in_order(column: pa.Array, name: str, where: str) -> tuple[NDArray[Any], bool]:
    """Steps, and whether they are times: numbers, or microseconds since 1970, also where times were written as text."""
    arrow, types = pyarrow(), pyarrow().types
    if types.is_string(column.type) or types.is_large_string(column.type) or types.is_string_view(column.type):
        column = _from_text(column, name, where)
    times = types.is_timestamp(column.type) or types.is_date(column.type)
    if times:
        zone = column.type.tz if types.is_timestamp(column.type) else None
        column = column.cast(arrow.timestamp("us", zone), safe=False)
    if types.is_temporal(column.type):
        column = column.cast(arrow.int32() if column.type.bit_width == 32 else arrow.int64())
    if not (types.is_integer(column.type) or types.is_floating(column.type)):
        raise TracrlError(f"{where}: the column {name!r} holds {column.type}; expected numbers or times.")
    return column.to_numpy(zero_copy_only=False), times


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _from_text(column: pa.Array, name: str, where: str) -> pa.Array:
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
            f"{where}: {name!r} is empty in {column.null_count} of the first {first_row + len(column):,} rows, first "
            f"in row {row}: leave the column out, or fill it beforehand (in pandas, frame.groupby(episode).ffill())."
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
