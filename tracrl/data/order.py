"""In which order the rows of a table make episodes, and what is odd about it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracrl.data.arrow import pyarrow
from tracrl.data.columns import Columns
from tracrl.errors import TracrlError

Codes = NDArray[np.int32]
"""episodes as numbers, in the order in which they first appear"""
Sorting = tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]
"""how to sort the rows (None: they are sorted), and where episodes begin (None: ends are marked instead)"""
ENOUGH = 100_000
"""rows from which the usual distance of two steps is taken"""
GAP = 1.5
"""usual distances, from which on steps are missing; clocks are not exact"""


@dataclass
class Order:
    """The keys of all rows of one or more tables."""

    where: str
    """for messages"""
    columns: Columns
    ids: Sequence[Any]
    """Arrow's arrays of episodes, one after the other"""
    steps: NDArray[Any] | None
    file: NDArray[np.int32]
    """the number of each row's file"""
    times: bool = False
    """steps are microseconds since 1970"""

    def sorting(self) -> Sorting:
        """Rows by episode and step. What cannot be is an error, what is odd a warning."""
        where, columns, file, steps = self.where, self.columns, self.file, self.steps
        if columns.episode is None:
            return self._without_ids()
        codes, names = self._codes()
        count = len(names)
        if self._ids_repeat_between_files(codes):
            warnings.warn(
                f"{where}: the same values of {columns.episode!r} stand in several files: each file's are taken "
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
                f"{where}: the episode {_shown(names, codes[again])} comes back in row {again}, after rows of "
                "others: give the column that orders an episode's rows with --step, or episodes names of their own."
            )
        if in_order:
            self._look_at_steps(codes, steps, names)
            return None, changes
        assert steps is not None
        order = np.lexsort((steps, codes))
        codes, steps = codes[order], steps[order]
        self._look_at_steps(codes, steps, names)
        warnings.warn(f"{where}: the rows were not in order and were sorted by episode and step.", stacklevel=2)
        return order, np.concatenate([[True], codes[1:] != codes[:-1]])

    def _without_ids(self) -> Sorting:
        """No column of episodes: each file is one, or a step that goes back begins one, or ends are marked."""
        where, columns = self.where, self.columns
        new_file = np.concatenate([[True], self.file[1:] != self.file[:-1]])
        if columns.terminated is not None or columns.truncated is not None:
            return None, None
        if self.steps is not None:
            return None, new_file | np.concatenate([[True], np.diff(self.steps) <= 0])
        if new_file.sum() > 1:
            warnings.warn(f"{where}: each file is taken as one episode.", stacklevel=2)
            return None, new_file
        raise TracrlError(
            f"{where}: nothing says where an episode ends: give the column of episodes with --episode, or those "
            "that mark ends with --terminated and --truncated."
        )

    def _codes(self) -> tuple[Codes, Any]:
        """Episode ids as numbers, and what they stand for."""
        arrow = pyarrow()
        ids = [column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column for column in self.ids]
        if len({column.type for column in ids}) > 1:  # numbers in one file, text in another
            ids = [column.cast(arrow.string()) for column in ids]
        encoded = arrow.chunked_array(ids).dictionary_encode().combine_chunks()
        self.ids = ()
        encoded = encoded if not isinstance(encoded, arrow.ChunkedArray) else encoded.chunk(0)
        return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary

    def _ids_repeat_between_files(self, codes: Codes) -> bool:
        """The same id in two files is one episode where its steps go on, and two where they begin anew."""
        steps = self.steps
        if self.file[-1] == 0:
            return False
        pairs = np.unique(np.stack([codes, self.file]), axis=1)
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
                f"{self.where}: step {self._step(steps[at])} of episode {_shown(names, codes[at])} stands there twice "
                f"({len(twice)} such rows in all): drop the duplicates, or give episodes names of their own."
            )
        if not same[: ENOUGH - 1].any():
            return
        usual = np.median(np.diff(steps[:ENOUGH])[same[: ENOUGH - 1]])
        if len(gaps := np.flatnonzero(same & (steps[1:] - steps[:-1] > GAP * usual))):
            at = int(gaps[0])
            warnings.warn(
                f"{self.where}: steps are missing in {len(gaps)} places, first after step {self._step(steps[at])} of "
                f"episode {_shown(names, codes[at])}: what follows a gap is taken as the next step.",
                stacklevel=2,
            )

    def _step(self, value: Any) -> str:
        return (
            str(np.datetime64(int(value), "us")).replace("T", " ").removesuffix(".000000") if self.times else str(value)
        )


def _first_return(codes: Codes) -> int:
    """The first row of an episode that has been there before, after rows of another."""
    changes = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    _, first = np.unique(codes[changes], return_index=True)
    return int(np.setdiff1d(changes, changes[first])[0])


def _shown(names: Any, code: np.int32) -> str:
    return repr(names[int(code)].as_py()) if names is not None else f"number {int(code)}"
