from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from tracrl.nets.actor import SquashedGaussian
from tracrl.nets.critics import Critics, frozen_copy, polyak_update, regression_loss, soft_maximum, soft_minimum
from tracrl.nets.stacked import generators
from tracrl.nets.vae import StackedVAE, central, divergence


def test_soft_minimum_and_maximum_by_hand() -> None:
    values = torch.tensor([1.0, 5.0, 3.0, 4.0]).view(1, 4, 1)
    # Groups (1, 5) and (3, 4): minima 1 and 3, maxima 5 and 4.
    assert soft_minimum(values, 0.75).item() == pytest.approx(0.75 * 1 + 0.25 * 3)
    assert soft_maximum(values, 0.75).item() == pytest.approx(0.75 * 5 + 0.25 * 4)


def test_regression_loss_by_hand() -> None:
    values = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert regression_loss(values, torch.tensor([[1.0, 0.0]])).item() == (0 + 4) / 2 + (4 + 16) / 2


def test_targets_follow_slowly_and_are_not_trained() -> None:
    critics = Critics(generators([0, 1]), 3, 2, (8,), members=2)
    target = frozen_copy(critics)
    before = [p.clone() for p in target.parameters()]
    with torch.no_grad():
        for p in critics.parameters():
            p.add_(1.0)
    polyak_update(target, critics, 0.1)
    for old, new in zip(before, target.parameters(), strict=True):
        assert torch.allclose(new, old + 0.1)
        assert not new.requires_grad


def test_members_differ_and_see_the_same_rows() -> None:
    critics = Critics(generators([0]), 3, 2, (8,), members=3)
    values = critics.reward(torch.ones(1, 4, 3), torch.ones(1, 4, 2))
    assert values.shape == (1, 3, 4)
    assert len(set(values[0, :, 0].tolist())) == 3
    assert not torch.equal(values, critics.cost(torch.ones(1, 4, 3), torch.ones(1, 4, 2)))


def test_vae_loss_by_hand() -> None:
    vae = StackedVAE(generators([3]), 3, 2, (8,))
    states, actions, noise = torch.ones(1, 5, 3), torch.full((1, 5, 2), 0.3), torch.full((1, 5, 4), 0.7)
    mean, log_std = vae.encode(states, actions)
    expected = kl_divergence(Normal(mean, log_std.exp()), Normal(0.0, 1.0))
    assert torch.allclose(divergence(mean, log_std), expected.mean(-1), atol=1e-6)
    decoded = torch.tanh(vae.decoder(torch.cat([states, mean + 0.7 * log_std.exp()], -1)))
    loss = ((decoded - 0.3) ** 2).mean() + 0.5 * expected.mean()
    assert vae.loss(states, actions, noise, 0.5).item() == pytest.approx(loss.item(), rel=1e-5)
    assert central(torch.tensor([-2.0, 0.1, 2.0])).tolist() == pytest.approx([-0.5, 0.1, 0.5])


def test_vae_learns_what_actions_there_are() -> None:
    from tracrl.nets.stacked import StackedAdam

    vae = StackedVAE(generators([0]), 1, 1, (32,))
    adam = StackedAdam(list(vae.parameters()))
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        states = torch.randn(1, 64, 1, generator=generator)
        adam.step(vae.loss(states, 0.5 * torch.tanh(states), torch.randn(1, 64, 2, generator=generator), 0.5), 3e-3)
    states = torch.linspace(-1, 1, 9).view(1, 9, 1)
    decoded = vae.decode(states, torch.zeros(1, 9, 2))
    assert torch.allclose(decoded, 0.5 * torch.tanh(states), atol=0.1)


def test_samples_of_the_squashed_gaussian() -> None:
    actor = SquashedGaussian(generators([0, 1]), 3, 2, (8,))
    states, noise = torch.ones(2, 4, 3), torch.randn(2, 4, 2, generator=torch.Generator().manual_seed(0))
    mean, log_std = actor(states)
    assert torch.allclose(actor.sample(states, noise), torch.tanh(mean + log_std.exp() * noise))
    assert torch.allclose(torch.tanh(actor.raw(states, noise[:, :, None]))[:, :, 0], actor.sample(states, noise))
