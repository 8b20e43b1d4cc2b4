"""Small studies: data with BallRun's sizes, and settings with which a stack trains in a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import write_hdf5

TINY = ("hidden=[8]", "trac.batch_size=4", "trac.updates=60", "trac.clone_updates=20", "trac.warmup=5")
TINY_CLONING = ("hidden=[8]", "bc-all.batch_size=8", "bc-all.updates=60")


def ball_episodes(episodes: int = 40, steps: int = 20, seed: int = 0) -> Episodes:
    """Episodes of BallRun's sizes whose return and cost grow with how boldly they act."""
    generator = np.random.default_rng(seed)
    boldness = np.repeat(np.linspace(0, 1, episodes), steps)
    rows = episodes * steps
    observations = generator.normal(size=(rows, 7))
    timeouts = np.zeros(rows, bool)
    timeouts[steps - 1 :: steps] = True
    return Episodes.from_arrays(
        {
            "observations": observations,
            "actions": np.clip(boldness[:, None] * np.tanh(observations[:, :2]), -1, 1),
            "rewards": boldness,
            "costs": (generator.uniform(size=rows) < boldness).astype(float),
            "timeouts": timeouts,
            "final_observations": generator.normal(size=(episodes, 7)),
        },
        metadata={"task": "BallRun", "made_by": "made up for the tests"},
    )


def write_ball_data(directory: Path, **options: int) -> Path:
    path = directory / "BallRun.hdf5"
    write_hdf5(ball_episodes(**options), path)
    return path
