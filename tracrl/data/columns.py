"""Which column of a table is what: as told, else guessed from the names that people use."""

from __future__ import annotations

import fnmatch
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields

from tracrl.errors import TracrlError

MOST_LISTED = 30
"""names in a message"""
# What people call them, best first; compared in lower case.
_NAMES: dict[str, tuple[str, ...]] = {
    "episode": (
        "episode",
        "episode_id",
        "episode_index",
        "ep",
        "trajectory",
        "trajectory_id",
        "traj",
        "traj_id",
        "run",
    ),
    "step": ("step", "timestep", "time_step", "step_index", "t", "timestamp", "time", "date", "datetime"),
    "reward": ("reward", "rewards", "r"),
    "cost": ("cost", "costs", "c"),
    "terminated": ("terminated", "terminal", "terminals", "termination", "terminations"),
    "truncated": ("truncated", "timeout", "timeouts", "truncation", "truncations"),
}
# A column of observations is called so, or so and then a number or a name of its own.
_PREFIXES: dict[str, tuple[str, ...]] = {
    "observations": ("observations", "observation", "obs", "states", "state", "s"),
    "actions": ("actions", "action", "act", "a"),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states", "next_state"),
}


@dataclass(frozen=True)
class Columns:
    """The columns of a table that holds a step per row."""

    observations: tuple[str, ...]
    actions: tuple[str, ...]
    reward: str
    cost: str
    episode: str | None = None
    step: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    next_observations: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        """Every column that is read, each once."""
        names = [getattr(self, field.name) for field in fields(self)]
        flat = [name for entry in names for name in ((entry,) if isinstance(entry, str) else entry or ())]
        return list(dict.fromkeys(flat))

    @property
    def numbers(self) -> list[str]:
        """Those that hold numbers, whatever else."""
        return [*self.observations, *self.actions, self.reward, self.cost, *self.next_observations]

    def __str__(self) -> str:
        def shown(value: str | tuple[str, ...] | None) -> str:
            if isinstance(value, tuple) and len(value) > 4:
                return f"{value[0]}, {value[1]} … {value[-1]} ({len(value)} columns)"
            return ", ".join(value) if isinstance(value, tuple) else str(value)

        chosen = ((field.name, getattr(self, field.name)) for field in fields(self))
        return "\n".join(f"{name:<18}{shown(value)}" for name, value in chosen if value)


@dataclass(frozen=True, kw_only=True)
class ColumnChoice:
    """What the user says of the columns; what is not said is guessed. Patterns may hold ``*`` and ``?``."""

    observations: Sequence[str] = ()
    actions: Sequence[str] = ()
    reward: str | None = None
    cost: str | None = None
    episode: str | None = None
    step: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    next_observations: Sequence[str] = ()

    def among(self, found: Sequence[str], where: str) -> Columns:
        """The columns of a table whose columns have these names."""
        taken: list[str] = []

        def one(kind: str, needed: bool = False) -> str | None:
            given = getattr(self, kind)
            if given is not None and not isinstance(given, str):
                raise TracrlError(f"{where}: one {kind} is supported, not {given!r}: add the columns, or choose one.")
            name = _named(given, kind, found, where) if given is not None else _guessed(kind, found, taken)
            if name is None and needed:
                hint = _hint(kind, found)
                raise TracrlError(
                    f"{where}: no column is called {kind} or like it{hint}: say which with --{kind} "
                    f"(found {_listed(found)})."
                )
            taken.extend([name] if name is not None else [])
            return name

        def many(kind: str, needed: bool = False) -> tuple[str, ...]:
            given = getattr(self, kind)
            names = _matching(given, kind, found, where) if given else _prefixed(kind, found, taken)
            if not names and needed:
                raise TracrlError(
                    f"{where}: no column is called {kind} or like it: say which with --{kind} 'NAME_*' "
                    f"(found {_listed(found)})."
                )
            taken.extend(names)
            return names

        # The single ones first: what is told or named plainly is no observation.
        single = {kind: one(kind, needed=kind in ("reward", "cost")) for kind in _NAMES}
        following = many("next_observations")
        columns = Columns(
            observations=many("observations", needed=True),
            actions=many("actions", needed=True),
            next_observations=following,
            **single,  # type: ignore[arg-type]
        )
        if self.cost is None and (others := [name for name in _costs(found) if name not in columns.all]):
            warnings.warn(
                f"{where}: {columns.cost!r} is taken as the cost, and {_listed(others)} not: one cost is supported; if "
                f"{columns.cost!r} is not what you mean, add them up, or choose with --cost.",
                stacklevel=2,
            )
        if twice := [name for name in columns.all if _uses(columns, name) > 1]:
            raise TracrlError(f"{where}: the column {twice[0]!r} is chosen for two things; name each column once.")
        return columns


def _uses(columns: Columns, name: str) -> int:
    values = [getattr(columns, field.name) for field in fields(columns)]
    return sum(value == name or (isinstance(value, tuple) and name in value) for value in values)


def _named(given: str, kind: str, found: Sequence[str], where: str) -> str:
    if given in found:
        return given
    raise TracrlError(f"{where}: --{kind} is {given!r}, but there is no such column (found {_listed(found)}).")


def _matching(patterns: Sequence[str], kind: str, found: Sequence[str], where: str) -> tuple[str, ...]:
    names: list[str] = []
    for pattern in patterns:
        matches = [pattern] if pattern in found else [name for name in found if fnmatch.fnmatchcase(name, pattern)]
        if not matches:
            option = "--" + kind.replace("_", "-")
            raise TracrlError(f"{where}: {option} {pattern!r} matches no column (found {_listed(found)}).")
        names += [name for name in _in_order(matches) if name not in names]
    return tuple(names)


def _guessed(kind: str, found: Sequence[str], taken: Sequence[str]) -> str | None:
    by_lower = {name.lower(): name for name in reversed(found) if name not in taken}
    return next((by_lower[name] for name in _NAMES[kind] if name in by_lower), None)


def _prefixed(kind: str, found: Sequence[str], taken: Sequence[str]) -> tuple[str, ...]:
    """The columns of the first prefix that any column has: obs_0, obs[1], obs.speed, obs2, or obs alone."""
    for prefix in _PREFIXES[kind]:
        pattern = re.compile(rf"{prefix}([_.\[:/ -].*|\d+)?", re.IGNORECASE)
        names = [name for name in found if name not in taken and pattern.fullmatch(name)]
        if names:
            return tuple(_in_order(names))
    return ()


def _in_order(names: Sequence[str]) -> list[str]:
    """obs_2 before obs_10 where every name ends in a number; else as in the table."""
    numbers = [re.fullmatch(r"(.*?)(\d+)\D*", name) for name in names]
    if all(numbers) and len({match.group(1) for match in numbers if match}) == 1:
        return [name for _, name in sorted((int(match.group(2)), name) for match, name in zip(numbers, names) if match)]  # noqa: B905
    return list(names)


def _hint(kind: str, found: Sequence[str]) -> str:
    several = _costs(found)
    if kind == "cost" and len(several) > 1:
        return f", but there are several costs ({_listed(several)}): one cost is supported: add them up, or choose"
    return ""


def _costs(found: Sequence[str]) -> list[str]:
    """Columns whose names begin as a cost's does: cost_speed, cost[1]."""
    return [name for name in found if re.fullmatch(r"costs?[_.\[:/ -]?\w+\]?", name, re.IGNORECASE)]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(str, names[:MOST_LISTED]))
    return f"{shown} and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else shown or "no columns at all"
