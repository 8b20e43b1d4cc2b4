"""What a learner would make of episodes that are otherwise in order: scales, columns that never change, a box that is
hardly used, short episodes whose limit is too generous, copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracrl.data.episodes import Episodes
from tracrl.data.partition import is_safe
from tracrl.data.units import moments

FAR_APART = 100.0
"""the largest column over the smallest, from which their scales are called different"""
SMALL = 0.15
"""the share of the action box from which it counts as used"""
SHORT = 0.5
"""an episode is cut short where it was truncated before this share of the longest's steps"""
ALIKE = 0.01
"""two episodes are copies where no number differs by more than this share of its column's deviation"""
MANY_COPIES = 0.05
"""the share of copies that is a warning"""
_NEIGHBOURS = 32


@dataclass(frozen=True)
class Finding:
    """Something about data that whoever trains on them should know."""

    text: str
    warning: bool = False
    """the result may be wrong for it; else it is a note"""


def look_at(episodes: Episodes, limits: Sequence[float]) -> Iterator[Finding]:
    """Everything that is odd to a learner, at these limits."""
    if episodes.known_task is None:  # the benchmark's columns are as they are
        yield from _scales(episodes)
        yield from _constant_columns(episodes)
    yield from small_actions(episodes)
    yield from _cut_short(episodes, limits)
    yield from _copies(episodes)


def _scales(episodes: Episodes) -> Iterator[Finding]:
    _, deviation, size = moments(episodes.observations)
    varies = np.flatnonzero(deviation > 0)
    if len(varies) == 0:
        return
    large, small = (int(varies[pick(size[varies])]) for pick in (np.argmax, np.argmin))
    if size[large] >= FAR_APART * size[small]:
        yield Finding(
            f"the columns of 'observations' are on very different scales: {_column(episodes, large)} is of size "
            f"{size[large]:.3g}, {_column(episodes, small)} of {size[small]:.3g}. Training standardises own data by "
            "itself (--standardise auto); with --standardise off the small ones are lost."
        )


def _constant_columns(episodes: Episodes) -> Iterator[Finding]:
    for key, numbers in (("observations", episodes.observations), ("actions", episodes.actions)):
        low, high = numbers.min(axis=0), numbers.max(axis=0)
        constant = np.flatnonzero(low == high).tolist()
        if not constant:
            continue
        named = ", ".join(f"{_column(episodes, i, key)} is {low[i] + 0.0:g}" for i in constant[:4])
        named += f" and {len(constant) - 4} more" if len(constant) > 4 else ""
        if key == "actions":
            yield Finding(f"the same in every row of 'actions': {named}. The policy will do just that.")
        else:
            yield Finding(
                f"the same in every row of 'observations': {named}. Nothing can be learnt from it, and training makes "
                "it 0 (--standardise auto); where it changes while the policy acts, the policy meets what it has never "
                "seen: leave it out if you can."
            )


