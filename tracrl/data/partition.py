"""Phase 1 of TraC: which segments of which episodes are desirable, and which undesirable.

A segment is a pair (first row, length) into the flat arrays of :class:`~tracrl.data.episodes.Episodes`; its
return and cost come from running sums, so drawing and labelling a million segments copies no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError

Labelling = Literal["segments", "episodes"]
Normaliser = Literal["safe", "all"]
ShortEpisodes = Literal["mask", "drop"]

MOST_SEGMENTS = 1_000_000
STEPS_PER_DRAW = 6  # an episode of T steps gives ⌊(T − L) / 6⌋ segments of L steps


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments of at most ``horizon`` steps."""

    first: NDArray[np.int64]
    """(segments,): the first row of each"""
    length: NDArray[np.int64]
    """(segments,): steps of each; below the horizon only where the whole episode is"""
    episode: NDArray[np.int64]
    """(segments,): the episode each was cut from"""
    horizon: int
    """L, the steps of a full segment"""
    share: float
    """L / T, the share of the cost limit that a segment may spend"""


@dataclass(frozen=True, eq=False)
class Partition:
    """Segments in the order desirable, undesirable although safe, unsafe, left out."""

    segments: Segments
    limit: float
    """κ"""
    scaled_return: NDArray[np.float64]
    """(segments,): v̂, the return on a scale from 0 to 1"""
    desirable: int
    """N_d: the first so many segments have label 1"""
    undesirable: int
    """N_u: the next so many have label 0"""
    poor: int
    """how many of these are safe: they come first"""
    safe: int
    """how many segments keep within their share of the limit"""

    @property
    def labels(self) -> NDArray[np.int8]:
        """1 desirable, 0 undesirable, −1 left out."""
        labels = np.full(len(self.scaled_return), -1, np.int8)
        labels[: self.desirable] = 1
        labels[self.desirable : self.desirable + self.undesirable] = 0
        return labels

    @property
    def scaled_returns(self) -> Sequence[NDArray[np.float64]]:
        """v̂ of the desirable, of the undesirable although safe, of the unsafe, and of what is left out."""
        poor_end = self.desirable + self.poor
        return np.split(self.scaled_return, [self.desirable, poor_end, self.desirable + self.undesirable])


def is_safe(cost: NDArray[np.float64], limit: float) -> NDArray[np.bool_]:
    """Which costs keep to the limit, in any units. One that equals it does, whatever rounding made of its terms."""
    return cost <= limit + 1e-6 * abs(limit)


