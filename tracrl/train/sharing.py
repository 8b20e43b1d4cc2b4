"""Which core makes which updates of a stack's parts, so that all of them are done at the same time.

Nine runs do not divide by two cores. All updates of all parts, laid end to end, are cut into pieces of equal length,
one for each core (McNaughton 1959). A part that is cut is begun by one core before anything else, and finished by the
core before it after everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Portion:
    """Some updates of one part."""

    part: int
    updates: int
    after_another: bool = False
    """whether another core makes earlier ones"""


def sizes_of_parts(runs: int, cores: int) -> list[int]:
    """One run each where there are no more than cores; else a part for each core, and what is left over by itself."""
    if runs <= cores:
        return [1] * runs
    each, more = divmod(runs, cores)
    return [each, *[1] * more, *[each] * (cores - 1)]


def shared_out(sizes: Sequence[int], workers: int, updates: int) -> list[list[Portion]]:
    """For each worker its portions, in order; an update of a part costs its size."""
    room = sum(sizes) * updates / workers
    shares: list[list[Portion]] = [[]]
    used = 0.0
    for part, size in enumerate(sizes):
        here = min(updates, max(0, round((room - used) / size)))
        if len(shares) == workers or here == updates:
            shares[-1].append(Portion(part, updates))
            used += size * updates
        else:
            if here:
                shares[-1].append(Portion(part, here, after_another=True))
            shares.append([Portion(part, updates - here)])
            used = size * (updates - here)
    return shares
