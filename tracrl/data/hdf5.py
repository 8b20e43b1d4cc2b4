"""DSRL's HDF5 layout, read and written.

A file may come from anywhere, so nothing outside it is opened unless asked for, and nothing is read before its size is
known to fit into memory.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import operator
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracrl.data.checks import ENDS, KNOWN, check_finite, check_keys, check_kind, check_rows
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.files import replacing
from tracrl.memory import require_memory

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def read_hdf5(
    path: Path,
    *,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    clip_actions: bool = False,
    allow_external: bool = False,
) -> Episodes:
    """The episodes of a file; the action box is the argument's, else the file's attribute's, else [−1, 1].

    ``allow_external``: arrays may lie in other files, as external links, external storage or virtual data sets.
    """
    where = str(path)
    with open_hdf5(path) as file:
        datasets = open_arrays(file, path, allow_external)
        arrays = {key: dataset[...] for key, dataset in datasets.items() if key != "next_observations"}
        if "next_observations" in datasets and "final_observations" not in datasets:
            arrays["final_observations"] = _last_of_each_episode(datasets["next_observations"], arrays, where)
        metadata = _metadata(file, path.stat().st_size)
    return Episodes.from_arrays(
        arrays,
        where=where,
        action_low=metadata.get("action_low") if action_low is None else action_low,
        action_high=metadata.get("action_high") if action_high is None else action_high,
        clip_actions=clip_actions,
        metadata={**metadata, "file": as_unicode(path.name)},
    )


def is_file(path: Path) -> bool:
    """Whether there is a file; not, where nobody may look or the name is too long for one."""
    return os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises there)


@contextlib.contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file for reading; whatever the HDF5 library says of a damaged one becomes a sentence."""
    if not is_file(path):
        raise TracrlError(f"There is no data file at {as_unicode(str(path))}.")
    if not os.access(path, os.R_OK):
        raise TracrlError(f"{path} may not be read: ask its owner for the permission.")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError) as error:  # which one: by the damage
        raise TracrlError(
            f"{path} is not a readable HDF5 file ({_first_line(error)}); it may be cut off: get it again."
        ) from error


def open_arrays(file: h5py.File, path: Path, allow_external: bool = False) -> dict[str, h5py.Dataset]:
    """The arrays of a file that we know, not read yet, after every check that their descriptions allow."""
    where = str(path)
    found = []
    for name in file:
        # A link is looked at before it is followed: it may lead to anything, also to a pipe that never answers.
        other = _other_file(file, name, where)
        if other is not None and name in KNOWN:
            _check_external(where, name, path.parent / other, allow_external)
        if name in KNOWN or isinstance(file.get(name, getlink=True), h5py.HardLink):
            found += [name] if file.get(name, getclass=True) is h5py.Dataset else []
    check_keys([as_unicode(name) for name in found], where)
    arrays = {key: file[key] for key in KNOWN if key in found}
    for key, array in arrays.items():
        for name, *_ in array.external or ():
            _check_external(where, key, Path(name), allow_external)  # which HDF5 looks for from the current directory
        if array.is_virtual:
            _check_virtual(where, key, array, path, allow_external)
        check_kind(key, array.shape, array.dtype, where)
    check_rows(arrays, where)
    _check_memory(arrays, where)
    return arrays


def write_hdf5(episodes: Episodes, path: Path, *, compact: bool = False) -> None:
    """Write DSRL's layout, with the metadata as attributes.

    ``compact`` leaves ``next_observations`` out and keeps one final observation per episode instead: half the
    size, read back by us alone.
    """
    ends = episodes.offsets[1:] - 1
    terminals = np.zeros(episodes.rows, bool)
    terminals[ends] = episodes.terminated
    timeouts = np.zeros(episodes.rows, bool)
    timeouts[ends] = ~episodes.terminated
    arrays: dict[str, Any] = {
        "observations": episodes.observations,
        "actions": episodes.actions,
        "rewards": episodes.rewards,
        "costs": episodes.costs,
        "terminals": terminals,
        "timeouts": timeouts,
    }
    if episodes.final_observations is not None:
        if compact:
            arrays["final_observations"] = episodes.final_observations
        else:
            arrays["next_observations"] = episodes.next_observations()
    attributes = {
        **episodes.metadata,
        "action_low": episodes.action_low.tolist(),
        "action_high": episodes.action_high.tolist(),
    }
    attributes.pop("file", None)
    # In memory first: the HDF5 library crashes the process when a disk fills up under it.
    whole = io.BytesIO()
    with h5py.File(whole, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array, compression="gzip", compression_opts=6, shuffle=True)
        for key, value in attributes.items():
            file.attrs[key] = _as_text(value)
    with replacing(path) as aside:
        aside.write_bytes(whole.getbuffer())


