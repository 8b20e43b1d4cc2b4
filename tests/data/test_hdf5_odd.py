"""HDF5 files that are not what they should be: odd types, other files behind the arrays, more than memory holds."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from rich.console import Console

from tests.data.made_up import dsrl_arrays
from tracrl.data.check_file import check
from tracrl.data.hdf5 import read_hdf5, write_hdf5
from tracrl.data.scatter import plot_scatter
from tracrl.data.summary import summarise
from tracrl.data.summary_table import print_summary
from tracrl.errors import TracrlError

Change = Callable[[h5py.File], object]


def make(path: Path, change: Change = lambda _: None, without: str | None = None) -> Path:
    """Sound data, but for one array and the change."""
    with h5py.File(path, "w") as file:
        for key, array in dsrl_arrays().items():
            if key != without:
                file.create_dataset(key, data=array)
        change(file)
    return path


def said(path: Path, **options: Any) -> str:
    with pytest.raises(TracrlError) as caught:
        read_hdf5(path, **options)
    with pytest.raises(TracrlError) as again:
        check(path, **options)
    first, second = (re.sub(r"[\d,.]+ GB can", "N GB can", str(one.value)) for one in (caught, again))
    assert first == second  # but for the memory that is free at the moment
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda file: file.create_dataset("rewards", data=h5py.Empty("f4")),
            "'rewards' is empty: it has no shape; expected one row per step.",
        ),
        (
            lambda file: file.create_dataset("rewards", data=np.zeros(12, [("a", "f4"), ("b", "i4")])),
            "'rewards' is a table with the columns a, b; expected numbers.",
        ),
        (
            lambda file: file.create_dataset("rewards", data=np.zeros(12, complex)),
            "'rewards' holds complex128; expected numbers.",
        ),
        (
            lambda file: file.create_dataset("rewards", (12,), dtype=h5py.vlen_dtype(np.float32)),
            "'rewards' holds object; expected numbers.",
        ),
        (
            lambda file: file.create_dataset("rewards", (12,), dtype=h5py.ref_dtype),
            "'rewards' holds object; expected numbers.",
        ),
        (
            lambda file: file.create_dataset("rewards", data=np.zeros(12, "V5")),
            "'rewards' holds |V5; expected numbers.",
        ),
        (
            lambda file: file.__setitem__("rewards", h5py.SoftLink("/gone")),
            "'rewards' is a link to '/gone', which is no array at the top of this file: put the array itself there.",
        ),
        (
            lambda file: file.__setitem__("rewards", h5py.SoftLink("/rewards")),
            "'rewards' is a link to '/rewards', which is no array at the top of this file: put the array itself there.",
        ),
    ],
    ids=["null", "compound", "complex", "ragged", "references", "opaque", "dangling link", "link to itself"],
)
def test_arrays_that_are_no_arrays_of_numbers(tmp_path: Path, change: Change, expected: str) -> None:
    path = make(tmp_path / "mine.hdf5", change, without="rewards")
    assert said(path) == f"{path}: {expected}"


def test_a_link_inside_the_file_is_followed(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        file["elsewhere"] = np.full(12, 3.0)
        file["rewards"] = h5py.SoftLink("/elsewhere")

    assert read_hdf5(make(tmp_path / "mine.hdf5", change, without="rewards")).rewards[0] == 3


def odd_attributes(file: h5py.File) -> None:
    file.attrs["complex"] = 1 + 2j
    file.attrs["complexes"] = np.array([1j, 2])
    file.attrs["record"] = np.zeros((), [("a", "f4"), ("b", "i4")])[()]
    file.attrs["records"] = np.zeros(2, [("a", "f4")])
    file.attrs["null"] = h5py.Empty("f4")
    file.attrs["reference"] = file["actions"].ref
    file.attrs["opaque"] = np.void(b"abc")
    file.attrs["bytes"] = b"caf\xe9"
    file.attrs.create("text", b"caf\xe9", dtype=h5py.string_dtype())
    file.attrs["surrogate"] = '"\\ud800"'
    file.attrs["escape"] = "\x1b[31mred"
    file.attrs["deep"] = "[" * 30_000
    file.attrs["made_by"] = r"[/nonsense] $\frac{"
    file.attrs["task"] = "[red]$x_{"
    file.attrs[b"\xff\xfe"] = "a name that is no text"
    time = h5py.h5t.UNIX_D32LE.copy()  # NumPy has no such type
    h5py.h5a.create(file.id, b"time", time, h5py.h5s.create(h5py.h5s.SCALAR))


def test_attributes_of_any_type_do_not_get_in_the_way(tmp_path: Path) -> None:
    path = make(tmp_path / "mine.hdf5", odd_attributes)
    found = read_hdf5(path).metadata
    assert (found["complex"], found["complexes"]) == ("(1+2j)", ["1j", "(2+0j)"])
    assert (found["record"], found["null"]) == ("(0.0, 0)", None)
    assert (found["bytes"], found["text"]) == ("caf?", "caf?")
    assert (found["surrogate"], found["escape"]) == ("?", "\ufffd[31mred")
    assert "time" not in found
    json.dumps(found, ensure_ascii=False).encode()  # a file and a terminal can take all of it
    write_hdf5(read_hdf5(path), tmp_path / "again.hdf5")
    assert read_hdf5(tmp_path / "again.hdf5").metadata["made_by"] == r"[/nonsense] $\frac{"


def test_odd_attributes_can_be_shown(tmp_path: Path) -> None:
    episodes = read_hdf5(make(tmp_path / "mine.hdf5", odd_attributes))
    text = io.StringIO()
    print_summary(Console(file=text, width=100), summarise(episodes))
    assert r"made by: [/nonsense] $\frac{" in text.getvalue()
    assert "mine.hdf5, task [red]$x_{" in text.getvalue()
    plot_scatter(episodes, tmp_path / "mine.png")
    assert (tmp_path / "mine.png").is_file()


@pytest.mark.parametrize("task", [5, ["BallRun"], 1j, h5py.Empty("f")], ids=["number", "list", "complex", "null"])
def test_a_task_that_is_no_word_is_none(tmp_path: Path, task: Any) -> None:
    path = make(tmp_path / "mine.hdf5", lambda file: file.attrs.__setitem__("task", task))
    assert read_hdf5(path).known_task is None


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return make(tmp_path / "other.hdf5")


def external(target: Path | str, name: str = "/rewards") -> Change:
    return lambda file: file.__setitem__("rewards", h5py.ExternalLink(str(target), name))


def virtual(target: Path | str, name: str = "rewards", rows: int = 12) -> Change:
    def change(file: h5py.File) -> None:
        layout = h5py.VirtualLayout((12,), "f4")
        layout[:rows] = h5py.VirtualSource(str(target), name, shape=(12,))[:rows]
        file.create_virtual_dataset("rewards", layout)

    return change


def stored(target: Path | str) -> Change:
    return lambda file: file.create_dataset("rewards", (12,), "f4", external=[(str(target), 0, 48)])


@pytest.mark.parametrize("how", [external, virtual, stored])
def test_other_files_are_opened_only_if_asked_for(tmp_path: Path, other: Path, how: Callable[[Path], Change]) -> None:
    if how is stored:
        dsrl_arrays()["rewards"].tofile(other)  # numbers and nothing else
    path = make(tmp_path / "mine.hdf5", how(other), without="rewards")
    assert said(path) == (
        f"{path}: 'rewards' lies in another file ({other}), which is read only if asked for: add --allow-external "
        "(in Python allow_external=True) if you trust it."
    )
    assert np.array_equal(read_hdf5(path, allow_external=True).rewards, dsrl_arrays()["rewards"])
    assert check(path, allow_external=True).findings == ()


@pytest.mark.parametrize("how", [external, virtual, stored])
@pytest.mark.parametrize("kind", ["gone", "pipe"])
def test_other_files_that_are_none(tmp_path: Path, how: Callable[[Path], Change], kind: str) -> None:
    target = tmp_path / "target"
    path = make(tmp_path / "mine.hdf5", how(target), without="rewards")
    if kind == "pipe":
        target.unlink(missing_ok=True)  # which external storage has made
        os.mkfifo(target)  # without a writer, to open it is to wait for ever
    assert "which is read only if asked for" in said(path)
    if kind == "pipe" or how is not stored:
        expected = f"{path}: 'rewards' lies in {target}, where there is no file: get that file too."
        assert said(path, allow_external=True) == expected


def test_a_pipe_behind_a_name_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def change(file: h5py.File) -> None:
        file["notes"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/")
        file["aside"] = h5py.SoftLink("/notes/deep")

    path = make(tmp_path / "mine.hdf5", change)
    assert len(read_hdf5(path)) == 3
    assert [found.text for found in check(path).findings] == [f"{path}: not used: aside, notes."]
    path = make(path, lambda file: (change(file), file.__setitem__("rewards", h5py.SoftLink("/notes/x"))), "rewards")
    assert "'rewards' is a link to '/notes/x', which is no array at the top of this file" in said(path)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (virtual("other.hdf5", "nothing"), "takes more of 'nothing' from"),
        (virtual("other.hdf5", rows=5), "has 7 values that no other file holds: make it again."),
        (virtual("short.hdf5"), "takes more of 'rewards' from"),
    ],
    ids=["no such array", "rows that no source has", "source too short"],
)
def test_virtual_data_sets_are_never_filled_with_zeros(
    tmp_path: Path, other: Path, change: Change, expected: str
) -> None:
    with h5py.File(tmp_path / "short.hdf5", "w") as file:
        file["rewards"] = np.zeros(11, np.float32)
    path = make(tmp_path / "mine.hdf5", change, without="rewards")
    assert f"{path}: 'rewards' {expected}" in said(path, allow_external=True)


@pytest.mark.parametrize(("rows", "needed"), [(2 * 10**11, "6,400.0 GB"), (2**60, "36,893,488,147.4 GB")])
def test_what_would_not_fit_into_memory_is_not_unpacked(tmp_path: Path, rows: int, needed: str) -> None:
    path = tmp_path / "small.hdf5"
    with h5py.File(path, "w") as file:
        for key, width in (("observations", (3,)), ("actions", (2,)), ("rewards", ()), ("costs", ()), ("timeouts", ())):
            shape = (rows, *width)
            file.create_dataset(key, shape, "f4", chunks=(1 << 16, *width), compression="gzip")
    assert path.stat().st_size < 20_000
    assert said(path).startswith(f"{path} needs {needed} of memory when it is unpacked, and ")


def test_a_chunk_is_unpacked_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracrl.memory.available_memory", lambda: 1_000_000_000)
    path = make(
        tmp_path / "mine.hdf5",
        lambda file: file.create_dataset("rewards", (12,), "f4", maxshape=(None,), chunks=(2**29,), compression="gzip"),
        without="rewards",
    )
    assert "needs 2.1 GB of memory when it is unpacked, and 1.0 GB can be had: take fewer" in said(path)


def test_shapes_are_compared_before_anything_is_read(tmp_path: Path) -> None:
    path = make(
        tmp_path / "mine.hdf5",
        lambda file: file.create_dataset("rewards", (10**12,), "f4", chunks=(1 << 16,)),
        without="rewards",
    )
    assert said(path) == (
        f"{path}: 'rewards' has 1000000000000 rows but 'observations' has 12; every array needs one row per step."
    )
