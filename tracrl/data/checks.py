"""What logged episodes must satisfy, each violation said in one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracrl.errors import TracrlError

REQUIRED = ("observations", "actions", "rewards", "costs")
ENDS = ("terminals", "timeouts")
OPTIONAL = ("next_observations", "final_observations")
MATRICES = ("observations", "actions", "next_observations", "final_observations")
KNOWN = (*REQUIRED, *ENDS, *OPTIONAL)

_LARGEST = float(np.finfo(np.float32).max)  # what is larger becomes infinite in our float32 arrays
_LARGEST_SUM = 1e9  # of the magnitudes in an episode, in usual steps: float64 then rounds to 1e-7 of such a step
_BOX_SLACK = 1e-3  # rounding beyond the action box that is clipped silently, in units of the box's width
_FEWEST_PIXELS = 64  # bytes in fewer columns are sensors, in so many or more they are pictures
IMAGES_ARE_NOT = "images are not supported: give a vector a step, such as a trained encoder's features of them"
_MOST_CLASSES = 32
_ROWS_A_CLASS = 10  # fewer rows than so many for each class say nothing


def check_arrays(arrays: Mapping[str, NDArray[Any]], where: str) -> dict[str, NDArray[Any]]:
    """The arrays with columns squeezed to vectors, after every check that needs no episode bounds."""
    check_rows(arrays, where)
    checked = {
        key: array if key in MATRICES else array.reshape(len(array)) for key, array in arrays.items() if key in KNOWN
    }
    _check_numbers(checked, where)
    return checked


def check_rows(arrays: Mapping[str, Any], where: str) -> None:
    """Names and shapes alone: works on arrays and on the data sets of an open file."""
    check_keys(list(arrays), where)
    known = {key: array for key, array in arrays.items() if key in KNOWN}
    for key, array in known.items():
        _check_rank(key, array.shape, where)
    rows, size = known["observations"].shape
    if rows == 0:
        raise TracrlError(f"{where}: 'observations' has no rows; at least one whole episode is needed.")
    for key in OPTIONAL:
        if key in known and known[key].shape[1] != size:
            raise TracrlError(
                f"{where}: '{key}' has {known[key].shape[1]} columns but 'observations' has {size}; "
                "both hold observations and need the same size."
            )
    for key, array in known.items():
        if key != "final_observations" and len(array) != rows:
            raise TracrlError(
                f"{where}: '{key}' has {len(array)} rows but 'observations' has {rows}; "
                "every array needs one row per step."
            )


def check_keys(found: list[str], where: str) -> None:
    """Every required key is there; a likely misspelling is named."""
    unknown = [name for name in found if name not in KNOWN]
    missing = [key for key in REQUIRED if key not in found][:1]
    if missing == ["costs"] and len(several := sorted(name for name in unknown if name.startswith("cost"))) > 1:
        raise TracrlError(
            f"{where}: the array 'costs' is missing, but there are {', '.join(several)}: one cost is supported: add "
            "them up into 'costs', or choose one."
        )
    if not missing and not any(key in found for key in ENDS):
        missing = list(ENDS)
    for key in missing:
        if near := difflib.get_close_matches(key, unknown, n=1, cutoff=0.6):
            raise TracrlError(f"{where}: the array '{key}' is missing: rename '{near[0]}' to '{key}'.")
    if missing:
        wanted = " or ".join(f"'{key}'" for key in missing)
        seen = ", ".join(sorted(found)) or "no arrays at all"
        raise TracrlError(f"{where}: the array {wanted} is missing: found {seen}.")
    # An array that may be missing would be passed over in silence when misspelt: without 'timeouts', for one,
    # episodes run into each other.
    for key in KNOWN:
        if key not in found and (near := difflib.get_close_matches(key, unknown, n=1, cutoff=0.9)):
            raise TracrlError(f"{where}: there is an array '{near[0]}' and no '{key}': rename it to '{key}'.")


def check_kind(key: str, shape: tuple[int, ...] | None, dtype: np.dtype[Any], where: str) -> None:
    """Numbers or truth values, before any of them is read."""
    if shape is None:
        raise TracrlError(f"{where}: '{key}' is empty: it has no shape; expected one row per step.")
    if dtype.names:
        raise TracrlError(f"{where}: '{key}' is a table with the columns {', '.join(dtype.names)}; expected numbers.")
    if dtype.kind not in "fiub":
        raise TracrlError(f"{where}: '{key}' holds {dtype}; expected numbers.")
    if key == "observations" and len(shape) == 2:
        check_no_pixels(dtype == np.uint8, shape[1], f"{where}: '{key}'")


def check_no_pixels(single_bytes: bool, columns: int, what: str) -> None:
    """Many single bytes a step are a picture, laid out flat."""
    if single_bytes and columns >= _FEWEST_PIXELS:
        raise TracrlError(
            f"{what}: {columns} single bytes (uint8) a step look like images, and {IMAGES_ARE_NOT}; "
            "if they are measurements, store them as float32."
        )


def check_continuous(actions: NDArray[Any], where: str) -> None:
    """Classes are no amounts: a policy gives any number between the ends of its box.

    Asked only where nobody has given the action box: whoever does says that all of it may be done.
    """
    if actions.ndim != 2:
        return
    size = actions.shape[1]
    # The first rows alone tell it of nearly all columns that are amounts.
    whole = [i for i in range(size) if _all_whole(actions[:1000, i]) and _all_whole(actions[:, i])]
    many = len(actions) >= _ROWS_A_CLASS * size
    if 1 < size == len(whole) and many and np.all(actions.sum(axis=1) == 1) and np.all((actions == 0) | (actions == 1)):
        raise TracrlError(
            f"{where}: 'actions' has a single 1 among {size} columns in every row, which looks like one-hot classes: "
            "discrete actions are not supported; expected amounts: log what was set (a speed, the opening of a valve) "
            "in place of the class."
        )
    for column in whole:
        values = np.unique(actions[:, column])
        first, last, classes = values[0], values[-1], len(values)
        few = 2 <= classes <= min(_MOST_CLASSES, len(actions) // _ROWS_A_CLASS)
        if few and first in (0, 1) and last - first == classes - 1:  # not with gaps, as 0, 10, 20 per cent
            raise TracrlError(
                f"{where}: column {column} of 'actions' holds only the whole numbers {first:g} to {last:g}, which look "
                "like classes: discrete actions are not supported; expected amounts. If they are amounts, and anything "
                f"between may be done as well, say so by giving the box: --action-low {first:g} --action-high {last:g}."
            )


def check_action_box(
    actions: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32], clip: bool, where: str
) -> NDArray[np.float32]:
    """Actions inside the box; rounding beyond it is clipped, more than that only if ``clip``."""
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.all(low < high)):
        raise TracrlError(
            f"{where}: the action box from {low.tolist()} to {high.tolist()} is no box: every low end must "
            "be finite and below its high end."
        )
    beyond = np.maximum(low - actions, actions - high)
    if (worst := float(beyond.max(initial=0.0))) <= 0:
        return actions
    if not clip and np.any(beyond > _BOX_SLACK * (high - low)):
        row = int(np.argmax(beyond.max(axis=1)))
        raise TracrlError(
            f"{where}: 'actions' leave the box [{low.min():g}, {high.max():g}] by up to {worst:.3g} "
            f"(row {row}); give the true box with --action-low and --action-high, or cut them to it with "
            "--clip-actions."
        )
    return np.clip(actions, low, high)


def check_finite(key: str, array: NDArray[Any], where: str, rows: NDArray[np.int64] | None = None) -> None:
    """No NaN, no infinity, nothing beyond float32; ``rows`` are the array's rows in the data, if not 0, 1, 2 …"""
    if array.dtype.kind == "f" and not _all_finite(array):
        first = int(np.argmin((np.abs(array) <= _LARGEST).reshape(len(array), -1).all(axis=1)))
        raise TracrlError(
            f"{where}: '{key}' has NaN or infinity, first in row {first if rows is None else rows[first]}; "
            "drop or mend the episodes that hold such rows."
        )


