"""Stacked MLPs on a CPU, network by network and in blocks of rows whose hidden layers stay in the cache.

A batched product over a whole stack passes every hidden layer through memory several times: bias, product, activation,
and the same again backwards. Taken in blocks the same products run about twice as fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tracrl.nets.dropout import compiled_slope

ROWS = 1024
"""of a block, about: 256 units of them are a megabyte"""

NARROW = 16
"""columns of a matrix that libraries multiply slowly unless it lies on its side"""
FUSED = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]
"""oneDNN's x Wᵀ + b with an activation, which is not part of torch's promises"""


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
        biases[:-1] = [b.to(multiplied) for b in biases[:-1]]
        source, rows, outputs = x.to(multiplied), x.shape[1], weights[-1].shape[2]
        activation = "none" if masks is not None else "tanh" if tanh else "relu"
        kept = gradients and any(ctx.needs_input_grad)
        hidden: list[Tensor] = []
        result = x.new_empty(len(weights[0]), rows, outputs)
        keys = [key.numpy() for key in masks.keys] if masks is not None else []
        lying = weights[-1].transpose(1, 2).contiguous().transpose(1, 2) if 1 < outputs < NARROW else weights[-1]
        layers = [list(zip(w, b, strict=True)) for w, b in zip([*weights[:-1], lying], biases, strict=True)]
        size = block_size(rows)
        for g, (of_run, out) in enumerate(zip(_each(source, members), result, strict=True)):
            for start in range(0, rows, size):
                h = of_run[start : start + size]
                for i, of_layer in enumerate(layers[:-1]):
                    h = _layer(h, *of_layer[g], activation)
                    if masks is not None:
                        first = (masks.first_row + start) * h.shape[1] // 8
                        masks.kernel(_numbers(h)[None], keys[i][g : g + 1], masks.threshold, first)
                    if kept:
                        hidden.append(h)
                _last_layer(h, *layers[-1][g], out[start : start + size])
        ctx.members, ctx.tanh = members, tanh
        ctx.save_for_backward(source, *weights, *hidden)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        count = (len(ctx.needs_input_grad) - 6) // 2
        source, weights, hidden = ctx.saved_tensors[0], ctx.saved_tensors[1 : count + 1], ctx.saved_tensors[count + 1 :]
        need_x, need_layers = ctx.needs_input_grad[0], any(ctx.needs_input_grad[6:])
        kind = gradients[0].dtype
        of_x = torch.empty_like(source, dtype=kind) if need_x else None
        of_weights = [torch.empty_like(w, dtype=kind) for w in weights] if need_layers else []
        of_biases = [w.new_empty(len(w), 1, w.shape[2], dtype=kind) for w in weights] if need_layers else []
        to_weights, to_biases = [list(w) for w in of_weights], [list(b.squeeze(1)) for b in of_biases]
        turned = [list(w.transpose(1, 2)) for w in weights]
        left, slopes, size = iter(hidden), gradients[0].to(source.dtype), block_size(source.shape[1])
        for g, (of_run, of_result) in enumerate(zip(_each(source, ctx.members), slopes, strict=True)):
            for start in range(0, source.shape[1], size):
                part = slice(start, start + size)
                delta = of_result[part]
                inputs = [of_run[part], *itertools.islice(left, count - 1)]
                for i in range(count - 1, -1, -1):
                    if need_layers:
                        _product_of(inputs[i], delta, to_weights[i][g], added=start > 0)
                        _assign(to_biases[i][g], delta.sum(0), added=start > 0)
                    if i:
                        delta = _times_slope(_layer(delta, turned[i][g]), inputs[i], ctx.tanh)
                    elif of_x is not None:
                        run, member = divmod(g, ctx.members)
                        _assign(of_x[run, part], _layer(delta, turned[0][g]), added=member > 0)
        of_layers = [t for pair in zip(of_weights, of_biases, strict=True) for t in pair]
        return of_x, None, None, None, None, None, *(of_layers or [None] * (2 * count))


def block_size(rows: int) -> int:
    """Rows of each block but the last: nearly equal ones, about ``ROWS``, and a multiple of 8, so that blocks of masks
    begin with whole words."""
    blocks = max(1, round(rows / ROWS))
    return max(8, -(-rows // (8 * blocks)) * 8)


def _each(of_runs: Tensor, members: int) -> list[Tensor]:
    """(rows, size) of each network: those of its run."""
    return [of_run for of_run in of_runs for _ in range(members)]


def affine(x: Tensor, weight: Tensor, bias: Tensor, bf16: bool = False) -> Tensor:
    """x W + b for each run: (R, rows, in), (R, in, out), (R, 1, out) → (R, rows, out), in bfloat16 where asked for."""
    return _Affine.apply(x, weight, bias, bf16)  # type: ignore[no-untyped-call]


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, bf16: bool) -> Tensor:
        kind = torch.bfloat16 if bf16 else weight.dtype
        ctx.kinds = x.dtype, weight.dtype
        x, weight = x.to(kind), weight.to(kind)
        ctx.save_for_backward(x, weight)
        return _stacked([_layer(*of_run) for of_run in zip(x, weight, bias.to(kind), strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        delta, (kind_of_x, kind) = gradients[0].to(weight.dtype), ctx.kinds
        of_weight = torch.empty_like(weight, dtype=kind)
        for of_run in zip(x, delta, of_weight, strict=True):
            _product_of(*of_run, added=False)
        of_x = None
        if ctx.needs_input_grad[0]:
            turned = weight.transpose(1, 2)
            of_x = _stacked([_layer(*of_run) for of_run in zip(delta, turned, strict=True)]).to(kind_of_x)
        return of_x, of_weight, delta.sum(1, keepdim=True).to(kind), None


def _stacked(results: Sequence[Tensor]) -> Tensor:
    return results[0][None] if len(results) == 1 else torch.stack(list(results))


def _layer(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """activation(x W + b): product, bias and activation in one pass where oneDNN is there."""
    if FUSED is not None:
        return FUSED(x, weight.t(), None if bias is None else bias[0], activation, [], "")
    result = torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)
    return result.relu_() if activation == "relu" else result.tanh_() if activation == "tanh" else result


def _last_layer(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    """x W + b, in float32 from the product on."""
    if x.dtype == bias.dtype:
        torch.addmm(bias, x, weight, out=out)
    else:
        torch.add(bias, x @ weight, out=out)


def _product_of(x: Tensor, delta: Tensor, to: Tensor, added: bool) -> None:
    """The gradient of a layer's weights, xᵀ δ; ``added`` to what is there, or in its place."""
    if 1 < delta.shape[1] < NARROW:
        _assign(to, (delta.t() @ x).t(), added)
    elif to.dtype != x.dtype:
        _assign(to, x.t() @ delta, added)
    elif added:
        to.addmm_(x.t(), delta)
    else:
        torch.mm(x.t(), delta, out=to)


def _assign(to: Tensor, value: Tensor, added: bool) -> None:
    if added:
        to.add_(value)
    else:
        to.copy_(value)


def _times_slope(gradient: Tensor, result: Tensor, tanh: bool) -> Tensor:
    """In place: times the slope of the activation, which its result tells."""
    if tanh:
        return torch.ops.aten.tanh_backward.grad_input(gradient, result, grad_input=gradient)
    kernel = compiled_slope() if gradient.dtype == torch.bfloat16 else None
    if kernel is None:
        torch.ops.aten.threshold_backward.grad_input(gradient, result, 0, grad_input=gradient)
    else:
        kernel(_numbers(gradient), _numbers(result))
    return gradient


def _numbers(x: Tensor) -> Any:
    """For compiled kernels, flat; bfloat16 as the integers that have its bits: their signs are the same."""
    flat = x.view(-1)
    return (flat.view(torch.int16) if x.dtype == torch.bfloat16 else flat).numpy()
