"""Small data in DSRL's layout, made up for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracrl.data.episodes import Episodes


def dsrl_arrays(lengths: tuple[int, ...] = (4, 3, 5), seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays under DSRL's names: observations of size 3, actions of size 2, every second end a timeout."""
    generator = np.random.default_rng(seed)
    rows = sum(lengths)
    ends = np.cumsum(lengths) - 1
    observations = generator.normal(size=(rows, 3)).astype(np.float32)
    following = np.roll(observations, -1, axis=0)
    following[ends] = generator.normal(size=(len(lengths), 3))
    terminals, timeouts = np.zeros(rows, bool), np.zeros(rows, bool)
    terminals[ends[0::2]] = True
    timeouts[ends[1::2]] = True
    return {
        "observations": observations,
        "next_observations": following,
        "actions": generator.uniform(-1, 1, size=(rows, 2)).astype(np.float32),
        "rewards": generator.normal(size=rows).astype(np.float32),
        "costs": generator.integers(0, 2, size=rows).astype(np.float32),
        "terminals": terminals,
        "timeouts": timeouts,
    }


def episodes_of(rewards: list[list[float]], costs: list[list[float]], **metadata: Any) -> Episodes:
    """Episodes with these rewards and costs, step by step; an observation holds its row's number."""
    lengths = [len(steps) for steps in rewards]
    assert lengths == [len(steps) for steps in costs]
    rows = sum(lengths)
    timeouts = np.zeros(rows, bool)
    timeouts[np.cumsum(lengths) - 1] = True
    return Episodes.from_arrays(
        {
            "observations": np.arange(rows)[:, None],
            "actions": np.zeros((rows, 1)),
            "rewards": np.concatenate(rewards),
            "costs": np.concatenate(costs),
            "timeouts": timeouts,
        },
        metadata=metadata,
    )


def steps_of(lengths: Sequence[int], terminated: Sequence[bool]) -> dict[str, NDArray[Any]]:
    """The columns of a table with a row per step: episodes of these lengths, which ended so."""
    rows = sum(lengths)
    generator = np.random.default_rng(0)
    ends = np.cumsum(lengths) - 1
    by_itself, by_time = np.zeros(rows, bool), np.zeros(rows, bool)
    by_itself[ends], by_time[ends] = terminated, ~np.array(terminated)
    return {
        "episode": np.repeat(np.arange(len(lengths)), lengths),
        "step": np.concatenate([np.arange(length) for length in lengths]),
        "obs_0": generator.normal(size=rows),
        "obs_1": generator.normal(size=rows),
        "act_0": generator.uniform(-1, 1, rows),
        "reward": generator.normal(size=rows),
        "cost": (generator.random(rows) < 0.5).astype(float),
        "terminated": by_itself,
        "truncated": by_time,
    }
