"""Single transitions drawn uniformly from chosen episodes, a set of its own for each run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.nets import random


class RowSampler:
    """Draws rows of the flat arrays.

    Kept are the chosen episodes' first rows and running lengths, not their rows: the table does not grow with the
    length of the episodes.
    """

    def __init__(
        self,
        data: Episodes,
        chosen: Sequence[NDArray[np.bool_]],
        device: torch.device,
        lengths: NDArray[np.int64] | None = None,
    ):
        """``chosen`` has one mask over the episodes for each run; ``lengths`` (episodes,) are the rows of each episode,
        counted from its start, that may be drawn: all of them where it is not given."""
        lengths = data.lengths if lengths is None else lengths
        picked = [np.flatnonzero(mask & (lengths > 0)) for mask in chosen]
        ends = [np.cumsum(lengths[episodes]) for episodes in picked]
        most = max(len(episodes) for episodes in picked)

        def stack(columns: Sequence[NDArray[np.int64]]) -> Tensor:
            filled = [np.pad(column, (0, most - len(column)), mode="edge") for column in columns]
            return torch.from_numpy(np.stack(filled)).to(device)

        self.ends = stack(ends)
        # Row k of the chosen rows, counted through, is row k + shift of the data.
        self.shift = stack([data.offsets[e] - (end - lengths[e]) for e, end in zip(picked, ends, strict=True)])
        self.totals = torch.tensor([int(end[-1]) for end in ends], device=device)

    def draw(self, key: Tensor, count: int) -> Tensor:
        """(R, count) rows."""
        return self.rows_at(random.below(key, self.totals, count))

    def pieces(self, run: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """On a CPU, of a run's chosen episodes: their ends, counted through, and what they are shifted by."""
        return self.ends[run].numpy(), self.shift[run].numpy()

    def rows_at(self, position: Tensor) -> Tensor:
        """The rows of these places (R, n) among the chosen ones, counted through."""
        return position + self.shift.gather(1, torch.searchsorted(self.ends, position, right=True))
