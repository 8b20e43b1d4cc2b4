from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.data.made_up import episodes_of
from tracrl.data.episodes import Episodes
from tracrl.methods.cdt import (
    CDT,
    CDTLearner,
    SequenceBatch,
    SequenceTable,
    Trajectories,
    action_losses,
    augmentation,
    masked_mean,
    to_go,
)
from tracrl.methods.cdt_targets import data_targets, task_targets
from tracrl.methods.method import Compute, RunSpec
from tracrl.nets import random
from tracrl.tasks.table import all_tasks

CPU = torch.device("cpu")
SMALL = CDT(batch_size=8, context=3, width=8, layers=2, heads=2, dropout=0.0)


def two_episodes() -> Episodes:
    return episodes_of([[1, 2, 3], [10, 20]], [[0, 1, 0], [1, 1]])


def spread() -> Episodes:
    """100 episodes of two steps; the return grows with the cost, more or less well spent."""
    generator = np.random.default_rng(0)
    costs = generator.uniform(0, 40, 100)
    returns = (10 + costs) * generator.uniform(0.3, 1.0, 100)
    return episodes_of([[r, 0.0] for r in returns], [[c, 0.0] for c in costs])


def test_what_is_still_to_come() -> None:
    data = two_episodes()
    assert to_go(data.rewards, data.offsets).tolist() == [6, 5, 3, 30, 20]
    assert to_go(data.costs, data.offsets).tolist() == [1, 1, 0, 2, 1]


def test_a_huge_step_in_one_episode_costs_the_others_no_digit() -> None:
    steps = np.array([1e20, 1, 2, 3], np.float32)
    assert to_go(steps, np.array([0, 2, 4])).tolist() == [np.float32(1e20), 1, 5, 3]


def test_sub_sequences_by_hand() -> None:
    data = two_episodes()
    trajectories = Trajectories(np.array([0, 1, 1]), np.array([0.0, 0.0, 5.0]), np.array([0.0, 0.0, 7.0]))
    table = SequenceTable(data, [trajectories], replace(SMALL, reward_scale=0.1), CPU)
    batch = table.at(torch.tensor([[0, 2]]), torch.tensor([[1, 0]]))
    assert batch.returns_to_go[0].flatten().tolist() == pytest.approx([0.5, 0.3, 0.3, 3.5, 2.5, 2.5])
    assert batch.costs_to_go[0].flatten().tolist() == [1, 0, 0, 9, 8, 8]
    assert batch.observations[0, ..., 0].tolist() == [[1, 2, 2], [3, 4, 4]]
    assert batch.valid[0].tolist() == [[1, 1, 0], [1, 1, 0]]
    assert batch.steps[0].tolist() == [[1, 2, 3], [0, 1, 2]]


def test_costly_trajectories_are_drawn_less_and_the_costliest_never() -> None:
    data = episodes_of([[0.0]] * 3, [[0.0], [35.0], [80.0]])
    trajectories = Trajectories(np.arange(3), np.zeros(3), np.zeros(3))
    table = SequenceTable(data, [trajectories], replace(SMALL, batch_size=6000, largest_cost=70.0), CPU)
    key = random.keys(torch.tensor([0]), torch.tensor(0), 0)
    drawn = table.draw(key, key).observations[0, :, 0, 0].int()
    counts = torch.bincount(drawn, minlength=3)
    assert counts[2] == 0
    assert counts[0].item() == pytest.approx(4000, abs=200)


def test_fractional_costs_keep_their_size() -> None:
    data = episodes_of([[0.0, 0.0]], [[0.4, 1.6]])
    table = SequenceTable(data, [Trajectories(np.zeros(1, np.int64), np.zeros(1), np.zeros(1))], SMALL, CPU)
    assert table.costs.tolist() == pytest.approx([0.25, 1.0])


def test_losses_by_hand() -> None:
    mean, log_std = torch.tensor([[[[0.0], [5.0]]]]), torch.tensor([[[[0.0], [1.0]]]])
    ones = torch.ones(1, 1, 2)
    batch = SequenceBatch(ones, ones, mean, torch.tensor([[[[1.0], [0.0]]]]), ones, ones.long(), ones * 1)
    batch.valid[0, 0, 1] = 0  # the second step is behind the end
    nll, entropy = action_losses(mean, log_std, batch)
    assert nll.item() == pytest.approx(0.5 + 0.5 * math.log(2 * math.pi))
    assert entropy.item() == pytest.approx(0.5 * math.log(2 * math.pi * math.e))
    assert masked_mean(torch.tensor([[[3.0, 9.0]]]), batch.valid).item() == 3


