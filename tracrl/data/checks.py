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

_BOX_SLACK = 1e-3  # rounding beyond the action box that is clipped without a word, in units of the box's width


def check_arrays(arrays: Mapping[str, NDArray[Any]], where: str) -> dict[str, NDArray[Any]]:
    """The arrays with columns squeezed to vectors, after every check that needs no episode bounds."""
    check_keys(list(arrays), where)
    checked = {key: _shaped(key, array, where) for key, array in arrays.items() if key in KNOWN}
    rows = len(checked["observations"])
    if rows == 0:
        raise TracrlError(f"{where}: 'observations' has no rows; at least one whole episode is needed.")
    for key, array in checked.items():
        if key != "final_observations" and len(array) != rows:
            raise TracrlError(
                f"{where}: '{key}' has {len(array)} rows but 'observations' has {rows}; "
                "every array needs one row a step."
            )
    _check_numbers(checked, where)
    return checked


def check_keys(found: list[str], where: str) -> None:
    """Every required key is there; a likely misspelling is named."""
    missing = [key for key in REQUIRED if key not in found]
    if not any(key in found for key in ENDS):
        missing.append("terminals")
    if not missing:
        return
    key = missing[0]
    strangers = [name for name in found if name not in KNOWN]
    near = difflib.get_close_matches(key, strangers, n=1, cutoff=0.6)
    hint = f"rename '{near[0]}' to '{key}'" if near else f"found {', '.join(sorted(found)) or 'no arrays at all'}"
    wanted = "'terminals' or 'timeouts'" if key == "terminals" else f"'{key}'"
    raise TracrlError(f"{where}: the array {wanted} is missing: {hint}.")


def check_action_box(
    actions: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32], clip: bool, where: str
) -> NDArray[np.float32]:
    """Actions inside the box; rounding beyond it is clipped, more than that only if ``clip``."""
    if not np.all(low < high):
        raise TracrlError(f"{where}: the action box [{low}, {high}] is empty: every low end must be below its high end.")
    beyond = np.maximum(low - actions, actions - high)
    if (worst := float(beyond.max(initial=0.0))) <= 0:
        return actions
    if not clip and np.any(beyond > _BOX_SLACK * (high - low)):
        row = int(np.argmax(beyond.max(axis=1)))
        raise TracrlError(
            f"{where}: 'actions' leave the box [{low.min():g}, {high.max():g}] by up to {worst:.3g} (row {row}); "
            "give the true box with --action-low and --action-high, or cut them to it with --clip-actions."
        )
    return np.clip(actions, low, high)


def _shaped(key: str, array: NDArray[Any], where: str) -> NDArray[Any]:
    if key in MATRICES:
        if array.ndim != 2:
            raise TracrlError(f"{where}: '{key}' has shape {array.shape}; expected (rows, size).")
        return array
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim != 1:
        raise TracrlError(f"{where}: '{key}' has shape {array.shape}; expected (rows,) or (rows, 1).")
    return array


def _check_numbers(arrays: Mapping[str, NDArray[Any]], where: str) -> None:
    for key, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise TracrlError(f"{where}: '{key}' holds {array.dtype}; expected numbers.")
        if array.dtype.kind == "f" and not _all_finite(array):
            row = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))[0])
            raise TracrlError(
                f"{where}: '{key}' has NaN or infinity, first in row {row}; drop or mend the episodes that hold such rows."
            )
    costs = arrays["costs"]
    if costs.min() < 0:
        row = int(np.argmax(costs < 0))
        raise TracrlError(
            f"{where}: 'costs' is negative in row {row} ({costs[row]:g}); costs must be 0 or more: shift or clip them."
        )


def _all_finite(array: NDArray[Any]) -> bool:
    # A sum is not finite if any term is not; float64 keeps finite float32 terms from overflowing. It reads the array
    # once and allocates nothing, where isfinite().all() makes a mask of the array's size.
    return bool(np.isfinite(array.sum(dtype=np.float64)))
