from __future__ import annotations

import pytest
import torch

from tracrl.nets import dropout, random

THRESHOLD = 64


@pytest.fixture
def key() -> torch.Tensor:
    return random.keys(torch.tensor([3, 4]), torch.tensor(5), 1)


@pytest.mark.parametrize("units", [253, 256, 5])
def test_the_compiled_kernel_draws_what_plain_tensors_draw(
    key: torch.Tensor, units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dropout.compiled_kernel() is not None, "numba is part of what the tests install"
    hidden = torch.randn(2, 37, units)
    fast = dropout.relu_dropout(hidden.clone(), key, THRESHOLD)
    monkeypatch.setattr(dropout, "compiled_kernel", lambda: None)
    plain = dropout.relu_dropout(hidden.clone(), key, THRESHOLD)
    assert torch.equal(fast, plain)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_part_is_masked_as_in_the_whole(key: torch.Tensor, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(dropout, "compiled_kernel", lambda: None)
    hidden = torch.randn(2, 37, 16)
    whole = dropout.relu_dropout(hidden.clone(), key, THRESHOLD)
    part = dropout.relu_dropout(hidden[:, 5:].clone(), key, THRESHOLD, torch.tensor(5 * 16 // 8))
    assert torch.equal(part, whole[:, 5:])


def test_a_quarter_is_dropped_and_the_rest_is_kept_as_it_is(key: torch.Tensor) -> None:
    hidden = torch.rand(2, 1000, 256) + 0.1
    result = dropout.relu_dropout(hidden.clone(), key, THRESHOLD)
    kept = result > 0
    assert abs(float(kept.float().mean()) - 0.75) < 0.002
    assert torch.equal(result[kept], hidden[kept])


def test_negative_units_are_zero(key: torch.Tensor) -> None:
    assert not dropout.relu_dropout(-torch.rand(2, 10, 16), key, THRESHOLD).any()


def test_masks_of_units_rows_steps_and_layers_are_independent() -> None:
    def mask(step: int, stream: int) -> torch.Tensor:
        key = random.keys(torch.tensor([0]), torch.tensor(step), stream)
        return (dropout.relu_dropout(torch.ones(1, 2000, 64), key, THRESHOLD) > 0)[0].double() - 0.75

    first = mask(0, 1)
    for other in (mask(1, 1), mask(0, 2), first.roll(1, 0), first.roll(1, 1)):
        assert abs(float((first * other).mean())) / (0.75 * 0.25) < 0.012  # 4 standard deviations


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_passes_where_a_unit_was_kept(key: torch.Tensor, dtype: torch.dtype) -> None:
    hidden = torch.randn(2, 10, 16, dtype=dtype, requires_grad=True)
    result = dropout.relu_dropout(hidden * 1, key, THRESHOLD)
    weights = torch.randn_like(result)
    (gradient,) = torch.autograd.grad((result * weights).sum(), hidden)
    assert torch.equal(gradient, torch.where(result > 0, weights, 0))


@pytest.mark.parametrize("units", [24, 13])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_scaled_dropout_by_the_kernel_is_the_plain_one(
    units: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = random.keys(torch.tensor([0, 1]), torch.tensor(4), 0)
    x = torch.randn(2, 5, units, generator=torch.Generator().manual_seed(0)).to(kind).requires_grad_()
    pairs = []
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(dropout, "compiled_scaling", lambda: None)
        result = dropout.scaled_dropout(x, key, 64)
        pairs.append((result, *torch.autograd.grad(result.square().sum(), [x])))
    for fast, plain in zip(*pairs, strict=True):
        assert fast.dtype == plain.dtype
        assert torch.allclose(fast, plain, rtol=1e-6 if kind == torch.float32 else 1e-2)
        assert (fast == 0).any()
        assert (fast != 0).any()


def test_masks_of_bfloat16_are_those_of_float32() -> None:
    kernel = dropout.compiled_kernel()
    if kernel is None:
        pytest.skip("Numba is not installed")
    key = random.keys(torch.tensor([3]), torch.tensor(4), 0).numpy()
    rounded = torch.randn(1, 133, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = rounded.float()
    kernel(rounded.view(torch.int16).numpy(), key, 64, 2)
    kernel(exact.numpy(), key, 64, 2)
    assert torch.equal(rounded.float(), exact)
    assert 0 < (exact == 0).sum() < exact.numel()
