from __future__ import annotations

import pytest
import torch

from tests.methods.test_transitions import three_episodes
from tracrl.methods.bcq_lag import BCQLag
from tracrl.methods.lagrangian import LagrangianLearner, PIDLagrangian, best_candidate
from tracrl.methods.method import Compute, RunSpec

CPU = torch.device("cpu")


def test_multiplier_rises_above_the_threshold_and_falls_below() -> None:
    pid = PIDLagrangian(torch.tensor([2.0, 2.0]), kp=0.1, ki=0.1, kd=0.0)
    values = [pid.update(torch.tensor([5.0, 1.0])).clone() for _ in range(3)]
    assert values[0][0] < values[1][0] < values[2][0]
    assert all(v[1] == 0 for v in values)
    values += [pid.update(torch.tensor([1.0, 1.0])).clone() for _ in range(3)]
    assert values[2][0] > values[3][0] > values[4][0] > values[5][0]


def test_multiplier_by_hand() -> None:
    pid = PIDLagrangian(torch.tensor([2.0]), kp=0.1, ki=0.01, kd=0.5)
    # Errors 3, then 1: integral 3, then 4; derivative 3, then nothing.
    assert pid.update(torch.tensor([5.0])).item() == pytest.approx(0.1 * 3 + 0.01 * 3 + 0.5 * 3)
    assert pid.update(torch.tensor([3.0])).item() == pytest.approx(0.1 * 1 + 0.01 * 4)
    # The integral does not fall below nothing.
    assert pid.update(torch.tensor([-100.0])).item() == 0
    assert pid.update(torch.tensor([3.0])).item() == pytest.approx(0.1 * 1 + 0.01 * 1 + 0.5 * 103)


def test_best_candidate_weighs_cost_by_the_multiplier() -> None:
    q, qc = torch.tensor([[[1.0, 3.0, 2.0]]]), torch.tensor([[[0.0, 5.0, 1.0]]])
    for multiplier, expected in ((0.0, (3.0, 5.0)), (0.5, (2.0, 1.0)), (2.0, (1.0, 0.0))):
        value, cost = best_candidate(q, qc, torch.tensor([multiplier]))
        assert (value.item(), cost.item()) == expected


def make(limit: float = 1.0) -> LagrangianLearner:
    method = BCQLag(batch_size=4, hidden=(8,), vae_hidden=(8,), gamma=0.5, pessimism=0.75, critics=1)
    return method.learner(three_episodes(), [RunSpec(limit, 0)], Compute())


def test_targets_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two critics of each kind that answer with multiples of the action."""
    learner = make()
    learner.pid.multiplier.fill_(1.0)

    def answers(*factors: float):  # type: ignore[no-untyped-def]
        return lambda states, actions: torch.stack([f * actions[..., 0] for f in factors], 1)

    monkeypatch.setattr(learner.target, "reward", answers(2.0, 4.0))
    monkeypatch.setattr(learner.target, "cost", answers(1.0, 3.0))
    batch = learner.transitions.at(torch.tensor([[0, 1, 4]]))
    candidates = torch.tensor([0.1, 0.5]).view(1, 1, 2, 1).expand(1, 3, 2, 1)
    y, yc = learner.targets(batch, candidates)
    # At action a: Q = 0.75 · 2a + 0.25 · 4a = 2.5a and Q_c = 0.75 · 3a + 0.25 · 1a = 2.5a: a tie, so the first.
    # γ = 0.5, rewards 0, 0.1 and 0.4 (scaled), costs 1. Row 1 ended by itself; row 4 by time, and goes on.
    assert y[0].tolist() == pytest.approx([0.125, 0.1, 0.4 + 0.125])
    assert yc[0].tolist() == pytest.approx([1.125, 1.0, 1.125])
    learner.pid.multiplier.fill_(0.5)
    y, yc = learner.targets(batch, candidates)  # now the bolder candidate is worth its cost
    assert y[0].tolist() == pytest.approx([0.625, 0.1, 0.4 + 0.625])
    assert yc[0].tolist() == pytest.approx([1.625, 1.0, 1.625])


def test_lagrangian_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make(limit=3.0)
    threshold = 3.0 / 3 * (1 + 0.5 + 0.25)
    monkeypatch.setattr(learner.critics, "reward", lambda s, a, frozen: torch.tensor([[[1.0, 2.0], [3.0, 0.0]]]))
    monkeypatch.setattr(learner.critics, "cost", lambda s, a, frozen: torch.tensor([[[2.0, 4.0], [6.0, 0.0]]]))
    loss = learner.lagrangian(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1))
    error = 5.0 - threshold  # the greatest of the cost critics: 6 and 4
    multiplier = 0.1 * error + 0.003 * error + 0.001 * error
    assert learner.pid.multiplier.item() == pytest.approx(multiplier)
    assert loss.item() == pytest.approx(-0.5 + multiplier * error)  # the least of the reward critics: 1 and 0
