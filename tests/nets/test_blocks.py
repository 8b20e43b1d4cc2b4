from __future__ import annotations

import itertools
import weakref
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tracrl.nets import blocks, products, random
from tracrl.nets.blocks import ROWS, affine
from tracrl.nets.stacked import StackedMLP, generators


def key(stream: int) -> torch.Tensor:
    return random.keys(torch.tensor([0, 1]), torch.tensor(3), stream)


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


def test_bf16_products_are_exact_where_eight_bits_are_enough() -> None:
    """Small integers are: there nothing but the order of operations could differ from the plain products."""
    network = StackedMLP(generators([0, 1]), (3, 8, 8, 2))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
    x = torch.randint(-2, 3, (2, 2 * ROWS + 7, 3), generator=generator).float().requires_grad_()
    weight = torch.zeros(2, 2 * ROWS + 7, 2)
    weight[:, ::100] = 1.0
    results = []
    for half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            result = network(x)
        gradients = torch.autograd.grad((result * weight).sum(), [x, *network.parameters()])
        results.append([result, *gradients])
    for full, half_ in zip(*results, strict=True):
        assert full.dtype == half_.dtype == torch.float32
        assert full.abs().max() > 0
        assert torch.equal(full, half_)


def test_bf16_products_round_and_drop_the_same_units() -> None:
    network = StackedMLP(generators([0, 1]), (5, 64, 64, 2), dropout=0.25)
    x = torch.randn(2, ROWS + 7, 5, generator=torch.Generator().manual_seed(0))

    full = network(x, key)
    with torch.autocast("cpu", torch.bfloat16):
        half = network(x, key)
    assert not torch.equal(full, half)
    assert (full - half).abs().max() < 0.03 * full.abs().max()
    gradients = [torch.autograd.grad(result.square().sum(), list(network.parameters())) for result in (full, half)]
    for mine, theirs in zip(*gradients, strict=True):
        assert (mine - theirs).norm() < 0.03 * mine.norm()


