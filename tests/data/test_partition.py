"""Phase 1 against examples worked out by hand from the specification of the method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.data.made_up import episodes_of
from tracrl.data.episodes import Episodes
from tracrl.data.partition import Segments, cut_segments, is_safe, partition, split
from tracrl.errors import TracrlError
from tracrl.methods.trac_losses import weights


def whole(data: Episodes) -> Segments:
    return cut_segments(data, 1.0, "mask", np.random.default_rng(0))


# Six episodes of two steps. At limit 3, episodes 0 to 3 are safe (3 exactly at the limit), 4 and 5 are not.
RETURNS = [10.0, 2.0, 6.0, 4.0, 20.0, -5.0]
COSTS = [0.0, 1.0, 2.0, 3.0, 4.0, 9.0]


@pytest.fixture
def six() -> Episodes:
    return episodes_of([[value - 1, 1] for value in RETURNS], [[cost, 0] for cost in COSTS])


def test_whole_episodes_once_each(six: Episodes) -> None:
    segments = whole(six)
    assert segments.first.tolist() == [0, 2, 4, 6, 8, 10]
    assert segments.length.tolist() == [2] * 6
    assert segments.episode.tolist() == [0, 1, 2, 3, 4, 5]
    assert (segments.horizon, segments.share) == (2, 1.0)


def test_labels_and_weights_with_the_published_settings(six: Episodes) -> None:
    parts = partition(six, whole(six), 3, x=50, y=0)
    # Safe from best to worst: 0 (10), 2 (6), 3 (4), 1 (2). The top half is desirable, the rest left out.
    assert (parts.desirable, parts.undesirable, parts.safe) == (2, 2, 4)
    assert parts.segments.episode.tolist() == [0, 2, 4, 5, 3, 1]
    assert parts.labels.tolist() == [1, 1, 0, 0, -1, -1]
    # v̂ over the safe ones: (R − 2) / 8, so 1 and 0.5; w = v̂ · 0.3 + 0.7. Unsafe ones weigh 1.
    np.testing.assert_allclose(weights(parts, 0.7), [1.0, 0.85, 1, 1, 0, 0], rtol=1e-6)


def test_the_poorest_safe_ones_are_undesirable_and_weigh_by_how_poor_they_are(six: Episodes) -> None:
    parts = partition(six, whole(six), 3, x=25, y=50)
    # Desirable: 0. Left out: 2. Undesirable although safe: 3 (v̂ = 0.25) and 1 (v̂ = 0); w = (1 − v̂) · 0.8 + 0.2.
    assert parts.segments.episode.tolist() == [0, 3, 1, 4, 5, 2]
    assert parts.labels.tolist() == [1, 0, 0, 0, 0, -1]
    np.testing.assert_allclose(weights(parts, 0.2), [1.0, 0.8, 1.0, 1, 1, 0], rtol=1e-6)


def test_the_papers_normaliser_spans_the_whole_data_set(six: Episodes) -> None:
    parts = partition(six, whole(six), 3, x=50, y=50, normaliser="all")
    # v̂ = (R + 5) / 25: 0 → 0.6, 2 → 0.44, 3 → 0.36, 1 → 0.28.
    assert parts.segments.episode.tolist() == [0, 2, 3, 1, 4, 5]
    np.testing.assert_allclose(weights(parts, 0.5), [0.8, 0.72, 0.82, 0.86, 1, 1], rtol=1e-6)


@pytest.mark.parametrize(("delta", "lowest"), [(0.0, 0.0), (1.0, 1.0), (0.4, 0.4)])
def test_delta_is_the_least_weight(six: Episodes, delta: float, lowest: float) -> None:
    parts = partition(six, whole(six), 3, x=100, y=0)
    assert weights(parts, delta)[:4].min() == pytest.approx(lowest)
    assert weights(parts, delta)[:4].max() == pytest.approx(1)


def test_equal_returns_keep_their_order_and_do_not_divide_by_zero() -> None:
    data = episodes_of([[1.0], [1.0], [1.0], [1.0]], [[0], [0], [0], [5]])
    parts = partition(data, whole(data), 1, x=67, y=0)
    assert parts.segments.episode.tolist() == [0, 1, 3, 2]
    assert np.isfinite(weights(parts, 0.7)).all()


@pytest.mark.parametrize(
    ("x", "y", "sizes"),
    [
        (50, 0, (2, 2, 0, 2)),
        (50, 50, (2, 0, 2, 2)),
        (75, 50, (3, 0, 1, 2)),  # where both want an episode, it is desirable
        (100, 100, (4, 0, 0, 2)),
        (0, 0, (1, 3, 0, 2)),  # never none
        (25, 25, (1, 2, 1, 2)),
    ],
)
def test_sizes_of_the_four_sets(x: float, y: float, sizes: tuple[int, ...]) -> None:
    sets = split(np.array(RETURNS), is_safe(np.array(COSTS), 3), x, y)
    assert tuple(len(one) for one in sets) == sizes
    assert sorted(np.concatenate(sets).tolist()) == [0, 1, 2, 3, 4, 5]


def test_split_of_data_without_any_safe_episode() -> None:
    sets = split(np.array(RETURNS), np.zeros(6, bool), 50, 50)
    assert [len(one) for one in sets] == [0, 0, 0, 6]


def test_a_cost_that_equals_the_limit_is_safe_also_after_rounding() -> None:
    tenths = episodes_of([[0.0] * 100], [[0.1] * 100])
    assert tenths.total_costs[0] > 10  # float32 has no exact tenth
    assert is_safe(tenths.total_costs, 10).all()
    assert is_safe(np.array([1.0]), 49 * (1 / 49)).all()  # the product is just below 1
    assert not is_safe(np.array([10.001]), 10).any()
    assert is_safe(np.array([0.0]), 0).all()
    assert not is_safe(np.array([0.001]), 0).any()


def long_and_short() -> Episodes:
    """Episodes of 20, 8 and 20 steps; a row's reward is its number."""
    lengths = (20, 8, 20)
    starts = np.cumsum((0, *lengths[:-1]))
    rewards = [
        np.arange(start, start + length, dtype=float).tolist() for start, length in zip(starts, lengths, strict=True)
    ]
    costs = [[1.0] * 10 + [0.0] * 10, [1.0] * 8, [0.0] * 20]
    return episodes_of(rewards, costs)


