from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.methods.test_transitions import three_episodes
from tracrl.methods.carl import CARL, CARLLearner
from tracrl.methods.method import Compute, RunSpec

SMALL = CARL(batch_size=8, hidden=(8, 8), gamma=0.5, reward_scale=1.0, policy_noise=0.0)


def make(method: CARL = SMALL, limit: float = 3.0) -> CARLLearner:
    return method.learner(three_episodes(), [RunSpec(limit, 0)], Compute())


def test_relabelled_targets_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    assert learner.threshold.item() == pytest.approx(1.75)
    assert learner.penalty.item() == -5  # rewards are 0 to 5
    batch = learner.transitions.at(torch.tensor([[0, 1, 2, 4]]))  # row 1 ended by itself, row 4 by time: it goes on
    costs = torch.tensor([[[1.0, 0.0, 1.7, 1.7], [2.0, 0.0, 1.75, 0.0]]])
    unsafe = learner.is_unsafe(costs)
    assert unsafe[0].tolist() == [True, False, False, False]  # the greatest counts; at the threshold it is safe
    value = torch.tensor([[[8.0, 8, 8, 8], [6.0, 9, 9, 9]]])
    cost = torch.tensor([[[0.0, 0, 2, 1], [1.0, 0, 0, 0]]])
    monkeypatch.setattr(learner.target, "reward", lambda states, actions: value)
    monkeypatch.setattr(learner.target, "cost", lambda states, actions: cost)
    y, yc = learner.targets(batch, unsafe)
    assert y[0].tolist() == [-5 + 3, 1, 2 + 4, 4 + 4]
    assert yc[0].tolist() == [1.5, 1, 2, 1.5]


def test_bootstrapped_actions_are_noisy_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make(replace(SMALL, policy_noise=10.0, noise_clip=0.3))
    seen: dict[str, torch.Tensor] = {}

    def reward(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        seen["actions"] = actions
        return torch.zeros(1, 2, 8)

    monkeypatch.setattr(learner.target, "reward", reward)
    batch = learner.transitions.draw(learner.key(0), 8)
    learner.targets(batch, torch.zeros(1, 8, dtype=torch.bool))
    with torch.no_grad():
        shift = seen["actions"] - learner.actor_target(batch.next_observations)
    assert shift.abs().max() <= 0.3 + 1e-6
    assert shift.abs().max() > 0.29
    assert seen["actions"].abs().max() <= 1


def test_penalty_of_rewards_that_are_all_below_zero() -> None:
    data = replace(three_episodes(), rewards=np.linspace(-3, -1, 6, dtype=np.float32))
    assert SMALL.learner(data, [RunSpec(3.0, 0)], Compute()).penalty.item() == -3


def test_the_policys_loss_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    batch = learner.transitions.at(torch.tensor([[0, 2]]))  # logged actions are 0
    monkeypatch.setattr(learner.actor, "forward", lambda states: torch.tensor([[[0.5], [1.0]]]))
    monkeypatch.setattr(learner.critics, "reward", lambda s, a, frozen: torch.tensor([[[3.0, -1.0], [9.0, 9.0]]]))
    # The first critic's: its mean is 1, its mean size 2.
    assert learner.actor_loss(batch).item() == pytest.approx((0.25 + 1) / 2 - 2.5 * 1 / 2)


def test_the_policys_gradient_against_finite_differences() -> None:
    learner = make(replace(SMALL, hidden=(4,), critics=1)).double()
    batch = learner.transitions.at(torch.tensor([[0, 1, 2, 4]]))
    batch = type(batch)(**{name: getattr(batch, name).double() for name in batch.__dataclass_fields__})
    with torch.no_grad():
        size = learner.critics.reward(batch.observations, learner.actor(batch.observations)).abs().mean()

    def loss() -> torch.Tensor:
        """λ = α / E|Q| is held: it has no gradient."""
        action = learner.actor(batch.observations)
        value = 2.5 * learner.critics.reward(batch.observations, action).mean() / size
        return (action - batch.actions).square().mean() - value

    parameter = learner.actor.layers[0].weight
    (gradient,) = torch.autograd.grad(learner.actor_loss(batch).sum(), [parameter])
    place, step = int(gradient.abs().argmax()), 1e-6
    flat = parameter.data.view(-1)
    kept = flat[place].item()
    with torch.no_grad():
        flat[place] = kept + step
        above = loss().item()
        flat[place] = kept - step
        below = loss().item()
    assert gradient.view(-1)[place].item() == pytest.approx((above - below) / (2 * step), rel=1e-4)


def test_the_policy_moves_in_every_second_update() -> None:
    learner = make()
    before = copy.deepcopy([learner.actor.state_dict(), learner.target.state_dict()])
    learner.update()
    for network, old in zip((learner.actor, learner.target), before, strict=True):
        assert all(torch.equal(tensor, old[name]) for name, tensor in network.state_dict().items())
    learner.update()
    for network, old in zip((learner.actor, learner.target), before, strict=True):
        assert not any(torch.equal(tensor, old[name]) for name, tensor in network.state_dict().items())
    assert learner.actor_adam.count.tolist() == [1]


def test_the_form_for_gpus_is_the_same() -> None:
    """There every update does the same work, and is undone where it is not the policy's turn."""
    plain, recorded = make(), make()
    for step in range(5):
        plain.update()
        batch = recorded.transitions.draw(recorded.key(0), 8)
        turn = recorded.step % 2 == 1
        recorded.step = 0  # never the policy's turn for the form of CPUs
        recorded.learn()
        recorded.step = step
        recorded.move_policy_where(torch.tensor(turn), batch)
        recorded.step += 1
        recorded.clock += 1
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, recorded.state_dict()[name]), name
