"""Files that are either whole or not there: written aside, then renamed."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import re
import shutil
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
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
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


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """For files that are added to: a full disk or a missing permission becomes one sentence."""
    try:
        yield
    except OSError as error:
        raise TracrlError(_cannot_write(path, error)) from error


def write_json(path: Path, value: Any) -> None:
    with replacing(path) as aside:
        aside.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TracrlError(f"{path} is missing; {path.parent} is not a run directory, or not a whole one.") from error
    except (OSError, ValueError) as error:
        raise TracrlError(f"{path} cannot be read as JSON ({error}); it was edited or cut off.") from error


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    with replacing(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
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