@pytest.mark.parametrize(("short", "each"), [("mask", 3), ("drop", 2)])
def test_short_episodes_are_masked_or_dropped(short: str, each: int) -> None:
    segments = cut_segments(long_and_short(), 1.0, short, np.random.default_rng(0))  # type: ignore[arg-type]
    assert segments.horizon == 20
    assert len(segments.first) == each
    assert segments.length.tolist() == ([20, 8, 20] if short == "mask" else [20, 20])
    assert segments.first.tolist() == ([0, 20, 28] if short == "mask" else [0, 28])


@pytest.mark.parametrize(("short", "pool"), [("mask", 3), ("drop", 2)])
def test_below_ratio_one_each_episode_gives_a_sixth_of_the_steps_beyond_the_segment(short: str, pool: int) -> None:
    segments = cut_segments(long_and_short(), 0.6, short, np.random.default_rng(0))  # type: ignore[arg-type]
    # T = 20, L = 12: ⌊8 / 6⌋ = 1 an episode
    assert segments.horizon == 12
    assert segments.share == 0.6
    assert len(segments.first) == pool
    segments = cut_segments(long_and_short(), 0.1, short, np.random.default_rng(0))  # type: ignore[arg-type]
    # L = 2: ⌊18 / 6⌋ = 3 an episode, and every episode is long enough
    assert len(segments.first) == 9
    segments = cut_segments(long_and_short(), 0.45, short, np.random.default_rng(0))  # type: ignore[arg-type]
    # L = 9: ⌊11 / 6⌋ = 1 an episode
    assert len(segments.first) == pool


def test_there_is_a_segment_an_episode_however_little_is_left_beyond_it() -> None:
    segments = cut_segments(long_and_short(), 0.9, "mask", np.random.default_rng(0))
    assert segments.horizon == 18
    assert len(segments.first) == 3


def test_there_are_never_more_than_a_million_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracrl.data.partition.MOST_SEGMENTS", 5)
    assert len(cut_segments(long_and_short(), 0.1, "mask", np.random.default_rng(0)).first) == 5


