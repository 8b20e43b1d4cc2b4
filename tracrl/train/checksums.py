"""A seal on the results of a run: digests of its files, so that an edited or cut one is noticed.

It protects against accidents and careless hands, not against somebody who makes a new seal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tracrl.errors import TracrlError
from tracrl.files import read_json, write_json

FILE = "seal.json"
SCORES = ("scores.json", "best_scores.json")
"""can be made anew from the policies"""
LOGS = ("config.json", "evaluations.csv", "metrics.csv")


def seal(directory: Path) -> None:
    """Remember the results as they are now."""
    digests = {name: _digest(directory / name) for name in (*SCORES, *LOGS) if (directory / name).exists()}
    write_json(directory / FILE, digests)


def renew(directory: Path) -> None:
    """After the policies were scored anew. The rest must be as it was: a new seal must not hide that it is not."""
    if is_sealed(directory):
        check_seal(directory, LOGS)
    seal(directory)


def is_sealed(directory: Path) -> bool:
    return (directory / FILE).exists()


def check_seal(directory: Path, names: Sequence[str] = (*LOGS, *SCORES)) -> None:
    """Raise a sentence if a result is not what it was when it was sealed."""
    digests = read_json(directory / FILE)
    if not isinstance(digests, dict) or not set(digests) <= {*SCORES, *LOGS}:
        raise TracrlError(f"{directory / FILE} was edited; {_mend(FILE)}.")
    for name in names:
        there = (directory / name).exists()
        if there != (name in digests):
            raise TracrlError(f"{directory / name} was {'added' if there else 'removed'} after the run; {_mend(name)}.")
        if there and _digest(directory / name) != digests[name]:
            raise TracrlError(
                f"{directory / name} is not what the run wrote: it was edited, cut off or made anew; {_mend(name)}."
            )


def _mend(name: str) -> str:
    if name in SCORES:
        return "the study's command scores the policies anew, and --skip-damaged leaves the run out"
    return "restore it, or remove the run and train it anew; --skip-damaged leaves it out"


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
