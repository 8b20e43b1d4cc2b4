"""An MLP of two hidden layers with ReLU and dropout on a GPU, in one kernel each way.

Product by product, every hidden layer goes through memory some twenty times an update: written by a product, read and
written by bias, ReLU and dropout, read by the next product, and all that again backwards. Here a kernel takes a block
of rows through the whole network: its hidden layers are made piece by piece where the next product uses them up, and
are written once, for the products that give the weights' gradients. Beside them it writes a bit for each of their
units, whether it is above 0: that is all that another kernel reads of them on the way back, where it writes the two
layers' slopes. The bits begin as those that dropout leaves, which a small kernel draws before, each row in one thread:
drawn within the network's kernel, they would go from thread to thread by way of its shared memory.

Masks are those of :func:`tracrl.nets.dropout.relu_dropout`, whose plain form this is held to in
tests/nets/test_kernels.py, by Triton's interpreter, and in tests/train/test_gpu.py. Used in the first of :data:`FORMS`
that is right on the machine (:meth:`tracrl.nets.stacked.StackedMLP.fuse`).
"""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def"
# No annotations of the future: torch and Triton read those of this file as they are.

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op
from torch.nn.functional import pad

from tracrl.nets.assembler import newer_for_launches
from tracrl.nets.dropout import kept_weight
from tracrl.nets.kernels import drawn


class Form(NamedTuple):
    """How a kernel is cut; what it computes is the same."""

    rows: int
    """of a block"""
    units: int
    """of a piece of a hidden layer"""
    warps: int
    """that share a block out"""
    stages: int
    """of what is read ahead"""


FORMS = (Form(64, 64, 4, 2), Form(64, 32, 4, 3), Form(128, 64, 8, 3), Form(64, 64, 8, 2))
"""Fastest first, for either way, as they were before there were bits; the last was no faster than the plain path then.
Of some sizes the assembler that Triton 3.6 takes for an H200 (ptxas 12.8) makes wrong kernels in others than the last,
and ptxas 12.9, which these are assembled by (:mod:`tracrl.nets.assembler`), right ones."""
INPUTS = 128
"""the most columns of x that are kept beside: of more, half as many are read at a time, again for every piece"""
PRODUCTS, ROWS_OF_A_PART = 96, 512
"""of gradients of weights: enough products for all processors, of at least so many rows each"""
WORDS = {64: torch.int8, 128: torch.int16, 256: torch.int32}
"""Units of a hidden layer → what its bits are kept in, eight words a row: bit j of word k is unit 8 j + k. A thread
that holds some of a product's result has the same columns of every eight, and so all of the words that it needs."""
ROWS_DRAWN = 128
"""at once, by as many threads"""