def test_segments_lie_inside_their_episode_and_start_anywhere_in_it() -> None:
    data = long_and_short()
    draws = [cut_segments(data, 0.6, "mask", np.random.default_rng(seed)) for seed in range(400)]
    first = np.concatenate([one.first for one in draws])
    length = np.concatenate([one.length for one in draws])
    episode = np.concatenate([one.episode for one in draws])
    assert (first >= data.offsets[episode]).all()
    assert (first + length <= data.offsets[episode + 1]).all()
    assert set(length[episode == 1]) == {8}
    assert set(length[episode != 1]) == {12}
    for number, start in ((0, 0), (2, 28)):
        starts, counts = np.unique(first[episode == number], return_counts=True)
        assert starts.tolist() == list(range(start, start + 9))
        assert counts.min() > counts.sum() / 9 / 2  # uniform, as far as 400 draws tell
    assert abs((episode == 1).mean() - 1 / 3) < 0.05


def test_the_same_generator_draws_the_same_segments() -> None:
    one, other = (cut_segments(long_and_short(), 0.2, "mask", np.random.default_rng(7)) for _ in range(2))
    assert one.first.tolist() == other.first.tolist()


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1.01, float("nan")])
def test_a_ratio_outside_its_range_is_an_error(ratio: float) -> None:
    with pytest.raises(TracrlError, match=r"The segment ratio is .*; expected more than 0 and at most 1"):
        cut_segments(long_and_short(), ratio, "mask", np.random.default_rng(0))


def halves(data: Episodes) -> Segments:
    """First and second half of each of the two long episodes, cut by hand."""
    return Segments(
        first=np.array([0, 10, 28, 38]),
        length=np.array([10, 10, 10, 10]),
        episode=np.array([0, 0, 2, 2]),
        horizon=10,
        share=0.5,
    )


def test_a_segment_is_judged_by_its_own_cost_against_its_share_of_the_limit() -> None:
    data = long_and_short()
    # Costs 10, 0, 0, 0 against a share of 12 · 10 / 20 = 6: only the first half of episode 0 is unsafe.
    parts = partition(data, halves(data), 12, x=100, y=0)
    assert (parts.desirable, parts.undesirable) == (3, 1)
    assert parts.segments.first.tolist() == [38, 28, 10, 0]  # by return: rows 38 to 47, 28 to 37, 10 to 19
    # Returns 425, 325 and 145: v̂ = 1, 180 / 280, 0.
    np.testing.assert_allclose(weights(parts, 0.5), [1, 180 / 280 * 0.5 + 0.5, 0.5, 1], rtol=1e-6)


def test_a_segment_exactly_at_its_share_is_safe() -> None:
    data = long_and_short()
    parts = partition(data, halves(data), 20, x=75, y=25)  # share 10, cost 10
    assert parts.safe == 4


def test_the_papers_rule_labels_episodes_and_their_segments_inherit() -> None:
    data = long_and_short()
    # Episode 0 costs 10 and episode 2 nothing; at limit 9 both halves of episode 0 are unsafe, although its second
    # half costs nothing.
    parts = partition(data, halves(data), 9, x=100, y=0, labelling="episodes")
    assert (parts.desirable, parts.undesirable) == (2, 2)
    assert parts.segments.episode.tolist() == [2, 2, 0, 0]
    # At limit 10 both are safe, and ranked by the return of their whole episode.
    parts = partition(data, halves(data), 10, x=50, y=50, labelling="episodes")
    assert parts.segments.episode.tolist() == [2, 2, 0, 0]
    np.testing.assert_allclose(weights(parts, 0.5), [1, 1, 1, 1])  # v̂ = 1 and 0: the best and the poorest


def test_a_masked_short_episode_is_judged_by_all_its_cost() -> None:
    data = long_and_short()
    segments = cut_segments(data, 1.0, "mask", np.random.default_rng(0))
    parts = partition(data, segments, 8, x=100, y=0)  # costs 10, 8, 0
    assert parts.safe == 2
    assert parts.segments.episode.tolist() == [2, 1, 0]


