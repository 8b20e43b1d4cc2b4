"""DSRL's layout, read and written; a file is either whole or not there."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.data.made_up import dsrl_arrays, episodes_of
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import read_hdf5, write_hdf5
from tracrl.data.locate import load_dataset
from tracrl.errors import TracrlError
from tracrl.tasks.table import get_task


def same(one: Episodes, other: Episodes) -> bool:
    assert one.final_observations is not None
    assert other.final_observations is not None
    return one.fingerprint == other.fingerprint and np.array_equal(one.final_observations, other.final_observations)


@pytest.mark.parametrize("compact", [False, True])
def test_what_is_written_is_read_back(tmp_path: Path, compact: bool) -> None:
    metadata = {"task": "Mine", "seed": 3, "penalties": [0.5, 1], "settings": {"noise": 0.1}, "nothing": None}
    arrays = {**dsrl_arrays(), "actions": np.random.default_rng(0).uniform(-2, 3, (12, 2))}
    data = Episodes.from_arrays(arrays, action_low=[-2, -2], action_high=[3, 4], metadata=metadata)
    path = tmp_path / "below" / "mine.hdf5"
    write_hdf5(data, path, compact=compact)
    again = read_hdf5(path)
    assert same(data, again)
    assert again.action_low.tolist() == [-2, -2]
    assert again.action_high.tolist() == [3, 4]
    assert {key: again.metadata[key] for key in metadata} == metadata
    assert again.metadata["file"] == "mine.hdf5"
    write_hdf5(again, tmp_path / "renamed.hdf5", compact=compact)
    with h5py.File(tmp_path / "renamed.hdf5") as file:
        assert "file" not in file.attrs  # the name of a file is no fact about the data in it


@pytest.mark.parametrize("text", ["20", "true", "[1, 2]", '"quoted"', "", "plain words", "größer"])
def test_text_in_the_metadata_stays_text(tmp_path: Path, text: str) -> None:
    data = Episodes.from_arrays(dsrl_arrays(), metadata={"said": text})
    write_hdf5(data, tmp_path / "mine.hdf5")
    assert read_hdf5(tmp_path / "mine.hdf5").metadata["said"] == text


def test_metadata_of_another_library_do_not_get_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "other.hdf5"
    with h5py.File(path, "w") as file:
        for key, array in dsrl_arrays().items():
            file.create_dataset(key, data=array)
        file.attrs["bytes"] = np.bytes_(b"said so")
        file.attrs["numbers"] = np.arange(3)
        file.attrs["number"] = np.float32(0.5)
        file.attrs["words"] = np.array([b"one", b"two"])
        file.attrs["empty"] = h5py.Empty("f")
    found = read_hdf5(path)
    assert found.metadata == {
        "bytes": "said so",
        "numbers": [0, 1, 2],
        "number": 0.5,
        "words": ["one", "two"],
        "empty": None,
        "file": "other.hdf5",
    }
    write_hdf5(found, tmp_path / "again.hdf5")
    assert read_hdf5(tmp_path / "again.hdf5").metadata["words"] == ["one", "two"]


def test_the_layout_is_the_one_other_libraries_read(tmp_path: Path) -> None:
    arrays = dsrl_arrays()
    write_hdf5(Episodes.from_arrays(arrays), tmp_path / "mine.hdf5")
    with h5py.File(tmp_path / "mine.hdf5") as file:
        assert set(file) == set(arrays)
        for key, array in arrays.items():
            assert file[key].shape == array.shape
            assert file[key].dtype == array.dtype
            np.testing.assert_array_equal(file[key][...], array)


def test_compact_files_are_smaller_by_the_second_copy_of_the_observations(tmp_path: Path) -> None:
    data = Episodes.from_arrays(dsrl_arrays(lengths=(100,) * 20))
    write_hdf5(data, tmp_path / "full.hdf5")
    write_hdf5(data, tmp_path / "compact.hdf5", compact=True)
    with h5py.File(tmp_path / "compact.hdf5") as file:
        assert "next_observations" not in file
        assert file["final_observations"].shape == (20, 3)
    saved = (tmp_path / "full.hdf5").stat().st_size - (tmp_path / "compact.hdf5").stat().st_size
    assert saved > 0.8 * 2000 * 3 * 4


@pytest.mark.parametrize("compact", [False, True])
def test_data_without_final_observations_stay_without(tmp_path: Path, compact: bool) -> None:
    write_hdf5(episodes_of([[1, 2], [3]], [[0, 0], [1]]), tmp_path / "mine.hdf5", compact=compact)
    assert read_hdf5(tmp_path / "mine.hdf5").final_observations is None


@pytest.mark.parametrize("columns", [False, True], ids=["(N,)", "(N, 1)"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_files_as_dsrl_writes_them(tmp_path: Path, columns: bool, dtype: Any, compression: str | None) -> None:
    arrays = dsrl_arrays(lengths=(4, 3, 5))
    with h5py.File(tmp_path / "dsrl.hdf5", "w") as file:
        for key, array in arrays.items():
            stored = array if array.dtype == bool else array.astype(dtype)
            stored = stored[:, None] if columns and stored.ndim == 1 else stored
            file.create_dataset(key, data=stored, compression=compression)
    data = read_hdf5(tmp_path / "dsrl.hdf5")
    assert same(data, Episodes.from_arrays(arrays))
    assert data.rewards.dtype == np.float32
    assert data.action_low.tolist() == [-1, -1]


def test_ends_stored_as_numbers_are_ends(tmp_path: Path) -> None:
    arrays = dsrl_arrays(lengths=(4, 3, 5))
    with h5py.File(tmp_path / "dsrl.hdf5", "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array.astype(np.float32) if array.dtype == bool else array)
    assert read_hdf5(tmp_path / "dsrl.hdf5").terminated.tolist() == [True, False, True]


def test_the_box_of_an_argument_goes_before_that_of_the_file(tmp_path: Path) -> None:
    data = Episodes.from_arrays(dsrl_arrays(), action_low=-2, action_high=2)
    write_hdf5(data, tmp_path / "mine.hdf5")
    assert read_hdf5(tmp_path / "mine.hdf5", action_high=3).action_high.tolist() == [3, 3]
    assert read_hdf5(tmp_path / "mine.hdf5", action_high=3).action_low.tolist() == [-2, -2]


def test_a_file_that_is_open_elsewhere_in_the_process_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.hdf5"
    write_hdf5(Episodes.from_arrays(dsrl_arrays()), path)
    with h5py.File(path, "r"):
        assert len(read_hdf5(path)) == 3


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.hdf5"
    old = Episodes.from_arrays(dsrl_arrays())
    write_hdf5(old, path)
    large = Episodes.from_arrays(dsrl_arrays(lengths=(100,) * 20))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(TracrlError) as caught:
            write_hdf5(large, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value) == f"{path} cannot be written (File too large); what was there before is untouched."
    assert same(read_hdf5(path), old)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.hdf5"]


def test_metadata_that_cannot_be_written_leave_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.hdf5"
    old = Episodes.from_arrays(dsrl_arrays())
    write_hdf5(old, path)
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular reference"):
        write_hdf5(replace(old, metadata={"circle": circle}), path)
    assert same(read_hdf5(path), old)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.hdf5"]


@pytest.mark.parametrize(
    "name", ["tracrl/data/bundled/BallRun", "datasets/BallCircle", "datasets/CarRun", "datasets/CarCircle"]
)
def test_the_data_of_the_repository_keep_their_promises(name: str) -> None:
    path = Path(__file__).parents[2] / f"{name}.hdf5"
    assert path.stat().st_size < 8_000_000
    data = load_dataset(path)
    task = get_task(path.stem)
    assert data.task == task.name
    assert data.metadata["made_by"].startswith(f"tracrl collect {task.name} --steps=")
    assert "not a DSRL data set" in data.metadata["note"]
    assert data.final_observations is not None
    assert len(data) == 1_000
    for limit in task.limits:
        safe = int((data.total_costs <= limit).sum())
        assert safe >= 200
        assert len(data) - safe >= 200


def test_attributes_are_plain_json(tmp_path: Path) -> None:
    write_hdf5(Episodes.from_arrays(dsrl_arrays(), metadata={"seeds": [1, 2]}), tmp_path / "mine.hdf5")
    with h5py.File(tmp_path / "mine.hdf5") as file:
        assert json.loads(file.attrs["seeds"]) == [1, 2]
        assert json.loads(file.attrs["action_low"]) == [-1, -1]
