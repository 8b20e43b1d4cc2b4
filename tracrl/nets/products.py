"""The products that a layer of a network takes on a CPU, each in one pass over memory where a library has it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tracrl.nets.dropout import compiled_slope

NARROW = 16
"""columns of a matrix that libraries multiply slowly unless it lies on its side"""
FUSED = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]
"""oneDNN's x Wᵀ + b with an activation, which is not part of torch's promises"""


def layer(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    """activation(x W + b): product, bias and activation in one pass where oneDNN is there."""
    if FUSED is not None:
        return FUSED(x, weight.t(), None if bias is None else bias[0], activation, [], "")
    result = torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)
    return result.relu_() if activation == "relu" else result.tanh_() if activation == "tanh" else result


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


def times_slope(gradient: Tensor, result: Tensor, tanh: bool) -> Tensor:
    """In place: times the slope of the activation, which its result tells."""
    if tanh:
        return torch.ops.aten.tanh_backward.grad_input(gradient, result, grad_input=gradient)
    kernel = compiled_slope() if gradient.dtype == torch.bfloat16 else None
    if kernel is None:
        torch.ops.aten.threshold_backward.grad_input(gradient, result, 0, grad_input=gradient)
    else:
        kernel(numbers(gradient), numbers(result))
    return gradient


def numbers(x: Tensor) -> Any:
    """For compiled kernels, flat; bfloat16 as the integers that have its bits: their signs are the same."""
    flat = x.view(-1)
    return (flat.view(torch.int16) if x.dtype == torch.bfloat16 else flat).numpy()
