"""Imports of files that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.data.made_up import dsrl_arrays
from tracrl.data.sources import import_episodes
from tracrl.errors import TracrlError


def test_an_archive_that_would_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "mine.npz", **{**dsrl_arrays(), "zeros": np.zeros(1_000_000)})
    monkeypatch.setattr("tracrl.memory.available_memory", lambda: 1_000_000)
    with pytest.raises(TracrlError, match=r"mine.npz needs 0.0 GB of memory when it is unpacked, and 0.0 GB can"):
        import_episodes([tmp_path / "mine.npz"])


@pytest.mark.parametrize("header", [b"(10000000000000,), }", b"(10000000000000,),  "], ids=["terabytes", "cut off"])
def test_an_archive_with_a_damaged_header(tmp_path: Path, header: bytes) -> None:
    np.savez(tmp_path / "mine.npz", **{**dsrl_arrays(), "rewards": np.zeros(10**4)})
    content = (tmp_path / "mine.npz").read_bytes()
    (tmp_path / "mine.npz").write_bytes(content.replace(b"(10000,), }         ", header))
    assert (tmp_path / "mine.npz").read_bytes() != content
    with pytest.raises(TracrlError, match=r"mine.npz cannot be read as a NumPy archive of plain arrays"):
        import_episodes([tmp_path / "mine.npz"])


def test_arrays_of_other_files_are_imported_only_if_asked_for(tmp_path: Path) -> None:
    for name, left_out in (("other.hdf5", None), ("mine.hdf5", "rewards")):
        with h5py.File(tmp_path / name, "w") as file:
            for key, array in dsrl_arrays().items():
                if key != left_out:
                    file[key] = array
            if left_out:
                file[left_out] = h5py.ExternalLink("other.hdf5", left_out)
    with pytest.raises(TracrlError, match="which is read only if asked for: add --allow-external"):
        import_episodes([tmp_path / "mine.hdf5"])
    assert len(import_episodes([tmp_path / "mine.hdf5"], allow_external=True)[0]) == 3
