"""Stacked MLPs on a CPU, network by network and in blocks of rows whose hidden layers stay in the cache.

A batched product over a whole stack passes every hidden layer through memory several times: bias, product, activation,
and the same again backwards. Taken in blocks the same products run about twice as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROWS = 1024
"""of a block: 256 units of them are a megabyte. A multiple of 8, so that blocks of masks begin with whole words"""


@dataclass(frozen=True)
class Masks:
    """Dropout after each hidden layer, as :func:`tracrl.nets.dropout.relu_dropout` has it."""

    keys: Sequence[Tensor]
    """(R,) for each hidden layer"""
    threshold: int
    kernel: Callable[[Any, Any, int, int], None]
    first_row: int = 0
    """where these rows begin in what the masks are drawn for; times the units of a layer, a multiple of 8"""


def blocked_mlp(
    x: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    members: int,
    tanh: bool,
    masks: Masks | None = None,
    bf16: bool = False,
) -> Tensor:
    """(R, rows, in) → (R · members, rows, out) through layers (R · members, in, out) and (R · members, 1, out).

    Between layers is a ReLU, a ReLU with dropout, or a tanh. Differentiable once, in x and in the layers. With ``bf16``
    what is multiplied is in bfloat16, for which newer processors have instructions of their own.
    """
    parameters = (t for layer in layers for t in layer)
    # Inside a function's forward pass gradients are always off: whether they are asked for is known only here.
    kept = torch.is_grad_enabled()
    return _BlockedMLP.apply(x, members, tanh, masks, bf16, kept, *parameters)  # type: ignore[no-untyped-call]


class _BlockedMLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        members: int,
        tanh: bool,
        masks: Masks | None,
        bf16: bool,
        gradients: bool,
        *parameters: Tensor,
    ) -> Tensor:
        multiplied = torch.bfloat16 if bf16 else x.dtype
        weights, biases = [w.to(multiplied) for w in parameters[0::2]], list(parameters[1::2])
        if masks is None:  # what is kept of a hidden layer is rounded anyway: product, bias and activation in one place
            biases[:-1] = [b.to(multiplied) for b in biases[:-1]]
        networks, rows = len(weights[0]), x.shape[1]
        kept = gradients and any(ctx.needs_input_grad)
        # What the backward pass needs; without one, hidden layers share the memory of a single block.
        held_rows = rows if kept else min(rows, ROWS)
        hidden = [x.new_empty(networks, held_rows, w.shape[2], dtype=multiplied) for w in weights[:-1]]
        # The kernel of dropout works in float32.
        aside = bf16 and masks is not None
        buffers = [x.new_empty(min(rows, ROWS), w.shape[2]) for w in weights[:-1]] if aside else None
        result = x.new_empty(networks, rows, weights[-1].shape[2])
        keys = [key.numpy() for key in masks.keys] if masks is not None else []
        for g in range(networks):
            source, layers = x[g // members], [(w[g], b[g]) for w, b in zip(weights, biases, strict=True)]
            for start in range(0, rows, ROWS):
                stop = min(start + ROWS, rows)
                held = slice(start, stop) if kept else slice(0, stop - start)
                h = source[start:stop].to(multiplied)
                for i, (weight, bias) in enumerate(layers[:-1]):
                    to_keep = hidden[i][g, held]
                    h = _affine(bias, h, weight, to_keep if buffers is None else buffers[i][: stop - start])
                    if masks is not None:
                        units = h.view(1, -1).numpy()
                        masks.kernel(
                            units, keys[i][g : g + 1], masks.threshold, (masks.first_row + start) * h.shape[1] // 8
                        )
                    else:
                        h = h.tanh_() if tanh else h.relu_()
                    h = h if buffers is None else to_keep.copy_(h)
                weight, bias = layers[-1]
                _affine(bias, h, weight, result[g, start:stop])
        ctx.members, ctx.tanh = members, tanh
        ctx.save_for_backward(x, *weights, *hidden)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        count = (len(ctx.saved_tensors)) // 2
        x, weights, hidden = ctx.saved_tensors[0], ctx.saved_tensors[1 : count + 1], ctx.saved_tensors[count + 1 :]
        need_x, need_layers = ctx.needs_input_grad[0], any(ctx.needs_input_grad[6:])
        of_x = torch.zeros_like(x) if need_x else None
        of_weights = [torch.zeros_like(w, dtype=x.dtype) for w in weights] if need_layers else []
        of_biases = [x.new_zeros(len(w), 1, w.shape[2]) for w in weights] if need_layers else []
        rows, multiplied = x.shape[1], weights[0].dtype
        # Slopes of one block of one network, in memory that all of them share and that stays in the cache.
        slopes = [h.new_empty(min(rows, ROWS), h.shape[2]) for h in hidden]
        for g in range(len(weights[0])):
            run = g // ctx.members
            for start in range(0, rows, ROWS):
                part = slice(start, start + ROWS)
                delta = gradients[0][g, part].to(multiplied)
                for i in range(len(weights) - 1, -1, -1):
                    before = hidden[i - 1][g, part] if i else x[run, part].to(multiplied)
                    if need_layers:
                        _add_product(of_weights[i][g], before.t(), delta)
                        of_biases[i][g].add_(delta.sum(0, dtype=x.dtype))
                    if i:
                        delta = torch.mm(delta, weights[i][g].t(), out=slopes[i - 1][: len(delta)])
                        _times_slope(delta, before, ctx.tanh)
                    elif of_x is not None:
                        _add_product(of_x[run, part], delta, weights[0][g].t())
        of_layers = [t for pair in zip(of_weights, of_biases, strict=True) for t in pair]
        return of_x, None, None, None, None, None, *(of_layers or [None] * (2 * len(weights)))


def _affine(bias: Tensor, x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """x W + b; where the product is in another precision than the bias, it is added as it is."""
    return torch.addmm(bias, x, weight, out=out) if x.dtype == bias.dtype else torch.add(bias, x @ weight, out=out)


def _add_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    if to.dtype == a.dtype:
        to.addmm_(a, b)
    else:
        to.add_(a @ b)


def _times_slope(gradient: Tensor, result: Tensor, tanh: bool) -> None:
    """In place: times the slope of the activation, which its result tells."""
    if tanh:
        torch.ops.aten.tanh_backward.grad_input(gradient, result, grad_input=gradient)
    else:
        torch.ops.aten.threshold_backward.grad_input(gradient, result, 0, grad_input=gradient)
