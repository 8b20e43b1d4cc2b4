"""An MLP of two hidden layers with ReLU and dropout on a GPU, in one kernel each way.

Product by product, every hidden layer goes through memory some twenty times an update: written by a product, read and
written by bias, ReLU and dropout, read by the next product, and all that again backwards. Here a kernel takes a block
of rows through the whole network: its hidden layers are made piece by piece where the next product uses them up, and
are written once, for the way back. That way another kernel reads them once, as their own masks, and writes the two
layers' slopes; what is left are the products that give the weights' gradients.

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
from tracrl.nets.kernels import drawn, kept


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
"""Fastest first, for either way; the last is no faster than the plain path. Of some sizes the assembler that Triton 3.6
takes for an H200 (ptxas 12.8) makes wrong kernels in others than the last, and ptxas 12.9, which these are assembled by
(:mod:`tracrl.nets.assembler`), right ones."""
INPUTS = 128
"""the most columns of x that are kept beside: of more, half as many are read at a time, again for every piece"""
PRODUCTS, ROWS_OF_A_PART = 96, 512
"""of gradients of weights: enough products for all processors, of at least so many rows each"""


@triton.jit
def _units_kept(draws, which, run, runs, row, word, threshold, units: tl.constexpr):
    """Which units are kept in these rows and words of a layer with so many units. ``draws`` (3, R) are the keys of the
    two layers and the first row's number."""
    first_row = tl.load(draws + 2 * runs + run)
    position = (first_row + row)[:, None] * (units // 8) + word[None, :]
    return kept(drawn(tl.load(draws + which * runs + run), position.to(tl.uint64)), threshold)


# Not specialised on numbers of rows and runs: what is tried with some is the very kernel that is used with others.
# Which assembler makes it changes nothing here, but is part of what Triton finds it by.
@triton.jit(do_not_specialize=["runs", "rows"])
def _forward(
    x, weight_1, bias_1, weight_2, bias_2, weight_3, bias_3, draws, hidden_1, hidden_2, out,
    runs, rows, threshold, scale,
    inputs: tl.constexpr, first: tl.constexpr, second: tl.constexpr, outputs: tl.constexpr,
    at_once: tl.constexpr, piece: tl.constexpr, columns: tl.constexpr, outputs_side: tl.constexpr,
    assembler: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    # A last block that is not full computes the last row again: whatever it reads or writes is there.
    row = tl.minimum(tl.program_id(0) * at_once + tl.arange(0, at_once), rows - 1)
    place = (run * rows + row)[:, None]
    column, unit_2 = tl.arange(0, columns), tl.arange(0, second)
    if inputs <= columns:
        x_0 = tl.load(x + place * inputs + column[None, :], mask=(column < inputs)[None, :], other=0.0)
    result = tl.zeros((at_once, second), tl.float32)
    for start in range(0, first, piece):
        unit = start + tl.arange(0, piece)
        at = weight_1 + run * inputs * first + column[:, None] * first + unit[None, :]
        if inputs <= columns:
            hidden = tl.dot(x_0, tl.load(at, mask=(column < inputs)[:, None], other=0.0))
        else:
            hidden = tl.zeros((at_once, piece), tl.float32)
            for i in range(0, inputs, columns):
                there = i + column < inputs
                x_i = tl.load(x + place * inputs + i + column[None, :], mask=there[None, :], other=0.0)
                hidden = tl.dot(x_i, tl.load(at + i * first, mask=there[:, None], other=0.0), hidden)
        bias = tl.load(bias_1 + run * first + unit)[None, :]
        word = start // 8 + tl.arange(0, piece // 8)
        left = _units_kept(draws, 0, run, runs, row, word, threshold, first)
        # Compared before the bias is added: else the compiler begins the product with it, and copies it into place
        # behind the fence that matrix units want before their registers are touched.
        rounded = tl.where(left & (hidden > -bias), hidden + bias, 0.0).to(hidden_1.dtype.element_ty)
        tl.store(hidden_1 + place * first + unit[None, :], rounded)
        to_second = tl.load(weight_2 + run * first * second + unit[:, None] * second + unit_2[None, :])
        result = tl.dot(rounded, to_second, result)
    result = result * scale + tl.load(bias_2 + run * second + unit_2)[None, :]
    left = _units_kept(draws, 1, run, runs, row, tl.arange(0, second // 8), threshold, second)
    rounded = tl.where(left & (result > 0), result, 0.0).to(hidden_2.dtype.element_ty)
    tl.store(hidden_2 + place * second + unit_2[None, :], rounded)
    output = tl.arange(0, outputs_side)
    last = tl.load(
        weight_3 + run * second * outputs + unit_2[:, None] * outputs + output[None, :],
        mask=(output < outputs)[None, :],
        other=0.0,
    )
    bias = tl.load(bias_3 + run * outputs + output, mask=output < outputs, other=0.0)[None, :]
    answer = tl.dot(rounded, last) * scale + bias
    tl.store(out + place * outputs + output[None, :], answer, mask=(output < outputs)[None, :])


@triton.jit(do_not_specialize=["rows"])
def _backward(
    slope, hidden_1, hidden_2, weight_2, weight_3, slope_1, slope_2, sums_1, sums_2,
    rows, scale,
    first: tl.constexpr, second: tl.constexpr, outputs: tl.constexpr,
    at_once: tl.constexpr, piece: tl.constexpr, outputs_side: tl.constexpr, assembler: tl.constexpr,
):  # fmt: skip
    run, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    row = block * at_once + tl.arange(0, at_once)
    inside = (row < rows)[:, None]
    place = (run * rows + tl.minimum(row, rows - 1))[:, None]  # as on the way forward; such rows count in no sum
    of_block = run * tl.num_programs(0) + block
    kind = slope_1.dtype.element_ty
    output, unit_1 = tl.arange(0, outputs_side), tl.arange(0, first)
    of_out = tl.load(slope + place * outputs + output[None, :], mask=(output < outputs)[None, :], other=0.0).to(kind)
    result = tl.zeros((at_once, first), tl.float32)
    for start in range(0, second, piece):
        unit = start + tl.arange(0, piece)
        last = tl.load(
            weight_3 + run * second * outputs + unit[None, :] * outputs + output[:, None],
            mask=(output < outputs)[:, None],
            other=0.0,
        )
        hidden = tl.load(hidden_2 + place * second + unit[None, :])
        delta = tl.where(hidden > 0, tl.dot(of_out, last) * scale, 0.0)
        tl.store(sums_2 + of_block * second + unit, tl.sum(tl.where(inside, delta, 0.0), 0))
        rounded = delta.to(kind)
        tl.store(slope_2 + place * second + unit[None, :], rounded)
        turned = tl.load(weight_2 + run * first * second + unit_1[None, :] * second + unit[:, None])
        result = tl.dot(rounded, turned, result)
    hidden = tl.load(hidden_1 + place * first + unit_1[None, :])
    result = tl.where(hidden > 0, result * scale, 0.0)
    tl.store(sums_1 + of_block * first + unit_1, tl.sum(tl.where(inside, result, 0.0), 0))
    tl.store(slope_1 + place * first + unit_1[None, :], result.to(kind))


@custom_op("tracrl::mlp", mutates_args=())
def _mlp(
    x: Tensor, weight_1: Tensor, bias_1: Tensor, weight_2: Tensor, bias_2: Tensor, weight_3: Tensor, bias_3: Tensor,
    draws: Tensor, threshold: int, form: int, form_back: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The result in float32, and the two hidden layers in the precision of x. Forms are numbers of :data:`FORMS`."""
    (runs, rows, inputs), first, second, outputs = x.shape, *(w.shape[2] for w in (weight_1, weight_2, weight_3))
    hidden_1, hidden_2, out = _room(x, first, second, outputs)
    weights = [w.to(x.dtype).contiguous() for w in (weight_1, weight_2, weight_3)]
    at_once, units, warps, stages = FORMS[form]
    with newer_for_launches() as assembler:
        _forward[(triton.cdiv(rows, at_once), runs)](
            x, weights[0], bias_1, weights[1], bias_2, weights[2], bias_3, draws, hidden_1, hidden_2, out,
            runs, rows, threshold, kept_weight(threshold), inputs, first, second, outputs,
            at_once, units, _side(inputs) if inputs <= INPUTS else INPUTS // 2, _side(outputs), assembler,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out, hidden_1, hidden_2


@custom_op("tracrl::mlp_slopes", mutates_args=())
def _mlp_slopes(
    slope: Tensor, hidden_1: Tensor, hidden_2: Tensor, weight_2: Tensor, weight_3: Tensor, threshold: int, form: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The slopes of both hidden layers before their ReLUs, and these summed up over each block of rows."""
    (runs, rows, first), second, outputs = hidden_1.shape, hidden_2.shape[2], slope.shape[2]
    at_once, units, warps, stages = FORMS[form]
    results = _room_back(hidden_1, hidden_2, at_once)
    weights = [w.to(hidden_1.dtype).contiguous() for w in (weight_2, weight_3)]
    with newer_for_launches() as assembler:
        _backward[(triton.cdiv(rows, at_once), runs)](
            slope, hidden_1, hidden_2, *weights, *results, rows, kept_weight(threshold), first, second, outputs,
            at_once, units, _side(outputs), assembler, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return results


def _room(x: Tensor, first: int, second: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    runs, rows, _ = x.shape
    hidden_1, hidden_2 = (torch.empty(runs, rows, units, dtype=x.dtype, device=x.device) for units in (first, second))
    return hidden_1, hidden_2, torch.empty(runs, rows, outputs, dtype=torch.float32, device=x.device)


def _room_back(hidden_1: Tensor, hidden_2: Tensor, at_once: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    runs, blocks = len(hidden_1), triton.cdiv(hidden_1.shape[1], at_once)
    sums = (torch.empty(runs, blocks, h.shape[2], device=h.device) for h in (hidden_1, hidden_2))
    return torch.empty_like(hidden_1), torch.empty_like(hidden_2), *sums  # type: ignore[return-value]


@_mlp.register_fake
def _(x: Tensor, weight_1: Tensor, bias_1: Tensor, weight_2: Tensor, bias_2: Tensor, weight_3: Tensor, bias_3: Tensor,
      draws: Tensor, threshold: int, form: int, form_back: int) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    hidden_1, hidden_2, out = _room(x, weight_1.shape[2], weight_2.shape[2], weight_3.shape[2])
    return out, hidden_1, hidden_2


@_mlp_slopes.register_fake
def _(slope: Tensor, hidden_1: Tensor, hidden_2: Tensor, weight_2: Tensor, weight_3: Tensor,
      threshold: int, form: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return _room_back(hidden_1, hidden_2, FORMS[form].rows)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, _, _, weight_2, _, weight_3, _, _, ctx.threshold, _, ctx.form = inputs
    ctx.save_for_backward(x, *output[1:], weight_2, weight_3)
    ctx.set_materialize_grads(False)


def _slopes(ctx: Any, slope: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    x, hidden_1, hidden_2, weight_2, weight_3 = ctx.saved_tensors
    slope = slope.contiguous()
    slope_1, slope_2, sums_1, sums_2 = _mlp_slopes(
        slope, hidden_1, hidden_2, weight_2, weight_3, ctx.threshold, ctx.form
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
    return len(hidden) == 2 and all(n in (64, 128, 256) for n in hidden) and sizes[-1] <= 64


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
