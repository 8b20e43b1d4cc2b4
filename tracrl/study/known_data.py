"""What a plan needs to know of a data set, without keeping the episodes in memory.

A run's identity depends on the fingerprint of its data, and that takes a whole reading of the file. It is read once
and remembered for as long as the file stays the same, once a plan with it is taken up: one that is refused leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tracrl
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import is_file
from tracrl.data.locate import expanded, find_dataset, load_dataset
from tracrl.errors import TracrlError
from tracrl.files import read_json, write_json
from tracrl.tasks.table import Task

_FORMAT = 4
"""Of what is remembered: 2, since fingerprints include the action box and the final observations; 3: other names;
4: sizes."""


@dataclass(frozen=True)
class KnownDataSet:
    """One data set, without its episodes: as much of it as describing a run asks for."""

    file: str
    fingerprint: str
    episodes: int
    rows: int
    task: str | None
    metadata: Mapping[str, Any]
    """of the data's metadata, what says where they come from: file, made_by, task"""
    observation_size: int = 0
    action_size: int = 0
    longest: int = 0
    """steps of the longest episode"""

    def __len__(self) -> int:
        return self.episodes

    @classmethod
    def of(cls, episodes: Episodes, file: Path) -> KnownDataSet:
        told = {key: episodes.metadata[key] for key in ("file", "made_by", "task") if key in episodes.metadata}
        return cls(
            str(file),
            episodes.fingerprint,
            len(episodes),
            episodes.rows,
            None if episodes.task is None else str(episodes.task),
            told,
            episodes.observation_size,
            episodes.action_size,
            int(episodes.lengths.max()),
        )


class KnownData:
    """The data sets of this machine by task, remembered in a file."""

    def __init__(self, remembered: Path | None = None):
        self._path = remembered
        self._known: dict[str, Any] = {}
        self._news = False
        if remembered is not None:
            with contextlib.suppress(TracrlError, TypeError, ValueError):  # what cannot be read is made anew
                self._known = dict(read_json(remembered))

    def data_set(self, task: Task) -> KnownDataSet | None:
        """A task's data; None where there are none on this machine."""
        found = find_dataset(task)
        return None if found is None else self._read(found[0], task.name)

    def data_file(self, path: Path) -> KnownDataSet:
        """The data set in a file of one's own."""
        return self._read(expanded(path), None)

    def _read(self, path: Path, task: str | None) -> KnownDataSet:
        if not is_file(path):
            return KnownDataSet.of(load_dataset(path), path)  # which says what is wrong with it
        path = path.resolve()
        status = path.stat()
        stamp = [tracrl.__version__, _FORMAT, status.st_size, status.st_mtime_ns]
        key = str(path) if task is not None else f"{path} as it is"
        entry = self._known.get(key)
        if isinstance(entry, dict) and entry.get("stamp") == stamp:
            with contextlib.suppress(KeyError, TypeError):
                return KnownDataSet(**entry["data"])
        data = KnownDataSet.of(load_dataset(path, task=task), path)
        self._known[key] = {"stamp": stamp, "data": asdict(data)}
        self._news = True
        return data

    def remember(self) -> None:
        """Write down what was read."""
        if self._path is not None and self._news:
            write_json(self._path, self._known)
            self._news = False
