from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tracrl.collect import learner as learning
from tracrl.collect.behaviour import Behaviour
from tracrl.collect.learner import Learner, LearnerSettings, Snapshot, spread
from tracrl.collect.progress import Front, Silence
from tracrl.collect.rollout import Order
from tracrl.envs.environment import EnvSpec
from tracrl.envs.pool import EnvPool
from tracrl.errors import TracrlError


@pytest.fixture(scope="module")
def pool() -> Iterator[EnvPool]:
    with EnvPool(EnvSpec("tiny_envs:Road"), 2) as pool:
        yield pool


@pytest.fixture(scope="module")
def trained(pool: EnvPool) -> list[Snapshot]:
    return Learner(pool, 40_000, 0, LearnerSettings()).run(None, Silence())


def means(pool: EnvPool, behaviour: Behaviour, penalty: float, number: int) -> tuple[float, float]:
    rollouts = pool.play({number: behaviour}, [Order(number, seed, penalty, noise=0) for seed in range(10)], 20)
    return (
        float(np.mean([rollout.rewards.sum() for rollout in rollouts])),
        float(np.mean([rollout.costs.sum() for rollout in rollouts])),
    )


def test_rewards_grow_where_costs_do_not_count(pool: EnvPool, trained: list[Snapshot]) -> None:
    before, after = (means(pool, trained[i].behaviour, 0.0, 100 + i)[0] for i in (0, len(trained) - 1))
    assert before < 60
    assert after > 76, "of at most 80 and a little"


def test_the_higher_the_penalty_the_lower_the_cost(pool: EnvPool, trained: list[Snapshot]) -> None:
    reached = [means(pool, trained[-1].behaviour, penalty, 200) for penalty in (0.0, 0.3, 0.5, 0.6, 0.7, 0.95)]
    costs = [cost for _, cost in reached]
    assert all(a >= b - 0.5 for a, b in itertools.pairwise(costs)), reached
    assert costs[0] > 18
    assert costs[-1] < 2


def test_the_middle_one_of_the_limits_is_tolerated(pool: EnvPool) -> None:
    assert Learner(pool, 1, 0, LearnerSettings(), (10, 20, 40)).ppo.tolerated == 20
    assert Learner(pool, 1, 0, LearnerSettings()).ppo.tolerated == 0


def test_snapshots_lie_along_the_training(trained: list[Snapshot]) -> None:
    steps = [snapshot.step for snapshot in trained]
    assert steps[0] == 0
    assert steps[-1] >= 40_000
    assert steps == sorted(set(steps))
    assert len(steps) >= 10


def test_an_interrupted_training_ends_where_an_uninterrupted_one_does(
    pool: EnvPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stops(Silence):
        def learning(self, step: int, steps: int, front: Front) -> None:
            if step > 4_000:
                raise KeyboardInterrupt

    monkeypatch.setattr(learning, "CHECKPOINT_SECONDS", 0.0)
    settings = LearnerSettings()
    uninterrupted = Learner(pool, 8_000, 3, settings)
    straight = uninterrupted.run(None, Silence())
    file = tmp_path / "learner.safetensors"
    with pytest.raises(KeyboardInterrupt):
        Learner(pool, 8_000, 3, settings).run(file, Stops())
    resumed = Learner(pool, 8_000, 3, settings)
    found = resumed.run(file, Silence())
    assert [snapshot.step for snapshot in found] == [snapshot.step for snapshot in straight]
    for one, other in zip(straight, found, strict=True):
        for (weight, _), (other_weight, _) in zip(one.behaviour.layers, other.behaviour.layers, strict=True):
            np.testing.assert_array_equal(weight, other_weight)
        np.testing.assert_array_equal(one.behaviour.mean, other.behaviour.mean)
    again = Learner(pool, 8_000, 3, settings)
    assert again.run(file, Silence())[-1].step == found[-1].step, "nothing is left to do"
    for learner in (resumed, again):
        assert learner.recording.orders == uninterrupted.recording.orders
        np.testing.assert_array_equal(learner.recording.returns, uninterrupted.recording.returns)


def test_the_episodes_of_the_second_half_are_kept_with_the_snapshot_before_them(pool: EnvPool) -> None:
    learner = Learner(pool, 8_000, 3, LearnerSettings())
    learner.run(None, Silence())
    recording = learner.recording
    assert sum(len(rollout) for rollout in recording.rollouts) == 4_000
    assert all(order.noise == 1 and order.change_at == -1 for order in recording.orders)
    numbers = [order.behaviour for order in recording.orders]
    assert numbers == sorted(numbers)
    assert learner.snapshots[numbers[0]].step <= 4_000 <= learner.snapshots[numbers[0] + 1].step


def test_penalties_are_spread_evenly_with_some_at_the_very_ends() -> None:
    penalties = spread((np.arange(1000) + 0.5) / 1000, 0.95, 0.1)
    assert (penalties == 0).sum() == 100
    assert (penalties == 0.95).sum() == 100
    inner = penalties[(penalties > 0) & (penalties < 0.95)]
    counts, _ = np.histogram(inner, 10, (0, 0.95))
    assert counts.min() >= 79


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tiny_envs:Foggy", "after step 3 holds nan"),
        ("tiny_envs:Switch", "only continuous actions"),
        ("tiny_envs:Broken", r"raised ZeroDivisionError: the axle broke \(in step, tiny_envs.py line \d+\)"),
    ],
)
def test_what_happens_in_a_process_is_said_here(name: str, said: str) -> None:
    with pytest.raises(TracrlError, match=said), EnvPool(EnvSpec(name), 1) as pool:
        Learner(pool, 100, 0, LearnerSettings()).run(None, Silence())


def test_a_process_that_dies_is_replaced() -> None:
    with EnvPool(EnvSpec("tiny_envs:Road"), 1) as pool:
        behaviour = Learner(pool, 100, 0, LearnerSettings()).ppo.behaviour()
        for pid in pool.processes.pids:
            os.kill(pid, signal.SIGKILL)
        assert len(pool.play({0: behaviour}, [Order(0, 0, 0.5)], 20)) == 1


def test_the_number_of_threads_does_not_matter(pool: EnvPool) -> None:
    before = torch.get_num_threads()
    weights = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            learner = Learner(pool, 2_000, 0, LearnerSettings())
            learner.run(None, Silence())
            weights.append(learner.snapshots[-1].behaviour.layers[1][0])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*weights)
