"""Causal attention with dropout in one kernel of a GPU: scores, shares and masks never leave its processors.

A sub-sequence has few tokens, so that all its scores of one head are a single tile, which the backward pass computes
again. What goes in is what one product gives, queries, keys and values together; nothing is copied in between. Masks
are those of :class:`tracrl.nets.transformer.Dropout`.
"""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def"
# No annotations of the future: torch and Triton read those of this file as they are.

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

from tracrl.nets.dropout import kept_weight
from tracrl.nets.kernels import drawn, kept

FORWARD: dict[str, int] = {"num_warps": 4}
BACKWARD: dict[str, int] = {"num_warps": 4}


@triton.jit
def _scores_kept(keys, n, h, sequences, threshold, heads: tl.constexpr, tokens: tl.constexpr, side: tl.constexpr):
    """(side, side): which scores of a head are kept. A word of eight bytes decides about eight of them."""
    row, word = tl.arange(0, side)[:, None], tl.arange(0, side // 8)[None, :]
    first = ((n % sequences) * heads + h).to(tl.int64) * (tokens * tokens // 8)
    return kept(drawn(tl.load(keys + n // sequences), (first + row * (tokens // 8) + word).to(tl.uint64)), threshold)


@triton.jit
def _shares(query, key, scale, tokens: tl.constexpr, side: tl.constexpr):
    """(side, side): softmax of the scores over the tokens up to one's own."""
    scores = tl.dot(query, tl.trans(key), input_precision="tf32") * scale
    row, column = tl.arange(0, side)[:, None], tl.arange(0, side)[None, :]
    scores = tl.where((column <= row) & (column < tokens), scores, float("-inf"))
    shares = tl.exp(scores - tl.max(scores, 1)[:, None])
    return shares / tl.sum(shares, 1)[:, None]


@triton.jit
def _forward(
    mixed, keys, out, sequences, scale, threshold, kept_weight,
    heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr, side: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(0), tl.program_id(1)
    row, column = tl.arange(0, side)[:, None], tl.arange(0, head)[None, :]
    width: tl.constexpr = heads * head
    inside = row < tokens
    at = mixed + n.to(tl.int64) * (tokens * 3 * width) + row * (3 * width) + h * head + column
    query = tl.load(at, mask=inside, other=0.0)
    key = tl.load(at + width, mask=inside, other=0.0)
    value = tl.load(at + 2 * width, mask=inside, other=0.0)
    shares = _shares(query, key, scale, tokens, side)
    left = _scores_kept(keys, n, h, sequences, threshold, heads, tokens, side)
    dropped = tl.where(left, shares * kept_weight, 0.0).to(value.dtype)
    result = tl.dot(dropped, value, input_precision="tf32")
    to = out + n.to(tl.int64) * (tokens * width) + row * width + h * head + column
    tl.store(to, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    mixed, keys, slope, of_mixed, sequences, scale, threshold, kept_weight,
    heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr, side: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(0), tl.program_id(1)
    row, column = tl.arange(0, side)[:, None], tl.arange(0, head)[None, :]
    width: tl.constexpr = heads * head
    inside = row < tokens
    place = n.to(tl.int64) * (tokens * 3 * width) + row * (3 * width) + h * head + column
    query = tl.load(mixed + place, mask=inside, other=0.0)
    key = tl.load(mixed + place + width, mask=inside, other=0.0)
    value = tl.load(mixed + place + 2 * width, mask=inside, other=0.0)
    at = slope + n.to(tl.int64) * (tokens * width) + row * width + h * head + column
    delta = tl.load(at, mask=inside, other=0.0).to(value.dtype)
    shares = _shares(query, key, scale, tokens, side)
    left = _scores_kept(keys, n, h, sequences, threshold, heads, tokens, side)
    dropped = tl.where(left, shares * kept_weight, 0.0).to(value.dtype)
    of_value = tl.dot(tl.trans(dropped), delta, input_precision="tf32")
    of_shares = tl.dot(delta, tl.trans(value), input_precision="tf32")
    of_shares = tl.where(left, of_shares * kept_weight, 0.0)
    of_scores = shares * (of_shares - tl.sum(shares * of_shares, 1)[:, None]) * scale
    of_scores = of_scores.to(value.dtype)
    of_query = tl.dot(of_scores, key, input_precision="tf32")
    of_key = tl.dot(tl.trans(of_scores), query, input_precision="tf32")
    kind = of_mixed.dtype.element_ty
    tl.store(of_mixed + place, of_query.to(kind), mask=inside)
    tl.store(of_mixed + place + width, of_key.to(kind), mask=inside)
    tl.store(of_mixed + place + 2 * width, of_value.to(kind), mask=inside)


@custom_op("tracrl::attend", mutates_args=())
def attend(mixed: Tensor, keys: Tensor, heads: int, threshold: int) -> Tensor:
    """(N, tokens, 3 · width) → (N, tokens, width), N = R · sequences; dropout by ``keys`` (R,), ``threshold`` / 256."""
    out = mixed.new_empty(*mixed.shape[:2], mixed.shape[2] // 3)
    _forward[(len(mixed), heads)](mixed.contiguous(), keys, out, *_settings(mixed, keys, heads, threshold), **FORWARD)
    return out


@attend.register_fake
def _(mixed: Tensor, keys: Tensor, heads: int, threshold: int) -> Tensor:
    return mixed.new_empty(*mixed.shape[:2], mixed.shape[2] // 3)


@custom_op("tracrl::attend_slopes", mutates_args=())
def attend_slopes(mixed: Tensor, keys: Tensor, slope: Tensor, heads: int, threshold: int) -> Tensor:
    """The gradient of ``mixed``, given that of the result."""
    mixed = mixed.contiguous()
    of_mixed, settings = torch.empty_like(mixed), _settings(mixed, keys, heads, threshold)
    _backward[(len(mixed), heads)](mixed, keys, slope.contiguous(), of_mixed, *settings, **BACKWARD)
    return of_mixed


@attend_slopes.register_fake
def _(mixed: Tensor, keys: Tensor, slope: Tensor, heads: int, threshold: int) -> Tensor:
    return mixed.new_empty(mixed.shape)


def _settings(mixed: Tensor, keys: Tensor, heads: int, threshold: int) -> tuple[Any, ...]:
    tokens, head = mixed.shape[1], mixed.shape[2] // 3 // heads
    side = max(16, triton.next_power_of_2(tokens))
    return len(mixed) // len(keys), head**-0.5, threshold, kept_weight(threshold), heads, tokens, head, side


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    mixed, keys, *ctx.settings = inputs
    ctx.save_for_backward(mixed, keys)


def _slopes(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    mixed, keys = ctx.saved_tensors
    return attend_slopes(mixed, keys, slope, *ctx.settings), None, None, None


attend.register_autograd(_slopes, setup_context=_keep)
