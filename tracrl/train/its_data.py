"""The data of a run, found again: those that it was trained on, and those that were held out of its training."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracrl.data.episodes import Episodes
from tracrl.data.holdout import Holdout, split
from tracrl.data.locate import load_dataset
from tracrl.errors import TracrlError

_NEAR = 3
"""folders above a run directory in which its data are looked for"""


def find_data(path: Path, config: Mapping[str, Any]) -> Episodes | None:
    """All episodes of the file that a run was trained on, by its fingerprint: in the current folder, in those above
    the run, or where a task's data lie; None where it is in none of them."""
    file, task = config["data_source"].get("file"), config["task"]
    sources: list[str | Path] = []
    if isinstance(file, str) and Path(file).name == file:
        sources += [folder / file for folder in (Path(), *path.resolve().parents[:_NEAR]) if (folder / file).is_file()]
    sources += [task] if isinstance(task, str) else []
    for source in sources:
        with contextlib.suppress(TracrlError, OSError):
            data = load_dataset(source)
            if data.fingerprint in trained_on(config):
                return data
    return None


def trained_on(config: Mapping[str, Any]) -> list[str]:
    """Fingerprints of the data that a run was trained on: of its part of them, and of all of them."""
    holdout = Holdout.of(config)
    return [str(config["data"].get("fingerprint")), *([] if holdout is None else [holdout.whole])]


def held_out(data: Episodes, configs: Sequence[Mapping[str, Any]]) -> Episodes | None:
    """Of these data the episodes that none of the runs was trained on; None where they did not all hold out the same
    ones of them."""
    found = {Holdout.of(config) for config in configs}
    common = found.pop() if len(found) == 1 else None
    if common is None or data.fingerprint != common.whole:
        return None
    rest, held = split(data, common.share, common.seed)
    return held if rest.fingerprint == common.trained else None
