from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.methods.test_transitions import three_episodes
from tracrl.data.episodes import Episodes
from tracrl.methods.cpq import CPQ, CPQLearner, most_ood, ood_mean
from tracrl.methods.method import Compute, RunSpec

CPU = torch.device("cpu")


def timid_data() -> Episodes:
    """Actions within ±0.2 alone, none of which costs anything."""
    generator = np.random.default_rng(0)
    timeouts = np.arange(1, 401) % 20 == 0
    return Episodes.from_arrays(
        {
            "observations": generator.normal(size=(400, 2)),
            "actions": generator.uniform(-0.2, 0.2, size=(400, 1)),
            "rewards": generator.uniform(size=400),
            "costs": np.zeros(400),
            "timeouts": timeouts,
            "final_observations": generator.normal(size=(20, 2)),
        }
    )


TIMID = CPQ(batch_size=64, hidden=(32,), vae_hidden=(32,), gamma=0.5, critic_lr=3e-3, vae_lr=3e-3, actor_lr=0.0)


def trained(method: CPQ, updates: int = 300) -> CPQLearner:
    learner = method.learner(timid_data(), [RunSpec(10.0, 0)], Compute())
    for _ in range(updates):
        learner.update()
    return learner


def cost_of(learner: CPQLearner, action: float) -> float:
    states = torch.from_numpy(timid_data().observations)[None]
    with torch.no_grad():
        return learner.critics.cost(states, torch.full((1, 400, 1), action)).amax(1).mean().item()


def test_penalty_makes_ood_actions_costly_and_leaves_the_others() -> None:
    learner = trained(TIMID)
    threshold = learner.threshold.item()
    assert cost_of(learner, 0.95) > 0.9 * threshold
    assert cost_of(learner, -0.95) > 0.9 * threshold
    assert cost_of(learner, 0.0) < 0.5 * threshold


def test_without_the_penalty_they_cost_nothing() -> None:
    learner = trained(replace(TIMID, reference_quirks=True))
    assert abs(cost_of(learner, 0.95)) < 0.2 * learner.threshold.item()


def test_the_penalty_has_no_effect_at_all_in_the_reference_form() -> None:
    def weights(method: CPQ) -> list[torch.Tensor]:
        return [p.detach() for p in trained(method, 20).critics.parameters()]

    quirks = replace(TIMID, reference_quirks=True)
    stronger = replace(quirks, ood_cost=100.0, alpha_lr=1.0)
    assert all(torch.equal(a, b) for a, b in zip(weights(quirks), weights(stronger), strict=True))
    assert not all(
        torch.equal(a, b) for a, b in zip(weights(TIMID), weights(replace(TIMID, ood_cost=100.0)), strict=True)
    )


def test_alpha_rises_while_ood_actions_cost_too_little_and_falls_after() -> None:
    learner = trained(TIMID, 1)
    learner.adjust_alpha(torch.tensor([2.0]))
    risen = learner.log_alpha.item()
    assert risen > 0
    learner.adjust_alpha(torch.tensor([-4.0]))
    assert learner.log_alpha.item() < risen


def test_targets_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    data = three_episodes()  # T = 3
    settings = CPQ(batch_size=4, hidden=(4,), vae_hidden=(4,), gamma=0.5, reward_scale=1.0)
    rows = torch.tensor([[0, 1, 2, 4]])  # goes on, ended by itself, goes on, ended by time
    value = torch.tensor([[[8.0, 8, 8, 8], [6.0, 6, 6, 6]]])
    cost = torch.tensor([[[0.0, 0, 5, 1], [1.0, 0, 0, 0]]])
    for quirks in (False, True):
        learner = replace(settings, reference_quirks=quirks).learner(data, [RunSpec(3.0, 0)], Compute())
        assert learner.threshold.item() == pytest.approx(1.75)
        monkeypatch.setattr(learner.target, "reward", lambda states, actions: value)
        monkeypatch.setattr(learner.target, "cost", lambda states, actions: cost)
        y, yc = learner.targets(learner.transitions.at(rows))
        if quirks:  # least cost: all are safe; rewards end at the time-out, costs never
            assert y[0].tolist() == pytest.approx([0 + 3, 1, 2 + 3, 4])
            assert yc[0].tolist() == pytest.approx([1.0, 1.0, 1.0, 1.0])
        else:  # greatest cost: the third action costs 5, more than 1.75, and counts for nothing
            assert y[0].tolist() == pytest.approx([0 + 3, 1, 2, 4 + 3])
            assert yc[0].tolist() == pytest.approx([1.5, 1.0, 3.5, 1.5])


def test_policy_seeks_reward_where_safe_and_less_cost_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = TIMID.learner(timid_data(), [RunSpec(10.0, 0)], Compute())
    states = torch.zeros(1, 2, 2)
    learner.threshold.fill_(1.0)
    value, cost = torch.tensor([[[3.0, 3.0]]]), torch.tensor([[[0.5, 4.0]]])
    monkeypatch.setattr(learner.critics, "reward", lambda s, a, frozen: value)
    monkeypatch.setattr(learner.critics, "cost", lambda s, a, frozen: cost)
    loss, safe = learner.actor_loss(states)
    assert loss.item() == pytest.approx(-(3.0 - 4.0) / 2)
    assert safe.item() == 0.5


def test_the_most_divergent_quarter() -> None:
    divergences = torch.tensor([[0.0, 5.0, 1.0, 2.0, 9.0, 3.0, 4.0, 0.5]])
    assert set(most_ood(divergences)[0].tolist()) == {1, 4}
    assert ood_mean(torch.tensor([[2.0, 4.0, 9.0]]), torch.tensor([[1.0, 1.0, 0.0]])).item() == 3
    assert ood_mean(torch.tensor([[2.0]]), torch.tensor([[0.0]])).item() == 0
