"""Causal attention with dropout in one kernel of a GPU: scores, shares and masks never leave its processors.

A sub-sequence has few tokens, so that a program has all its scores of one head: those of the first tokens, as many as
the largest power of two, among themselves are a tile; those of the rest with the first, and among themselves, are two
more. The backward pass computes them again: from the forward pass it has the logarithm of each row's sum, so that it
needs no largest score and no sum. Heads of a sequence, side by side in memory, are programs side by side. What goes
in is what one product gives, queries, keys and values together, and its bias: nothing is copied in between. Masks
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
from tracrl.nets.kernels import drawn

FORWARD_WARPS = {16: 1, 32: 1, 64: 2, 128: 4}
BACKWARD_WARPS = {16: 1, 32: 1, 64: 4, 128: 4}
"""that share a head's scores out, by the side of its largest tile"""
_LOG2_E = tl.constexpr(1.4426950408889634)  # powers of 2 are what a GPU computes by itself


@triton.jit
def _kept(keys, n, h, sequences, threshold, from_row: tl.constexpr, from_column: tl.constexpr,
          rows: tl.constexpr, columns: tl.constexpr, heads: tl.constexpr, tokens: tl.constexpr):  # fmt: skip
    """(rows, columns): which scores of a tile are kept. A word of eight bytes decides about eight of them."""
    row = from_row + tl.arange(0, rows)[:, None]
    word = from_column // 8 + tl.arange(0, columns // 8)[None, :]
    first = ((n % sequences) * heads + h).to(tl.int64) * (tokens * tokens // 8)
    words = drawn(tl.load(keys + n // sequences), (first + row * (tokens // 8) + word).to(tl.uint64))
    # A sum of one term: behind it words are handed on to threads, which would otherwise draw theirs again.
    words = tl.sum(words[None, :, :], 0)
    units = words[:, :, None] >> (8 * tl.arange(0, 8)).to(tl.uint64)[None, None, :]
    return (units.to(tl.uint8).to(tl.int32) >= threshold).reshape(rows, columns)


@triton.jit
def _head(mixed, bias, n, h, sequences, part: tl.constexpr, start: tl.constexpr, side: tl.constexpr,
          heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr):  # fmt: skip
    """(side, head): a head's queries (part 0), keys (1) or values (2) from a token on; behind the last one whatever is
    finite."""
    row, column = start + tl.arange(0, side)[:, None], tl.arange(0, head)[None, :]
    width: tl.constexpr = heads * head
    place = part * width + h * head + column
    at = mixed + n.to(tl.int64) * (tokens * 3 * width) + row * (3 * width) + place
    shift = tl.load(bias + (n // sequences) * (3 * width) + place)
    values = tl.load(at, mask=row < tokens, other=0.0)
    return (values + shift).to(values.dtype)


@triton.jit
def _scores(query, key, scale, own: tl.constexpr):
    """(queries, keys), in powers of 2: of the tokens before, or, among one's ``own``, of those up to oneself."""
    scores = tl.dot(query, tl.trans(key), input_precision="tf32") * (scale * _LOG2_E)
    if own:
        row, column = tl.arange(0, query.shape[0])[:, None], tl.arange(0, key.shape[0])[None, :]
        scores = tl.where(column <= row, scores, float("-inf"))
    return scores


@triton.jit
def _give(out, totals, n, h, result, total, start: tl.constexpr, side: tl.constexpr,
          heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr):  # fmt: skip
    """Write rows from a token on, up to the last token."""
    line, column = start + tl.arange(0, side), tl.arange(0, head)[None, :]
    row = start + tl.arange(0, side)[:, None]
    tl.store(totals + (n.to(tl.int64) * heads + h) * tokens + line, total, mask=line < tokens)
    to = out + n.to(tl.int64) * (tokens * heads * head) + row * (heads * head) + h * head + column
    tl.store(to, result.to(out.dtype.element_ty), mask=row < tokens)


@triton.jit
def _forward(
    mixed, bias, keys, out, totals, sequences, scale, threshold, kept_weight,
    heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr, side: tl.constexpr, rest: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    query = _head(mixed, bias, n, h, sequences, 0, 0, side, heads, tokens, head)
    key = _head(mixed, bias, n, h, sequences, 1, 0, side, heads, tokens, head)
    value = _head(mixed, bias, n, h, sequences, 2, 0, side, heads, tokens, head)
    if rest > 0:  # what is read is asked for at once
        own_query = _head(mixed, bias, n, h, sequences, 0, side, rest, heads, tokens, head)
        own_key = _head(mixed, bias, n, h, sequences, 1, side, rest, heads, tokens, head)
        own_value = _head(mixed, bias, n, h, sequences, 2, side, rest, heads, tokens, head)
    scores = _scores(query, key, scale, True)
    most = tl.max(scores, 1)
    powers = tl.exp2(scores - most[:, None])
    total = tl.sum(powers, 1)
    left = _kept(keys, n, h, sequences, threshold, 0, 0, side, side, heads, tokens)
    result = tl.dot(tl.where(left, powers, 0.0).to(value.dtype), value, input_precision="tf32")
    result *= (kept_weight / total)[:, None]
    _give(out, totals, n, h, result, most + tl.log2(total), 0, side, heads, tokens, head)
    if rest > 0:
        scores, own_scores = _scores(own_query, key, scale, False), _scores(own_query, own_key, scale, True)
        most = tl.maximum(tl.max(scores, 1), tl.max(own_scores, 1))
        powers, own_powers = tl.exp2(scores - most[:, None]), tl.exp2(own_scores - most[:, None])
        total = tl.sum(powers, 1) + tl.sum(own_powers, 1)
        left = _kept(keys, n, h, sequences, threshold, side, 0, rest, side, heads, tokens)
        own_left = _kept(keys, n, h, sequences, threshold, side, side, rest, rest, heads, tokens)
        result = tl.dot(tl.where(left, powers, 0.0).to(value.dtype), value, input_precision="tf32")
        result += tl.dot(tl.where(own_left, own_powers, 0.0).to(value.dtype), own_value, input_precision="tf32")
        result *= (kept_weight / total)[:, None]
        _give(out, totals, n, h, result, most + tl.log2(total), side, rest, heads, tokens, head)


@triton.jit
def _given(out, totals, slope, n, h, kind: tl.constexpr, start: tl.constexpr, side: tl.constexpr,
           heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr):  # fmt: skip
    """Of rows from a token on: the slope of their result, the logarithm of their sum, and the mean slope of their
    shares, by their weights, which is that of their result. Rows behind the last token have no shares."""
    line, column = start + tl.arange(0, side), tl.arange(0, head)[None, :]
    row = start + tl.arange(0, side)[:, None]
    at = n.to(tl.int64) * (tokens * heads * head) + row * (heads * head) + h * head + column
    delta = tl.load(slope + at, mask=row < tokens, other=0.0).to(kind)
    result = tl.load(out + at, mask=row < tokens, other=0.0)
    total = tl.load(totals + (n.to(tl.int64) * heads + h) * tokens + line, mask=line < tokens, other=float("inf"))
    return delta, total[:, None], tl.sum(delta.to(tl.float32) * result.to(tl.float32), 1)[:, None]


@triton.jit
def _tile(query, key, value, delta, total, common, left, scale, kept_weight, own: tl.constexpr):
    """(queries, keys): the slopes of a tile's scores, and its shares without those dropped."""
    shares = tl.exp2(_scores(query, key, scale, own) - total)
    of_shares = tl.dot(delta, tl.trans(value), input_precision="tf32")
    of_scores = shares * (tl.where(left, of_shares * kept_weight, 0.0) - common)
    return of_scores.to(value.dtype), tl.where(left, shares, 0.0).to(value.dtype)


@triton.jit
def _give_slope(of_mixed, n, h, slope, part: tl.constexpr, start: tl.constexpr, side: tl.constexpr,
                heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr):  # fmt: skip
    row, column = start + tl.arange(0, side)[:, None], tl.arange(0, head)[None, :]
    width: tl.constexpr = heads * head
    to = of_mixed + n.to(tl.int64) * (tokens * 3 * width) + row * (3 * width) + part * width + h * head + column
    tl.store(to, slope.to(of_mixed.dtype.element_ty), mask=row < tokens)


@triton.jit
def _backward(
    mixed, bias, keys, out, totals, slope, of_mixed, sequences, scale, threshold, kept_weight,
    heads: tl.constexpr, tokens: tl.constexpr, head: tl.constexpr, side: tl.constexpr, rest: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    kind: tl.constexpr = mixed.dtype.element_ty
    query = _head(mixed, bias, n, h, sequences, 0, 0, side, heads, tokens, head)
    key = _head(mixed, bias, n, h, sequences, 1, 0, side, heads, tokens, head)
    value = _head(mixed, bias, n, h, sequences, 2, 0, side, heads, tokens, head)
    delta, total, common = _given(out, totals, slope, n, h, kind, 0, side, heads, tokens, head)
    left = _kept(keys, n, h, sequences, threshold, 0, 0, side, side, heads, tokens)
    of_scores, shares = _tile(query, key, value, delta, total, common, left, scale, kept_weight, True)
    of_query = tl.dot(of_scores, key, input_precision="tf32")
    of_key = tl.dot(tl.trans(of_scores), query, input_precision="tf32")
    of_value = tl.dot(tl.trans(shares), delta, input_precision="tf32")
    _give_slope(of_mixed, n, h, of_query * scale, 0, 0, side, heads, tokens, head)
    if rest > 0:
        query = _head(mixed, bias, n, h, sequences, 0, side, rest, heads, tokens, head)
        own_key = _head(mixed, bias, n, h, sequences, 1, side, rest, heads, tokens, head)
        own_value = _head(mixed, bias, n, h, sequences, 2, side, rest, heads, tokens, head)
        delta, total, common = _given(out, totals, slope, n, h, kind, side, rest, heads, tokens, head)
        left = _kept(keys, n, h, sequences, threshold, side, 0, rest, side, heads, tokens)
        of_scores, shares = _tile(query, key, value, delta, total, common, left, scale, kept_weight, False)
        of_query = tl.dot(of_scores, key, input_precision="tf32")
        of_key += tl.dot(tl.trans(of_scores), query, input_precision="tf32")
        of_value += tl.dot(tl.trans(shares), delta, input_precision="tf32")
        left = _kept(keys, n, h, sequences, threshold, side, side, rest, rest, heads, tokens)
        of_scores, shares = _tile(query, own_key, own_value, delta, total, common, left, scale, kept_weight, True)
        of_query += tl.dot(of_scores, own_key, input_precision="tf32")
        of_own_key = tl.dot(tl.trans(of_scores), query, input_precision="tf32")
        of_own_value = tl.dot(tl.trans(shares), delta, input_precision="tf32")
        _give_slope(of_mixed, n, h, of_query * scale, 0, side, rest, heads, tokens, head)
        _give_slope(of_mixed, n, h, of_own_key * scale, 1, side, rest, heads, tokens, head)
        _give_slope(of_mixed, n, h, of_own_value * kept_weight, 2, side, rest, heads, tokens, head)
    _give_slope(of_mixed, n, h, of_key * scale, 1, 0, side, heads, tokens, head)
    _give_slope(of_mixed, n, h, of_value * kept_weight, 2, 0, side, heads, tokens, head)


@custom_op("tracrl::attend", mutates_args=())
def _attend(mixed: Tensor, bias: Tensor, keys: Tensor, heads: int, threshold: int) -> tuple[Tensor, Tensor]:
    """What comes out, and, for the way back alone, of each row of scores the logarithm to base 2 of the sum of its
    exponentials."""
    (out, totals), settings = _room(mixed, heads), _settings(mixed, keys, heads, threshold)
    _forward[(len(mixed) * heads,)](
        mixed.contiguous(),
        bias.contiguous(),
        keys,
        out,
        totals,
        *settings,
        num_warps=FORWARD_WARPS[settings[-2]],
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
    _backward[(len(mixed) * heads,)](
        mixed,
        bias.contiguous(),
        keys,
        out.contiguous(),
        totals.contiguous(),
        slope.contiguous(),
        of_mixed,
        *settings,
        num_warps=BACKWARD_WARPS[settings[-2]],
    )
    return of_mixed


@_attend_slopes.register_fake
def _(
    mixed: Tensor, bias: Tensor, keys: Tensor, out: Tensor, totals: Tensor, slope: Tensor, heads: int, threshold: int
) -> Tensor:
    return mixed.new_empty(mixed.shape)


def _settings(mixed: Tensor, keys: Tensor, heads: int, threshold: int) -> tuple[Any, ...]:
    tokens, head = mixed.shape[1], mixed.shape[2] // 3 // heads
    return len(mixed) // len(keys), head**-0.5, threshold, kept_weight(threshold), heads, tokens, head, *_sides(tokens)


def _sides(tokens: int) -> tuple[int, int]:
    """Of the tile of the first tokens, and of that of the rest, 0 where there is none. A product takes 16 at least."""
    first = 2 ** (tokens.bit_length() - 1)
    return max(16, first), max(16, triton.next_power_of_2(tokens - first)) if tokens > max(16, first) else 0


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
