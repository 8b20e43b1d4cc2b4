"""An update in compiled passes is that of autograd and of Adam."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tracrl.nets import blocks, random
from tracrl.nets.passes import Draws, compiled_passes
from tracrl.nets.products import numbers
from tracrl.nets.regression import Regression
from tracrl.nets.stacked import StackedAdam, StackedMLP, generators

SEEDS, TABLE = [0, 1], 700


def made_up(sizes: tuple[int, ...], threads: int) -> tuple[StackedMLP, StackedAdam, Tensor, Tensor]:
    """A network for each seed, its optimiser, inputs and targets."""
    network = StackedMLP(generators(SEEDS), sizes, output=torch.tanh)
    network.threads = threads
    noise = torch.Generator().manual_seed(3)
    inputs, targets = (torch.randn(TABLE, n, generator=noise).clamp(-1, 1) for n in (sizes[0], sizes[-1]))
    return network, StackedAdam(list(network.parameters())), inputs, targets


def compiled_update(
    batch: int, sizes: tuple[int, ...], bf16: bool, threads: int
) -> tuple[Tensor, list[Tensor], StackedMLP]:
    """Losses and gradients of a first update, and the network that it moved."""
    network, adam, inputs, targets = made_up(sizes, threads)
    ends, shift = np.array([TABLE]), np.array([0])
    draws = [Draws(seed, np.zeros((), np.int64), 0, ends, shift) for seed in SEEDS]
    loss = Regression(network, adam, inputs, targets, draws, batch, 1e-3, bf16).update()
    return loss, [moment / (1 - adam.betas[0]) for moment in adam.moments()[0]], network


def plain_update(batch: int, sizes: tuple[int, ...]) -> tuple[Tensor, list[Tensor], StackedMLP]:
    network, adam, inputs, targets = made_up(sizes, threads=1)
    rows = random.below(random.keys(torch.tensor(SEEDS), torch.tensor(0), 0), torch.tensor([TABLE, TABLE]), batch)
    loss = (network(inputs[rows]) - targets[rows]).square().mean((-2, -1))
    gradients = torch.autograd.grad(loss.sum(), list(network.parameters()))
    adam.move(gradients, 1e-3)
    return loss.detach(), list(gradients), network


@pytest.mark.parametrize("sizes", [(5, 32, 16, 2), (3, 24, 1), (4, 16, 20), (6, 16, 24, 8, 3)])
def test_an_update_is_that_of_autograd(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROWS", 128)  # so that there are several blocks, the last of them smaller
    loss, gradients, network = compiled_update(300, sizes, bf16=False, threads=1)
    plain_loss, plain, moved = plain_update(300, sizes)
    assert torch.allclose(loss, plain_loss, rtol=1e-6)
    for found, expected in zip(gradients, plain, strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-7)
    for found, expected in zip(network.parameters(), moved.parameters(), strict=True):
        assert torch.allclose(found, expected, atol=1e-5)
    # bfloat16 keeps eight bits, and a unit near 0 may be above it in one of them alone.
    rounded_loss, rounded, _ = compiled_update(300, sizes, bf16=True, threads=1)
    assert torch.allclose(rounded_loss, plain_loss, rtol=2e-3)
    for found, expected in zip(rounded, plain, strict=True):
        assert (found - expected).norm() < 0.1 * expected.norm()


def test_two_threads_take_half_of_the_rows_each() -> None:
    assert len(blocks.shares(512, 2)) == 2
    loss, gradients, _ = compiled_update(512, (5, 32, 16, 2), bf16=False, threads=2)
    plain_loss, plain, _ = plain_update(512, (5, 32, 16, 2))
    assert torch.allclose(loss, plain_loss, rtol=1e-5)
    for found, expected in zip(gradients, plain, strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("bf16", [False, True])
def test_compiled_adam_is_torchs(bf16: bool) -> None:
    passes = compiled_passes(bf16)
    assert passes is not None
    noise = torch.Generator().manual_seed(0)
    plain, mine = (torch.nn.Parameter(torch.randn(1, 1300, generator=noise.manual_seed(1))) for _ in range(2))
    theirs, adam = StackedAdam([plain]), StackedAdam([mine])
    copy = mine.detach().to(torch.bfloat16 if bf16 else torch.float32)
    state = [(numbers(moment),) for (moment,) in adam.moments()]
    for step in range(1, 6):
        parts = torch.randn(2, 1300, generator=noise).to(copy.dtype)  # of two blocks of rows
        theirs.move([parts.float().sum(0, keepdim=True)], 1e-2)
        gradients = (numbers(parts).reshape(2, -1),)
        arrays = (numbers(mine.detach()),), (numbers(copy),), gradients, *state
        passes.adam(*arrays, np.array([float(step)]), 1e-2, *adam.betas, adam.eps)
        assert torch.allclose(mine, plain, atol=1e-6)
        assert torch.equal(copy, mine.detach().to(copy.dtype))


def test_bits_are_rounded_as_torch_does() -> None:
    passes = compiled_passes(True)
    assert passes is not None
    special = torch.tensor([0.0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3e38, 3.4e38, 1e-40, torch.inf, torch.nan])
    table = torch.cat([special, torch.randn(1014)])[:, None]
    x, y = torch.empty(4096, 1, dtype=torch.bfloat16), torch.empty(4096, 1)
    draws = Draws(0, np.zeros((), np.int64), 0, np.array([len(table)]), np.array([0]))
    passes.gather(*draws, 0, table.numpy(), table.numpy(), numbers(x)[:, None], y.numpy())
    number = ~y.isnan()
    assert torch.equal(x.view(torch.int16)[number], y.bfloat16().view(torch.int16)[number])
    assert x[~number].isnan().all()
    assert torch.isin(special[:-1], y).all(), "all of them were drawn"
    assert not number.all()


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("which", range(4))
def test_what_is_not_a_number_is_seen_in_the_loss(which: int, bf16: bool) -> None:
    network, adam, inputs, targets = made_up((5, 16, 2), threads=1)
    list(network.parameters())[which].data[1] = torch.nan
    draws = [Draws(seed, np.zeros((), np.int64), 0, np.array([TABLE]), np.array([0])) for seed in SEEDS]
    loss = Regression(network, adam, inputs, targets, draws, 64, 1e-3, bf16).update()
    assert loss.isnan().tolist() == [False, True]
