"""Every kind of bad data is answered with one sentence that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.data.made_up import dsrl_arrays
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import read_hdf5
from tracrl.errors import TracrlError

Arrays = dict[str, np.ndarray[Any, Any]]


def written(path: Path, arrays: Arrays) -> Path:
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array)
    return path


def said_of(path: Path, **options: Any) -> str:
    with pytest.raises(TracrlError) as caught:
        read_hdf5(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def replaced(key: str, value: Any) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({key: np.asarray(value)})


def renamed(key: str, to: str) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({to: arrays.pop(key)})


def removed(*keys: str) -> Callable[[Arrays], None]:
    return lambda arrays: [arrays.pop(key) for key in keys] and None


def put(key: str, row: int, value: float) -> Callable[[Arrays], None]:
    return lambda arrays: arrays[key].__setitem__(row, value)


SAVED_UNDER_OTHER_NAMES = "found actions, costs, next_observations, observations, rewards."


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            removed("costs"),
            "the array 'costs' is missing: "
            "found actions, next_observations, observations, rewards, terminals, timeouts.",
        ),
        (renamed("rewards", "reward"), "the array 'rewards' is missing: rename 'reward' to 'rewards'."),
        (
            renamed("observations", "observation"),
            "the array 'observations' is missing: rename 'observation' to 'observations'.",
        ),
        (
            removed("terminals", "timeouts"),
            f"the array 'terminals' or 'timeouts' is missing: {SAVED_UNDER_OTHER_NAMES}",
        ),
        (
            lambda arrays: (removed("terminals")(arrays), renamed("timeouts", "timeout")(arrays)),
            "the array 'timeouts' is missing: rename 'timeout' to 'timeouts'.",
        ),
        (
            renamed("timeouts", "timeout"),  # 'terminals' alone would do, with episodes run into each other
            "there is an array 'timeout' and no 'timeouts': rename it to 'timeouts'.",
        ),
        (
            renamed("next_observations", "next_observation"),
            "there is an array 'next_observation' and no 'next_observations': rename it to 'next_observations'.",
        ),
        (
            replaced("observations", np.zeros(12)),
            "'observations' has shape (12,); expected (rows, size).",
        ),
        (
            replaced("observations", np.zeros((12, 8, 8))),
            "'observations' has shape (12, 8, 8), more than one axis a step: images are not supported: give a "
            "vector a step, such as a trained encoder's features of them; expected (rows, size).",
        ),
        (replaced("actions", np.zeros((12, 0))), "'actions' has shape (12, 0); expected (rows, size)."),
        (
            replaced("rewards", np.zeros((12, 2))),
            "'rewards' has shape (12, 2); expected (rows,) or (rows, 1).",
        ),
        (replaced("costs", 0.0), "'costs' has shape (); expected (rows,) or (rows, 1)."),
        (
            replaced("actions", np.zeros((11, 2))),
            "'actions' has 11 rows but 'observations' has 12; every array needs one row per step.",
        ),
        (
            replaced("timeouts", np.zeros(13, bool)),
            "'timeouts' has 13 rows but 'observations' has 12; every array needs one row per step.",
        ),
        (
            put("observations", 5, np.nan),
            "'observations' has NaN or infinity, first in row 5; drop or mend the episodes that hold such rows.",
        ),
        (
            put("rewards", 11, -np.inf),
            "'rewards' has NaN or infinity, first in row 11; drop or mend the episodes that hold such rows.",
        ),
        (
            replaced("rewards", np.where(np.arange(12) < 3, 0, 1e39)),  # finite until it becomes float32
            "'rewards' has NaN or infinity, first in row 3; drop or mend the episodes that hold such rows.",
        ),
        (
            replaced("next_observations", np.full((12, 3), np.inf)),
            "'next_observations' has NaN or infinity, first in row 3; drop or mend the episodes that hold such rows.",
        ),
        (
            put("actions", 7, 1.25),
            "'actions' leave the box [-1, 1] by up to 0.25 (row 7); give the true box with --action-low and "
            "--action-high, or cut them to it with --clip-actions.",
        ),
        (
            put("costs", 2, -0.5),
            "'costs' is negative in row 2 (-0.5); costs must be 0 or more: shift or clip them.",
        ),
        (
            lambda arrays: (arrays["terminals"].fill(False), arrays["timeouts"].fill(False)),
            "no row of 'terminals' or 'timeouts' is set, so no episode has an end: mark the last row of each episode.",
        ),
        (
            lambda arrays: arrays.update({key: array[:0] for key, array in arrays.items()}),
            "'observations' has no rows; at least one whole episode is needed.",
        ),
        (
            replaced("rewards", np.array([b"much"] * 12)),
            "'rewards' holds |S4; expected numbers.",
        ),
        (replaced("costs", np.zeros(12, complex)), "'costs' holds complex128; expected numbers."),
    ],
)
def test_bad_data(tmp_path: Path, harm: Callable[[Arrays], Any], message: str) -> None:
    arrays = dsrl_arrays(lengths=(4, 3, 5))
    harm(arrays)
    path = written(tmp_path / "bad.hdf5", arrays)
    assert said_of(path) == f"{path}: {message}"


def test_large_finite_numbers_are_no_error() -> None:
    arrays = dsrl_arrays()
    arrays["rewards"][:] = 3e38  # their sum is more than float32 holds
    assert np.isfinite(Episodes.from_arrays(arrays).returns).all()


def test_an_hdf5_file_without_arrays(tmp_path: Path) -> None:
    path = written(tmp_path / "bare.hdf5", {})
    assert said_of(path) == f"{path}: the array 'observations' is missing: found no arrays at all."


def test_arrays_hidden_in_a_group_are_not_found(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "grouped.hdf5", "w") as file:
        file.create_group("observations")
    assert "'observations' is missing: found no arrays at all" in said_of(tmp_path / "grouped.hdf5")


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.hdf5"
    path.write_bytes(b"")
    said = said_of(path)
    assert said.startswith(f"{path} is not a readable HDF5 file (")
    assert said.endswith("); it may be cut off: get it again.")


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_file_that_was_cut_off(tmp_path: Path, share: float) -> None:
    whole = written(tmp_path / "whole.hdf5", dsrl_arrays(lengths=(50,) * 10)).read_bytes()
    path = tmp_path / "cut.hdf5"
    path.write_bytes(whole[: int(share * len(whole))])
    said = said_of(path)
    assert said.startswith(f"{path} is not a readable HDF5 file (")
    assert "truncated file" in said
    assert said.endswith("); it may be cut off: get it again.")


def test_a_file_damaged_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "damaged.hdf5"
    with h5py.File(path, "w") as file:
        for key, array in dsrl_arrays(lengths=(50,) * 10).items():
            file.create_dataset(key, data=array, compression="gzip", fletcher32=True)
    content = bytearray(path.read_bytes())
    for start in range(2000, len(content) - 200, 400):
        content[start : start + 100] = bytes(100)
    path.write_bytes(content)
    assert f"{path} is not a readable HDF5 file (" in said_of(path)


@pytest.mark.parametrize("content", [b"not at all", b"PK\x03\x04" + bytes(5000)])
def test_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.hdf5"
    path.write_bytes(content)
    assert said_of(path).startswith(f"{path} is not a readable HDF5 file (")
    assert "file signature not found" in said_of(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert said_of(tmp_path / "none.hdf5") == f"There is no data file at {tmp_path / 'none.hdf5'}."
    assert said_of(tmp_path) == f"There is no data file at {tmp_path}."


def test_rounding_beyond_the_box_is_cut_without_a_word() -> None:
    arrays = dsrl_arrays()
    arrays["actions"][3] = 1.001
    arrays["actions"][4] = -1.0005
    actions = Episodes.from_arrays(arrays).actions
    assert actions[3].tolist() == [1, 1]
    assert actions[4].tolist() == [-1, -1]


def test_actions_beyond_the_box_are_cut_on_demand() -> None:
    arrays = dsrl_arrays()
    arrays["actions"][3] = [5, 0.5]
    assert Episodes.from_arrays(arrays, clip_actions=True).actions[3].tolist() == [1, 0.5]


def test_the_box_can_be_given_for_each_action() -> None:
    arrays = dsrl_arrays()
    arrays["actions"][3] = [5, 0.5]
    data = Episodes.from_arrays(arrays, action_low=[-5, -1], action_high=[5, 1])
    assert data.actions[3].tolist() == [5, 0.5]
    assert (data.action_low.tolist(), data.action_high.tolist()) == ([-5, -1], [5, 1])


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1, -1, r"mine: the action box from \[1.0, 1.0\] to \[-1.0, -1.0\] is no box"),
        (-np.inf, np.inf, r"mine: the action box from \[-inf, -inf\] to \[inf, inf\] is no box"),
        ([-1, np.nan], 1, r"mine: the action box from \[-1.0, nan\] to \[1.0, 1.0\] is no box"),
        ([-1, -1, -1], 1, r"mine: action_low is \[-1, -1, -1\]; expected one number, or 2"),
        (-1, "high", r"mine: action_high is 'high'; expected one number, or 2 as there are 2 actions"),
    ],
)
def test_a_box_that_is_none(low: Any, high: Any, message: str) -> None:
    with pytest.raises(TracrlError, match=message):
        Episodes.from_arrays(dsrl_arrays(), where="mine", action_low=low, action_high=high)


@pytest.mark.parametrize("key", ["rewards", "costs"])
@pytest.mark.parametrize("size", [1e10, 1e16, 1e20, 1e38])
def test_a_number_that_swallows_the_others_is_refused(key: str, size: float) -> None:
    arrays = dsrl_arrays()
    arrays["rewards"][:] = 1
    arrays[key][5] = size
    with pytest.raises(TracrlError) as caught:
        Episodes.from_arrays(arrays, where="mine")
    assert str(caught.value) == (
        f"mine: '{key}' is {size:g} in row 5, where a usual step has 1: beside so large a number the others are lost "
        f"when an episode is summed; mend that row, or cut '{key}' to a range that means something."
    )


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6, 1e12, 1e30])
def test_the_units_do_not_matter_as_long_as_all_steps_have_the_same(unit: float) -> None:
    arrays = dsrl_arrays()
    arrays["costs"] = arrays["costs"] * unit
    arrays["rewards"] = arrays["rewards"] * unit
    assert Episodes.from_arrays(arrays).total_costs.max() > 0


def test_rows_behind_the_last_end_are_not_summed() -> None:
    arrays = dsrl_arrays()
    arrays["terminals"][-1], arrays["costs"][-1] = False, 1e20
    with pytest.warns(UserWarning, match="the last 5 rows belong to an episode without an end"):
        assert len(Episodes.from_arrays(arrays)) == 2
