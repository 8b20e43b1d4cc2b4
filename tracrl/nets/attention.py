"""Causal attention with dropout in one kernel of a GPU: scores, shares and masks never leave its processors.

A sub-sequence has few tokens, so that all its scores of one head are a single tile, which the backward pass computes
again: from the forward pass it has the logarithm of each row's sum, so that it needs no largest score and no sum. What
goes in is what one product gives, queries, keys and values together, and its bias: nothing is copied in between. Masks
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

WARPS, FEW_TOKENS, FEW_WARPS = 4, 64, 2
"""that share a head's scores out; on the way forward fewer are faster up to so many tokens"""
_LOG2_E = tl.constexpr(1.4426950408889634)  # powers of 2 are what a GPU computes by itself


@triton.jit
def _scores_kept(keys, n, h, sequences, threshold, heads: tl.constexpr, tokens: tl.constexpr, side: tl.constexpr):
    """(side, side): which scores of a head are kept. A word of eight bytes decides about eight of them."""
    row, word = tl.arange(0, side)[:, None], tl.arange(0, side // 8)[None, :]
    first = ((n % sequences) * heads + h).to(tl.int64) * (tokens * tokens // 8)
    return kept(drawn(tl.load(keys + n // sequences), (first + row * (tokens // 8) + word).to(tl.uint64)), threshold)


@triton.jit
def _head(mixed, bias, n, h, sequences, part: tl.constexpr,
          heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr, side: tl.constexpr):  # fmt: skip
    """(side, head): a head's queries (part 0), keys (1) or values (2); behind the last token whatever is finite."""
    row, column = tl.arange(0, side)[:, None], tl.arange(0, head)[None, :]
    width: tl.constexpr = heads * head
    place = part * width + h * head + column
    at = mixed + n.to(tl.int64) * (tokens * 3 * width) + row * (3 * width) + place
    shift = tl.load(bias + (n // sequences) * (3 * width) + place)
    values = tl.load(at, mask=row < tokens, other=0.0)
    return (values + shift).to(values.dtype)


@triton.jit
def _scores(query, key, scale, tokens: tl.constexpr, side: tl.constexpr):
    """(side, side): of the tokens up to one's own, in powers of 2."""
    row, column = tl.arange(0, side)[:, None], tl.arange(0, side)[None, :]
    scores = tl.dot(query, tl.trans(key), input_precision="tf32") * (scale * _LOG2_E)
    return tl.where((column <= row) & (column < tokens), scores, float("-inf"))


@triton.jit
def _forward(
    mixed, bias, keys, out, totals, sequences, scale, threshold, kept_weight,
    heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr, side: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(0), tl.program_id(1)
    query = _head(mixed, bias, n, h, sequences, 0, heads, tokens, head, side)
    key = _head(mixed, bias, n, h, sequences, 1, heads, tokens, head, side)
    value = _head(mixed, bias, n, h, sequences, 2, heads, tokens, head, side)
    scores = _scores(query, key, scale, tokens, side)
    most = tl.max(scores, 1)
    powers = tl.exp2(scores - most[:, None])
    total = tl.sum(powers, 1)
    left = _scores_kept(keys, n, h, sequences, threshold, heads, tokens, side)
    dropped = tl.where(left, powers, 0.0).to(value.dtype)
    result = tl.dot(dropped, value, input_precision="tf32") * (kept_weight / total)[:, None]
    line, row, column = tl.arange(0, side), tl.arange(0, side)[:, None], tl.arange(0, head)[None, :]
    tl.store(totals + (n.to(tl.int64) * heads + h) * tokens + line, most + tl.log2(total), mask=line < tokens)
    to = out + n.to(tl.int64) * (tokens * heads * head) + row * (heads * head) + h * head + column
    tl.store(to, result.to(out.dtype.element_ty), mask=row < tokens)


@triton.jit
def _backward(
    mixed, bias, keys, out, totals, slope, of_mixed, sequences, scale, threshold, kept_weight,
    heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr, side: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(0), tl.program_id(1)
    line, row, column = tl.arange(0, side), tl.arange(0, side)[:, None], tl.arange(0, head)[None, :]
    width: tl.constexpr = heads * head
    inside = row < tokens
    query = _head(mixed, bias, n, h, sequences, 0, heads, tokens, head, side)
    key = _head(mixed, bias, n, h, sequences, 1, heads, tokens, head, side)
    value = _head(mixed, bias, n, h, sequences, 2, heads, tokens, head, side)
    at = n.to(tl.int64) * (tokens * width) + row * width + h * head + column
    delta = tl.load(slope + at, mask=inside, other=0.0).to(value.dtype)
    result = tl.load(out + at, mask=inside, other=0.0)
    # Rows behind the last token have no shares.
    total = tl.load(totals + (n.to(tl.int64) * heads + h) * tokens + line, mask=line < tokens, other=float("inf"))
    shares = tl.exp2(_scores(query, key, scale, tokens, side) - total[:, None])
    left = _scores_kept(keys, n, h, sequences, threshold, heads, tokens, side)
    dropped = tl.where(left, shares, 0.0).to(value.dtype)
    of_value = tl.dot(tl.trans(dropped), delta, input_precision="tf32") * kept_weight
    of_shares = tl.dot(delta, tl.trans(value), input_precision="tf32")
    # The mean slope of a row's shares, by their weights, is that of its result.
    common = tl.sum(delta.to(tl.float32) * result.to(tl.float32), 1)[:, None]
    of_scores = (shares * (tl.where(left, of_shares * kept_weight, 0.0) - common)).to(value.dtype)
    of_query = tl.dot(of_scores, key, input_precision="tf32") * scale
    of_key = tl.dot(tl.trans(of_scores), query, input_precision="tf32") * scale
    kind = of_mixed.dtype.element_ty
    to = of_mixed + n.to(tl.int64) * (tokens * 3 * width) + row * (3 * width) + h * head + column
    tl.store(to, of_query.to(kind), mask=inside)
    tl.store(to + width, of_key.to(kind), mask=inside)
    tl.store(to + 2 * width, of_value.to(kind), mask=inside)


@custom_op("tracrl::attend", mutates_args=())
def _attend(mixed: Tensor, bias: Tensor, keys: Tensor, heads: int, threshold: int) -> tuple[Tensor, Tensor]:
    """What comes out, and, for the way back alone, of each row of scores the logarithm to base 2 of the sum of its
    exponentials."""
    out, totals = _room(mixed, heads)
    _forward[(len(mixed), heads)](
        mixed.contiguous(),
        bias.contiguous(),
        keys,
        out,
        totals,
        *_settings(mixed, keys, heads, threshold),
        num_warps=FEW_WARPS if mixed.shape[1] <= FEW_TOKENS else WARPS,
    )
    return out, totals


@_attend.register_fake
def _(mixed: Tensor, bias: Tensor, keys: Tensor, heads: int, threshold: int) -> tuple[Tensor, Tensor]:
    return _room(mixed, heads)


def _room(mixed: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    sequences, tokens, width = mixed.shape
    totals = torch.empty(sequences, heads, tokens, dtype=torch.float32, device=mixed.device)
    return mixed.new_empty(sequences, tokens, width // 3), totals


@custom_op("tracrl::attend_slopes", mutates_args=())
def _attend_slopes(
    mixed: Tensor, bias: Tensor, keys: Tensor, out: Tensor, totals: Tensor, slope: Tensor, heads: int, threshold: int
) -> Tensor:
    """The gradient of ``mixed``, given that of the result."""
    mixed = mixed.contiguous()
    of_mixed, settings = torch.empty_like(mixed), _settings(mixed, keys, heads, threshold)
    _backward[(len(mixed), heads)](
        mixed,
        bias.contiguous(),
        keys,
        out.contiguous(),
        totals.contiguous(),
        slope.contiguous(),
        of_mixed,
        *settings,
        num_warps=WARPS,
    )
    return of_mixed


@_attend_slopes.register_fake
def _(
    mixed: Tensor, bias: Tensor, keys: Tensor, out: Tensor, totals: Tensor, slope: Tensor, heads: int, threshold: int
) -> Tensor:
    return mixed.new_empty(mixed.shape)


def _settings(mixed: Tensor, keys: Tensor, heads: int, threshold: int) -> tuple[Any, ...]:
    tokens, head = mixed.shape[1], mixed.shape[2] // 3 // heads
    side = max(16, triton.next_power_of_2(tokens))
    return len(mixed) // len(keys), head**-0.5, threshold, kept_weight(threshold), heads, tokens, head, side


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    mixed, bias, keys, *ctx.settings = inputs
    ctx.save_for_backward(mixed, bias, keys, *output)
    ctx.set_materialize_grads(False)


def _slopes(ctx: Any, slope: Tensor, _: None) -> tuple[Tensor | None, ...]:
    mixed, bias, *others = ctx.saved_tensors
    of_mixed = _attend_slopes(mixed, bias, *others, slope, *ctx.settings)
    return of_mixed, of_mixed.view(len(bias), -1, bias.shape[2]).float().sum(1, keepdim=True), None, None, None


_attend.register_autograd(_slopes, setup_context=_keep)


def attend(mixed: Tensor, bias: Tensor, keys: Tensor, heads: int, threshold: int) -> Tensor:
    """(N, tokens, 3 · width) and what is added to it, (R, 1, 3 · width) → (N, tokens, width), N = R · sequences.

    Dropout is by ``keys`` (R,), ``threshold`` / 256; computed and given back in the precision of ``mixed``.
    """
    return _attend(mixed, bias, keys, heads, threshold)[0]
