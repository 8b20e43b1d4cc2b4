"""Whole files checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.data.made_up import dsrl_arrays
from tracrl.data.check_file import check
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import write_hdf5
from tracrl.data.limits import default_limits
from tracrl.errors import TracrlError


def checked(tmp_path: Path, changes: dict[str, Any], **options: Any) -> list[str]:
    arrays = {**dsrl_arrays(lengths=(4, 3, 5)), **changes}
    path = tmp_path / "mine.hdf5"
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            if array is not None:
                file.create_dataset(key, data=array)
    return [finding.text.removeprefix(f"{path}: ") for finding in check(path, **options).findings]


def test_sound_data_give_no_findings(tmp_path: Path) -> None:
    assert checked(tmp_path, {}) == []
    found = check("BallRun")
    assert found.findings == ()
    assert found.limits == (10, 20, 40)


def test_findings(tmp_path: Path) -> None:
    arrays = dsrl_arrays(lengths=(4, 3, 5))
    following = arrays["next_observations"].copy()
    following[0] += 1
    assert checked(tmp_path, {"next_observations": following}) == [
        "in 1 rows 'next_observations' differs from the observation of the next row; "
        "the next row's observation is used."
    ]
    assert checked(tmp_path, {"terminals": np.arange(12) == 3}) == [
        "the last 5 rows belong to an episode without an end and are left out."
    ]
    assert checked(tmp_path, {"infos": np.zeros(12), "velocity": np.zeros((12, 2))}) == ["not used: infos, velocity."]
    assert checked(tmp_path, {"terminals": arrays["terminals"] | arrays["timeouts"]}) == [
        "1 rows have both 'terminals' and 'timeouts' and count as terminated."
    ]
    # A column beside a flat array: both are read row by row.
    column = (arrays["terminals"] | arrays["timeouts"])[:, None]
    for changes in ({"terminals": column}, {"terminals": column[:, 0], "timeouts": arrays["timeouts"][:, None]}):
        assert checked(tmp_path, changes) == ["1 rows have both 'terminals' and 'timeouts' and count as terminated."]
    assert checked(tmp_path, {"next_observations": None}) == [
        "there are neither 'next_observations' nor 'final_observations', so BCQ-Lag, BEAR-Lag and CPQ leave out "
        "the last step of each episode that time ended."
    ]
    assert checked(tmp_path, {"costs": np.zeros(12)}) == [
        "no step costs anything, so every episode is safe at every limit."
    ]
    actions = arrays["actions"].copy()
    actions[5] = 1.5
    assert checked(tmp_path, {"actions": actions}, clip_actions=True) == [
        "1 rows of 'actions' leave the box by up to 0.5 and are cut to it."
    ]


def test_several_findings_come_together(tmp_path: Path) -> None:
    found = checked(tmp_path, {"terminals": np.arange(12) == 3, "costs": np.zeros(12), "infos": np.zeros(12)})
    assert len(found) == 3


def test_findings_about_the_task(tmp_path: Path) -> None:
    arrays = {
        "observations": np.random.default_rng(0).normal(size=(101, 7)),
        "actions": np.random.default_rng(1).uniform(-1, 1, (101, 2)),
        "rewards": np.zeros(101),
        "costs": np.ones(101),
        "timeouts": np.arange(101) == 100,
        "final_observations": np.zeros((1, 7)),
    }
    for task, finding in (
        ("BallRun", "an episode has 101 steps, where BallRun ends after 100."),
        ("MyRobot", "its task 'MyRobot' is not one of the 38, so there are no normalised scores."),
    ):
        path = tmp_path / f"{task}.hdf5"
        write_hdf5(Episodes.from_arrays(arrays, metadata={"task": task}), path)
        assert [found.text for found in check(path).findings] == [f"{path}: {finding}"]


def test_what_is_an_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match="'costs' is negative in row 0"):
        checked(tmp_path, {"costs": np.full(12, -1.0)})
    with pytest.raises(TracrlError, match="do not belong to BallRun"):
        checked(tmp_path, {}, task="BallRun")


def test_limits_to_look_at(tmp_path: Path) -> None:
    path = tmp_path / "mine.hdf5"
    write_hdf5(Episodes.from_arrays(dsrl_arrays(lengths=(4, 3, 5))), path)
    assert check(path, limits=[3, 7]).limits == (3, 7)
    assert check(path).limits == default_limits(Episodes.from_arrays(dsrl_arrays(lengths=(4, 3, 5))))
    with pytest.raises(TracrlError, match="--limits must be numbers of 0 or more"):
        check(path, limits=[-1])
