"""Minari data sets, read and written with Minari's own library. The cost of a step is an entry of its ``infos``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracrl.data.checks import IMAGES_ARE_NOT, check_no_pixels
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError

PREFIX = "minari:"


def read_minari(source: str | Path, *, cost_key: str = "cost") -> Episodes:
    """The episodes of a local data set: ``minari:ID``, an ID, or the path of its folder."""
    minari = _library()
    name = str(source).removeprefix(PREFIX)
    try:
        path = Path(name)
        data = minari.MinariDataset(path / "data" if (path / "data").is_dir() else path) if path.is_dir() else None
        data = minari.load_dataset(name) if data is None else data
    except (FileNotFoundError, ValueError, KeyError, OSError) as error:
        raise TracrlError(
            f"There is no Minari data set {name!r} on this machine ({_first_line(error)}): "
            f"get it with `minari download {name}`, or give the folder that holds its data."
        ) from error
    where = f"Minari data set {name}"
    _check_no_images(data.observation_space, where)
    space = data.action_space
    if type(space).__name__ != "Box":
        raise TracrlError(f"{where}: its actions are {space}; discrete actions are not supported, only boxes are.")
    return _joined([_episode(one, data, cost_key, where) for one in data.iterate_episodes()], space, name, where)


def write_minari(episodes: Episodes, dataset_id: str, *, cost_key: str = "cost", **about: Any) -> Any:
    """Make a local Minari data set of these episodes; ``about`` goes to Minari (author, description, …)."""
    minari = _library()
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

    if episodes.final_observations is None:
        raise TracrlError(
            "Minari keeps what followed each episode's last action, which these data do not have: import them with "
            "their next observations."
        )
    buffers = []
    for i, rows in enumerate(episodes):
        length = rows.stop - rows.start
        ends = np.zeros((2, length), bool)
        ends[0 if episodes.terminated[i] else 1, -1] = True
        buffers.append(
            EpisodeBuffer(
                id=i,
                observations=np.concatenate([episodes.observations[rows], episodes.final_observations[i : i + 1]]),
                actions=episodes.actions[rows],
                rewards=episodes.rewards[rows],
                terminations=ends[0],
                truncations=ends[1],
                infos={cost_key: np.concatenate([np.zeros(1, np.float32), episodes.costs[rows]])},
            )
        )
    size = episodes.observation_size
    return minari.create_dataset_from_buffers(
        dataset_id,
        buffers,
        observation_space=Box(-np.inf, np.inf, (size,), np.float32),
        action_space=Box(episodes.action_low, episodes.action_high, dtype=np.float32),
        **about,
    )


def _episode(episode: Any, data: Any, cost_key: str, where: str) -> dict[str, NDArray[Any]]:
    from gymnasium.spaces import flatten

    steps = len(episode.rewards)
    here = f"{where}: episode {episode.id}"
    space = data.observation_space
    observations = episode.observations
    if type(space).__name__ != "Box":
        observations = np.stack([np.asarray(flatten(space, _row(observations, i))) for i in range(steps + 1)])
    observations = np.asarray(observations).reshape(len(observations), -1)
    if len(observations) != steps + 1:
        raise TracrlError(f"{here} has {len(observations)} observations for {steps} steps; expected one more.")
    return {
        "observations": observations[:-1],
        "final": observations[-1:],
        "actions": np.asarray(episode.actions).reshape(steps, -1),
        "rewards": np.asarray(episode.rewards),
        "costs": _costs(episode.infos, cost_key, steps, here),
        "terminals": np.asarray(episode.terminations, bool),
        "timeouts": np.asarray(episode.truncations, bool),
    }


def _costs(infos: Any, key: str, steps: int, here: str) -> NDArray[Any]:
    """One cost per step. An entry more than steps: the first belongs to the reset."""
    found = sorted(infos) if isinstance(infos, Mapping) else []
    if key not in found:
        raise TracrlError(
            f"{here} has no infos[{key!r}] (found {', '.join(found) or 'no infos'}): say which entry holds the cost "
            "with --cost; a collector keeps infos with record_infos=True."
        )
    costs = np.asarray(infos[key]).reshape(len(infos[key]), -1)
    if costs.shape[1] != 1:
        raise TracrlError(
            f"{here}: infos[{key!r}] holds {costs.shape[1]} costs a step; one cost is supported: add them, or "
            "choose one."
        )
    if len(costs) not in (steps, steps + 1):
        raise TracrlError(f"{here}: infos[{key!r}] has {len(costs)} entries for {steps} steps.")
    return costs[-steps:, 0]


def _check_no_images(space: Any, where: str, name: str = "") -> None:
    """A space may be made of others."""
    inner = getattr(space, "spaces", None)
    if inner is not None:
        for key, part in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
            _check_no_images(part, where, f"{name}[{key!r}]")
        return
    shape: tuple[int, ...] = getattr(space, "shape", None) or ()
    what = f"{where}: its observations{name}"
    if len(shape) > 1:
        raise TracrlError(f"{what} have shape {shape}, more than one axis a step: {IMAGES_ARE_NOT}.")
    if len(shape) == 1:
        check_no_pixels(space.dtype == np.uint8, shape[0], what)


def _joined(parts: list[dict[str, NDArray[Any]]], space: Any, name: str, where: str) -> Episodes:
    if not parts:
        raise TracrlError(f"{where} has no episodes.")
    for part in parts:  # an episode whose recording simply stopped was cut by time
        part["timeouts"] = part["timeouts"].copy()
        part["timeouts"][-1] |= not part["terminals"][-1]
    arrays = {key: np.concatenate([part.pop(key) for part in parts]) for key in list(parts[0])}
    finite = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
    return Episodes.from_arrays(
        {**{key: value for key, value in arrays.items() if key != "final"}, "final_observations": arrays["final"]},
        where=where,
        action_low=space.low.reshape(-1) if finite else None,
        action_high=space.high.reshape(-1) if finite else None,
        metadata={"imported_from": [f"{PREFIX}{name}"]},
    )


def _row(observations: Any, i: int) -> Any:
    """Entry i of what may be nested in dictionaries and tuples."""
    if isinstance(observations, Mapping):
        return {key: _row(value, i) for key, value in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_row(value, i) for value in observations)
    return observations[i]


def _library() -> Any:
    try:
        import minari
    except ImportError as error:
        raise TracrlError("Minari is missing: pip install 'tracrl[minari]'.") from error
    return minari


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
