"""The products that a layer of a network takes on a CPU, each in one pass over memory where a library has it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tracrl.nets.passes import compiled_passes

NARROW = 16
"""columns of a matrix that libraries multiply slowly unless it lies on its side"""
FUSED = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]
"""oneDNN's x Wᵀ + b with an activation, which is not part of torch's promises"""
_TAKES_BF16 = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
FUSED_KINDS = {torch.float32, torch.bfloat16} if _TAKES_BF16 is not None and _TAKES_BF16() else {torch.float32}
"""of numbers that it takes on this processor: bfloat16 needs AVX-512, or what came after it"""


def layer(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """activation(x W + b): product, bias and activation in one pass where oneDNN has it."""
    if FUSED is not None and x.dtype in FUSED_KINDS:
        return FUSED(x, weight.t(), None if bias is None else bias[0], activation, [], "")
    result = torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)
    return result.relu_() if activation == "relu" else result.tanh_() if activation == "tanh" else result


def multiply(x: Tensor, weight: Tensor, out: Tensor) -> None:
    """x W. In float32 oneDNN can be twice as fast as what torch takes by itself, even if its result is copied."""
    if FUSED is not None and x.dtype == torch.float32 and x.numel():  # it refuses to multiply nothing
        out.copy_(FUSED(x, weight.t(), None, "none", [], ""))
    else:
        torch.mm(x, weight, out=out)


def last_layer(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    """x W + b, in float32 from the product on."""
    if x.dtype == bias.dtype:
        torch.addmm(bias, x, weight, out=out)
    else:
        torch.add(bias, x @ weight, out=out)


def product_of(x: Tensor, delta: Tensor, to: Tensor, added: bool) -> None:
    """The gradient of a layer's weights, xᵀ δ; ``added`` to what is there, or in its place."""
    if 1 < delta.shape[1] < NARROW:
        assign(to, (delta.t() @ x).t(), added)
    elif to.dtype != x.dtype:
        assign(to, x.t() @ delta, added)
    elif added:
        to.addmm_(x.t(), delta)
    else:
        torch.mm(x.t(), delta, out=to)


def assign(to: Tensor, value: Tensor, added: bool) -> None:
    if added:
        to.add_(value)
    else:
        to.copy_(value)


def times_slope(gradient: Tensor, result: Tensor, tanh: bool, sums: Tensor | None, added: bool) -> None:
    """In place: times the slope of the activation, which its result tells. The rows are then summed up, where ``sums``
    (units,) are asked for; ``added`` to what is there, or in its place."""
    passes = compiled_passes(True) if gradient.dtype == torch.bfloat16 and not tanh else None
    if passes is not None:  # torch takes five times as long for bfloat16
        to = torch.empty(gradient.shape[1]) if sums is None or added else sums
        passes.slope(array(gradient), array(result), to.numpy())
        if sums is not None and added:
            sums.add_(to)
        return
    if tanh:
        torch.ops.aten.tanh_backward.grad_input(gradient, result, grad_input=gradient)
    else:
        torch.ops.aten.threshold_backward.grad_input(gradient, result, 0, grad_input=gradient)
    if sums is not None:
        assign(sums, gradient.sum(0), added)


def array(x: Tensor) -> Any:
    """For compiled kernels; bfloat16 as the integers that have its bits: their signs are the same."""
    return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()


def numbers(x: Tensor) -> Any:
    """The same, flat."""
    return array(x.view(-1))
