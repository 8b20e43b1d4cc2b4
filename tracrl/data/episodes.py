"""One container for logged episodes: flat arrays and the row at which each episode starts."""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracrl.data.checks import REQUIRED, check_action_box, check_arrays, check_continuous, check_sums
from tracrl.errors import TracrlError
from tracrl.tasks.table import Task, all_tasks

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Episodes:
    """Logged episodes in flat float32 arrays; episode ``e`` is rows ``offsets[e]:offsets[e + 1]``.

    Segments and batches are row numbers into these arrays and are never copied out of them ahead of use.
    """

    observations: Floats
    """(rows, observation size)"""
    actions: Floats
    """(rows, action size), in the units of the action box"""
    rewards: Floats
    """(rows,)"""
    costs: Floats
    """(rows,)"""
    offsets: NDArray[np.int64]
    """(episodes + 1,)"""
    terminated: NDArray[np.bool_]
    """(episodes,): True where the episode terminated, False where it was truncated"""
    final_observations: Floats | None = None
    """(episodes, observation size): what followed each last action, where the log has it"""
    action_low: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    action_high: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """task, source file, how it was made, and whatever else the file says"""

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, ArrayLike],
        *,
        where: str = "the data",
        action_low: ArrayLike | None = None,
        action_high: ArrayLike | None = None,
        clip_actions: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> Episodes:
        """Episodes from arrays under DSRL's names.

        ``observations, actions, rewards, costs`` and at least one of ``terminals`` and ``timeouts``;
        ``next_observations`` (every row) or ``final_observations`` (one per episode) are optional.
        Rows after the last end of an episode are left out with a warning.
        """
        checked = check_arrays({key: np.asarray(value) for key, value in arrays.items()}, where)
        none = np.zeros(len(checked["rewards"]), bool)
        terminals = checked.get("terminals", none).astype(bool)
        timeouts = checked.get("timeouts", none).astype(bool)
        ends = np.flatnonzero(terminals | timeouts)
        if len(ends) == 0:
            raise TracrlError(
                f"{where}: no row of 'terminals' or 'timeouts' is set, so no episode has an end: "
                "mark the last row of each episode."
            )
        rows = int(ends[-1]) + 1
        if tail := len(terminals) - rows:
            warnings.warn(
                f"{where}: the last {tail} rows belong to an episode without an end and are left out.",
                stacklevel=2,
            )
        offsets = np.concatenate([[0], ends + 1]).astype(np.int64)
        for key in ("rewards", "costs"):
            check_sums(key, checked[key], offsets, where)
        if action_low is None and action_high is None:
            check_continuous(checked["actions"][:rows], where)
        size = checked["actions"].shape[1]
        low = _box_end("action_low", -1.0 if action_low is None else action_low, size, where)
        high = _box_end("action_high", 1.0 if action_high is None else action_high, size, where)
        actions = check_action_box(_float32(checked["actions"][:rows]), low, high, clip_actions, where)
        observations = _float32(checked["observations"][:rows])
        return cls(
            observations=observations,
            actions=actions,
            rewards=_float32(checked["rewards"][:rows]),
            costs=_float32(checked["costs"][:rows]),
            offsets=offsets,
            terminated=terminals[ends],
            final_observations=_final_observations(checked, observations, ends, where),
            action_low=low,
            action_high=high,
            metadata=dict(metadata or {}),
        )

    @classmethod
    def from_episodes(cls, episodes: Iterable[Mapping[str, ArrayLike]], **options: Any) -> Episodes:
        """Episodes from one mapping of arrays each: ``observations`` (steps, or one more with what followed the last
        action), ``actions``, ``rewards``, ``costs``, and ``terminated`` (default False). Options as in from_arrays."""
        return cls.from_arrays(_one_after_another(episodes), **options)

    @classmethod
    def from_frame(
        cls, frame: Any, *, action_low: ArrayLike | None = None, action_high: ArrayLike | None = None, **columns: Any
    ) -> Episodes:
        """Episodes from a pandas or polars frame, or an Arrow table, with a row per step.

        Columns are guessed from their names, or told: ``episode="trip", observations=["obs_*"], cost="harm"`` …
        (:class:`tracrl.data.columns.ColumnChoice`).
        """
        from tracrl.data.columns import ColumnChoice
        from tracrl.data.tables import from_frame

        return from_frame(frame, ColumnChoice(**columns), action_low=action_low, action_high=action_high)

    @classmethod
    def from_minari(cls, source: str | Path, *, cost_key: str = "cost") -> Episodes:
        """Episodes of a Minari data set: its ID, or the folder that holds it."""
        from tracrl.data.minari import read_minari

        return read_minari(source, cost_key=cost_key)

    def save(self, path: str | Path, *, compact: bool = False) -> None:
        """Write DSRL's HDF5 layout, which every command reads."""
        from tracrl.data.hdf5 import write_hdf5

        write_hdf5(self, Path(path), compact=compact)

    def to_frame(self) -> Any:
        """A pandas frame with a row per step."""
        from tracrl.data.tables import to_arrow

        return to_arrow(self).to_pandas()

    def to_minari(self, dataset_id: str, *, cost_key: str = "cost", **about: Any) -> Any:
        """A local Minari data set of this name; ``about`` goes to Minari (author, description …)."""
        from tracrl.data.minari import write_minari

        return write_minari(self, dataset_id, cost_key=cost_key, **about)

    def __repr__(self) -> str:
        (low, high), (least, most) = ((v.min(), v.max()) for v in (self.returns, self.total_costs))
        return (
            f"<Episodes {self.name:.60}: {len(self):,} episodes, {self.rows:,} steps; observations of "
            f"{self.observation_size}, actions of {self.action_size}; returns {low:.4g} to {high:.4g}, costs "
            f"{least:.4g} to {most:.4g}>"
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[slice]:
        """The rows of each episode."""
        return (slice(int(a), int(b)) for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    @property
    def rows(self) -> int:
        """Transitions in all episodes together."""
        return int(self.offsets[-1])

    @property
    def observation_size(self) -> int:
        return int(self.observations.shape[1])

    @property
    def action_size(self) -> int:
        return int(self.actions.shape[1])

    @property
    def task(self) -> str | None:
        """The task's name, where the data are known to belong to one."""
        task = self.metadata.get("task")
        return task if isinstance(task, str) and task else None

    @property
    def known_task(self) -> Task | None:
        """The task, where it is one of the 38."""
        return all_tasks().get(self.task or "")

    @property
    def name(self) -> str:
        """What to call the data: their file, else their task, else what they were imported from."""
        imported = self.metadata.get("imported_from")
        first = imported[0] if isinstance(imported, list) and imported else "data"
        return str(self.metadata.get("file") or self.task or first)

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def max_steps(self) -> int:
        """T, the steps of an episode that nothing ends early: the task's, or the most there are in other data."""
        longest, task = int(self.lengths.max()), self.known_task
        return longest if task is None else max(longest, task.max_steps)

    @functools.cached_property
    def returns(self) -> NDArray[np.float64]:
        """R(τ), the sum of rewards of each episode."""
        return np.add.reduceat(self.rewards, self.offsets[:-1], dtype=np.float64)

    @functools.cached_property
    def total_costs(self) -> NDArray[np.float64]:
        """C(τ), the sum of costs of each episode."""
        return np.add.reduceat(self.costs, self.offsets[:-1], dtype=np.float64)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the contents: the same data give the same fingerprint wherever they lie."""
        digest = hashlib.blake2b(digest_size=16)
        arrays: list[NDArray[Any]] = [self.observations, self.actions, self.rewards, self.costs]
        arrays += [self.offsets, self.terminated]
        arrays += [self.action_low, self.action_high]
        arrays += [] if self.final_observations is None else [self.final_observations]
        for array in arrays:
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def scaled_actions(self) -> Floats:
        """Actions mapped from their box to [−1, 1]."""
        if np.all(self.action_low == -1) and np.all(self.action_high == 1):
            return self.actions
        span = self.action_high - self.action_low
        return ((self.actions - self.action_low) * (2 / span) - 1).astype(np.float32)

    def select(self, episodes: Sequence[int] | NDArray[Any]) -> Episodes:
        """These episodes, in this order, as data of their own."""
        # Through the list of all numbers, so that a mask and counting from the end work as everywhere.
        chosen = np.asarray(episodes)
        picked = np.arange(len(self))[chosen if chosen.size else []]
        if len(picked) == 0:
            raise TracrlError("No episode is left in the selection; at least one is needed.")
        lengths = self.lengths[picked]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        # Row k of the selection is the k-th row counted through the picked episodes.
        rows = np.repeat(self.offsets[picked] - offsets[:-1], lengths) + np.arange(offsets[-1])
        final = self.final_observations
        return replace(
            self,
            observations=self.observations[rows],
            actions=self.actions[rows],
            rewards=self.rewards[rows],
            costs=self.costs[rows],
            offsets=offsets,
            terminated=self.terminated[picked],
            final_observations=None if final is None else final[picked],
        )

    def next_observations(self) -> Floats:
        """(rows, observation size): the observation after each row."""
        if self.final_observations is None:
            raise TracrlError(
                "What followed each episode's last action is not known: the data have neither 'next_observations' "
                "nor 'final_observations': add one of them to the file."
            )
        following = np.empty_like(self.observations)
        following[:-1] = self.observations[1:]
        following[self.offsets[1:] - 1] = self.final_observations
        return following


def _one_after_another(episodes: Iterable[Mapping[str, ArrayLike]]) -> dict[str, NDArray[Any]]:
    """Arrays under DSRL's names from single episodes."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for number, episode in enumerate(episodes):
        if missing := [key for key in REQUIRED if key not in episode]:
            raise TracrlError(f"Episode {number} has no {missing[0]!r} (found {', '.join(map(str, episode))}).")
        arrays = {key: np.asarray(episode[key]) for key in REQUIRED}
        steps = len(np.atleast_1d(arrays["rewards"]))
        if len(arrays["observations"]) == steps + 1:
            parts.setdefault("final_observations", []).append(arrays["observations"][-1:])
            arrays["observations"] = arrays["observations"][:-1]
        for key, array in arrays.items():
            if array.ndim == 0 or len(array) != steps:
                raise TracrlError(f"Episode {number}: {key!r} has shape {array.shape} for {steps} rewards.")
            parts.setdefault(key, []).append(array)
        ended = bool(episode.get("terminated", False))
        for key, at_end in (("terminals", ended), ("timeouts", not ended)):
            parts.setdefault(key, []).append(np.arange(steps) == (steps - 1 if at_end else -1))
    if not parts:
        raise TracrlError("There are no episodes; at least one is needed.")
    if "final_observations" in parts and len(parts["final_observations"]) != len(parts["rewards"]):
        raise TracrlError(
            "Some episodes have an observation after their last action and some have none; expected all or none."
        )
    return {key: np.concatenate(values) for key, values in parts.items()}


def _float32(array: NDArray[Any]) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float32)


def _box_end(name: str, value: ArrayLike, size: int, where: str) -> Floats:
    """One number for every action, or one each."""
    try:
        return np.broadcast_to(np.asarray(value, np.float32), size).copy()
    except (TypeError, ValueError) as error:
        raise TracrlError(
            f"{where}: {name} is {value!r}; expected one number, or {size} as there are {size} actions."
        ) from error


def _final_observations(
    arrays: Mapping[str, NDArray[Any]], observations: Floats, ends: NDArray[np.int64], where: str
) -> Floats | None:
    if "final_observations" in arrays:
        final = arrays["final_observations"]
        if final.shape != (len(ends), observations.shape[1]):
            raise TracrlError(
                f"{where}: 'final_observations' has shape {final.shape}; expected one row per episode, "
                f"{(len(ends), observations.shape[1])}."
            )
        return _float32(final)
    if "next_observations" not in arrays:
        return None
    following = arrays["next_observations"]
    inside = np.ones(len(observations) - 1, bool)
    inside[ends[:-1]] = False
    broken = inside & (following[: len(observations) - 1].astype(np.float32) != observations[1:]).any(axis=1)
    if broken.any():
        warnings.warn(
            f"{where}: in {int(broken.sum())} rows 'next_observations' differs from the observation of the "
            "next row; the next row's observation is used.",
            stacklevel=3,
        )
    return _float32(following[ends])