def test_labels_of_the_augmentation_are_above_the_front() -> None:
    data = spread()
    targets = data_targets(data)
    extra = augmentation(data, replace(targets, highest_return=60.0), 0.5, np.random.default_rng(0))
    assert len(extra.episode) == 50
    for episode, more_return, more_cost in zip(extra.episode, extra.extra_return, extra.extra_cost, strict=True):
        cost, value = data.total_costs[episode] + more_cost, data.returns[episode] + more_return
        front = data.returns[data.total_costs <= cost].max()
        assert more_cost >= 0
        assert front <= value <= 60.0
        assert data.returns[episode] >= front - targets.slack
    assert len(augmentation(data, targets, 0.0, np.random.default_rng(0)).episode) == 0


def test_augmentation_of_a_single_episode_is_no_crash() -> None:
    data = episodes_of([[1.0]], [[2.0]])
    extra = augmentation(data, data_targets(data), 3.0, np.random.default_rng(0))
    assert extra.episode.tolist() == [0, 0, 0]
    assert extra.extra_return.tolist() == [0, 0, 0]
    assert extra.extra_cost.tolist() == [0, 0, 0]
    assert len(augmentation(data, data_targets(data), 0.2, np.random.default_rng(0)).episode) == 0


def test_targets_of_the_benchmark() -> None:
    for name, task in all_tasks().items():
        targets = task_targets(name)
        assert targets is not None
        assert [limit for limit, _ in targets.returns] == list(task.limits)
        assert max(value for _, value in targets.returns) <= 1.12 * task.max_return
    assert task_targets("BallRun").returns == ((10, 500), (20, 500), (40, 700))  # type: ignore[union-attr]
    assert task_targets("my own") is None


def test_targets_from_data_are_the_best_within_each_limit() -> None:
    data = episodes_of([[5.0], [3.0], [9.0], [8.0]], [[1.0], [0.0], [4.0], [6.0]])
    assert data_targets(data).returns == ((0, 3), (1, 5), (4, 9))
    policy = SMALL.learner(data, [RunSpec(0.0, 0)], Compute()).policy()
    asked = {limit: policy.target_return(limit) for limit in (0, 0.5, 1, 3.9, 4, 100)}  # type: ignore[attr-defined]
    assert asked == {0: 3, 0.5: 3, 1: 5, 3.9: 5, 4: 9, 100: 9}


def test_the_temperature_steers_the_entropy() -> None:
    learner = replace(SMALL, temperature_lr=1e-2).learner(spread(), [RunSpec(0.0, 0)], Compute())
    before = learner.update()["temperature"].item()
    assert learner.update()["temperature"].item() < before  # untrained, the entropy is above −1


def test_gradients_are_cut_for_each_run_by_itself() -> None:
    learner = replace(SMALL, max_grad_norm=1e-3, weight_decay=0.0, warmup=1).learner(
        spread(), [RunSpec(0, s) for s in (0, 1)], Compute()
    )
    seen: list[torch.Tensor] = []
    learner.adam.move = lambda gradients, lr: seen.append(  # type: ignore[method-assign]
        torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
    )
    learner.update()
    assert seen[0].tolist() == pytest.approx([1e-3, 1e-3], rel=1e-3)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_later_step_does_not_change_an_earlier_one(dropout: float) -> None:
    """Causality: neither actions to come nor the step's own action may be seen, as it acts and as it trains."""
    learner: CDTLearner = replace(SMALL, dropout=dropout).learner(spread(), [RunSpec(0.0, 0)], Compute())
    batch = learner.table.draw(learner.key(0), learner.key(1))
    mean, _, cost = learner.model(batch, learner.key)
    actions = batch.actions.clone()
    actions[:, :, 1] += 1
    changed, _, changed_cost = learner.model(replace(batch, actions=actions), learner.key)
    assert torch.allclose(mean[:, :, :2], changed[:, :, :2], atol=1e-6)
    assert not torch.allclose(mean[:, :, 2], changed[:, :, 2], atol=1e-6)
    assert torch.allclose(cost[:, :, 0], changed_cost[:, :, 0], atol=1e-6)
    assert not torch.allclose(cost[:, :, 1], changed_cost[:, :, 1], atol=1e-6)
