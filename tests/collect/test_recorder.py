from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tracrl.collect.ppo import PPO, PPOSettings
from tracrl.collect.progress import Silence
from tracrl.collect.recorder import Recorder, RecorderSettings
from tracrl.collect.recording import Recording
from tracrl.collect.rollout import Order, Rollout
from tracrl.collect.thinning import Region
from tracrl.envs.environment import EnvSpec
from tracrl.envs.pool import EnvPool


@pytest.fixture(scope="module")
def pool() -> Iterator[EnvPool]:
    with EnvPool(EnvSpec("tiny_envs:Road"), 1) as pool:
        yield pool


def recorder(pool: EnvPool, episodes: int = 100, limits: tuple[float, ...] = (10.0,)) -> Recorder:
    behaviours = [PPO(3, 1, PPOSettings(), seed).behaviour() for seed in range(6)]
    return Recorder(
        pool, behaviours, episodes, seed=0, limits=limits, share=0.2, highest_penalty=0.9, settings=RecorderSettings()
    )


def recorded(points: list[tuple[float, float]]) -> Recording:
    """Episodes of one step with these costs and returns; an episode's number is its penalty in hundredths."""
    rollouts = [
        Rollout(np.zeros((2, 3), np.float32), np.zeros((1, 1), np.float32), *np.float32([[[r]], [[c]]])[:, 0], False)
        for c, r in points
    ]
    return Recording([Order(3, number, number / 100) for number in range(len(points))], rollouts)


def test_blind_orders_vary_in_everything(pool: EnvPool) -> None:
    orders = recorder(pool).orders(400, np.random.default_rng(0), blind=True)
    assert len({order.seed for order in orders}) == 400
    assert {order.behaviour for order in orders} == set(range(6))
    late = np.mean([order.behaviour >= 4 for order in orders])
    assert 0.5 < late < 0.8
    changing = [order.change_at for order in orders if order.change_at >= 0]
    assert 150 < len(changing) < 250
    assert min(order.penalty for order in orders) == 0
    assert max(order.penalty for order in orders) == pytest.approx(0.9)
    assert max(order.noise for order in orders) <= 1.5
    assert 0.6 < np.mean([order.random == 0 for order in orders]) < 0.8


def test_where_nobody_is_halfhearted_half_take_care_and_half_do_not(pool: EnvPool) -> None:
    made = recorder(pool)
    made.settings = RecorderSettings(halfhearted=(0.3, 0.8))
    orders = made.orders(400, np.random.default_rng(0), blind=True)
    for penalties in ([order.penalty for order in orders], [order.later_penalty for order in orders]):
        careless, careful = ([p for p in penalties if (p > 0.5) == side] for side in (False, True))
        assert 160 < len(careless) < 240
        for part, low, high in ((careless, 0.0, 0.3), (careful, 0.8, 0.9)):
            assert low <= min(part) < low + 0.02
            assert high - 0.02 < max(part) <= high
            assert np.mean(part) == pytest.approx((low + high) / 2, abs=0.02)


def test_later_orders_are_like_those_of_sparse_cells_of_scarce_kinds_and_of_the_best_safe(pool: EnvPool) -> None:
    made = recorder(pool, limits=(10.0,))
    # Two hundred alike and unsafe, one far from them, three safe ones of which the first returns most.
    made.recording = recorded([*[(50.0, 100.0)] * 200, (80.0, 500.0), (0.0, 90.0), (1.0, 20.0), (5.0, 10.0)])
    parents = made._parents(1000, np.random.default_rng(0))
    counts = np.bincount([parent.seed for parent in parents], minlength=204)
    assert counts.sum() == 750
    assert counts[:200].sum() < 150, "the crowd counts as one cell"
    assert counts[200] > 50
    assert (counts[201:] > 100).all(), "safe ones are scarce, and they are the best safe ones too"


def test_where_there_is_none_of_a_kind_its_neighbours_are_followed(pool: EnvPool) -> None:
    made = recorder(pool, limits=(10.0,))
    made.recording = recorded([(float(cost), 0.0) for cost in range(20, 120)])
    (few,) = made._scarce(made.recording.costs)
    assert set(np.flatnonzero(few)) == set(range(5)), "the cheapest, when nothing is safe"
    made.recording = recorded([(float(cost) / 100, 0.0) for cost in range(100)])
    (few,) = made._scarce(made.recording.costs)
    assert set(np.flatnonzero(few)) == set(range(95, 100)), "the dearest, when nothing is unsafe"


def test_a_like_order_is_near_and_stays_in_range(pool: EnvPool) -> None:
    made = recorder(pool)
    order = Order(5, 1, 0.88, change_at=3, later_penalty=0.0, noise=0.02, random=0.4)
    for seed in range(200):
        near = made._near(order, 20.0, np.random.default_rng(seed))
        assert near.seed != order.seed
        assert near.behaviour in (4, 5)
        assert 0.5 < near.penalty <= 0.9
        assert 0 <= near.later_penalty < 0.4
        assert 1 <= near.change_at <= 20
        assert near.noise >= 0
        assert 0 <= near.random <= 1
    assert made._near(Order(0, 1, 0.5), 20.0, np.random.default_rng(0)).change_at == -1


def test_the_number_of_candidates(pool: EnvPool) -> None:
    recording = recorder(pool, episodes=11).run(None, Silence())
    assert len(recording.orders) == len(recording.rollouts) == 17
    assert {len(rollout) for rollout in recording.rollouts} == {20}
    coverage = recording.coverage((10.0,))
    (limit, safe, unsafe), *_ = coverage.counts
    assert (limit, safe + unsafe) == (10.0, 17)
    assert 1 < coverage.cells <= 17


def test_episodes_of_the_learning_count_but_some_are_played_anyway(pool: EnvPool) -> None:
    behaviours = [PPO(3, 1, PPOSettings(), 0).behaviour()]
    for already, fresh in ((5, 10), (40, 4)):
        learned = Recording(
            [Order(0, number, 0.5) for number in range(already)], recorded([(1.0, 2.0)] * already).rollouts
        )
        made = Recorder(
            pool,
            behaviours,
            10,
            seed=0,
            limits=(10.0,),
            share=0.2,
            highest_penalty=0.9,
            settings=RecorderSettings(),
            learned=learned,
        )
        recording = made.run(None, Silence())
        assert len(recording) == already + fresh
        assert recording.orders[:already] == learned.orders


def test_more_is_played_near_the_front_and_in_the_region(pool: EnvPool) -> None:
    behaviours = [PPO(3, 1, PPOSettings(), seed).behaviour() for seed in range(6)]
    made = Recorder(
        pool,
        behaviours,
        1,
        seed=0,
        limits=(),
        share=0.2,
        highest_penalty=0.9,
        settings=RecorderSettings(),
        region=Region(highest_cost=50.0),
    )
    made.recording = recorded([(10.0, 100.0), (40.0, 0.0), (90.0, 100.0)])
    counts = np.bincount([parent.seed for parent in made._parents(1000, np.random.default_rng(0))], minlength=3)
    assert counts[0] > 5 * counts[1] > 0
    assert counts[2] == 0
