from __future__ import annotations

import numpy as np
import pytest
import torch

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods.method import RunSpec
from tracrl.methods.transitions import Transitions, discounted_threshold, thresholds
from tracrl.nets import random

CPU = torch.device("cpu")
KEY = random.keys(torch.tensor([0, 1]), torch.tensor(0), 0)


def three_episodes(final: bool = True, task: str | None = None) -> Episodes:
    """Two steps and an end, three steps and a time-out, one step and a time-out; an observation is its row's number."""
    arrays = {
        "observations": np.arange(6.0)[:, None],
        "actions": np.zeros((6, 1)),
        "rewards": np.arange(6.0),
        "costs": np.ones(6),
        "terminals": np.array([0, 1, 0, 0, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 1, 1]),
    }
    if final:
        arrays["final_observations"] = np.array([[10.0], [20.0], [30.0]])
    return Episodes.from_arrays(arrays, metadata={} if task is None else {"task": task})


def test_what_follows_each_row() -> None:
    batch = Transitions(three_episodes(), 1, CPU, reward_scale=0.5).at(torch.arange(6)[None])
    assert batch.next_observations[0, :, 0].tolist() == [1, 10, 3, 4, 20, 30]
    assert batch.terminated[0].tolist() == [0, 1, 0, 0, 0, 0]
    assert batch.done[0].tolist() == [0, 1, 0, 0, 1, 1]
    assert batch.first[0].tolist() == [1, 0, 1, 0, 0, 1]
    assert batch.rewards[0].tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


def test_the_observations_are_not_copied() -> None:
    data = three_episodes()
    assert Transitions(data, 1, CPU).observations.data_ptr() == data.observations.ctypes.data


def test_all_rows_are_drawn() -> None:
    rows = Transitions(three_episodes(), 2, CPU).draw(KEY, 4000).observations
    for run in rows[..., 0].int():
        counts = torch.bincount(run, minlength=6)
        assert counts.min() > 550
        assert counts.max() < 800


def test_a_timeout_with_unknown_successor_is_left_out() -> None:
    batch = Transitions(three_episodes(final=False), 2, CPU).draw(KEY, 2000)
    assert set(batch.observations.flatten().tolist()) == {0, 1, 2, 3}  # row 1 ended by itself: nothing follows it
    with pytest.raises(TracrlError, match="No transition is left"):
        Transitions(three_episodes(final=False).select([2]), 1, CPU)


def test_where_timeouts_end_nothing_needs_to_follow_them() -> None:
    batch = Transitions(three_episodes(final=False), 2, CPU, ends_at_truncation=True).draw(KEY, 2000)
    assert set(batch.observations.flatten().tolist()) == {0, 1, 2, 3, 4, 5}
    assert set(batch.observations[batch.done == 1].flatten().tolist()) == {1, 4, 5}
    assert (
        Transitions(three_episodes(final=False).select([2]), 1, CPU, ends_at_truncation=True)
        .draw(KEY[:1], 5)
        .done.all()
    )


def test_first_observations() -> None:
    first = Transitions(three_episodes(), 2, CPU).draw_first(KEY, 3000)
    values, counts = first.unique(return_counts=True)
    assert values.tolist() == [0, 2, 5]
    assert counts.min() > 1800


@pytest.mark.parametrize(
    ("limit", "steps", "expected"),
    [(10, 100, 6.34), (40, 100, 25.36), (20, 200, 8.66), (10, 300, 3.17), (80, 500, 15.89), (20, 1000, 2.00)],
)
def test_thresholds_of_the_benchmark(limit: float, steps: int, expected: float) -> None:
    assert discounted_threshold(limit, 0.99, steps) == pytest.approx(expected, abs=0.006)


def test_threshold_is_the_discounted_sum_of_an_even_cost() -> None:
    assert discounted_threshold(6, 0.8, 3) == pytest.approx(2 + 0.8 * 2 + 0.64 * 2)
    assert discounted_threshold(6, 1.0, 3) == 6
    runs = [RunSpec(6.0, 0), RunSpec(0.0, 1)]
    assert thresholds(three_episodes(), runs, 0.8).tolist() == pytest.approx([4.88, 0])
    assert thresholds(three_episodes(), runs, 0.8, 0.2).tolist() == pytest.approx([0.976, 0])


def test_steps_of_an_episode() -> None:
    assert three_episodes().max_steps == 3
    assert three_episodes(task="BallRun").max_steps == 100
    assert three_episodes(task="my own").max_steps == 3
