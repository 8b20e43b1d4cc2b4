"""Logs of every kind as Episodes: tables, DSRL's and D4RL's HDF5, Minari, NumPy archives, folders of them."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from tracrl.data.arrow import SUFFIXES
from tracrl.data.columns import ColumnChoice, Columns
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import read_hdf5
from tracrl.data.minari import PREFIX, read_minari
from tracrl.data.tables import Progress, read_tables
from tracrl.errors import TracrlError
from tracrl.memory import require_memory

HDF5 = (".hdf5", ".h5")


def import_episodes(
    sources: Sequence[str | Path],
    choice: ColumnChoice | None = None,
    *,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    allow_external: bool = False,
    progress: Progress | None = None,
) -> tuple[Episodes, Columns | None]:
    """The episodes of files of one kind; with the columns that were used, where the files are tables."""
    if not sources:
        raise TracrlError("Say what to import: files, a folder of them, or minari:ID.")
    first = str(sources[0])
    if first.startswith(PREFIX) or _is_minari(Path(first)):
        if len(sources) > 1:
            raise TracrlError("One Minari data set is imported at a time; combine them with `minari combine` first.")
        cost_key = choice.cost if choice is not None and choice.cost is not None else "cost"
        return read_minari(first, cost_key=cost_key), None
    paths = [path for source in sources for path in _files(Path(source))]
    if all(_is_table(path) for path in paths):
        return read_tables(paths, choice, progress=progress, action_low=action_low, action_high=action_high)
    if len(paths) > 1:
        other = next(path for path in paths if not _is_table(path))
        raise TracrlError(f"{other} is no table: several files are imported together only if all are tables.")
    if paths[0].suffix == ".npz":
        return _read_npz(paths[0], action_low, action_high), None
    if paths[0].suffix in HDF5:
        return (
            read_hdf5(paths[0], action_low=action_low, action_high=action_high, allow_external=allow_external),
            None,
        )
    raise TracrlError(
        f"{paths[0]} is of no kind that can be imported; expected {', '.join((*SUFFIXES, *HDF5, '.npz'))}, a folder of "
        "tables, or minari:ID."
    )


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise TracrlError(f"There is no file or folder at {path}.")
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.rglob("*") if one.is_file() and _is_table(one))
    if not found:
        raise TracrlError(f"The folder {path} holds no tables; expected files ending in {', '.join(SUFFIXES)}.")
    return found


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def _is_minari(path: Path) -> bool:
    return any((folder / "metadata.json").is_file() for folder in (path, path / "data"))


def _read_npz(path: Path, action_low: ArrayLike | None, action_high: ArrayLike | None) -> Episodes:
    """Arrays under DSRL's names."""
    try:
        with zipfile.ZipFile(path) as archive:
            require_memory(sum(entry.file_size for entry in archive.infolist()), str(path))
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except TracrlError:
        raise
    except Exception as error:  # which kind depends on the place that is damaged; a header can raise a SyntaxError
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TracrlError(f"{path} cannot be read as a NumPy archive of plain arrays ({reason}).") from error
    return Episodes.from_arrays(
        arrays,
        where=str(path),
        action_low=action_low,
        action_high=action_high,
        metadata={"imported_from": [path.name]},
    )
