"""Where the numbers of a training go: a CSV file, TensorBoard if it is installed, W&B for those who ask for it."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import math
import os
import secrets
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tracrl.errors import TracrlError
from tracrl.files import AppendedFile, write_csv
from tracrl.methods.method import RunSpec

Row = dict[str, Any]
COMMON = ("step", "phase", "limit", "seed")
"""Columns of every log."""


class Sink(Protocol):
    """Something that takes numbers."""

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class CsvLog:
    """One line for each run each time; written through at once. A line that is cut off by a crash is dropped."""

    def __init__(self, path: Path, columns: Sequence[str], keep_to_step: int | None):
        """``keep_to_step``: on resuming, lines behind the checkpoint go, because they will be written again."""
        self.columns = list(columns)
        kept = [] if keep_to_step is None else [row for row in read_log(path) if float(row["step"]) <= keep_to_step]
        write_csv(path, kept, self.columns)
        self._file = AppendedFile(path)

    def write(self, row: Row) -> None:
        line = io.StringIO()
        csv.DictWriter(line, self.columns, restval="").writerow(
            {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items() if k in self.columns}
        )
        self._file.write(line.getvalue().encode())

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> list[dict[str, str]]:
    """The whole lines of a log; none if there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if "\0" in whole:  # CSV would take them for a line that was cut off
            raise ValueError("it holds zero bytes")
        reader = csv.DictReader(whole.splitlines(), strict=True)
        rows, torn = [], []
        for row in reader:
            if None in row or None in row.values():
                torn.append(reader.line_num)
            else:
                rows.append(row)
        if whole and (missing := [column for column in COMMON if column not in (reader.fieldnames or ())]):
            raise ValueError(f"it has no column {missing[0]}")
        for row in rows:
            _check(row)
        if torn:  # not by a crash, which cuts off the last line
            warnings.warn(
                f"{path}: line {torn[0]} has more or fewer columns than the others and is left out ({len(torn)} such "
                "in all): the log was edited or damaged.",
                stacklevel=2,
            )
    except FileNotFoundError:
        return []
    except (OSError, ValueError, csv.Error) as error:
        raise TracrlError(
            f"{path} is not a log written by tracrl, or was edited ({error}): remove it, or put back what was there."
        ) from error
    return rows


def _check(row: Mapping[str, str]) -> None:
    for column, value in row.items():
        if column == "phase" or (value == "" and column not in COMMON):
            continue
        try:
            number = float(int(value)) if column in ("step", "seed") else float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"its column {column} holds {value!r:.40}, where a number was expected")


def tensorboard_logs(directory: Path, purge_from: int) -> list[Sink]:
    """For TensorBoard, where it is installed: the extra ``tensorboard``."""
    return [TensorBoardLog(directory, purge_from)] if importlib.util.find_spec("tensorboard") else []


class TensorBoardLog:
    """One TensorBoard run for each (limit, seed).

    Its files are written here and not by TensorBoard's own writer: that has a thread, in which a full disk ends in a
    traceback and nobody is told.
    """

    def __init__(self, directory: Path, purge_from: int):
        """``purge_from``: on resuming, what an earlier file says of this step and later ones does not count."""
        # Slow to import, and only needed here.
        self._protocol: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self._writer: Any = importlib.import_module("tensorboard.summary.writer.record_writer").RecordWriter
        self._directory, self._purge_from = directory, purge_from
        self._files: dict[str, AppendedFile] = {}

    def write(self, row: Row) -> None:
        values = [
            {"tag": key, "simple_value": value}
            for key, value in row.items()
            if isinstance(value, float) and key != "limit"
        ]
        self._add(f"limit{row['limit']}-seed{row['seed']}", step=row["step"], summary={"value": values})

    def _add(self, run: str, **event: Any) -> None:
        if run not in self._files:
            # TensorBoard reads the files of a run in the order of their names.
            name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
            self._files[run] = AppendedFile(self._directory / run / name)
            self._add(run, file_version="brain.Event:2")
            self._add(run, step=self._purge_from, session_log={"status": self._protocol.SessionLog.START})
        content = self._protocol.Event(wall_time=time.time(), **event).SerializeToString()
        self._writer(self._files[run]).write(content)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


class WandbLog:
    """Weights & Biases, only where it was asked for and is installed."""

    def __init__(self, project: str, config: Mapping[str, Any]):
        self._run = require_wandb().init(project=project, config=dict(config))

    def write(self, row: Row) -> None:
        prefix = f"limit{row['limit']}-seed{row['seed']}/"
        self._run.log({prefix + k: v for k, v in row.items() if isinstance(v, float)}, step=row["step"])

    def close(self) -> None:
        self._run.finish()


def require_wandb() -> Any:
    """The package, or a sentence."""
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise TracrlError("--wandb needs the package wandb: pip install 'tracrl[wandb]'.") from error


def rows_of(runs: Sequence[RunSpec], step: int, phase: str, metrics: Mapping[str, Sequence[float]]) -> list[Row]:
    """One row for each run."""
    return [
        {"step": step, "phase": phase, "limit": f"{run.limit:g}", "seed": run.seed}
        | {name: float(values[i]) for name, values in metrics.items()}
        for i, run in enumerate(runs)
    ]
