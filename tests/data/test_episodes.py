"""The container: bounds, sums, selections, what follows a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.data.made_up import dsrl_arrays, episodes_of
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError


def test_ends_divide_the_rows_into_episodes() -> None:
    data = Episodes.from_arrays(dsrl_arrays(lengths=(4, 3, 5)))
    assert len(data) == 3
    assert data.rows == 12
    assert data.offsets.tolist() == [0, 4, 7, 12]
    assert data.lengths.tolist() == [4, 3, 5]
    assert data.terminated.tolist() == [True, False, True]
    assert list(data) == [slice(0, 4), slice(4, 7), slice(7, 12)]
    assert (data.observation_size, data.action_size) == (3, 2)


def test_returns_and_costs_are_sums_over_the_steps_of_an_episode() -> None:
    data = episodes_of(rewards=[[1, 2, 3], [10], [0.5, 0.25]], costs=[[0, 1, 1], [0], [2, 0]])
    assert data.returns.tolist() == [6, 10, 0.75]
    assert data.total_costs.tolist() == [2, 0, 2]


def test_sums_are_made_in_double_precision() -> None:
    data = episodes_of(rewards=[[1e8, *[1.0] * 50]], costs=[[0.0] * 51])
    assert data.returns.tolist() == [1e8 + 50]  # float32 would stay at 1e8


def test_arrays_are_float32_whatever_they_were() -> None:
    arrays = {key: array.astype(np.float64) for key, array in dsrl_arrays().items()}
    data = Episodes.from_arrays(arrays)
    for array in (data.observations, data.actions, data.rewards, data.costs, data.final_observations):
        assert array is not None
        assert array.dtype == np.float32
        assert array.flags.c_contiguous


def test_columns_serve_as_vectors() -> None:
    arrays = dsrl_arrays()
    tall = {key: array[:, None] if array.ndim == 1 else array for key, array in arrays.items()}
    assert Episodes.from_arrays(tall).fingerprint == Episodes.from_arrays(arrays).fingerprint


def test_terminals_or_timeouts_alone_are_enough() -> None:
    arrays = dsrl_arrays(lengths=(4, 3))
    ends = arrays.pop("terminals") | arrays.pop("timeouts")
    assert Episodes.from_arrays({**arrays, "terminals": ends}).terminated.tolist() == [True, True]
    assert Episodes.from_arrays({**arrays, "timeouts": ends}).terminated.tolist() == [False, False]


def test_rows_after_the_last_end_are_left_out_with_a_warning() -> None:
    arrays = dsrl_arrays(lengths=(4, 3, 5))
    arrays["terminals"][-1] = False
    with pytest.warns(UserWarning, match="mine: the last 5 rows belong to an episode without an end and are left out"):
        data = Episodes.from_arrays(arrays, where="mine")
    assert data.lengths.tolist() == [4, 3]
    assert len(data.observations) == len(data.actions) == len(data.rewards) == len(data.costs) == 7


def test_the_next_observation_is_the_next_row_and_the_logged_one_at_an_end() -> None:
    arrays = dsrl_arrays(lengths=(4, 3, 5))
    data = Episodes.from_arrays(arrays)
    np.testing.assert_array_equal(data.next_observations(), arrays["next_observations"])
    assert data.final_observations is not None
    np.testing.assert_array_equal(data.final_observations, arrays["next_observations"][[3, 6, 11]])


def test_next_observations_that_do_not_chain_are_told() -> None:
    arrays = dsrl_arrays(lengths=(4, 3))
    arrays["next_observations"][[0, 2, 4]] += 1
    with pytest.warns(
        UserWarning, match="mine: in 3 rows 'next_observations' differs from the observation of the next"
    ):
        data = Episodes.from_arrays(arrays, where="mine")
    np.testing.assert_array_equal(data.next_observations()[0], data.observations[1])


def test_without_final_observations_asking_for_the_next_ones_is_an_error() -> None:
    arrays = dsrl_arrays()
    del arrays["next_observations"]
    data = Episodes.from_arrays(arrays)
    with pytest.raises(TracrlError, match="neither 'next_observations' nor 'final_observations': add one of them"):
        data.next_observations()


def test_final_observations_need_one_row_an_episode() -> None:
    arrays = dsrl_arrays(lengths=(4, 3))
    del arrays["next_observations"]
    arrays["final_observations"] = np.zeros((3, 3))
    message = r"mine: 'final_observations' has shape \(3, 3\); expected one row per episode, \(2, 3\)"
    with pytest.raises(TracrlError, match=message):
        Episodes.from_arrays(arrays, where="mine")


@pytest.mark.parametrize("key", ["next_observations", "final_observations"])
def test_observations_of_two_sizes_are_an_error(key: str) -> None:
    arrays = dsrl_arrays(lengths=(4, 3))
    arrays[key] = np.zeros((7 if key == "next_observations" else 2, 2))
    with pytest.raises(TracrlError, match=f"mine: '{key}' has 2 columns but 'observations' has 3"):
        Episodes.from_arrays(arrays, where="mine")


def test_a_selection_holds_the_episodes_asked_for_in_that_order() -> None:
    data = Episodes.from_arrays(dsrl_arrays(lengths=(4, 3, 5)))
    picked = data.select([2, 0, 2])
    assert picked.lengths.tolist() == [5, 4, 5]
    assert picked.terminated.tolist() == [True, True, True]
    np.testing.assert_array_equal(
        picked.actions, np.concatenate([data.actions[7:12], data.actions[:4], data.actions[7:12]])
    )
    np.testing.assert_array_equal(picked.returns, data.returns[[2, 0, 2]])
    assert picked.final_observations is not None
    assert data.final_observations is not None
    np.testing.assert_array_equal(picked.final_observations, data.final_observations[[2, 0, 2]])


def test_a_selection_can_be_a_mask_or_count_from_the_end() -> None:
    data = Episodes.from_arrays(dsrl_arrays(lengths=(4, 3, 5)))
    assert data.select(np.array([False, True, True])).lengths.tolist() == [3, 5]
    np.testing.assert_array_equal(data.select([-1]).rewards, data.rewards[7:])


@pytest.mark.parametrize("nothing", [[], np.zeros(3, bool)])
def test_an_empty_selection_is_an_error(nothing: list[int]) -> None:
    data = Episodes.from_arrays(dsrl_arrays(lengths=(4, 3, 5)))
    with pytest.raises(TracrlError, match="No episode is left in the selection"):
        data.select(nothing)


def test_the_fingerprint_follows_the_contents_and_nothing_else() -> None:
    arrays = dsrl_arrays()
    data = Episodes.from_arrays(arrays)
    assert replace(data, metadata={"file": "elsewhere.hdf5"}).fingerprint == data.fingerprint
    for key in ("observations", "actions", "rewards", "costs"):
        changed = {**arrays, key: arrays[key].copy()}
        changed[key][-1] = 0.123
        if key == "observations":
            del changed["next_observations"]
        assert Episodes.from_arrays(changed).fingerprint != data.fingerprint
    assert replace(data, terminated=~data.terminated).fingerprint != data.fingerprint


def test_actions_are_scaled_from_their_box() -> None:
    arrays = {**dsrl_arrays(lengths=(3,)), "actions": np.array([[0, -4], [5, 0], [10, 4]])}
    data = Episodes.from_arrays(arrays, action_low=[0, -4], action_high=[10, 4])
    assert data.scaled_actions().tolist() == [[-1, -1], [0, 0], [1, 1]]
    assert data.actions.tolist() == [[0, -4], [5, 0], [10, 4]]


def test_actions_in_the_usual_box_are_not_copied() -> None:
    data = Episodes.from_arrays(dsrl_arrays())
    assert data.scaled_actions() is data.actions


def test_the_task_is_what_the_metadata_say() -> None:
    assert episodes_of([[1]], [[0]], task="BallRun").task == "BallRun"
    assert episodes_of([[1]], [[0]]).task is None


def test_in_a_line(five: Episodes) -> None:
    assert repr(five) == (
        "<Episodes five.hdf5: 5 episodes, 10 steps; observations of 1, actions of 1; returns 10 to 50, costs 0 to 12>"
    )