def small_actions(episodes: Episodes) -> Iterator[Finding]:
    """Actions that fill hardly any of their box: what is learned is as coarse as the box is large."""
    actions, width = episodes.actions, episodes.action_high - episodes.action_low
    low, high = np.quantile(actions[:: 1 + len(actions) // 100_000], (0.005, 0.995), axis=0)
    share = (high - low) / width
    small = np.flatnonzero((share < SMALL) & (np.ptp(actions, axis=0) > 0))
    if len(small) == 0:
        return
    named = ", ".join(f"{_column(episodes, int(i), 'actions')} {share[i]:.1%}" for i in small[:4])
    named += f" and {len(small) - 4} more" if len(small) > 4 else ""
    lowest, highest = float(actions.min()), float(actions.max())
    if highest - lowest < 2 * SMALL * width.min():  # the same ends would do for every number of an action
        unit = 10.0 ** np.floor(np.log10(highest - lowest) - 3)  # what is cut off by that is clipped silently
        box = f"--action-low {round(lowest / unit) * unit:.6g} --action-high {round(highest / unit) * unit:.6g}"
    else:
        box = "action_low and action_high of tracrl.load_dataset, or in the file's attributes"
    yield Finding(
        f"the logged actions use hardly any of their box: {named} of its width. Methods learn in units of the box, so "
        f"that an error that is small for it is large for these actions: give the box that is really used ({box}).",
        warning=True,
    )


def _cut_short(episodes: Episodes, limits: Sequence[float]) -> Iterator[Finding]:
    """Truncated long before the end, an episode has had no time to break the limit."""
    longest, costs = int(episodes.lengths.max()), episodes.total_costs
    short = ~episodes.terminated & (episodes.lengths < SHORT * longest)
    by_the_end = costs / episodes.lengths * longest
    generous = {
        limit: int((short & is_safe(costs, limit) & ~is_safe(by_the_end, limit)).sum()) for limit in limits if limit > 0
    }
    if not any(generous.values()):
        return
    counted = ", ".join(f"{count} at limit {limit:g}" for limit, count in generous.items() if count)
    yield Finding(
        f"{int(short.sum())} of {len(episodes)} episodes were cut short: truncated, without a terminal, after fewer "
        f"than half of the longest's {longest} steps. Their cost is held against the whole limit, which is too "
        f"generous for those that count as safe and at their pace would have broken it by step {longest} ({counted}): "
        "leave them out, set 'terminals' where an end was real, or judge segments by their share of the limit (--ratio "
        "0.5 --short-episodes drop).",
        warning=True,
    )


def _copies(episodes: Episodes) -> Iterator[Finding]:
    original = originals(episodes)
    copied = np.flatnonzero(original != np.arange(len(episodes)))
    if len(copied) == 0:
        return
    most, times = max(zip(*np.unique(original[copied], return_counts=True), strict=True), key=lambda pair: pair[1])
    yield Finding(
        f"{len(copied)} of {len(episodes)} episodes are copies of others, exactly or nearly (nothing differs by more "
        f"than a hundredth of its column's deviation); of episode {most} alone there are {times}. A copy counts as an "
        "episode of its own, and one held back to judge by has been seen: leave copies out unless they are meant.",
        warning=len(copied) >= MANY_COPIES * len(episodes),
    )


def originals(episodes: Episodes) -> NDArray[np.int64]:
    """(episodes,): the episode that each is a copy of, or itself."""
    count, lengths = len(episodes), episodes.lengths
    scales = [np.where(d > 0, d, 1.0) for d in (moments(a)[1] for a in (episodes.observations, episodes.actions))]

    def scaled(rows: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        return np.concatenate([episodes.observations[rows] / scales[0], episodes.actions[rows] / scales[1]], axis=1)

    # Copies have nearly the same mean, so that along a line through the means they are near neighbours.
    means = [
        np.add.reduceat(array, episodes.offsets[:-1], axis=0, dtype=np.float64) / lengths[:, None] / scale
        for array, scale in zip((episodes.observations, episodes.actions), scales, strict=True)
    ]
    features = np.concatenate(means, axis=1)
    direction = np.random.default_rng(0).normal(size=features.shape[1])
    along = features @ direction
    window = ALIKE * np.abs(direction).sum()
    first, last = scaled(episodes.offsets[:-1]), scaled(episodes.offsets[1:] - 1)
    order = np.lexsort((np.arange(count), along, lengths))
    original = np.arange(count)
    for apart in range(1, min(_NEIGHBOURS, count)):
        one, other = order[:-apart], order[apart:]
        near = (lengths[one] == lengths[other]) & (along[other] - along[one] <= window)
        if not near.any():
            break
        one, other = one[near], other[near]
        near = (np.abs(first[one] - first[other]) <= ALIKE).all(axis=1)
        near &= (np.abs(last[one] - last[other]) <= ALIKE).all(axis=1)
        for a, b in zip(one[near].tolist(), other[near].tolist(), strict=True):
            if original[a] == original[b] or original[b] != b:
                continue
            rows_a, rows_b = (slice(int(episodes.offsets[e]), int(episodes.offsets[e + 1])) for e in (a, b))
            if (np.abs(scaled(rows_a) - scaled(rows_b)) <= ALIKE).all():
                original[b] = original[a]
    while (further := original[original] != original).any():
        original[further] = original[original[further]]
    lowest = np.arange(count)
    np.minimum.at(lowest, original, np.arange(count))
    return lowest[original]


def _column(episodes: Episodes, index: int, key: str = "observations") -> str:
    names = episodes.metadata.get(f"{key}_columns")
    if isinstance(names, list) and index < len(names):
        return f"column {index} ({names[index]})"
    return f"column {index}"
