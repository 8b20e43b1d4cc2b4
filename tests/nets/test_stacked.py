from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tracrl.nets import dropout, random
from tracrl.nets import stacked as stacked_module
from tracrl.nets.stacked import StackedAdam, StackedLinear, StackedMLP, generators

SIZES = (3, 16, 16, 2)


def test_a_run_starts_with_the_same_weights_alone_and_in_a_stack() -> None:
    for init in ("orthogonal", "uniform"):
        together = StackedMLP(generators([7, 8, 9]), SIZES, init=init)  # type: ignore[arg-type]
        alone = StackedMLP(generators([8]), SIZES, init=init)  # type: ignore[arg-type]
        for stacked, single in zip(together.parameters(), alone.parameters(), strict=True):
            assert torch.equal(stacked[1:2], single)


def test_orthogonal_layers_keep_lengths_up_to_the_gain() -> None:
    weight = StackedLinear(generators([0]), 8, 20, "orthogonal", 2**0.5).weight[0].detach()
    assert torch.allclose(weight @ weight.T, 2 * torch.eye(8), atol=1e-5)


def test_a_stack_is_its_networks_side_by_side() -> None:
    network = StackedMLP(generators([0, 1]), SIZES, output=torch.tanh)
    x = torch.randn(2, 5, 3)
    for r in range(2):
        layers: list[nn.Module] = []
        for stacked in network.layers:
            layer = nn.Linear(*stacked.weight.shape[1:])
            layer.weight.data = stacked.weight.data[r].T
            layer.bias.data = stacked.bias.data[r, 0]
            layers += [layer, nn.ReLU()]
        plain = nn.Sequential(*layers[:-1], nn.Tanh())
        assert torch.allclose(network(x)[r], plain(x[r]), atol=1e-6)


def test_dropout_keeps_the_mean_of_a_layer() -> None:
    network = StackedMLP(generators([0]), (1, 4096, 1), dropout=0.25)
    with torch.no_grad():
        network.layers[0].weight.fill_(1.0)
        network.layers[0].bias.zero_()
        network.layers[1].weight.fill_(1 / 4096)
        network.layers[1].bias.zero_()
    x = torch.ones(1, 64, 1)
    key = random.keys(torch.tensor([0]), torch.tensor(0), 0)
    assert torch.allclose(network(x), torch.ones(1, 64, 1), atol=1e-5)
    dropped = network(x, lambda stream: key + stream).detach()
    assert abs(float(dropped.mean()) - 1) < 0.005
    assert float(dropped.std()) > 0.005


def test_adam_is_pytorchs_adam() -> None:
    torch.manual_seed(0)
    mine = nn.Parameter(torch.randn(3, 4, 5))
    theirs = nn.Parameter(mine.detach().clone())
    adam = StackedAdam([mine])
    reference = torch.optim.Adam([theirs], lr=1e-2)
    target = torch.randn(3, 4, 5)
    for _ in range(20):
        adam.step((mine - target).square().sum((1, 2)), 1e-2)
        reference.zero_grad()
        (theirs - target).square().sum().backward()
        reference.step()
    assert torch.allclose(mine, theirs, atol=1e-6)


def test_adam_restarts_from_nothing() -> None:
    parameter = nn.Parameter(torch.ones(1, 2))
    adam = StackedAdam([parameter])
    adam.step(parameter.square().sum(1), 0.1)
    assert adam.count.tolist() == [1]
    adam.restart()
    assert all(not buffer.any() for buffer in adam.buffers())


