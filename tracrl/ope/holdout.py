"""Episodes that no policy is trained on, kept to estimate with."""

from __future__ import annotations

import numpy as np

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError


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
    return data.select(np.sort(order[count:])), data.select(np.sort(order[:count]))
