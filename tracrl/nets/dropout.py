"""ReLU and dropout in one pass over memory, with masks that depend on a key alone.

A byte decides about each unit, so the rate is a multiple of 1/256 (a quarter is exactly 64/256). The result is not
scaled by 1/(1 − p): the next layer's product does that at no cost (:meth:`StackedLinear.forward`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tracrl.nets import random


def kept_weight(threshold: int) -> float:
    """What is kept weighs so much the more, where ``threshold`` / 256 is dropped."""
    return 256 / (256 - threshold)


def relu_dropout(hidden: Tensor, key: Tensor, threshold: int, first: random.Position = 0) -> Tensor:
    """max(hidden, 0), and 0 with probability ``threshold`` / 256. ``hidden`` is (R, …), ``key`` (R,).

    ``hidden`` is used up: where the compiled kernel serves, the result takes its place. ``first`` is the number of the
    first word of eight bytes, for a part of a larger array.
    """
    return _ReluDropout.apply(hidden, key, threshold, first)  # type: ignore[no-untyped-call]


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, key: Tensor, threshold: int, first: random.Position) -> Tensor:
        kernel = compiled_kernel() if hidden.device.type == "cpu" and hidden.dtype == torch.float32 else None
        if kernel is not None and hidden.is_contiguous():
            kernel(hidden.detach().view(len(key), -1).numpy(), key.numpy(), threshold, int(first))
            ctx.mark_dirty(hidden)
            result = hidden
        else:
            kept = random.random_bytes(key, hidden[0].numel(), first).view(hidden.shape) >= threshold
            result = torch.where(kept, hidden.relu(), 0.0)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        # What was cut or dropped is zero in the result, and nothing else is: the result is its own mask.
        (result,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradients[0], result, 0), None, None, None


@functools.cache
def compiled_kernel() -> Callable[[Any, Any, int, int], None] | None:
    """The same bits as ``random.random_bytes`` in one pass, where Numba is installed; it is some ten times faster.

    ``kernel(hidden (R, units), key (R,), threshold, first)`` works in place; ``first`` is the number of the first word
    of eight bytes, for a part of a larger array. Units are float32, or int16 that have the bits of bfloat16.
    """
    try:
        import numba
        import numpy as np
    except ImportError:
        return None
    (_, draw), u64 = random.compiled_draws(), np.uint64

    @numba.njit(nogil=True)
    def kernel(hidden: Any, key: Any, threshold: Any, first: Any) -> None:
        runs, count = hidden.shape
        limit, zero = u64(threshold), hidden.dtype.type(0)
        for r in range(runs):
            row, start = hidden[r], u64(key[r])
            for i in range(count // 8):
                z = draw(start, first + i)
                for j in range(8):  # a fixed count, which the compiler turns into vector instructions
                    value = row[8 * i + j]
                    keep = ((z >> u64(8 * j)) & u64(255)) >= limit
                    row[8 * i + j] = value if keep and value > zero else zero
            z = draw(start, first + count // 8)
            for j in range(count % 8):
                value = row[count - count % 8 + j]
                keep = ((z >> u64(8 * j)) & u64(255)) >= limit
                row[count - count % 8 + j] = value if keep and value > zero else zero

    return kernel


def scaled_dropout(x: Tensor, key: Tensor, threshold: int) -> Tensor:
    """0 with probability ``threshold`` / 256, else x / (1 − that), in float32. ``x`` is (R, …), ``key`` (R,)."""
    kernel = compiled_scaling() if x.device.type == "cpu" else None
    if kernel is not None:
        return _ScaledDropout.apply(x, key, threshold, kernel)  # type: ignore[no-untyped-call]
    kept = random.random_bytes(key, x[0].numel()).view(x.shape) >= threshold
    return x * (kept * kept_weight(threshold))


class _ScaledDropout(torch.autograd.Function):
    """By a compiled kernel, which draws the mask again for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, key: Tensor, threshold: int, kernel: Callable[..., None]) -> Tensor:
        ctx.settings, ctx.kind = (key, threshold, kernel), x.dtype
        return _scaled(x, *ctx.settings)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return _scaled(gradients[0], *ctx.settings).to(ctx.kind), None, None, None


def _scaled(x: Tensor, key: Tensor, threshold: int, kernel: Callable[..., None]) -> Tensor:
    flat = x.detach().float().contiguous().view(len(key), -1)
    result = torch.empty_like(flat)
    kernel(flat.numpy(), key.numpy(), threshold, result.numpy())
    return result.view(x.shape)


@functools.cache
def compiled_scaling() -> Callable[[Any, Any, int, Any], None] | None:
    """``kernel(x (R, units), key (R,), threshold, result (R, units))``, or None where Numba is not installed."""
    try:
        import numba
        import numpy as np
    except ImportError:
        return None
    (_, draw), u64 = random.compiled_draws(), np.uint64

    @numba.njit(nogil=True)
    def kernel(x: Any, key: Any, threshold: Any, result: Any) -> None:
        runs, count = x.shape
        limit, zero = u64(threshold), np.float32(0)
        weight = np.float32(256 / (256 - threshold))
        for r in range(runs):
            row, out, start = x[r], result[r], u64(key[r])
            for i in range(count // 8):
                z = draw(start, i)
                for j in range(8):
                    keep = ((z >> u64(8 * j)) & u64(255)) >= limit
                    out[8 * i + j] = row[8 * i + j] * weight if keep else zero
            z = draw(start, count // 8)
            for j in range(count % 8):
                keep = ((z >> u64(8 * j)) & u64(255)) >= limit
                at = count - count % 8 + j
                out[at] = row[at] * weight if keep else zero

    return kernel
