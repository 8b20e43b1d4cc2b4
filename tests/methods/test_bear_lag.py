from __future__ import annotations

import math

import pytest
import torch

from tests.methods.road import log_of_drivers
from tracrl.methods.bear_lag import BEARLag, mmd
from tracrl.methods.method import Compute, RunSpec

CPU = torch.device("cpu")


def test_mmd_by_hand() -> None:
    x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]])

    def k(a: float, b: float) -> float:
        return math.exp(-((a - b) ** 2) / (2 * 0.5))

    within_x = (2 * k(0, 0) + 2 * k(0, 1)) / 4
    within_y = (2 * k(0, 0) + 2 * k(0, 2)) / 4
    across = (k(0, 0) + k(0, 2) + k(1, 0) + k(1, 2)) / 4
    assert mmd(x, y, 0.5).item() == pytest.approx(math.sqrt(within_x + within_y - 2 * across + 1e-6), rel=1e-5)
    assert mmd(x, x.flip(0), 0.5).item() == pytest.approx(1e-3, abs=2e-4)


def test_alpha_rises_while_the_discrepancy_is_too_large_and_falls_after() -> None:
    def alpha_after(target: float) -> float:
        method = BEARLag(
            batch_size=32, hidden=(16,), vae_hidden=(16,), critics=1, mmd_sigma=0.1, mmd_target=target, alpha_lr=0.1
        )
        learner = method.learner(log_of_drivers(20), [RunSpec(2.0, 0)], Compute())
        for _ in range(5):
            metrics = learner.update()
        return metrics["alpha"].item()

    assert alpha_after(target=0.01) > 1.05
    assert alpha_after(target=2.0) < 0.8


def test_a_large_alpha_draws_the_policy_to_the_data() -> None:
    method = BEARLag(
        batch_size=64, hidden=(32,), vae_hidden=(32,), critics=1, mmd_sigma=0.5, actor_lr=3e-3, critic_lr=0.0
    )
    learner = method.learner(log_of_drivers(20), [RunSpec(2.0, 0)], Compute())
    learner.log_alpha.fill_(5.0)
    discrepancies = [learner.update()["mmd"].item() for _ in range(150)]
    assert sum(discrepancies[-10:]) < 0.5 * sum(discrepancies[:10])