def split(
    value: NDArray[np.float64], safe: NDArray[np.bool_], x: float, y: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the desirable, the left out, the undesirable although safe, and the unsafe.

    Where ``x`` and ``y`` overlap, the desirable come first; of any safe ones, at least one is desirable.
    """
    # From the best return to the worst; ties keep their order in the data.
    ranked = np.flatnonzero(safe)[np.argsort(-value[safe], kind="stable")]
    top = min(len(ranked), max(1, round(x / 100 * len(ranked))))
    bottom = min(round(y / 100 * len(ranked)), len(ranked) - top)
    rest = len(ranked) - bottom
    return ranked[:top], ranked[top:rest], ranked[rest:], np.flatnonzero(~safe)


def cut_segments(
    data: Episodes, ratio: float, short_episodes: ShortEpisodes, generator: np.random.Generator
) -> Segments:
    """Segments of ``L = round(ratio · T)`` steps, ``T`` the longest episode.

    ``ratio = 1``: each episode once. Below 1: drawn uniformly over episodes, then over starts. Episodes
    shorter than ``L`` enter whole (``"mask"``) or not at all (``"drop"``).
    """
    if not 0 < ratio <= 1:
        raise TracrlError(f"The segment ratio is {ratio:g}; expected more than 0 and at most 1 (whole episodes).")
    longest = int(data.lengths.max())
    horizon = max(1, round(ratio * longest))
    pool = np.arange(len(data)) if short_episodes == "mask" else np.flatnonzero(data.lengths >= horizon)
    if horizon == longest:
        episode = pool
        start = np.zeros(len(pool), np.int64)
    else:
        draws = min(len(pool) * max(1, (longest - horizon) // STEPS_PER_DRAW), MOST_SEGMENTS)
        episode = pool[generator.integers(len(pool), size=draws)]
        start = generator.integers(np.maximum(data.lengths[episode] - horizon, 0) + 1)
    return Segments(
        first=data.offsets[episode] + start,
        length=np.minimum(data.lengths[episode], horizon),
        episode=episode,
        horizon=horizon,
        share=horizon / longest,
    )


def partition(
    data: Episodes,
    segments: Segments,
    limit: float,
    *,
    x: float,
    y: float,
    labelling: Labelling = "segments",
    normaliser: Normaliser = "safe",
) -> Partition:
    """The top ``x`` % of the safe segments by return are desirable, the bottom ``y`` % and the unsafe not.

    ``labelling="segments"`` judges each segment by its own cost against its share of the limit;
    ``"episodes"`` judges whole episodes, and their segments inherit the verdict.
    """
    return partitions(data, segments, [limit], x=x, y=y, labelling=labelling, normaliser=normaliser)[0]


def partitions(
    data: Episodes,
    segments: Segments,
    limits: Sequence[float],
    *,
    x: float,
    y: float,
    most: float = 100.0,
    labelling: Labelling = "segments",
    normaliser: Normaliser = "safe",
) -> list[Partition]:
    """The same segments at several limits: their sums are taken once.

    No more than ``most`` % of all segments are desirable: where many are safe, ``x`` is the lower.
    """
    if labelling == "segments":
        cost, value = _sums(data, data.costs, segments), _sums(data, data.rewards, segments)
    else:
        cost, value = data.total_costs[segments.episode], data.returns[segments.episode]
    return [_partition(data, segments, limit, cost, value, x, y, most, labelling, normaliser) for limit in limits]


def _partition(
    data: Episodes,
    segments: Segments,
    limit: float,
    cost: NDArray[np.float64],
    value: NDArray[np.float64],
    x: float,
    y: float,
    most: float,
    labelling: Labelling,
    normaliser: Normaliser,
) -> Partition:
    safe = is_safe(cost, limit * segments.share if labelling == "segments" else limit)
    kind, judged, place, bound = "episode", data.total_costs[segments.episode], "in the data", f"cost limit {limit:g}"
    if labelling == "segments" and segments.share < 1:
        kind, judged, place = "segment", cost, "of a segment"
        bound += f", of which {segments.horizon} steps may spend {limit * segments.share:g}"
    if not safe.any():
        raise TracrlError(
            f"No {kind} is safe at {bound}: the lowest cost {place} is {judged.min():g}; raise the limit or add safe "
            "episodes."
        )
    desirable, middle, poor, unsafe = split(value, safe, min(x, most * len(safe) / safe.sum()), y)
    if len(unsafe) + len(poor) == 0:
        raise TracrlError(
            f"Every {kind} is safe at {bound} (the highest cost {place} is {judged.max():g}), so there is nothing "
            f"undesirable to learn from: lower the limit, or call the poorest safe {kind}s undesirable with "
            "--x 50 --y 50."
        )
    within = value[safe] if normaliser == "safe" else value
    low, high = within.min(), within.max()
    scaled = np.clip((value - low) / max(high - low, 1e-12), 0, 1)
    order = np.concatenate([desirable, poor, unsafe, middle])
    return Partition(
        segments=Segments(
            first=segments.first[order],
            length=segments.length[order],
            episode=segments.episode[order],
            horizon=segments.horizon,
            share=segments.share,
        ),
        limit=limit,
        scaled_return=scaled[order],
        desirable=len(desirable),
        undesirable=len(poor) + len(unsafe),
        poor=len(poor),
        safe=int(safe.sum()),
    )


def _sums(data: Episodes, steps: NDArray[np.float32], segments: Segments) -> NDArray[np.float64]:
    """Each segment's sum, as a difference of running sums that begin anew in each episode: over the whole file one
    huge number would swallow the digits of all that come after it."""
    running = np.zeros(data.rows + len(data))  # one 0 before each episode's first step
    for number, rows in enumerate(data):
        np.cumsum(steps[rows], dtype=np.float64, out=running[rows.start + number + 1 : rows.stop + number + 1])
    before = segments.first + segments.episode
    sums: NDArray[np.float64] = running[before + segments.length] - running[before]
    return sums
