"""What a regression on a CPU does beside its large products, in compiled passes (Numba).

As calls of torch these are some fifty in an update, each of a few microseconds in which threads wait for each other.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from tracrl.nets import random
from tracrl.nets.gelu import compiled_tanh

REORDERED = {"reassoc", "contract", "nsz"}
"""Sums may be taken in any order, as vector instructions do; what is not a number stays so."""
AT_ONCE = 512
"""numbers that Adam moves while their gradients are in the nearest cache"""


class Draws(NamedTuple):
    """How a run draws rows: uniformly from some pieces of a table, as :mod:`tracrl.nets.random` would."""

    seed: int
    clock: Any
    """the step, an array without dimensions"""
    stream: int
    ends: Any
    """where each piece ends, counted through; the last one's is the number of rows there are"""
    shift: Any
    """row k, counted through, is row k + shift of the table, with the shift of its piece"""


class Passes(NamedTuple):
    """Kernels over arrays of NumPy. Layers and their gradients are float32, or int16 that have the bits of bfloat16."""

    gather: Any
    """(*draws, first, inputs, targets, x, y): draws rows from the ``first`` of a batch on, x of the inputs, which are
    then as layers are, and y of the targets"""
    relu: Any
    """(products, bias): max(product + bias, 0), in place"""
    last: Any
    """(hidden, weight, bias, result): hidden W + b of a last layer, in float32"""
    errors: Any
    """(result, y, scale, squares): ``squares`` is Σ (tanh(result) − y)², and the gradient of ``scale`` / 2 times that
    takes the result's place"""
    back: Any
    """(slopes, hidden, weight, delta, of_weight, of_bias, of_hidden_bias, added): from the gradient of a last layer's
    result to that before the ReLU whose result ``hidden`` is

    This, ``delta``, may take the place of ``hidden``. Gradients of parameters are ``added`` to what is there, or in its
    place."""
    slope: Any
    """(delta, hidden, of_bias): delta is 0 where hidden, the result of a ReLU, is; in place, and its rows are summed"""
    adam: Any
    """(values, copies, gradients, moments, squares, steps, lr, beta, beta_of_squares, eps): a step of some parameters

    Gradients (blocks, n) are added up. ``copies`` are the values in bfloat16; in float32 they are left alone."""
    follow: Any
    """(values, copies, leaders, share): some parameters go so far towards their leaders; ``copies`` as above"""


@functools.cache
def compiled_rounding(bf16: bool) -> tuple[Any, Any]:
    """For compiled kernels: a layer's number as float32, and back. In bfloat16 they are seen as bits, in int16."""
    import numba
    import numpy as np

    f32, u32 = np.float32, np.uint32

    @numba.njit
    def same(value: Any) -> Any:
        return value

    @numba.njit
    def of_bits(bits: Any) -> Any:
        return u32(u32(np.uint16(bits)) << u32(16)).view(f32)

    @numba.njit
    def to_bits(value: Any) -> Any:
        bits = f32(value).view(u32)
        return np.int16((bits + u32(0x7FFF) + ((bits >> u32(16)) & u32(1))) >> u32(16))  # to the nearest, half to even

    return (of_bits, to_bits) if bf16 else (same, same)


@functools.cache
def compiled_rows() -> tuple[Any, Any]:
    """For compiled kernels: (ends, place) → the first piece that ends behind a place, and
    (key, position, ends, shift) → the row that is drawn there, with the pieces of :class:`Draws`."""
    import numba

    below, _ = random.compiled_numbers()

    @numba.njit
    def piece_of(ends: Any, place: Any) -> Any:
        piece, left = 0, len(ends)
        while left > 1:  # without a branch that could be foretold wrongly
            half = left // 2
            piece += half if ends[piece + half - 1] <= place else 0
            left -= half
        return piece

    @numba.njit
    def row_at(key: Any, position: Any, ends: Any, shift: Any) -> Any:
        place = below(key, position, ends[-1])
        return place + shift[piece_of(ends, place)]

    return piece_of, row_at


@functools.cache
def compiled_extremes() -> tuple[Any, Any]:
    """For compiled kernels: (values (members, rows), row) → the member whose value is the least there, and the same of
    the greatest. One that is not a number goes before all others."""
    import numba
    import numpy as np

    def first_of(goes_before: Any) -> Any:
        @numba.njit
        def member(values: Any, row: Any) -> Any:
            best = 0
            for other in range(1, len(values)):
                value = values[other, row]
                if goes_before(value, values[best, row]) or np.isnan(value):
                    best = other
            return best

        return member

    return first_of(numba.njit(lambda a, b: a < b)), first_of(numba.njit(lambda a, b: a > b))


