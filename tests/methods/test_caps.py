from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.methods.test_transitions import three_episodes
from tracrl.data.episodes import Episodes
from tracrl.methods.caps import CAPS, CAPSLearner, expectile_loss, head_weights
from tracrl.methods.method import Compute, RunSpec

SMALL = CAPS(batch_size=8, hidden=(8, 8), gamma=0.5, reward_scale=1.0)


def make(method: CAPS = SMALL) -> CAPSLearner:
    return method.learner(three_episodes(), [RunSpec(3.0, 0)], Compute())


def test_expectile_loss_by_hand() -> None:
    advantage = torch.tensor([[2.0, -1.0], [0.5, 0.5]])
    assert expectile_loss(advantage, 0.7).tolist() == pytest.approx([(0.7 * 4 + 0.3 * 1) / 2, 0.7 * 0.25])


def test_the_expectile_of_costs_is_a_low_one() -> None:
    """V_c of costs 0 and 1, equally often: where 0.3 (1 − V) = 0.7 V, nearer to the small cost."""
    costs = torch.tensor([[0.0, 1.0]])
    grid = torch.linspace(0, 1, 10_001)
    losses = torch.stack([expectile_loss(v - costs, 0.7)[0] for v in grid])
    assert grid[losses.argmin()].item() == pytest.approx(0.3, abs=1e-3)


def test_weights_by_hand() -> None:
    learner = make(replace(SMALL, beta=3.0, cost_beta=2.0))
    weight, cost_weight = learner.weights(torch.tensor([[0.0, 1.0, 5.0]]), torch.tensor([[-1.0, 1.0, 9.0]]))
    assert weight[0].tolist() == pytest.approx([1.0, math.exp(3), 100.0])
    assert cost_weight[0].tolist() == pytest.approx([math.exp(-2), math.exp(2), 100.0])


def test_heads_between_mix_the_weights() -> None:
    of_reward, of_cost = torch.tensor([[1.0, 2.0]]), torch.tensor([[10.0, 20.0]])
    assert head_weights(of_reward, of_cost, 2).tolist() == [[[1, 10], [2, 20]]]
    assert head_weights(of_reward, of_cost, 3).tolist() == [[[1, 11, 10], [2, 22, 20]]]  # 2 · 1 / 2 = 1 of the cost's


def test_targets_and_advantages_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    batch = learner.transitions.at(torch.tensor([[0, 1, 4]]))  # goes on, ended by itself, ended by time: goes on
    monkeypatch.setattr(learner.values, "forward", lambda states: torch.tensor([[[8.0, 8, 6], [2.0, 2, 4]]])[..., None])
    y, yc = learner.targets(batch)
    assert y[0].tolist() == [0 + 4, 1, 4 + 3]
    assert yc[0].tolist() == [1 + 1, 1, 1 + 2]
    monkeypatch.setattr(learner.target, "reward", lambda s, a: torch.tensor([[[9.0, 9, 9], [10.0, 7, 11]]]))
    monkeypatch.setattr(learner.target, "cost", lambda s, a: torch.tensor([[[1.0, 1, 1], [0.0, 3, 0]]]))
    advantage, cost_advantage = learner.advantages(batch)
    assert advantage[0].tolist() == [9 - 8, 7 - 8, 9 - 6]  # the least of the reward critics
    assert cost_advantage[0].tolist() == [2 - 1, 2 - 3, 4 - 1]  # the greatest of the cost critics


def test_the_policys_loss_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    batch = learner.transitions.at(torch.tensor([[0, 2]]))  # logged actions are 0
    monkeypatch.setattr(learner.actor, "forward", lambda states: torch.tensor([[[0.5, -1.0], [0.2, 0.4]]]))
    weights = torch.tensor([[[2.0, 3.0], [1.0, 5.0]]])
    expected = (2 * 0.25 + 3 * 1 + 1 * 0.04 + 5 * 0.16) / 4 / 2
    assert learner.actor_loss(batch, weights).item() == pytest.approx(expected)


def test_gradients_against_finite_differences() -> None:
    """One step's losses in float64: each network is moved by its own loss alone."""
    learner = make(replace(SMALL, hidden=(4,))).double()
    learner.transitions.observations = learner.transitions.observations.double()
    rows = torch.tensor([[0, 1, 2, 4]])
    batch = learner.transitions.at(rows)
    batch = type(batch)(**{name: getattr(batch, name).double() for name in batch.__dataclass_fields__})

    def losses() -> torch.Tensor:
        y, yc = learner.targets(batch)
        advantage, cost_advantage = learner.advantages(batch)
        weights = head_weights(*learner.weights(advantage.detach(), cost_advantage.detach()), 2)
        of_reward = (learner.critics.reward(batch.observations, batch.actions) - y[:, None]).square().mean(-1).sum()
        of_cost = (learner.critics.cost(batch.observations, batch.actions) - yc[:, None]).square().mean(-1).sum()
        of_values = expectile_loss(advantage, 0.7) + expectile_loss(cost_advantage, 0.7)
        return torch.stack([of_reward + of_cost, of_values.sum(), learner.actor_loss(batch, weights).sum()])

    for number, network in enumerate((learner.critics, learner.values, learner.actor)):
        (gradient,) = torch.autograd.grad(losses().sum(), [next(iter(network.parameters()))])
        parameter = next(iter(network.parameters())).data
        place = int(gradient.abs().argmax())
        flat, step = parameter.view(-1), 1e-6
        kept = flat[place].item()
        with torch.no_grad():
            flat[place] = kept + step
            above = losses()[number].item()
            flat[place] = kept - step
            below = losses()[number].item()
            flat[place] = kept
        assert gradient.view(-1)[place].item() == pytest.approx((above - below) / (2 * step), rel=1e-4)


def test_the_limit_has_no_part_in_training() -> None:
    data = three_episodes()
    weights = []
    for limit in (0.0, 50.0):
        learner = SMALL.learner(data, [RunSpec(limit, 3)], Compute())
        learner.update()
        weights.append({name: tensor.clone() for name, tensor in learner.state_dict().items()})
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_head_for_cost_is_the_careful_one() -> None:
    """One state, one step: the bold action brings 1 and costs 1."""
    bold = np.arange(200) % 2 == 1
    data = Episodes.from_arrays(
        {
            "observations": np.ones((200, 1)),
            "actions": np.where(bold, 0.6, -0.6)[:, None],
            "rewards": bold.astype(float),
            "costs": bold.astype(float),
            "terminals": np.ones(200, bool),
        }
    )
    method = CAPS(batch_size=64, hidden=(16,), reward_scale=1.0, lr=1e-2, tau=0.1, gamma=0.5, beta=6, cost_beta=6)
    learner = method.learner(data, [RunSpec(0.0, 0)], Compute())
    for _ in range(200):
        learner.update()
    policy = learner.policy()[[0, 0]].at([1.5, 0.0])
    policy.reset(0)
    allowed, forbidden = policy.act(np.ones(1))[:, 0]
    assert allowed == pytest.approx(0.6, abs=0.15)
    assert forbidden == pytest.approx(-0.6, abs=0.15)
