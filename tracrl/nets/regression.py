"""Squared errors of an MLP on a CPU with their gradients, in one go.

Where nothing but a network lies between a batch and its loss, each thread takes its rows forward and back while they
are in its cache. Autograd would gather all rows in between, and keeps books that cost a small network a third of its
time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tracrl.nets.blocks import shares, side_by_side
from tracrl.nets.products import NARROW, assign, last_layer, layer, product_of, times_slope


@torch.no_grad()
def squared_error(
    x: Tensor, targets: Tensor, parameters: Sequence[Tensor], bf16: bool = False, threads: int | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Mean squared errors (R,) of tanh(MLP(x)), x (R, rows, in), and their gradients in the parameters.

    These are the weight (R, in, out) and the bias (R, 1, out) of each layer in turn, with a ReLU in between. ``bf16``
    and ``threads`` are those of :func:`tracrl.nets.blocks.blocked_mlp`.
    """
    kind = torch.bfloat16 if bf16 else x.dtype
    weights, biases = [w.to(kind) for w in parameters[0::2]], list(parameters[1::2])
    biases[:-1] = [b.to(kind) for b in biases[:-1]]
    last, rows, outputs = len(weights) - 1, x.shape[1], targets.shape[2]
    lying = weights[last].transpose(1, 2).contiguous().transpose(1, 2) if 1 < outputs < NARROW else weights[last]
    source, scale = x.to(kind), 2 / (rows * outputs)

    def work(blocks: Sequence[slice]) -> list[Tensor]:
        """The sums of squares, then the gradients, of these rows."""
        sums, gradients = x.new_zeros(len(x)), [torch.empty_like(p) for p in parameters]
        for run in range(len(x)):
            for block in blocks:
                added = block is not blocks[0]
                inputs = [source[run, block]]
                for weight, bias in zip(weights[:-1], biases, strict=False):
                    inputs.append(layer(inputs[-1], weight[run], bias[run], "relu"))
                result = x.new_empty(len(inputs[0]), outputs)
                last_layer(inputs[-1], lying[run], biases[last][run], result)
                wrong = result.tanh_() - targets[run, block]
                sums[run] += wrong.square().sum()
                delta = torch.ops.aten.tanh_backward(wrong, result).mul_(scale).to(kind)
                for i in range(last, -1, -1):
                    product_of(inputs[i], delta, gradients[2 * i][run], added)
                    assign(gradients[2 * i + 1][run, 0], delta.sum(0), added)
                    if i:
                        delta = times_slope(layer(delta, weights[i][run].t()), inputs[i], tanh=False)
        return [sums, *gradients]

    threads = torch.get_num_threads() if threads is None else threads
    (sums, *gradients), *others = side_by_side(work, [(share,) for share in shares(rows, threads)])
    for more in others:
        torch._foreach_add_([sums, *gradients], more)
    return sums / (rows * outputs), gradients
