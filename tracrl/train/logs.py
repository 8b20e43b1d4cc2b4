"""Where the numbers of a training go: a CSV file, TensorBoard, and W&B for those who ask for it."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tracrl.errors import TracrlError
from tracrl.files import write_csv, writing
from tracrl.methods.method import RunSpec

Row = dict[str, Any]


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
        self._path = path
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, self.columns, restval="")

    def write(self, row: Row) -> None:
        with writing(self._path):
            self._writer.writerow(
                {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items() if k in self.columns}
            )
            self._file.flush()

    def close(self) -> None:
        with writing(self._path):
            self._file.close()


def read_log(path: Path) -> list[dict[str, str]]:
    """The whole lines of a log; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        return [row for row in reader if None not in row.values() and None not in row]


class TensorBoardLog:
    """One TensorBoard run for each (limit, seed)."""

    def __init__(self, directory: Path, purge_from: int):
        # Slow to import, and only needed here.
        writer: Any = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        self._make: Callable[[str], Any] = lambda name: writer(str(directory / name), purge_step=purge_from)
        self._writers: dict[str, Any] = {}

    def write(self, row: Row) -> None:
        name = f"limit{row['limit']}-seed{row['seed']}"
        if name not in self._writers:
            self._writers[name] = self._make(name)
        writer = self._writers[name]
        for key, value in row.items():
            if isinstance(value, float) and key != "limit":
                writer.add_scalar(key, value, row["step"])

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class WandbLog:
    """Weights & Biases, only where it was asked for and is installed."""

    def __init__(self, project: str, config: Mapping[str, Any]):
        try:
            import wandb
        except ImportError as error:
            raise TracrlError("--wandb needs the package wandb: pip install 'tracrl[wandb]'.") from error
        self._run = wandb.init(project=project, config=dict(config))

    def write(self, row: Row) -> None:
        prefix = f"limit{row['limit']}-seed{row['seed']}/"
        self._run.log({prefix + k: v for k, v in row.items() if isinstance(v, float)}, step=row["step"])

    def close(self) -> None:
        self._run.finish()


def rows_of(runs: Sequence[RunSpec], step: int, phase: str, metrics: Mapping[str, Sequence[float]]) -> list[Row]:
    """One row for each run."""
    return [
        {"step": step, "phase": phase, "limit": f"{run.limit:g}", "seed": run.seed}
        | {name: float(values[i]) for name, values in metrics.items()}
        for i, run in enumerate(runs)
    ]
