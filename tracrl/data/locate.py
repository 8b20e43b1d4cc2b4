"""Where data sets lie on this machine."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

from numpy.typing import ArrayLike

from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import is_file, read_hdf5
from tracrl.errors import TracrlError
from tracrl.tasks.table import Task, all_tasks, get_task


def cache_directory() -> Path:
    """Our own place for data sets: ``$XDG_CACHE_HOME/tracrl/datasets``, or below ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache")) / "tracrl" / "datasets"


def expanded(path: str | Path) -> Path:
    """The path with its ``~`` replaced, or a sentence where there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise TracrlError(
            f"{path} leads to a home directory that is not there: give a whole path, or set HOME."
        ) from error


def search_path() -> list[tuple[str, Path]]:
    """The directories searched for data sets, in order, each with what it is."""
    places = []
    if directory := os.environ.get("DSRL_DATASET_DIR"):
        places.append(("$DSRL_DATASET_DIR", expanded(directory)))
    with contextlib.suppress(TracrlError):  # without a home there is nothing in it
        places.append(("~/.dsrl/datasets", expanded("~/.dsrl/datasets")))
        places.append(("tracrl's cache", cache_directory()))
    package = Path(str(resources.files("tracrl")))
    clone = package.parent / "datasets"
    # Beside an installed package, a folder of this name is another package.
    if clone.is_dir() and (package.parent / "pyproject.toml").is_file():
        places.append(("datasets/ of the clone", clone))
    return [*places, ("bundled with tracrl", package / "data" / "bundled")]


def find_dataset(task: Task) -> tuple[Path, str] | None:
    """The file of a task's data and where it was found: DSRL's own file name first, then ``<task>.hdf5``."""
    return next(_candidates(task), None)


def load_dataset(
    source: str | Path,
    *,
    task: str | None = None,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    clip_actions: bool = False,
    allow_external: bool = False,
) -> Episodes:
    """The episodes of a task (``"BallRun"``) or of a file (``"my.hdf5"``).

    ``task`` says which task a file's episodes belong to, where neither its name nor its metadata does.
    ``allow_external`` lets a file take arrays from other files.
    """
    path, known = locate(source, task)
    # Some of DSRL's Bullet files hold actions beyond the box; the simulator cut them to it, and so do we.
    clip_actions = clip_actions or (known is not None and path.name == known.dataset_file)
    episodes = read_hdf5(
        path,
        action_low=action_low,
        action_high=action_high,
        clip_actions=clip_actions,
        allow_external=allow_external,
    )
    known = known or episodes.known_task
    if known is None:
        return episodes
    _check_task(episodes, known, path)
    return replace(episodes, metadata={**episodes.metadata, "task": known.name})


def _check_task(episodes: Episodes, task: Task, path: Path) -> None:
    """The episodes can be the task's, as far as the file tells."""
    told = {_task_of_file(path), episodes.known_task} - {None, task}
    if told:
        other = told.pop()
        assert other is not None
        raise TracrlError(
            f"{path} holds episodes of {other.name}, not of {task.name}: name the task {other.name}, or a file of "
            f"{task.name}."
        )
    sizes = (episodes.observation_size, episodes.action_size)
    if sizes != (task.observation_size, task.action_size):
        raise TracrlError(
            f"{path}: observations of size {sizes[0]} and actions of size {sizes[1]} do not belong to "
            f"{task.name}, whose sizes are {task.observation_size} and {task.action_size}."
        )
    if episodes.known_task is None and episodes.task is not None:
        warnings.warn(f"{path} calls its task {episodes.task!r}; it is taken for {task.name}.", stacklevel=3)
    if (longest := int(episodes.lengths.max())) > task.max_steps:
        warnings.warn(
            f"{path}: an episode has {longest} steps, where {task.name} ends after {task.max_steps}.", stacklevel=3
        )


def locate(source: str | Path, task: str | None = None) -> tuple[Path, Task | None]:
    """The file that ``source`` means, and the task it belongs to as far as names tell."""
    if _is_path(source):
        path = expanded(source)
        if task is not None:
            return path, get_task(task)
        return path, _task_of_file(path)
    known = get_task(str(source))
    if task is not None and get_task(task) != known:
        raise TracrlError(
            f"{known.name} is a task, and its episodes are not of {task}: name one task alone, or the file that holds "
            f"episodes of {task}."
        )
    found = find_dataset(known)
    if found is None:
        searched = ", ".join(str(directory) for _, directory in search_path())
        raise TracrlError(
            f"No data for {known.name} on this machine (searched {searched}): "
            f"get DSRL's with `tracrl data fetch {known.name}`, or make one with `tracrl collect {known.name}`."
        )
    return found[0], known


def _task_of_file(path: Path) -> Task | None:
    """The task whose data DSRL keeps under this file name."""
    return next((task for task in all_tasks().values() if task.dataset_file == path.name), None)


def _is_path(source: str | Path) -> bool:
    if isinstance(source, Path) or "/" in source or source.endswith((".hdf5", ".h5")):
        return True
    return source not in all_tasks() and is_file(Path(source))


def _candidates(task: Task) -> Iterator[tuple[Path, str]]:
    for place, directory in search_path():
        for name in (task.dataset_file, f"{task.name}.hdf5"):
            if is_file(directory / name):
                yield directory / name, place
