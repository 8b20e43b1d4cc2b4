"""What a learner would stumble over is said, with how many and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.conftest import make_small_data
from tests.data.made_up import episodes_of
from tracrl.data.episodes import Episodes
from tracrl.data.learning import Finding, look_at, originals
from tracrl.data.locate import load_dataset


def found(episodes: Episodes, limits: tuple[float, ...] = (4.0,)) -> list[Finding]:
    return list(look_at(episodes, limits))


def said(episodes: Episodes, limits: tuple[float, ...] = (4.0,)) -> str:
    (finding,) = found(episodes, limits)
    return f"{'warning' if finding.warning else 'note'}: {finding.text}"


def columns(data: Episodes, **changes: Any) -> Episodes:
    """With one column of the observations or actions made anew."""
    for key, (column, values) in changes.items():
        array = getattr(data, key).copy()
        array[:, column] = values
        data = replace(data, **{key: array})
    return data


def test_sound_data_are_not_talked_about(small_data: Episodes) -> None:
    assert found(small_data) == []
    assert found(load_dataset("BallRun"), (10, 20, 40)) == []


def test_columns_on_very_different_scales(small_data: Episodes) -> None:
    pascal = columns(small_data, observations=(1, 1e5 + 1e4 * small_data.observations[:, 1]))
    assert said(pascal).startswith(
        "note: the columns of 'observations' are on very different scales: column 1 is of size 1e+05, column 0 of "
    )
    assert "Training standardises own data by itself (--standardise auto)" in said(pascal)
    named = replace(pascal, metadata={"observations_columns": ["level", "pressure", "flow"]})
    assert "column 1 (pressure) is of size 1e+05, column 0 (level) of" in said(named)
    assert found(replace(small_data, observations=small_data.observations * 1000)) == []  # all alike


def test_columns_that_never_change(small_data: Episodes) -> None:
    assert said(columns(small_data, observations=(2, 7.5))) == (
        "note: the same in every row of 'observations': column 2 is 7.5. Nothing can be learnt from it, and training "
        "makes it 0 (--standardise auto); where it changes while the policy acts, the policy meets what it has never "
        "seen: leave it out if you can."
    )
    assert said(columns(small_data, actions=(0, 0.25))) == (
        "note: the same in every row of 'actions': column 0 is 0.25. The policy will do just that."
    )
    many = replace(small_data, observations=np.tile(small_data.observations, 2) * [1, 0, 0, 0, 0, 0])
    assert "column 1 is 0, column 2 is 0, column 3 is 0, column 4 is 0 and 1 more." in said(many)


def with_lengths(costs: dict[int, list[float]], terminated: bool = False) -> Episodes:
    """Six episodes of 10 steps that cost 0, 2 … 10, and others of these lengths and costs a step."""
    cheap = [[cost / 5] * 10 for cost in range(0, 11, 2)]
    every = cheap + [[cost] * length for length, several in costs.items() for cost in several]
    data = episodes_of([[1.0] * len(steps) for steps in every], every)
    ends = np.arange(len(data)) >= 6 if terminated else np.zeros(len(data), bool)
    generator = np.random.default_rng(0)
    return replace(
        data,
        terminated=ends,
        observations=generator.normal(size=(data.rows, 2)).astype(np.float32),
        actions=generator.uniform(-1, 1, (data.rows, 1)).astype(np.float32),
    )


def test_episodes_cut_short_whose_limit_is_too_generous() -> None:
    text = said(with_lengths({2: [1.0, 0.0, 0.3], 4: [2.0]}), (4, 8))
    assert text == (
        "warning: 4 of 10 episodes were cut short: truncated, without a terminal, after fewer than half of the "
        "longest's 10 steps. Their cost is held against the whole limit, which is too generous for those that count as "
        "safe and at their pace would have broken it by step 10 (1 at limit 4, 2 at limit 8): leave them out, set "
        "'terminals' where an end was real, or judge segments by their share of the limit (--ratio 0.5 "
        "--short-episodes drop)."
    )


@pytest.mark.parametrize(
    ("costs", "terminated"),
    [
        ({2: [1.0, 2.0]}, True),  # they ended by themselves
        ({2: [0.0, 0.1]}, False),  # safe at their pace
        ({2: [5.0]}, False),  # unsafe as they are
        ({6: [0.6]}, False),  # long enough
    ],
)
def test_short_episodes_that_are_none_of_these(costs: dict[int, list[float]], terminated: bool) -> None:
    assert found(with_lengths(costs, terminated)) == []


def test_copies(small_data: Episodes) -> None:
    exact = small_data.select([*range(60), 3, 3, 7])
    assert originals(exact)[60:].tolist() == [3, 3, 7]
    assert said(exact).startswith(
        "note: 3 of 63 episodes are copies of others, exactly or nearly (nothing differs by more than a hundredth of "
        "its column's deviation); of episode 3 alone there are 2."
    )
    many = small_data.select([*range(60), *[5] * 40])
    assert said(many).startswith("warning: 40 of 100 episodes are copies")


def test_copies_that_are_nearly_so() -> None:
    data = make_small_data(episodes=300)
    twice = data.select([*range(300), *range(100)])
    noise = np.random.default_rng(0).uniform(-0.004, 0.004, twice.observations.shape).astype(np.float32)
    noisy = replace(twice, observations=twice.observations + noise)
    assert originals(noisy)[300:].tolist() == list(range(100))
    assert originals(noisy)[:300].tolist() == list(range(300))
    assert (originals(replace(twice, observations=twice.observations + 10 * noise)) == np.arange(400)).all()


def test_every_episode_the_same() -> None:
    same = make_small_data(episodes=1).select([0] * 200)
    assert (originals(same) == 0).all()
    assert originals(make_small_data(episodes=1)).tolist() == [0]


def test_actions_that_use_hardly_any_of_their_box(small_data: Episodes) -> None:
    tiny = replace(small_data, actions=np.float32(0.05) * np.sign(small_data.actions))
    assert said(tiny).startswith("warning: the logged actions use hardly any of their box: column 0 5.0%")
    assert said(tiny).endswith("give the box that is really used (--action-low -0.05 --action-high 0.05).")
    told = replace(tiny, action_low=tiny.action_low * np.float32(0.05), action_high=tiny.action_high * np.float32(0.05))
    assert found(told) == []
    aside = replace(tiny, actions=tiny.actions + np.float32(0.5))
    assert said(aside).endswith("(--action-low 0.45 --action-high 0.55).")
    one = columns(small_data, actions=(0, 0.05 * small_data.actions[:, 0]))
    assert "box: column 0 4" in said(one)
    assert said(one).endswith("(action_low and action_high of tracrl.load_dataset, or in the file's attributes).")
