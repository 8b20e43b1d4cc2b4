"""Opinions on policies in a file, so that another way to weigh them needs no other measurement."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from tracrl.errors import TracrlError
from tracrl.ope.weighing import Opinions

NAMES = tuple(f.name for f in fields(Opinions))


def keep_opinions(found: Opinions, file: Path, **facts: Any) -> None:
    """With these facts beside them."""
    aside = file.with_suffix(".part.npz")
    arrays = {name: np.asarray(getattr(found, name), np.float32) for name in NAMES}
    np.savez_compressed(aside, **arrays, **facts)
    aside.rename(file)


def kept_opinions(file: Path) -> Opinions:
    with np.load(file) as saved:
        if lacking := [name for name in NAMES if name not in saved]:
            raise TracrlError(f"{file} lacks {', '.join(lacking)}, which opinions have by now: estimate anew.")
        own = {name: saved[name].astype(np.float64) for name in NAMES}
    if own["ood_shares"].ndim != 2:
        raise TracrlError(f"{file} has shares out of the data of one kind of members, not of each: estimate anew.")
    return Opinions(**{**own, "most_cost": float(own["most_cost"])})