@triton.jit
def _bits_of_row(key, row, threshold, units: tl.constexpr, words, inside):
    """Which units dropout leaves in these rows. A thread draws a whole row, and so has all bits of its eight words: a
    number that is drawn has a byte for one bit of each."""
    w0 = tl.zeros(row.shape, tl.int32)
    w1, w2, w3, w4, w5, w6, w7 = w0, w0, w0, w0, w0, w0, w0
    for j in tl.static_range(units // 8):
        z = drawn(key, (row * (units // 8) + j).to(tl.uint64))
        low, high = z.to(tl.uint32), (z >> 32).to(tl.uint32)
        w0 |= tl.where((low & 255).to(tl.int32) >= threshold, 1 << j, 0)
        w1 |= tl.where(((low >> 8) & 255).to(tl.int32) >= threshold, 1 << j, 0)
        w2 |= tl.where(((low >> 16) & 255).to(tl.int32) >= threshold, 1 << j, 0)
        w3 |= tl.where((low >> 24).to(tl.int32) >= threshold, 1 << j, 0)
        w4 |= tl.where((high & 255).to(tl.int32) >= threshold, 1 << j, 0)
        w5 |= tl.where(((high >> 8) & 255).to(tl.int32) >= threshold, 1 << j, 0)
        w6 |= tl.where(((high >> 16) & 255).to(tl.int32) >= threshold, 1 << j, 0)
        w7 |= tl.where((high >> 24).to(tl.int32) >= threshold, 1 << j, 0)
    kind = words.dtype.element_ty
    tl.store(words, w0.to(kind), mask=inside)
    tl.store(words + 1, w1.to(kind), mask=inside)
    tl.store(words + 2, w2.to(kind), mask=inside)
    tl.store(words + 3, w3.to(kind), mask=inside)
    tl.store(words + 4, w4.to(kind), mask=inside)
    tl.store(words + 5, w5.to(kind), mask=inside)
    tl.store(words + 6, w6.to(kind), mask=inside)
    tl.store(words + 7, w7.to(kind), mask=inside)


@triton.jit
def _packed(mask):
    """(n, units) → (n, 8) words whose lowest bits they are."""
    n: tl.constexpr = mask.shape[0]
    parts: tl.constexpr = mask.shape[1] // 8
    bit = tl.arange(0, parts)[None, :, None]
    return tl.sum(tl.reshape(mask.to(tl.int32), (n, parts, 8)) << bit, 1)


@triton.jit
def _unpacked(words, units: tl.constexpr):
    """(n, 8) → (n, units): their lowest bits."""
    n: tl.constexpr = words.shape[0]
    bit = tl.arange(0, units // 8)[None, :, None]
    return tl.reshape(words[:, None, :] & (1 << bit), (n, units)) != 0


# As below, not specialised.
@triton.jit(do_not_specialize=["runs", "rows"])
def _draw(
    draws, bits_1, bits_2, runs, rows, threshold,
    first: tl.constexpr, second: tl.constexpr, at_once: tl.constexpr, assembler: tl.constexpr,
):  # fmt: skip
    """``draws`` (3, R) are the keys of the two layers and the first row's number."""
    run, layer = tl.program_id(1).to(tl.int64), tl.program_id(2)
    row = tl.program_id(0) * at_once + tl.arange(0, at_once)
    inside, place = row < rows, (run * rows + row) * 8
    key, numbered = tl.load(draws + layer * runs + run), tl.load(draws + 2 * runs + run) + row
    if layer == 0:
        _bits_of_row(key, numbered, threshold, first, bits_1 + place, inside)
    else:
        _bits_of_row(key, numbered, threshold, second, bits_2 + place, inside)


# Not specialised on numbers of rows and runs: what is tried with some is the very kernel that is used with others.
# Which assembler makes it changes nothing here, but is part of what Triton finds it by.
@triton.jit(do_not_specialize=["rows"])
def _forward(
    x, weight_1, bias_1, weight_2, bias_2, weight_3, bias_3, hidden_1, hidden_2, bits_1, bits_2, out,
    rows, scale,
    inputs: tl.constexpr, first: tl.constexpr, second: tl.constexpr, outputs: tl.constexpr,
    at_once: tl.constexpr, piece: tl.constexpr, columns: tl.constexpr, outputs_side: tl.constexpr,
    assembler: tl.constexpr,
):  # fmt: skip
    run, begin = tl.program_id(1).to(tl.int64), tl.program_id(0) * at_once
    place = run * rows + begin
    # Within a block 32 bits are enough to count by. A last one that is not full computes the last row again: whatever
    # it reads or writes is there, and from bits that were written already come the same.
    row = tl.minimum(tl.arange(0, at_once), rows - 1 - begin)[:, None]
    column, unit_2, word = tl.arange(0, columns), tl.arange(0, second), row * 8 + tl.arange(0, 8)[None, :]
    left_1 = tl.load(bits_1 + place * 8 + word).to(tl.int32)
    left_2 = tl.load(bits_2 + place * 8 + word).to(tl.int32)
    x += place * inputs
    if inputs <= columns:
        x_0 = tl.load(x + (row * inputs + column[None, :]), mask=(column < inputs)[None, :], other=0.0)
    result = tl.zeros((at_once, second), tl.float32)
    above = tl.zeros((at_once, 8), tl.int32)
    for start in range(0, first, piece):
        unit = start + tl.arange(0, piece)
        at = weight_1 + run * inputs * first + (column[:, None] * first + unit[None, :])
        if inputs <= columns:
            hidden = tl.dot(x_0, tl.load(at, mask=(column < inputs)[:, None], other=0.0))
        else:
            hidden = tl.zeros((at_once, piece), tl.float32)
            for i in range(0, inputs, columns):
                there = i + column < inputs
                x_i = tl.load(x + (row * inputs + i + column[None, :]), mask=there[None, :], other=0.0)
                hidden = tl.dot(x_i, tl.load(at + i * first, mask=there[:, None], other=0.0), hidden)
        bias = tl.load(bias_1 + run * first + unit)[None, :]
        # Compared before the bias is added: else the compiler begins the product with it, and copies it into place
        # behind the fence that matrix units want before their registers are touched.
        positive = _unpacked(left_1 >> (start // 8), piece) & (hidden > -bias)
        rounded = tl.where(positive, hidden + bias, 0.0).to(hidden_1.dtype.element_ty)
        tl.store(hidden_1 + place * first + (row * first + unit[None, :]), rounded)
        above |= _packed(positive) << (start // 8)
        to_second = tl.load(weight_2 + run * first * second + (unit[:, None] * second + unit_2[None, :]))
        result = tl.dot(rounded, to_second, result)
    tl.store(bits_1 + place * 8 + word, above.to(bits_1.dtype.element_ty))
    result = result * scale + tl.load(bias_2 + run * second + unit_2)[None, :]
    positive = _unpacked(left_2, second) & (result > 0)
    rounded = tl.where(positive, result, 0.0).to(hidden_2.dtype.element_ty)
    tl.store(hidden_2 + place * second + (row * second + unit_2[None, :]), rounded)
    tl.store(bits_2 + place * 8 + word, _packed(positive).to(bits_2.dtype.element_ty))
    output = tl.arange(0, outputs_side)
    last = tl.load(
        weight_3 + run * second * outputs + (unit_2[:, None] * outputs + output[None, :]),
        mask=(output < outputs)[None, :],
        other=0.0,
    )
    bias = tl.load(bias_3 + run * outputs + output, mask=output < outputs, other=0.0)[None, :]
    answer = tl.dot(rounded, last) * scale + bias
    tl.store(out + place * outputs + (row * outputs + output[None, :]), answer, mask=(output < outputs)[None, :])


@triton.jit(do_not_specialize=["rows"])
def _backward(
    slope, bits_1, bits_2, weight_2, weight_3, slope_1, slope_2, sums_1, sums_2,
    rows, scale,
    first: tl.constexpr, second: tl.constexpr, outputs: tl.constexpr,
    at_once: tl.constexpr, piece: tl.constexpr, outputs_side: tl.constexpr, assembler: tl.constexpr,
):  # fmt: skip
    run, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    begin = block * at_once
    place, of_block = run * rows + begin, run * tl.num_programs(0) + block
    # As on the way forward; rows that are not there have no slope, so that they count in no sum.
    row = tl.minimum(tl.arange(0, at_once), rows - 1 - begin)[:, None]
    inside = (begin + tl.arange(0, at_once) < rows)[:, None]
    kind = slope_1.dtype.element_ty
    output, unit_1, word = tl.arange(0, outputs_side), tl.arange(0, first), row * 8 + tl.arange(0, 8)[None, :]
    above_1 = tl.load(bits_1 + place * 8 + word).to(tl.int32)
    above_2 = tl.load(bits_2 + place * 8 + word).to(tl.int32)
    of_out = tl.load(
        slope + place * outputs + (row * outputs + output[None, :]),
        mask=(output < outputs)[None, :] & inside,
        other=0.0,
    ).to(kind)
    result = tl.zeros((at_once, first), tl.float32)
    for start in range(0, second, piece):
        unit = start + tl.arange(0, piece)
        last = tl.load(
            weight_3 + run * second * outputs + (unit[None, :] * outputs + output[:, None]),
            mask=(output < outputs)[:, None],
            other=0.0,
        )
        delta = tl.where(_unpacked(above_2 >> (start // 8), piece), tl.dot(of_out, last) * scale, 0.0)
        tl.store(sums_2 + of_block * second + unit, tl.sum(delta, 0))
        rounded = delta.to(kind)
        tl.store(slope_2 + place * second + (row * second + unit[None, :]), rounded, mask=inside)
        turned = tl.load(weight_2 + run * first * second + (unit_1[None, :] * second + unit[:, None]))
        result = tl.dot(rounded, turned, result)
    result = tl.where(_unpacked(above_1, first), result * scale, 0.0)
    tl.store(sums_1 + of_block * first + unit_1, tl.sum(result, 0))
    tl.store(slope_1 + place * first + (row * first + unit_1[None, :]), result.to(kind), mask=inside)


@custom_op("tracrl::mlp", mutates_args=())
def _mlp(
    x: Tensor, weight_1: Tensor, bias_1: Tensor, weight_2: Tensor, bias_2: Tensor, weight_3: Tensor, bias_3: Tensor,
    draws: Tensor, threshold: int, form: int, form_back: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The result in float32, the two hidden layers in the precision of x, and the bits of these that are above 0. Forms
    are numbers of :data:`FORMS`."""
    (runs, rows, inputs), first, second, outputs = x.shape, *(w.shape[2] for w in (weight_1, weight_2, weight_3))
    out, *hidden = _room(x, first, second, outputs)
    bits = _left_by_dropout(draws, rows, first, second, threshold)
    weights = [w.to(x.dtype).contiguous() for w in (weight_1, weight_2, weight_3)]
    at_once, units, warps, stages = FORMS[form]
    with newer_for_launches() as assembler:
        _forward[(triton.cdiv(rows, at_once), runs)](
            x, weights[0], bias_1, weights[1], bias_2, weights[2], bias_3, *hidden, *bits, out,
            rows, kept_weight(threshold), inputs, first, second, outputs,
            at_once, units, _side(inputs) if inputs <= INPUTS else INPUTS // 2, _side(outputs), assembler,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out, *hidden, *bits  # type: ignore[return-value]


@custom_op("tracrl::mlp_slopes", mutates_args=())
def _mlp_slopes(
    slope: Tensor, bits_1: Tensor, bits_2: Tensor, weight_2: Tensor, weight_3: Tensor, threshold: int, form: int,
    kind: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The slopes of both hidden layers before their ReLUs, in the precision ``kind``, and these summed up over each
    block of rows."""
    (runs, rows, outputs), (_, first, second) = slope.shape, weight_2.shape
    at_once, units, warps, stages = FORMS[form]
    results = _room_back(slope, first, second, at_once, kind)
    weights = [w.to(kind).contiguous() for w in (weight_2, weight_3)]
    with newer_for_launches() as assembler:
        _backward[(triton.cdiv(rows, at_once), runs)](
            slope, bits_1, bits_2, *weights, *results, rows, kept_weight(threshold), first, second, outputs,
            at_once, units, _side(outputs), assembler, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return results


def _left_by_dropout(draws: Tensor, rows: int, first: int, second: int, threshold: int) -> tuple[Tensor, Tensor]:
    """The bits of both hidden layers, (R, rows, 8) each. Of these the network's kernel keeps the units above 0."""
    runs = draws.shape[1]
    bits = _room_of_bits(draws, rows, first, second)
    with newer_for_launches() as assembler:
        _draw[(triton.cdiv(rows, ROWS_DRAWN), runs, 2)](
            draws, *bits, runs, rows, threshold, first, second, ROWS_DRAWN, assembler, num_warps=ROWS_DRAWN // 32
        )
    return bits


def _room(x: Tensor, first: int, second: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    runs, rows, _ = x.shape
    hidden = (torch.empty(runs, rows, units, dtype=x.dtype, device=x.device) for units in (first, second))
    return torch.empty(runs, rows, outputs, dtype=torch.float32, device=x.device), *hidden  # type: ignore[return-value]


def _room_of_bits(draws: Tensor, rows: int, first: int, second: int) -> tuple[Tensor, Tensor]:
    shape = draws.shape[1], rows, 8
    kinds = (WORDS[int(units)] for units in (first, second))  # a compiler that leaves sizes open is told these
    bits_1, bits_2 = (torch.empty(shape, dtype=kind, device=draws.device) for kind in kinds)
    return bits_1, bits_2


def _room_back(
    slope: Tensor, first: int, second: int, at_once: int, kind: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    runs, rows, _ = slope.shape
    slopes = (torch.empty(runs, rows, units, dtype=kind, device=slope.device) for units in (first, second))
    blocks = triton.cdiv(rows, at_once)
    sums = (torch.empty(runs, blocks, units, device=slope.device) for units in (first, second))
    return *slopes, *sums  # type: ignore[return-value]


@_mlp.register_fake
def _(x: Tensor, weight_1: Tensor, bias_1: Tensor, weight_2: Tensor, bias_2: Tensor, weight_3: Tensor, bias_3: Tensor,
      draws: Tensor, threshold: int, form: int, form_back: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    first, second = weight_2.shape[1:]
    return *_room(x, first, second, weight_3.shape[2]), *_room_of_bits(draws, x.shape[1], first, second)


@_mlp_slopes.register_fake
def _(slope: Tensor, bits_1: Tensor, bits_2: Tensor, weight_2: Tensor, weight_3: Tensor,
      threshold: int, form: int, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    first, second = weight_2.shape[1:]
    return _room_back(slope, first, second, FORMS[form].rows, kind)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, _, _, weight_2, _, weight_3, _, _, ctx.threshold, _, ctx.form = inputs
    ctx.save_for_backward(x, *output[1:], weight_2, weight_3)
    ctx.set_materialize_grads(False)


def _slopes(ctx: Any, slope: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    x, hidden_1, hidden_2, bits_1, bits_2, weight_2, weight_3 = ctx.saved_tensors
    slope = slope.contiguous()
    slope_1, slope_2, sums_1, sums_2 = _mlp_slopes(
        slope, bits_1, bits_2, weight_2, weight_3, ctx.threshold, ctx.form, x.dtype
    )
    scale, outputs = kept_weight(ctx.threshold), slope.shape[2]
    of_last = _product(hidden_2, pad(slope.to(x.dtype), (0, -outputs % 8)))[..., :outputs]
    return (
        None,
        _product(x, slope_1),
        sums_1.sum(1, keepdim=True),
        _product(hidden_1, slope_2) * scale,
        sums_2.sum(1, keepdim=True),
        of_last * scale,
        slope.sum(1, keepdim=True),
        *[None] * 4,
    )


_mlp.register_autograd(_slopes, setup_context=_keep)


def fused_mlp(
    x: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    keys: Sequence[Tensor],
    threshold: int,
    first_row: Tensor,
    forms: tuple[int, int],
) -> Tensor:
    """(R, rows, in) → (R, rows, out), in float32, through three layers (R, in, out) and (R, 1, out).

    ``keys`` (R,) of each hidden layer's dropout, ``threshold`` / 256 its rate, ``first_row`` (a scalar) that of x in
    what the masks are drawn for, ``forms`` the numbers in :data:`FORMS` of the way forward and of that back. What is
    multiplied is in the precision of x. Differentiable in the layers.
    """
    draws = torch.stack([*keys, first_row.expand(len(x))])
    # Columns in eights: the gradient of the first weights is a product over all of x.
    (weight_1, bias_1), *others = layers
    more = -x.shape[2] % 8
    if more:
        x, weight_1 = pad(x, (0, more)), pad(weight_1, (0, 0, 0, more))
    return _mlp(x.contiguous(), weight_1, bias_1, *(t for pair in others for t in pair), draws, threshold, *forms)[0]


def fits(sizes: Sequence[int]) -> bool:
    """Whether the kernels take a network of these sizes."""
    hidden = sizes[1:-1]
    return len(hidden) == 2 and all(n in WORDS for n in hidden) and sizes[-1] <= 64


def _side(size: int) -> int:
    """Of a matrix that is multiplied, at least 16."""
    return max(16, triton.next_power_of_2(size))


def _product(x: Tensor, slope: Tensor) -> Tensor:
    """xᵀ δ (R, in, out) in float32: the rows are cut into parts, so that all processors have some."""
    runs, rows, inputs = x.shape
    parts = 1
    while runs * parts < PRODUCTS and rows % (2 * parts) == 0 and rows // (2 * parts) >= ROWS_OF_A_PART:
        parts *= 2
    cut = (t.reshape(runs * parts, rows // parts, -1) for t in (x, slope))
    left, right = cut
    return torch.bmm(left.transpose(1, 2), right).view(runs, parts, inputs, -1).float().sum(1)
