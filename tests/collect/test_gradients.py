from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tracrl.collect.gradients import Backprop, Descent
from tracrl.collect.ppo import PPO, PPOSettings


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))


def test_outputs_and_gradients_are_those_of_autograd() -> None:
    plain, ours = network(0), network(0)
    Descent([ours], 1.0)
    inputs, slope = torch.randn(30, 5), torch.randn(30, 2)
    expected = plain(inputs)
    torch.autograd.backward(expected, slope)
    by_hand = Backprop(ours)
    np.testing.assert_allclose(by_hand.outputs(inputs), expected.detach(), atol=1e-6)
    by_hand.backward(slope.numpy())
    for parameter, other in zip(plain.parameters(), ours.parameters(), strict=True):
        assert parameter.grad is not None
        assert other.grad is not None
        np.testing.assert_allclose(other.grad, parameter.grad, rtol=1e-4, atol=1e-5)


def test_steps_are_those_of_torchs_adam() -> None:
    plain, ours = network(1), network(1)
    descent, adam = Descent([ours], 0.5), torch.optim.Adam(plain.parameters(), eps=1e-5)
    for turn in range(5):
        adam.param_groups[0]["lr"] = rate = 0.01 * (turn + 1)
        generator = torch.Generator().manual_seed(turn)
        for parameter, other in zip(plain.parameters(), ours.parameters(), strict=True):
            gradient = torch.randn(parameter.shape, generator=generator) * 10.0**-turn  # cut at first, then not
            parameter.grad, found = gradient.clone(), other.grad
            assert found is not None
            found.copy_(gradient)
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        adam.step()
        descent.step(rate)
    for parameter, other, state in zip(plain.parameters(), ours.parameters(), descent.state(), strict=True):
        np.testing.assert_allclose(other.detach(), parameter.detach(), rtol=1e-4, atol=1e-6)
        for name, value in adam.state[parameter].items():
            np.testing.assert_allclose(state[name], value, rtol=1e-4, atol=1e-7)


def test_a_step_of_the_policy_follows_the_clipped_objective() -> None:
    ppo = PPO(3, 2, PPOSettings(), seed=0)
    generator = np.random.default_rng(0)
    for parameter in ppo.parameters:
        parameter.data += torch.from_numpy(generator.normal(0, 0.3, parameter.shape).astype(np.float32))
    inputs = torch.from_numpy(generator.normal(size=(40, 7)).astype(np.float32))
    actions, gain = generator.normal(size=(40, 2)).astype(np.float32), generator.normal(size=40).astype(np.float32)
    modules = (ppo.actor, ppo.log_deviation)
    log_deviation = ppo.log_deviation(inputs[:, -4:])
    standard = (torch.from_numpy(actions) - ppo.actor(inputs).tanh()) / log_deviation.exp()
    now = -0.5 * standard.square().sum(1) - log_deviation.sum(1)
    old = (now.detach() + torch.linspace(-0.5, 0.5, 40)).numpy()  # on both sides of the clip
    ratio = (now - torch.from_numpy(old)).exp()
    gains = torch.from_numpy(gain)
    loss = -torch.minimum(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
    wanted = [parameter for module in modules for parameter in module.parameters()]
    expected = torch.autograd.grad(loss, wanted)
    ppo.rate = np.array(0.0)
    ppo._learn_policy(inputs, actions, old, gain)
    for parameter, gradient in zip(wanted, expected, strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad, gradient, rtol=1e-3, atol=1e-5)