@pytest.mark.parametrize("outputs", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("members", [None, 3])
def test_compiled_passes_are_the_products(outputs: int, members: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16: those of the last layer, and those of slopes and biases."""
    network = StackedMLP(generators([0, 1]), (5, 64, 64, outputs), members=members, dropout=0.25)
    network.threads = 1
    x = torch.randn(2, 2 * ROWS + 7, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    results = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(blocks, "compiled_passes", lambda _: None)
            monkeypatch.setattr(products, "compiled_passes", lambda _: None)
        with torch.autocast("cpu", torch.bfloat16):
            result, of_x_alone = network(x, None if members else key), network(x, frozen=True)
        gradients = torch.autograd.grad(result.square().sum(), [x, *network.parameters()])
        results.append((result, *gradients, *torch.autograd.grad(of_x_alone.square().sum(), [x])))
    for mine, theirs in zip(*results, strict=True):
        assert mine.dtype == theirs.dtype == torch.float32
        assert (mine - theirs).norm() < 0.01 * theirs.norm()


class Held(TorchDispatchMode):
    """How many numbers the results of operations hold at once, at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result._base is None:
            self.change(result.numel())
            weakref.finalize(result, self.change, -result.numel())
        return result

    def change(self, numbers: int) -> None:
        self.now += numbers
        self.most = max(self.most, self.now)


def test_without_gradients_only_the_hidden_layers_of_a_block_are_held() -> None:
    network, rows, units = StackedMLP(generators([0, 1]), (5, 64, 2)), 4 * ROWS, 64
    x = torch.randn(2, rows, 5, generator=torch.Generator().manual_seed(0))
    with Held() as kept:
        result = network(x)
    with Held() as passing, torch.no_grad():
        again = network(x)
    assert torch.equal(result, again)
    assert kept.most > 2 * rows * units
    assert passing.most < 3 * ROWS * units


def test_dropout_is_the_same_without_gradients() -> None:
    network = StackedMLP(generators([0, 1]), (5, 16, 16, 2), dropout=0.25)
    x = torch.randn(2, ROWS + 7, 5, generator=torch.Generator().manual_seed(0))

    with torch.no_grad():
        alone = network(x, key)
    assert torch.equal(network(x, key), alone)
    assert not torch.equal(network(x), alone)


def test_frozen_weights_need_no_gradients() -> None:
    network = StackedMLP(generators([0]), (3, 8, 1), members=2)
    x = torch.ones(1, 4, 3, requires_grad=True)
    (usual,) = torch.autograd.grad(network(x).sum(), [x])
    (frozen,) = torch.autograd.grad(network(x, frozen=True).sum(), [x])
    assert torch.equal(usual, frozen)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(network(x, frozen=True).sum(), list(network.parameters()))


@pytest.mark.parametrize("outputs", [1, 2, 24])
def test_affine_is_the_plain_product(outputs: int) -> None:
    """Wide and narrow ones, and in bfloat16 to its eight bits."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(s, generator=generator) for s in ((2, 40, 16), (2, 16, outputs), (2, 1, outputs)))
    inputs = [t.requires_grad_() for t in (x, weight, bias)]
    wanted = torch.randn(2, 40, outputs, generator=generator)
    plain = torch.baddbmm(bias, x, weight)
    for bf16, tolerance in ((False, 1e-5), (True, 3e-2)):
        result = affine(x, weight, bias, bf16)
        assert result.dtype == (torch.bfloat16 if bf16 else torch.float32)
        found = [result, *torch.autograd.grad((result * wanted).sum(), inputs)]
        expected = [plain, *torch.autograd.grad((plain * wanted).sum(), inputs, retain_graph=True)]
        for mine, theirs in zip(found, expected, strict=True):
            assert (mine - theirs).norm() < tolerance * theirs.norm()


def test_without_onednn_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, results = torch.randn(2, 50, 5, generator=torch.Generator().manual_seed(0)), []
    for hidden in ("relu", "tanh"):
        network = StackedMLP(generators([0, 1]), (5, 16, 12, 2), hidden=hidden)  # type: ignore[arg-type]
        for fused in (products.FUSED, None):
            with monkeypatch.context() as patch:
                patch.setattr(products, "FUSED", fused)
                result = network(x)
                results.append((result, *torch.autograd.grad(result.square().sum(), list(network.parameters()))))
        for mine, theirs in zip(*results[-2:], strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "threads"), [(7, 2), (512, 2), (1088, 1), (9600, 2), (9601, 3), (72_000, 16)])
def test_threads_share_out_all_rows_in_blocks_that_begin_with_whole_words(rows: int, threads: int) -> None:
    shares = blocks.shares(rows, threads)
    flat = [block for share in shares for block in share]
    assert flat[0].start == 0
    assert flat[-1].stop == rows
    assert all(a.stop == b.start for a, b in itertools.pairwise(flat))
    assert all(block.start % 8 == 0 for block in flat)
    assert len(shares) <= threads
    assert max(block.stop - block.start for block in flat) < 2 * ROWS


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("wanted", ["both", "x"])
def test_members_of_a_run_alone_are_dealt_out_to_threads(bf16: bool, wanted: str) -> None:
    """Each layer's gradients are bit for bit those of one thread; those of rows are sums in another order."""
    network = StackedMLP(generators([0]), (5, 16, 12, 1), members=4)
    x = torch.randn(1, 3000, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    layers = list(network.parameters()) if wanted == "both" else []
    results = []
    for threads in (1, 2):
        network.threads = threads
        with torch.autocast("cpu", enabled=bf16):
            result = network(x)
        results.append((result, *torch.autograd.grad(result.square().sum(), [*layers, x])))
    for one, two in zip(*(r[:-1] for r in results), strict=True):
        assert torch.equal(one, two)
    assert torch.allclose(results[0][-1], results[1][-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("members", "rows", "threads", "fewest", "networks"),
    [
        (4, 512, 2, 128, 2),
        (4, 512, 3, 512, 2),
        (2, 512, 8, 512, 1),
        (4, 60, 2, 128, 4),
        (4, 512, 3, 128, 4),
        (1, 512, 2, 128, 1),
    ],
)
def test_networks_are_dealt_out_where_rows_would_not_give_more_threads_work(
    members: int, rows: int, threads: int, fewest: int, networks: int
) -> None:
    found = blocks._shared_out(1, members, rows, threads, fewest)
    assert {len(share.networks) for share in found} == {networks}
    assert sum(share.pieces for share in found) == members * len({str(b) for share in found for b in share.blocks})


def test_few_rows_are_left_to_one_thread_where_tiles_multiply_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for tiled, bf16, threads in ((True, True, 1), (True, False, 2), (False, True, 2)):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda tiled=tiled: tiled)
        assert len(blocks.shares(512, 2, blocks.fewest_rows(bf16))) == threads


@pytest.mark.parametrize("members", [None, 3])
def test_by_several_threads_it_is_the_same(members: int | None) -> None:
    """But for the order of sums; dropout's masks are where they were."""
    network = StackedMLP(generators([0, 1]), (5, 16, 2), members=members, dropout=0.25)
    x = torch.randn(2, 700, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    results = []
    for threads in (1, 3):
        network.threads = threads
        result = network(x, key if members is None else None)
        results.append((result, *torch.autograd.grad(result.square().sum(), [x, *network.parameters()])))
    for one, three in zip(*results, strict=True):
        assert torch.allclose(one, three, rtol=1e-4, atol=1e-4)
