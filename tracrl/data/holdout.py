"""Episodes that no policy is trained on, kept to estimate with."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError


@dataclass(frozen=True)
class Holdout:
    """How data were parted. Both parts carry it as ``holdout`` in their metadata, and a run in its config.json."""

    share: float
    seed: int
    episodes: int
    """held out"""
    whole: str
    """fingerprint of all of the data"""
    trained: str
    """and of the part to train on"""
    held_out: str

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Holdout | None:
        """What metadata or a config.json say; none where they say nothing, or nothing that makes sense."""
        with contextlib.suppress(KeyError, TypeError, ValueError):
            value = metadata["holdout"]
            words = (str(value[key]) for key in ("whole", "trained", "held_out"))
            return cls(float(value["share"]), int(value["seed"]), int(value["episodes"]), *words)
        return None


def split(data: Episodes, share: float, seed: int = 0) -> tuple[Episodes, Episodes]:
    """(to train on, held out): whole episodes, chosen by the seed alone, each part in the order of the log."""
    if not 0 < share < 1:
        raise TracrlError(f"--holdout is {share!r}; expected a share of the episodes above 0 and below 1, such as 0.1.")
    count = round(share * len(data))
    if not 0 < count < len(data):
        raise TracrlError(
            f"--holdout {share:g} of {len(data)} episodes leaves a part without any: give another share, or more data."
        )
    order = np.random.default_rng(seed).permutation(len(data))
    rest, held = data.select(np.sort(order[count:])), data.select(np.sort(order[:count]))
    about = asdict(Holdout(share, seed, count, data.fingerprint, rest.fingerprint, held.fingerprint))
    metadata = {**data.metadata, "holdout": about}
    return replace(rest, metadata=metadata), replace(held, metadata=metadata)
