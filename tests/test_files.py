"""Files that are either whole or not there."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tracrl.errors import TracrlError
from tracrl.files import read_json, replacing, write_csv, write_json

FULL = "The disk is full: {} was not written, what was there before is untouched; free some space."


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 10 kB: the nearest to a full disk that needs no privileges."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def only(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_new_file_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "file.txt"
    for text in ("old", "new"):
        with replacing(path) as aside:
            aside.write_text(text)
            written = aside.stat().st_ino
        assert path.read_text() == text
        assert path.stat().st_ino == written  # renamed, not copied: nobody sees half a file
    assert only(path.parent) == ["file.txt"]


def test_until_the_end_the_old_file_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with replacing(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"


def test_no_two_writers_share_a_temporary_name(tmp_path: Path) -> None:
    """Two containers on one folder can have the same process id, and even the same host name."""
    path = tmp_path / "file.txt"
    with replacing(path) as one, replacing(path) as other:
        assert one != other
        assert all(socket.gethostname()[:40] in aside.name and str(os.getpid()) in aside.name for aside in (one, other))
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"
    assert only(tmp_path) == ["file.txt"]


def test_the_longest_name_that_a_folder_takes(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 125 + ".json")
    write_json(path, 1)
    assert read_json(path) == 1


def test_a_folder_is_no_name_of_a_file() -> None:
    with pytest.raises(TracrlError, match="is a folder; expected the name of a file"):
        write_json(Path(), 1)


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), RuntimeError("mine")])
def test_a_failure_half_way_leaves_the_old_file_and_passes_on(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(type(error)) as caught, replacing(path) as aside:  # noqa: PT012
        aside.write_text("half")
        raise error
    assert caught.value is error
    assert path.read_text() == "old"
    assert only(tmp_path) == ["file.txt"]


def test_an_error_for_the_user_is_not_dressed_up(tmp_path: Path) -> None:
    said = TracrlError("said already (os error 28)")
    with pytest.raises(TracrlError) as caught, replacing(tmp_path / "file.txt"):
        raise said
    assert caught.value is said


def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(TracrlError) as caught, replacing(path) as aside:  # noqa: PT012
        aside.write_text("half")
        Path("/dev/full").write_text("more")  # a device that is always full
    assert str(caught.value) == FULL.format(path)
    assert path.read_text() == "old"
    assert only(tmp_path) == ["file.txt"]


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("save", [save_file, lambda value, path: path.write_bytes(bytes(20_000))])
def test_a_write_that_the_system_refuses(tmp_path: Path, save: Any) -> None:
    path = tmp_path / "weights"
    path.write_text("old")
    with pytest.raises(TracrlError) as caught, replacing(path) as aside:
        save({"weight": torch.zeros(20_000)}, aside)
    assert str(caught.value) == f"{path} cannot be written (File too large); what was there before is untouched."
    assert path.read_text() == "old"
    assert only(tmp_path) == ["weights"]


class LibraryError(Exception):
    """What safetensors raises derives from nothing but Exception, and so does this."""


def test_a_full_disk_in_the_words_of_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(TracrlError) as caught, replacing(path):
        raise LibraryError(said)
    assert str(caught.value) == FULL.format(path)


def test_a_full_disk_that_torch_does_not_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = __import__("shutil").disk_usage(tmp_path)
    monkeypatch.setattr("tracrl.files.shutil.disk_usage", lambda _: usage._replace(free=0))
    path = tmp_path / "checkpoint"
    with pytest.raises(TracrlError) as caught, replacing(path):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")
    assert str(caught.value) == FULL.format(path)


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    path = tmp_path / "file" / "below.json"
    with pytest.raises(TracrlError, match=r"below.json cannot be written \(.*\); what was there before is untouched"):
        write_json(path, {})


def test_a_missing_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(TracrlError, match=r"cannot be written \(Permission denied\)"):
        write_json(tmp_path / "file.json", {})


def test_json_there_and_back(tmp_path: Path) -> None:
    value = {"limits": [10, 20.5], "name": "größer", "none": None}
    write_json(tmp_path / "file.json", value)
    assert read_json(tmp_path / "file.json") == value
    assert "größer" in (tmp_path / "file.json").read_text(encoding="utf-8")


def test_json_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "file.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "file.json", object())
    assert read_json(tmp_path / "file.json") == 1
    assert only(tmp_path) == ["file.json"]


def test_json_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TracrlError) as caught:
        read_json(tmp_path / "config.json")
    assert str(caught.value) == (
        f"{tmp_path / 'config.json'} is missing; {tmp_path} is not a run directory, or not a whole one."
    )


@pytest.mark.parametrize("content", [b'{"a": ', b"", b"\xff\xfe\x00", b"[" * 100_000])
def test_json_that_was_cut_off(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(TracrlError, match=r"config.json cannot be read as JSON \(.*\); it was edited or cut off"):
        read_json(tmp_path / "config.json")


def test_csv(tmp_path: Path) -> None:
    write_csv(tmp_path / "file.csv", [{"a": 1, "b": "x, y"}, {"a": 2}], ["a", "b"])
    assert (tmp_path / "file.csv").read_text() == 'a,b\n1,"x, y"\n2,\n'