def test_many_drawn_segments_agree_with_sums_made_one_by_one() -> None:
    generator = np.random.default_rng(3)
    lengths = generator.integers(5, 40, 30)
    data = episodes_of(
        [generator.normal(size=length).tolist() for length in lengths],
        [generator.integers(0, 2, length).tolist() for length in lengths],
    )
    segments = cut_segments(data, 0.4, "mask", generator)
    parts = partition(data, segments, 18, x=30, y=20)
    cut = parts.segments
    rows = [slice(first, first + length) for first, length in zip(cut.first, cut.length, strict=True)]
    costs = np.array([data.costs[one].sum(dtype=np.float64) for one in rows])
    returns = np.array([data.rewards[one].sum(dtype=np.float64) for one in rows])
    allowed = 18 * cut.horizon / lengths.max()
    labels = parts.labels
    assert parts.safe == (costs <= allowed).sum()
    assert (costs[labels == 1] <= allowed).all()
    assert (costs[labels == -1] <= allowed).all()
    safe = costs <= allowed
    assert (labels == 1).sum() == round(0.3 * safe.sum())
    assert (labels[safe] == 0).sum() == round(0.2 * safe.sum())
    assert returns[labels == 1].min() >= returns[labels == -1].max()
    assert returns[labels == -1].min() >= returns[safe & (labels == 0)].max()
    span = returns[safe].max() - returns[safe].min()
    normalised = (returns - returns[safe].min()) / span
    expected = np.where(labels == 1, normalised * 0.7 + 0.3, (1 - normalised) * 0.7 + 0.3)
    expected[~safe] = 1
    expected[labels == -1] = 0
    np.testing.assert_allclose(weights(parts, 0.3), expected, rtol=1e-5)


def test_a_limit_under_which_no_episode_is_safe(six: Episodes) -> None:
    with pytest.raises(TracrlError) as caught:
        partition(six.select([3, 4, 5]), whole(six.select([3, 4, 5])), 2, x=50, y=0)
    assert str(caught.value) == (
        "No episode is safe at cost limit 2: the lowest cost in the data is 3; raise the limit or add safe episodes."
    )


def test_a_huge_cost_does_not_make_the_episodes_after_it_safe(six: Episodes) -> None:
    costs = six.costs.copy()
    costs[0] = 1e20
    data = replace(six, costs=costs)  # past the checks, which refuse it
    parts = partition(data, whole(data), 3, x=50, y=0)
    assert parts.safe == 3
    assert parts.segments.episode[parts.labels == 0].tolist() == [0, 4, 5]


def test_a_limit_under_which_every_episode_is_safe(six: Episodes) -> None:
    with pytest.raises(TracrlError) as caught:
        partition(six, whole(six), 9, x=50, y=0)
    assert str(caught.value) == (
        "Every episode is safe at cost limit 9 (the highest cost in the data is 9), so there is nothing undesirable "
        "to learn from: lower the limit, or call the poorest safe episodes undesirable with --x 50 --y 50."
    )
    assert partition(six, whole(six), 9, x=50, y=50).undesirable == 3


def test_segments_are_spoken_of_where_segments_are_judged() -> None:
    data = episodes_of([[0.0] * 4] * 2, [[5.0, 0.0, 5.0, 0.0], [5.0, 1.0, 4.0, 1.0]])
    cut = Segments(np.array([0, 2, 4, 6]), np.full(4, 2), np.array([0, 0, 1, 1]), horizon=2, share=0.5)
    with pytest.raises(TracrlError) as caught:
        partition(data, cut, 8, x=50, y=0)
    assert str(caught.value) == (
        "No segment is safe at cost limit 8, of which 2 steps may spend 4: the lowest cost of a segment is 5; "
        "raise the limit or add safe episodes."
    )
    with pytest.raises(TracrlError) as caught:
        partition(data, cut, 14, x=50, y=0)
    assert str(caught.value) == (
        "Every segment is safe at cost limit 14, of which 2 steps may spend 7 (the highest cost of a segment is 6), so "
        "there is nothing undesirable to learn from: lower the limit, or call the poorest safe segments undesirable "
        "with --x 50 --y 50."
    )
    with pytest.raises(TracrlError, match="No episode is safe at cost limit 8: the lowest cost in the data is 10"):
        partition(data, cut, 8, x=50, y=0, labelling="episodes")


def test_safe_means_the_same_in_every_unit() -> None:
    costs = np.array([0.0, 1.0, 2.0, 3.0])
    for unit in (1e-9, 1e-3, 1.0, 1e6):
        assert is_safe(costs * unit, 2.0 * unit).tolist() == [True, True, True, False]
        assert is_safe(costs * unit, 0.0).tolist() == [True, False, False, False]
    assert is_safe(np.array([0.1 + 0.2]), 0.3).all()
