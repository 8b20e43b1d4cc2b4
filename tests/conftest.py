"""What the tests share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tracrl.data.episodes import Episodes

# Environments of one's own, which are found by an import.
sys.path.append(str(Path(__file__).parent / "envs" / "own"))
# Tests press Ctrl-C, also where they themselves run in the background of a script, which has it ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests run side by side, one per core: threads of their own would only get in each other's way.
torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def same_products_on_every_processor() -> Iterator[None]:
    """Tests train in float32 on a CPU unless they say otherwise, whatever instructions it has."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tracrl.train.devices.rounds_by_itself", lambda device: device.type == "cuda")
        yield


@pytest.fixture(scope="session")
def small_data() -> Episodes:
    """60 episodes of 8 to 12 steps whose cost and return both grow with how boldly the episode acts."""
    return make_small_data()


def make_small_data(episodes: int = 60, seed: int = 0) -> Episodes:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(8, 13, size=episodes)
    boldness = np.repeat(generator.uniform(size=episodes), lengths)
    rows = int(lengths.sum())
    observations = generator.normal(size=(rows, 3))
    actions = np.clip(boldness[:, None] * np.tanh(observations[:, :2]) + 0.1 * generator.normal(size=(rows, 2)), -1, 1)
    timeouts = np.zeros(rows, bool)
    timeouts[np.cumsum(lengths) - 1] = True
    return Episodes.from_arrays(
        {
            "observations": observations,
            "actions": actions,
            "rewards": boldness + 0.1 * generator.normal(size=rows),
            "costs": (generator.uniform(size=rows) < boldness).astype(float),
            "timeouts": timeouts,
            "final_observations": generator.normal(size=(episodes, 3)),
        }
    )