def check_sums(key: str, steps: NDArray[Any], offsets: NDArray[np.int64], where: str) -> None:
    """No episode holds a number so large that the others' digits are lost in its sum."""
    magnitudes = np.abs(steps[: offsets[-1]].astype(np.float64))
    sums = np.add.reduceat(magnitudes, offsets[:-1])
    if sums.max() <= _LARGEST_SUM:
        return
    # In whatever units the data are: the usual step is the median of those that are not 0.
    usual = max(1.0, float(np.median(magnitudes[magnitudes > 0])))
    if sums.max() > _LARGEST_SUM * usual:
        row = int(np.argmax(magnitudes))
        raise TracrlError(
            f"{where}: '{key}' is {float(steps[row]):g} in row {row}, where a usual step has {usual:g}: beside so "
            f"large a number the others are lost when an episode is summed; mend that row, or cut '{key}' to a range "
            "that means something."
        )


def _all_whole(numbers: NDArray[Any]) -> bool:
    if numbers.dtype.kind != "f":
        return True
    with np.errstate(invalid="ignore"):
        return bool(np.all(numbers == np.round(numbers)))


def _check_rank(key: str, shape: tuple[int, ...], where: str) -> None:
    if key in MATRICES:
        if len(shape) > 2 and key != "actions":
            raise TracrlError(
                f"{where}: '{key}' has shape {shape}, more than one axis a step: {IMAGES_ARE_NOT}; expected "
                "(rows, size)."
            )
        if len(shape) != 2 or shape[1] == 0:
            raise TracrlError(f"{where}: '{key}' has shape {shape}; expected (rows, size).")
    elif key == "costs" and len(shape) == 2 and shape[1] > 1:
        raise TracrlError(
            f"{where}: 'costs' has shape {shape}, so several costs a step: one cost is supported: add them, or choose "
            "one; expected (rows,) or (rows, 1)."
        )
    elif len(shape) != 1 and (len(shape) != 2 or shape[1] != 1):
        raise TracrlError(f"{where}: '{key}' has shape {shape}; expected (rows,) or (rows, 1).")


def _check_numbers(arrays: Mapping[str, NDArray[Any]], where: str) -> None:
    for key, array in arrays.items():
        check_kind(key, array.shape, array.dtype, where)
        check_finite(key, array, where)
    costs = arrays["costs"]
    if costs.min() < 0:
        row = int(np.argmax(costs < 0))
        raise TracrlError(
            f"{where}: 'costs' is negative in row {row} ({costs[row]:g}); costs must be 0 or more: shift or clip them."
        )


def _all_finite(array: NDArray[Any]) -> bool:
    if array.dtype == np.float32 and array.flags.c_contiguous:
        # One pass at the speed of memory: a sum of squares is finite only if every number is. Where it is not, large
        # numbers may be the cause, and the slower test below decides.
        flat = array.reshape(-1)
        with np.errstate(over="ignore"):
            if np.isfinite(np.dot(flat, flat)):
                return True
    # Both ends are NaN if any number is, and beyond float32 if any number is. Nothing is allocated,
    # where isfinite().all() makes a mask of the array's size.
    return array.size == 0 or bool(array.min() >= -_LARGEST and array.max() <= _LARGEST)
