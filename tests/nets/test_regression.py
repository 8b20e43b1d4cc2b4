"""Gradients by hand are those of autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tracrl.nets import blocks
from tracrl.nets.regression import SquaredError
from tracrl.nets.stacked import StackedMLP, generators


def both_ways(
    rows: int, sizes: tuple[int, ...], bf16: bool, threads: int
) -> tuple[tuple[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]:
    """Loss and gradients by hand, and by autograd through the network in one thread."""
    network = StackedMLP(generators([0, 1]), sizes, output=torch.tanh)
    network.threads = 1
    noise = torch.Generator().manual_seed(3)
    x, targets = (torch.randn(2, rows, n, generator=noise).clamp(-1, 1) for n in (sizes[0], sizes[-1]))
    parameters = list(network.parameters())
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16, cache_enabled=False):
        loss = (network(x) - targets).square().mean((-2, -1))
        plain = list(torch.autograd.grad(loss.sum(), parameters))
        by_hand = SquaredError(parameters, rows, bf16, threads)(x, targets)
    return by_hand, (loss.detach(), plain)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("sizes", [(5, 32, 16, 2), (3, 24, 1), (4, 16, 20)])
def test_gradients_are_those_of_autograd(sizes: tuple[int, ...], bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROWS", 128)  # so that there are several blocks
    (loss, gradients), (plain_loss, plain) = both_ways(300, sizes, bf16, threads=1)
    assert torch.allclose(loss, plain_loss, rtol=1e-6)
    for found, expected in zip(gradients, plain, strict=True):
        assert torch.allclose(found, expected, rtol=2e-2 if bf16 else 1e-4, atol=1e-4 if bf16 else 1e-7)


def test_two_threads_take_half_of_the_rows_each() -> None:
    (loss, gradients), (plain_loss, plain) = both_ways(512, (5, 32, 16, 2), bf16=False, threads=2)
    assert len(blocks.shares(512, 2)) == 2
    assert torch.allclose(loss, plain_loss, rtol=1e-5)
    for found, expected in zip(gradients, plain, strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_gradients_follow_parameters_that_move() -> None:
    """What is kept between calls is room, and views of the weights as they are."""
    parameters = list(StackedMLP(generators([0, 1]), (5, 32, 16, 2), output=torch.tanh).parameters())
    x, targets = torch.randn(2, 64, 5), torch.rand(2, 64, 2)
    for bf16 in (False, True):
        error = SquaredError(parameters, 64, bf16, threads=1)
        before = [gradient.clone() for gradient in error(x, targets)[1]]
        with torch.no_grad():
            for parameter in parameters:
                parameter.mul_(0.5)
        again, fresh = error(x, targets), SquaredError(parameters, 64, bf16, threads=1)(x, targets)
        assert torch.equal(again[0], fresh[0])
        assert all(map(torch.equal, again[1], fresh[1]))
        assert not any(map(torch.equal, again[1], before))
