"""Files that are either whole or not there: written aside, then renamed."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracrl.errors import TracrlError

_FULL = 1 << 16  # bytes; less than any write that matters leaves free when it fails


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; on success it takes ``path``'s place, on failure it is removed.

    What was at ``path`` before stays until the very end. A full disk or a missing permission becomes one
    sentence.
    """
    aside = temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        with aside.open("rb+") as file:
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        raise TracrlError(_cannot_write(path, error)) from error
    except TracrlError:
        raise
    except Exception as error:
        if number := _disk_error(error, path.parent):
            raise TracrlError(_cannot_write(path, OSError(number, os.strerror(number)))) from error
        raise
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def temporary_name(path: Path) -> Path:
    """A name beside ``path`` that no other process has, nor one on another machine that shares the folder."""
    if not path.name:
        raise TracrlError(f"{path} is a folder; expected the name of a file to write.")
    start = os.fsdecode(os.fsencode(path.name)[:120])  # the whole name may be at most 255 bytes
    return path.with_name(f".{start}.{socket.gethostname()[:40]}.{os.getpid()}.{secrets.token_hex(8)}.part")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """For files that are added to: a full disk or a missing permission becomes one sentence."""
    try:
        yield
    except OSError as error:
        raise TracrlError(_cannot_write(path, error)) from error


class AppendedFile:
    """A file that is added to. Nothing stays behind in memory, where a full disk would bring it up again on closing."""

    def __init__(self, path: Path):
        self.path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)

    def write(self, content: bytes) -> None:
        with writing(self.path):
            while content:
                content = content[self._file.write(content) :]

    def close(self) -> None:
        with writing(self.path):
            self._file.close()


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as aside:
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")  # names that are no UTF-8, as JSON has them


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TracrlError(f"{path} is missing; {path.parent} is not a run directory, or not a whole one.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise TracrlError(f"{path} cannot be read as JSON ({error}); it was edited or cut off.") from error


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    with replacing(path) as aside, aside.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _disk_error(error: Exception, directory: Path) -> int:
    """The error number behind an exception of a library's own kind, 0 where the disk is not to blame.

    safetensors has the number in its text; torch says nothing of use, but what it wrote still fills the disk.
    """
    if found := re.search(r"os error (\d+)", str(error)):
        return int(found[1])
    with contextlib.suppress(OSError):
        if shutil.disk_usage(directory).free < _FULL:
            return errno.ENOSPC
    return 0


def _cannot_write(path: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"The disk is full: {path} was not written, what was there before is untouched; free some space."
    return f"{path} cannot be written ({error.strerror or error}); what was there before is untouched."