@pytest.mark.parametrize("units", [16, 13])
def test_in_blocks_with_dropout_it_is_the_plain_network(units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """2601 rows are three blocks, the last one shorter."""
    network = StackedMLP(generators([0, 1]), (3, units, units, 2), dropout=0.25, output=torch.tanh)
    x = torch.randn(2, 2601, 3)

    def result() -> tuple[torch.Tensor, ...]:
        out = network(x, lambda stream: random.keys(torch.tensor([0, 1]), torch.tensor(4), stream))
        return out, *torch.autograd.grad(out.square().sum(), list(network.parameters()))

    blocked = result()
    monkeypatch.setattr(stacked_module, "compiled_kernel", lambda: None)
    monkeypatch.setattr(dropout, "compiled_kernel", lambda: None)
    for fast, plain in zip(blocked, result(), strict=True):
        assert torch.allclose(fast, plain, atol=1e-4, rtol=1e-4)


def not_compiled(*_: object) -> Tensor:
    raise RuntimeError("out of registers")


def right(
    x: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    keys: Sequence[Tensor],
    threshold: int,
    first: Tensor,
    *_: object,
) -> Tensor:
    x, scale = x.float(), 1.0
    with torch.autocast("cpu", enabled=False):
        for (weight, bias), key in zip(layers, [*keys, None], strict=True):
            x, scale = x @ (weight * scale) + bias, dropout.kept_weight(threshold)
            if key is not None:
                x = dropout.relu_dropout(x, key, threshold, int(first) * x.shape[-1] // 8)
    return x


def right_in_some(
    x: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    keys: Sequence[Tensor],
    threshold: int,
    first: Tensor,
    forms: tuple[int, int],
) -> Tensor:
    """Forward in the second form alone, back in the third."""
    if forms[0] == 0:
        return not_compiled()
    slopes = 1.0 if forms[1] == 2 else 2.0
    layers = [(slopes * weight + (1 - slopes) * weight.detach(), bias) for weight, bias in layers]
    return right(x, layers, keys, threshold, first) if forms[0] == 1 else wrong(x, layers)


def kernels(kernel: Callable[..., Tensor], forms: int = 4) -> SimpleNamespace:
    return SimpleNamespace(FORMS=[None] * forms, fits=lambda _: True, fused_mlp=kernel)


def wrong(x: Tensor, layers: Sequence[tuple[Tensor, Tensor]], *_: object) -> Tensor:
    for weight, bias in layers:  # neither ReLU nor dropout
        x = x.float() @ weight + bias
    return x.float()


@pytest.mark.parametrize(("kernel", "said"), [(not_compiled, "out of registers"), (wrong, "differ")])
def test_kernels_that_fail_or_are_wrong_are_not_used(
    kernel: Callable[..., Tensor], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACRL_FUSED", "1")
    monkeypatch.setitem(sys.modules, "tracrl.nets.fused", kernels(kernel))
    network = StackedMLP(generators([0, 1]), SIZES, dropout=0.25)
    with pytest.warns(UserWarning, match=f"not used: .*{said}"):
        network.fuse()
    assert network.fused is None


def test_kernels_that_cannot_be_there_are_missed_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACRL_FUSED", "1")
    monkeypatch.setitem(sys.modules, "tracrl.nets.fused", None)
    network = StackedMLP(generators([0, 1]), SIZES, dropout=0.25)
    with pytest.warns(UserWarning, match="Left out: .* not used: ModuleNotFoundError"):
        network.fuse()
    assert network.fused is None


@pytest.mark.filterwarnings("error")
def test_nothing_is_fused_where_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not even tried: these would say that they failed."""
    monkeypatch.setenv("TRACRL_FUSED", "0")
    monkeypatch.setitem(sys.modules, "tracrl.nets.fused", kernels(not_compiled))
    network = StackedMLP(generators([0, 1]), SIZES, dropout=0.25)
    network.fuse()
    assert network.fused is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("variable", ["", "1"])
def test_each_way_takes_the_first_form_that_is_right(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACRL_FUSED", variable)
    monkeypatch.setitem(sys.modules, "tracrl.nets.fused", kernels(right_in_some))
    network = StackedMLP(generators([0, 1]), SIZES, dropout=0.25)
    network.fuse()
    assert network.fused is right_in_some
    assert network.forms == (1, 2)


def test_the_last_form_is_not_taken_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is right wherever it was tried, and no faster."""
    monkeypatch.setitem(sys.modules, "tracrl.nets.fused", kernels(right_in_some, 3))
    network = StackedMLP(generators([0, 1]), SIZES, dropout=0.25)
    monkeypatch.delenv("TRACRL_FUSED", raising=False)
    with pytest.warns(UserWarning, match="differ by .*TRITON_PTXAS_PATH"):
        network.fuse()
    assert network.fused is None
    monkeypatch.setenv("TRACRL_FUSED", "1")
    network.fuse()
    assert network.forms == (1, 2)
