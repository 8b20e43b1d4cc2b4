from __future__ import annotations

import pytest
import torch

from tracrl.nets.blocks import ROWS
from tracrl.nets.stacked import StackedMLP, generators


@pytest.mark.parametrize("hidden", ["relu", "tanh"])
@pytest.mark.parametrize("members", [None, 3])
def test_blocks_are_the_plain_products(hidden: str, members: int | None) -> None:
    """Against float64, which takes the plain path."""
    network = StackedMLP(generators([0, 1]), (5, 16, 12, 2), hidden=hidden, members=members)  # type: ignore[arg-type]
    x = torch.randn(2, 2 * ROWS + 7, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    result = network(x)
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad((result * weight).sum(), [x, *network.parameters()])
    with torch.no_grad():
        assert torch.equal(network(x), result)
    network.double()
    precise_x = x.detach().double().requires_grad_()
    precise = network(precise_x)
    expected = torch.autograd.grad((precise * weight).sum(), [precise_x, *network.parameters()])
    assert torch.allclose(result.double(), precise, atol=1e-5)
    for mine, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(mine.double(), theirs, rtol=1e-4, atol=1e-5 * theirs.abs().max().item())


def test_frozen_weights_need_no_gradients() -> None:
    network = StackedMLP(generators([0]), (3, 8, 1), members=2)
    x = torch.ones(1, 4, 3, requires_grad=True)
    (usual,) = torch.autograd.grad(network(x).sum(), [x])
    (frozen,) = torch.autograd.grad(network(x, frozen=True).sum(), [x])
    assert torch.equal(usual, frozen)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(network(x, frozen=True).sum(), list(network.parameters()))
