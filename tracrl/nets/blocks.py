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

ROWS = 512
"""of a block: 256 units of them are half a megabyte. A multiple of 8, so that blocks of masks begin with whole words"""


@dataclass(frozen=True)
class Masks:
    """Dropout after each hidden layer, as :func:`tracrl.nets.dropout.relu_dropout` has it."""

    keys: Sequence[Tensor]
    """(R,) for each hidden layer"""
    threshold: int
    kernel: Callable[[Any, Any, int, int], None]


def blocked_mlp(
    x: Tensor, layers: Sequence[tuple[Tensor, Tensor]], members: int, tanh: bool, masks: Masks | None = None
) -> Tensor:
    """(R, rows, in) → (R · members, rows, out) through layers (R · members, in, out) and (R · members, 1, out).

    Between layers is a ReLU, a ReLU with dropout, or a tanh. Differentiable once, in x and in the layers.
    """
    parameters = (t for layer in layers for t in layer)
    # Inside a function's forward pass gradients are always off: whether they are asked for is known only here.
    return _BlockedMLP.apply(x, members, tanh, masks, torch.is_grad_enabled(), *parameters)  # type: ignore[no-untyped-call]


class _BlockedMLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, members: int, tanh: bool, masks: Masks | None, gradients: bool, *parameters: Tensor
    ) -> Tensor:
        weights, biases = parameters[0::2], parameters[1::2]
        networks, rows = len(weights[0]), x.shape[1]
        kept = gradients and any(ctx.needs_input_grad)
        # What the backward pass needs; without one, hidden layers share the room of a single block.
        outputs = [x.new_empty(networks, rows if kept else min(rows, ROWS), w.shape[2]) for w in weights[:-1]]
        outputs.append(x.new_empty(networks, rows, weights[-1].shape[2]))
        keys = [key.numpy() for key in masks.keys] if masks is not None else []
        for g in range(networks):
            source, layers = x[g // members], [(w[g], b[g]) for w, b in zip(weights, biases, strict=True)]
            for start in range(0, rows, ROWS):
                stop = min(start + ROWS, rows)
                held = slice(start, stop) if kept else slice(0, stop - start)
                h = source[start:stop]
                for i, (weight, bias) in enumerate(layers[:-1]):
                    h = torch.addmm(bias, h, weight, out=outputs[i][g, held])
                    if masks is not None:
                        units = h.view(1, -1).numpy()
                        masks.kernel(units, keys[i][g : g + 1], masks.threshold, start * h.shape[1] // 8)
                    else:
                        h = h.tanh_() if tanh else h.relu_()
                weight, bias = layers[-1]
                torch.addmm(bias, h, weight, out=outputs[-1][g, start:stop])
        ctx.members, ctx.tanh = members, tanh
        ctx.save_for_backward(x, *weights, *outputs[:-1])
        return outputs[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        count = (len(ctx.saved_tensors)) // 2
        x, weights, hidden = ctx.saved_tensors[0], ctx.saved_tensors[1 : count + 1], ctx.saved_tensors[count + 1 :]
        need_x, need_layers = ctx.needs_input_grad[0], any(ctx.needs_input_grad[5:])
        of_x = torch.zeros_like(x) if need_x else None
        of_weights = [torch.zeros_like(w) for w in weights] if need_layers else []
        of_biases = [w.new_zeros(len(w), 1, w.shape[2]) for w in weights] if need_layers else []
        slope = torch.ops.aten.tanh_backward if ctx.tanh else _relu_backward
        rows = x.shape[1]
        for g in range(len(weights[0])):
            run = g // ctx.members
            for start in range(0, rows, ROWS):
                part = slice(start, start + ROWS)
                delta = gradients[0][g, part]
                for i in range(len(weights) - 1, -1, -1):
                    before = hidden[i - 1][g, part] if i else x[run, part]
                    if need_layers:
                        of_weights[i][g].addmm_(before.t(), delta)
                        of_biases[i][g].add_(delta.sum(0))
                    if i:
                        delta = slope(delta @ weights[i][g].t(), before)
                    elif of_x is not None:
                        of_x[run, part].addmm_(delta, weights[0][g].t())
        of_layers = [t for pair in zip(of_weights, of_biases, strict=True) for t in pair]
        return of_x, None, None, None, None, *(of_layers or [None] * (2 * len(weights)))


def _relu_backward(gradient: Tensor, result: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(gradient, result, 0)
