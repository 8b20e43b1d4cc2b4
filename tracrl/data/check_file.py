"""A whole file checked: what training refuses is an error, what is odd and yet no error is a finding each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike

from tracrl.data.checks import KNOWN
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import as_unicode, open_arrays, open_hdf5
from tracrl.data.learning import Finding, look_at
from tracrl.data.limits import default_limits
from tracrl.data.locate import load_dataset, locate
from tracrl.settings import check_limits


@dataclass(frozen=True)
class Checked:
    """Data that can be read, and what is odd about them."""

    episodes: Episodes
    limits: tuple[float, ...]
    """that were looked at"""
    findings: tuple[Finding, ...]


def check(
    source: str | Path,
    *,
    limits: Sequence[float] = (),
    task: str | None = None,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    clip_actions: bool = False,
    allow_external: bool = False,
) -> Checked:
    """What is odd about a data set and yet no error; whatever is an error is raised.

    ``limits`` are cost limits to look at; without any, the task's own, or such as divide the data.
    """
    path, _ = locate(source, task)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        episodes = load_dataset(
            source,
            task=task,
            action_low=action_low,
            action_high=action_high,
            clip_actions=clip_actions,
            allow_external=allow_external,
        )
    chosen = check_limits(limits) if limits else default_limits(episodes)
    said = [*(str(warning.message) for warning in caught), *_oddities(episodes, path, allow_external)]
    learning = [replace(finding, text=f"{path}: {finding.text}") for finding in look_at(episodes, chosen)]
    return Checked(episodes, chosen, (*map(Finding, said), *learning))


def _oddities(episodes: Episodes, path: Path, allow_external: bool) -> Iterator[str]:
    with open_hdf5(path) as file:
        arrays = open_arrays(file, path, allow_external)
        unused = sorted(as_unicode(key) for key in file if key not in KNOWN)
        actions = arrays["actions"][: episodes.rows].astype(np.float32)
        both = np.zeros(1, bool)
        if "terminals" in arrays and "timeouts" in arrays:
            # One of them may be a column and the other flat.
            terminals, timeouts = (arrays[key][...].reshape(-1).astype(bool) for key in ("terminals", "timeouts"))
            both = terminals & timeouts
        broken = _unchained(arrays["next_observations"], episodes) if "next_observations" in arrays else 0
    if broken:
        yield (
            f"{path}: in {broken} rows 'next_observations' differs from the observation of the next row; "
            "the next row's observation is used."
        )
    if unused:
        yield f"{path}: not used: {', '.join(unused)}."
    if moved := int((actions != episodes.actions).any(axis=1).sum()):
        beyond = float(np.abs(actions - episodes.actions).max())
        yield f"{path}: {moved} rows of 'actions' leave the box by up to {beyond:.3g} and are cut to it."
    if both.any():
        yield f"{path}: {int(both.sum())} rows have both 'terminals' and 'timeouts' and count as terminated."
    if episodes.final_observations is None:
        yield (
            f"{path}: there are neither 'next_observations' nor 'final_observations', so BCQ-Lag, BEAR-Lag "
            "and CPQ leave out the last step of each episode that time ended."
        )
    if not episodes.costs.any():
        yield f"{path}: no step costs anything, so every episode is safe at every limit."
    if episodes.known_task is None and episodes.task is not None:
        yield f"{path}: its task {episodes.task!r} is not one of the 38, so there are no normalised scores."


def _unchained(next_observations: h5py.Dataset, episodes: Episodes, rows: int = 65_536) -> int:
    """Rows inside episodes whose next observation is not the next row's, read block by block."""
    ends = np.zeros(episodes.rows, bool)
    ends[episodes.offsets[1:] - 1] = True
    broken = 0
    for start in range(0, episodes.rows - 1, rows):
        part = slice(start, min(start + rows, episodes.rows - 1))
        following = next_observations[part].astype(np.float32)
        differs = (following != episodes.observations[start + 1 : part.stop + 1]).any(axis=1)
        broken += int((differs & ~ends[part]).sum())
    return broken