def _other_file(file: h5py.File, name: str, where: str) -> str | None:
    """The other file that a name leads to; None for what lies in this one."""
    link = file.get(name, getlink=True)
    if isinstance(link, h5py.SoftLink) and name in KNOWN:
        target = link.path.lstrip("/")
        if target not in list(file) or not isinstance(file.get(target, getlink=True), h5py.HardLink):
            raise TracrlError(
                f"{where}: '{name}' is a link to {as_unicode(link.path)!r}, which is no array at the top of this file: "
                "put the array itself there."
            )
    return link.filename if isinstance(link, h5py.ExternalLink) else None


def _check_external(where: str, key: str, other: Path, allowed: bool) -> None:
    shown = as_unicode(str(other))
    if not allowed:
        raise TracrlError(
            f"{where}: '{key}' lies in another file ({shown}), which is read only if asked for: add --allow-external "
            "(in Python allow_external=True) if you trust it."
        )
    if not is_file(other):
        raise TracrlError(f"{where}: '{key}' lies in {shown}, where there is no file: get that file too.")


def _check_virtual(where: str, key: str, array: h5py.Dataset, path: Path, allowed: bool) -> None:
    """HDF5 fills whatever the sources of a virtual data set do not have with zeros, and says nothing."""
    covered = 0
    for part in array.virtual_sources():
        source = path if part.file_name == "." else path.parent / part.file_name
        _check_external(where, key, source, allowed)
        with h5py.File(source, "r") as file:
            found = file.get(part.dset_name)
            if not isinstance(found, h5py.Dataset) or not _selects_from(part, found):
                raise TracrlError(
                    f"{where}: '{key}' takes more of '{as_unicode(part.dset_name)}' from {source} than there is: make "
                    "the file again."
                )
        covered += part.vspace.get_select_npoints()
    if covered < array.size:
        raise TracrlError(
            f"{where}: '{key}' has {array.size - covered} values that no other file holds: make it again."
        )


def _selects_from(part: Any, source: h5py.Dataset) -> bool:
    if part.src_space.get_select_type() == h5py.h5s.SEL_ALL:
        return source.size == part.vspace.get_select_npoints()
    last = part.src_space.get_select_bounds()[1]
    return len(last) == source.ndim and all(map(operator.lt, last, source.shape))


def _check_memory(arrays: Mapping[str, h5py.Dataset], where: str) -> None:
    """Shapes are promises: a few bytes can promise terabytes."""
    needed, largest_chunk = 0, 0
    for key, array in arrays.items():
        size = math.prod(array.shape)  # of Python's integers, which do not overflow
        if key != "next_observations":  # of which only the ends of episodes are read
            needed += size * (array.dtype.itemsize + (0 if array.dtype == np.float32 else 4))
        largest_chunk = max(largest_chunk, math.prod(array.chunks or (0,)) * array.dtype.itemsize)
    require_memory(needed + largest_chunk, where)


def _last_of_each_episode(following: h5py.Dataset, arrays: dict[str, Any], where: str) -> NDArray[Any]:
    """What followed each episode's last action.

    Inside an episode the next observation is the next row's, so the rest of ``next_observations``, half of a file, is
    not read; ``tracrl data check`` compares all of it.
    """
    ends = np.zeros(len(following), bool)
    for key in ENDS:
        if key in arrays:
            ends |= arrays[key].reshape(-1).astype(bool)
    rows = np.flatnonzero(ends)
    last = np.stack([following[row] for row in rows]) if len(rows) else np.empty((0, following.shape[1]))
    check_finite("next_observations", last, where, rows)
    return last


def _metadata(file: h5py.File, file_size: int) -> dict[str, Any]:
    """Attributes as plain values; those that we wrote as JSON are read back as such."""
    found = {}
    for name in file.attrs:
        described = file.attrs.get_id(name)
        if math.prod(described.shape or (0,)) * described.get_type().get_size() > file_size:
            raise OSError(f"attribute {as_unicode(name)!r} is larger than the file")
        with contextlib.suppress(TypeError):  # of a type that NumPy does not know: none of ours
            found[as_unicode(name)] = _plain(file.attrs[name])
    return found


def _plain(value: Any) -> Any:
    """A value that JSON can hold; what it cannot hold, as text."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            return _clean(json.loads(value))
    return _clean(value)


def _clean(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, h5py.Empty):
        return None
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return as_unicode(str(value))


def as_unicode(text: str | bytes) -> str:
    """Without what is no UTF-8 (names of that kind come as bytes) and without what commands a terminal."""
    text = text.decode(errors="replace") if isinstance(text, bytes) else text.encode(errors="replace").decode()
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _as_text(value: Any) -> str:
    """Text as it is, unless it would be read back as something else; all the rest as JSON."""
    if isinstance(value, str) and _plain(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
