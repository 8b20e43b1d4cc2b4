"""DSRL's HDF5 layout, read and written."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracrl.data.checks import ENDS, KNOWN, check_finite, check_keys, check_rows
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.files import replacing


def read_hdf5(
    path: Path,
    *,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    clip_actions: bool = False,
) -> Episodes:
    """The episodes of a file; the action box is the argument's, else the file's attribute's, else [−1, 1]."""
    if not path.is_file():
        raise TracrlError(f"There is no data file at {path}.")
    where = str(path)
    try:
        with h5py.File(path, "r") as file:
            keys = [key for key in file if isinstance(file[key], h5py.Dataset)]
            check_keys(keys, where)
            arrays = {key: file[key][...] for key in keys if key in KNOWN and key != "next_observations"}
            if "next_observations" in keys and "final_observations" not in keys:
                arrays["final_observations"] = _last_of_each_episode(file["next_observations"], arrays, where)
            metadata = _metadata(dict(file.attrs))
    except (OSError, RuntimeError, KeyError) as error:  # which one depends on the place that is damaged
        raise TracrlError(
            f"{path} is not a readable HDF5 file ({_first_line(error)}); it may be cut off: get it again."
        ) from error
    return Episodes.from_arrays(
        arrays,
        where=where,
        action_low=metadata.get("action_low") if action_low is None else action_low,
        action_high=metadata.get("action_high") if action_high is None else action_high,
        clip_actions=clip_actions,
        metadata={**metadata, "file": path.name},
    )


def write_hdf5(episodes: Episodes, path: Path, *, compact: bool = False) -> None:
    """Write DSRL's layout, with the metadata as attributes.

    ``compact`` leaves ``next_observations`` out and keeps one final observation an episode instead: half the
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


def _last_of_each_episode(following: h5py.Dataset, arrays: dict[str, Any], where: str) -> NDArray[Any]:
    """What followed each episode's last action.

    Inside an episode the next observation is the next row's, so the rest of ``next_observations``, half of a file, is
    not read; ``tracrl data check`` compares all of it.
    """
    check_rows({**arrays, "next_observations": following}, where)
    ends = np.zeros(len(following), bool)
    for key in ENDS:
        if key in arrays:
            ends |= arrays[key].reshape(-1).astype(bool)
    rows = np.flatnonzero(ends)
    last = np.stack([following[row] for row in rows]) if len(rows) else np.empty((0, following.shape[1]))
    check_finite("next_observations", last, where, rows)
    return last


def _metadata(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as plain values; those that we wrote as JSON are read back as such."""
    return {key: _plain(value) for key, value in attributes.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, list):
        return [_plain(item) if isinstance(item, bytes | list) else item for item in value]
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return None if isinstance(value, h5py.Empty) else value


def _as_text(value: Any) -> str:
    """Text as it is, unless it would be read back as something else; all the rest as JSON."""
    if isinstance(value, str) and _plain(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
