"""Checksums of the results of a run, so that an edited or cut file is noticed.

They protect against accidents and careless hands, not against somebody who writes new ones. The weights have their own,
in the policy's file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tracrl.errors import TracrlError
from tracrl.files import read_json, write_json

FILE = "checksums.json"
OLD_FILE = "seal.json"
"""as version 0.4.0 called it"""
SCORES = ("scores.json", "best_scores.json", "further_scores.json")
"""can be made anew from the policies"""
LOGS = ("config.json", "evaluations.csv", "metrics.csv")


def write(directory: Path) -> None:
    """Remember the results as they are now."""
    sums = {name: _checksum(directory / name) for name in (*SCORES, *LOGS) if (directory / name).exists()}
    write_json(directory / FILE, sums)
    (directory / OLD_FILE).unlink(missing_ok=True)


def renew(directory: Path) -> None:
    """After the policies were scored anew. The rest must be as it was: new checksums must not hide that it is not."""
    if exist(directory):
        check(directory, LOGS)
    write(directory)


def exist(directory: Path) -> bool:
    return _file(directory).exists()


def check(directory: Path, names: Sequence[str] = (*LOGS, *SCORES)) -> None:
    """Raise a sentence if a result is not what it was when its checksum was written."""
    path = _file(directory)
    sums = read_json(path)
    if not isinstance(sums, dict) or not set(sums) <= {*SCORES, *LOGS}:
        raise TracrlError(f"{path} was edited; {_mend(path.name)}.")
    for name in names:
        there = (directory / name).exists()
        if there != (name in sums):
            raise TracrlError(f"{directory / name} was {'added' if there else 'removed'} after the run; {_mend(name)}.")
        if there and _checksum(directory / name) != sums[name]:
            raise TracrlError(
                f"{directory / name} is not what the run wrote: it was edited, cut off or made anew; {_mend(name)}."
            )


def _file(directory: Path) -> Path:
    old = directory / OLD_FILE
    return old if old.exists() and not (directory / FILE).exists() else directory / FILE


def _mend(name: str) -> str:
    if name in SCORES:
        return "the study's command scores the policies anew"
    return "restore it, or remove the run and train it anew"


def _checksum(path: Path) -> str:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise TracrlError(f"{path} cannot be read ({error.strerror or error}); {_mend(path.name)}.") from error
