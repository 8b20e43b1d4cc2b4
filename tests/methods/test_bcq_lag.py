from __future__ import annotations

import torch

from tests.methods.road import log_of_drivers
from tracrl.methods.bcq_lag import BCQLag, perturbed
from tracrl.methods.method import Compute, RunSpec

CPU = torch.device("cpu")


def test_perturbation_is_small_and_stays_in_the_box() -> None:
    actions = torch.tensor([0.0, 0.5, 0.99, -1.0])
    moved = perturbed(actions, torch.tensor([0.0, 100.0, 100.0, -100.0]), 0.05)
    assert torch.allclose(moved, torch.tensor([0.0, 0.55, 1.0, -1.0]))


def test_actor_follows_its_critics() -> None:
    """With critics, VAE and multiplier held still, updates of the actor alone raise Q of its actions."""
    held = {"critic_lr": 0.0, "vae_lr": 0.0, "kp": 0.0, "ki": 0.0, "kd": 0.0}
    method = BCQLag(batch_size=128, hidden=(16,), vae_hidden=(16,), actor_lr=1e-2, phi=1.0, **held)  # type: ignore[arg-type]
    learner = method.learner(log_of_drivers(20), [RunSpec(0.5, 0)], Compute())
    losses = [learner.update()["actor_loss"].item() for _ in range(60)]
    assert sum(losses[-10:]) < sum(losses[:10])


def test_candidates_come_from_the_data() -> None:
    """Trained on the drivers' log, the decoder proposes country speeds near theirs."""
    method = BCQLag(batch_size=64, hidden=(16,), vae_hidden=(32,), vae_lr=3e-3, critics=1, candidates=2)
    learner = method.learner(log_of_drivers(), [RunSpec(2.0, 0)], Compute())
    for _ in range(250):
        learner.train_vae(learner.draw())
        learner.step += 1
        learner.clock += 1
    decoded = torch.tanh(learner.decoded(0, torch.tensor([[[1.0, 0.0]]]), 200))
    assert 0.5 < decoded.mean().item() < 0.9