@functools.cache
def compiled_passes(bf16: bool) -> Passes | None:
    """None where Numba is not installed."""
    try:
        import numba
        import numpy as np
    except ImportError:
        return None
    f32 = np.float32
    tanh, (key, _), (_, row_at) = compiled_tanh(), random.compiled_draws(), compiled_rows()
    widened, rounded = compiled_rounding(bf16)
    zero, one = f32(0), f32(1)
    # A check of every division would keep loops from vector instructions.
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath=REORDERED)

    @numba.njit(nogil=True)
    def gather(
        seed: Any,
        clock: Any,
        stream: Any,
        ends: Any,
        shift: Any,
        first: Any,
        inputs: Any,
        targets: Any,
        x: Any,
        y: Any,
    ) -> None:
        drawn = key(seed, clock[()], stream)
        for i in range(len(x)):
            row = row_at(drawn, first + i, ends, shift)
            for j in range(x.shape[1]):
                x[i, j] = rounded(inputs[row, j])
            for j in range(y.shape[1]):
                y[i, j] = targets[row, j]

    @compiled
    def relu(products: Any, bias: Any) -> None:
        for i in range(len(products)):
            for j in range(len(bias)):
                value = widened(products[i, j]) + bias[j]
                products[i, j] = rounded(zero if value < zero else value)

    @compiled
    def last(hidden: Any, weight: Any, bias: Any, result: Any) -> None:
        units, outputs = weight.shape
        lying = np.zeros((outputs + outputs % 2, units), f32)  # two at a time
        for j in range(units):
            for k in range(outputs):
                lying[k, j] = weight[j, k]
        for i in range(len(hidden)):
            for k in range(0, outputs, 2):
                one, other = zero, zero
                for j in range(units):
                    value = widened(hidden[i, j])
                    one += value * lying[k, j]
                    other += value * lying[k + 1, j]
                result[i, k] = one + bias[k]
                if k + 1 < outputs:
                    result[i, k + 1] = other + bias[k + 1]

    @compiled
    def errors(result: Any, y: Any, scale: float, squares: Any) -> None:
        total = zero
        for i in range(len(result)):
            for k in range(result.shape[1]):
                value = tanh(result[i, k])
                wrong = value - y[i, k]
                total += wrong * wrong
                result[i, k] = f32(scale) * wrong * (f32(1) - value * value)
        squares[0] = total

    @compiled
    def back(
        slopes: Any,
        hidden: Any,
        weight: Any,
        delta: Any,
        of_weight: Any,
        of_bias: Any,
        of_hidden_bias: Any,
        added: bool,
    ) -> None:
        units, outputs = weight.shape
        even = outputs + outputs % 2  # two at a time
        lying, of_lying = np.zeros((even, units), f32), np.zeros((even, units), f32)
        row, sums = np.zeros(even, f32), np.zeros(outputs, f32)
        values, of_values = np.empty(units, f32), np.empty(units, f32)
        for j in range(units):
            of_hidden_bias[j] = of_hidden_bias[j] if added else zero
            for k in range(outputs):
                lying[k, j] = weight[j, k]
        for i in range(len(hidden)):
            for k in range(outputs):
                row[k] = slopes[i, k]
                sums[k] += row[k]
            for j in range(units):
                values[j] = widened(hidden[i, j])
                of_values[j] = zero
            for k in range(0, even, 2):
                one, other = row[k], row[k + 1]
                for j in range(units):
                    of_lying[k, j] += one * values[j]
                    of_lying[k + 1, j] += other * values[j]
                    of_values[j] += one * lying[k, j] + other * lying[k + 1, j]
            for j in range(units):
                value = of_values[j] if values[j] > zero else zero
                delta[i, j] = rounded(value)
                of_hidden_bias[j] += value
        for k in range(outputs):
            of_bias[k] = of_bias[k] + sums[k] if added else sums[k]
            for j in range(units):
                of_weight[j, k] = of_weight[j, k] + of_lying[k, j] if added else of_lying[k, j]

    @compiled
    def slope(delta: Any, hidden: Any, of_bias: Any) -> None:
        none = delta.dtype.type(0)
        of_bias[:] = zero
        for i in range(len(delta)):
            for j in range(len(of_bias)):
                value = delta[i, j] if hidden[i, j] > none else none
                delta[i, j] = value
                of_bias[j] += widened(value)

    @compiled
    def adam(
        values: Any,
        copies: Any,
        gradients: Any,
        moments: Any,
        squares: Any,
        steps: Any,
        lr: float,
        beta: float,
        beta_of_squares: float,
        eps: float,
    ) -> None:
        rate, scale = f32(lr / (1 - beta ** steps[0])), f32(1 / np.sqrt(1 - beta_of_squares ** steps[0]))
        keep, keep_square, small = f32(beta), f32(beta_of_squares), f32(eps)
        gradient = np.empty(AT_ONCE, f32)
        for which in range(len(values)):
            for first in range(0, len(values[which]), AT_ONCE):
                here = slice(first, first + AT_ONCE)
                value, copy = values[which][here], copies[which][here]
                moment, square = moments[which][here], squares[which][here]
                slopes = gradients[which][0, here]
                for i in range(len(value)):
                    gradient[i] = widened(slopes[i])
                for block in range(1, len(gradients[which])):
                    slopes = gradients[which][block, here]
                    for i in range(len(value)):
                        gradient[i] += widened(slopes[i])
                for i in range(len(value)):
                    moment[i] += (gradient[i] - moment[i]) * (one - keep)
                    square[i] = square[i] * keep_square + gradient[i] * gradient[i] * (one - keep_square)
                    value[i] -= rate * moment[i] / (np.sqrt(square[i]) * scale + small)
                    if bf16:
                        copy[i] = rounded(value[i])

    @compiled
    def follow(values: Any, copies: Any, leaders: Any, share: float) -> None:
        part = f32(share)
        for which in range(len(values)):
            value, copy, leader = values[which], copies[which], leaders[which]
            for i in range(len(value)):
                value[i] += part * (leader[i] - value[i])
                if bf16:
                    copy[i] = rounded(value[i])

    return Passes(gather, relu, last, errors, back, slope, adam, follow)
