"""Squared errors of an MLP on a CPU with their gradients, in one go.

Where nothing but a network lies between a batch and its loss, each thread takes its rows forward and back while they
are in its cache. Autograd would gather all rows in between, and keeps books that cost a small network a third of its
time. What else an update would do again and again, looking at slices of weights and making room for gradients, is done
once: it would be done by one thread at a time, and a product of a few hundred rows takes no longer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tracrl.nets.blocks import shares, side_by_side
from tracrl.nets.products import NARROW, assign, last_layer, product_of, times_slope, turned_layer


class SquaredError:
    """Mean squared errors (R,) of tanh(MLP(x)), x (R, rows, in), and their gradients in the parameters.

    These are the weight (R, in, out) and the bias (R, 1, out) of each layer in turn, with a ReLU in between; they may
    move between calls, not be replaced. ``bf16`` and ``threads`` are those of :func:`tracrl.nets.blocks.blocked_mlp`.
    """

    def __init__(self, parameters: Sequence[Tensor], rows: int, bf16: bool = False, threads: int | None = None):
        self.kind = torch.bfloat16 if bf16 else parameters[0].dtype
        self.sources = [p.detach() for p in parameters]
        self.runs, self.outputs = len(parameters[0]), parameters[-1].shape[2]
        self.rows = rows
        # The last bias is added in float32.
        self.multiplied = [torch.empty_like(p, dtype=self.kind) if bf16 else p for p in self.sources[:-1]]
        weights, biases = self.multiplied[0::2], [*self.multiplied[1::2], self.sources[-1]]
        self.lying: Tensor | None = None
        if 1 < self.outputs < NARROW:
            self.lying = torch.empty_like(weights[-1].transpose(1, 2), memory_format=torch.contiguous_format)
        last = weights[-1] if self.lying is None else self.lying.transpose(1, 2)
        self.forward = [
            [(w[r].t(), b[r, 0]) for w, b in zip(weights[:-1], biases, strict=False)] for r in range(self.runs)
        ]
        self.last = [(last[r], biases[-1][r]) for r in range(self.runs)]
        self.backward = [[w[r] for w in weights] for r in range(self.runs)]
        threads = torch.get_num_threads() if threads is None else threads
        self.shares = [(share, _Room(self.sources)) for share in shares(rows, threads)]

    @torch.no_grad()
    def __call__(self, x: Tensor, targets: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The gradients stay as they are until the next call."""
        with torch.autocast("cpu", enabled=False):
            if self.kind != x.dtype:
                torch._foreach_copy_(self.multiplied, self.sources[:-1])
            if self.lying is not None:
                self.lying.copy_(self.multiplied[-1].transpose(1, 2))
            source = x.to(self.kind)
            side_by_side(self._work, [(share, room, source, targets) for share, room in self.shares])
            (_, first), *others = self.shares
            for _, more in others:
                first.everything += more.everything
            return first.sums / (self.rows * self.outputs), first.gradients

    def _work(self, blocks: Sequence[slice], room: _Room, source: Tensor, targets: Tensor) -> list[Tensor]:
        """The sums of squares and the gradients of these rows."""
        last, scale = len(self.backward[0]) - 1, 2 / (self.rows * self.outputs)
        for run in range(self.runs):
            for block in blocks:
                added = block is not blocks[0]
                inputs = [source[run, block]]
                for turned, bias in self.forward[run]:
                    inputs.append(turned_layer(inputs[-1], turned, bias, "relu"))
                result = targets.new_empty(len(inputs[0]), self.outputs)
                last_layer(inputs[-1], *self.last[run], result)
                wrong = result.tanh_() - targets[run, block]
                assign(room.sums[run], torch.dot(wrong.view(-1), wrong.view(-1)), added)
                delta = torch.ops.aten.tanh_backward(wrong, result).mul_(scale).to(self.kind)
                for i in range(last, -1, -1):
                    of_weight, of_bias = room.of_runs[run][i]
                    product_of(inputs[i], delta, of_weight, added)
                    assign(of_bias, delta.sum(0), added)
                    if i:
                        delta = times_slope(turned_layer(delta, self.backward[run][i]), inputs[i], tanh=False)
        return []


class _Room:
    """Where a thread leaves its gradients and its sums of squares (R,): one piece of memory, so that one addition joins
    those of two threads."""

    def __init__(self, parameters: Sequence[Tensor]):
        sizes = [p.numel() for p in parameters]
        self.everything = parameters[0].new_zeros(sum(sizes) + len(parameters[0]))
        *parts, self.sums = torch.split(self.everything, [*sizes, len(parameters[0])])
        self.gradients = [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]
        layers = list(zip(self.gradients[0::2], self.gradients[1::2], strict=True))
        self.of_runs = [[(weight[run], bias[run, 0]) for weight, bias in layers] for run in range(len(parameters[0]))]
