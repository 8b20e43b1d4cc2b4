"""Stacked MLPs on a CPU, network by network and in blocks of rows whose hidden layers stay in the cache.

A batched product over a whole stack passes every hidden layer through memory several times: bias, product, activation,
and the same again backwards. Taken in blocks the same products run about twice as fast. Where there are several threads
each takes a stretch of blocks at a time: that keeps them busier than sharing every small product among them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
ROWS = 1024
"""of a block: 256 units of them are a megabyte. A multiple of 8, so that blocks of masks begin with whole words"""
STRETCH = 2 * ROWS
"""rows that a thread takes at a time. Their gradients are summed by themselves, whatever the number of threads is, so
that it makes no difference to the result"""


@dataclass(frozen=True)
class Masks:
    """Dropout after each hidden layer, as :func:`tracrl.nets.dropout.relu_dropout` has it."""

    keys: Sequence[Tensor]
    """(R,) for each hidden layer"""
    threshold: int
    kernel: Callable[[Any, Any, int, int], None]


def blocked_mlp(
    x: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    members: int,
    tanh: bool,
    masks: Masks | None = None,
    half: bool = False,
) -> Tensor:
    """(R, rows, in) → (R · members, rows, out) through layers (R · members, in, out) and (R · members, 1, out).

    Between layers is a ReLU, a ReLU with dropout, or a tanh. Differentiable once, in x and in the layers. With ``half``
    what is multiplied is in bfloat16, for which newer processors have instructions of their own.
    """
    parameters = (t for layer in layers for t in layer)
    # Inside a function's forward pass gradients are always off: whether they are asked for is known only here.
    kept = torch.is_grad_enabled()
    return _BlockedMLP.apply(x, members, tanh, masks, half, kept, *parameters)  # type: ignore[no-untyped-call]


class _BlockedMLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        members: int,
        tanh: bool,
        masks: Masks | None,
        half: bool,
        gradients: bool,
        *parameters: Tensor,
    ) -> Tensor:
        multiplied = torch.bfloat16 if half else x.dtype
        weights, biases = [w.to(multiplied) for w in parameters[0::2]], parameters[1::2]
        networks, rows = len(weights[0]), x.shape[1]
        kept = gradients and any(ctx.needs_input_grad)
        # What the backward pass needs; without one, hidden layers have the room of a single block.
        hidden = [x.new_empty(networks, rows, w.shape[2], dtype=multiplied) for w in weights[:-1]] if kept else None
        result = x.new_empty(networks, rows, weights[-1].shape[2])
        keys = [key.numpy() for key in masks.keys] if masks is not None else []

        def ahead(g: int, stretch: range) -> None:
            source, layers = x[g // members], [(w[g], b[g]) for w, b in zip(weights, biases, strict=True)]
            rooms = [x.new_empty(min(len(stretch), ROWS), w.shape[2]) for w in weights[:-1]]
            for start in stretch[::ROWS]:
                stop = min(start + ROWS, stretch.stop)
                h = source[start:stop].to(multiplied)
                for i, (weight, bias) in enumerate(layers[:-1]):
                    to_keep = None if hidden is None else hidden[i][g, start:stop]
                    room = rooms[i][: stop - start] if half or to_keep is None else to_keep
                    h = _affine(bias, h, weight, room)
                    if masks is not None:
                        units = h.view(1, -1).numpy()
                        masks.kernel(units, keys[i][g : g + 1], masks.threshold, start * h.shape[1] // 8)
                    else:
                        h = h.tanh_() if tanh else h.relu_()
                    if half:
                        h = h.to(multiplied) if to_keep is None else to_keep.copy_(h)
                weight, bias = layers[-1]
                _affine(bias, h, weight, result[g, start:stop])

        for _ in _in_threads(ahead, networks, rows):
            pass
        ctx.members, ctx.tanh = members, tanh
        ctx.save_for_backward(x, *weights, *(hidden or []))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        count = (len(ctx.saved_tensors)) // 2
        x, weights, hidden = ctx.saved_tensors[0], ctx.saved_tensors[1 : count + 1], ctx.saved_tensors[count + 1 :]
        need_x, need_layers = ctx.needs_input_grad[0], any(ctx.needs_input_grad[6:])
        of_x = x.new_zeros(len(weights[0]), *x.shape[1:]) if need_x else None
        of_weights = [torch.zeros_like(w, dtype=x.dtype) for w in weights] if need_layers else []
        of_biases = [x.new_zeros(len(w), 1, w.shape[2]) for w in weights] if need_layers else []
        slope = torch.ops.aten.tanh_backward if ctx.tanh else _relu_backward
        multiplied = weights[0].dtype

        def back(g: int, stretch: range) -> tuple[int, list[Tensor], list[Tensor]]:
            run = g // ctx.members
            sums = [x.new_zeros(w.shape[1:]) for w in weights] if need_layers else []
            bias_sums = [x.new_zeros(1, w.shape[2]) for w in weights] if need_layers else []
            for start in stretch[::ROWS]:
                part = slice(start, min(start + ROWS, stretch.stop))
                delta = gradients[0][g, part].to(multiplied)
                for i in range(len(weights) - 1, -1, -1):
                    before = hidden[i - 1][g, part] if i else x[run, part].to(multiplied)
                    if need_layers:
                        _add_product(sums[i], before.t(), delta)
                        bias_sums[i].add_(delta.sum(0, dtype=x.dtype))
                    if i:
                        delta = slope(delta @ weights[i][g].t(), before)
                    elif of_x is not None:
                        _add_product(of_x[g, part], delta, weights[0][g].t())
            return g, sums, bias_sums

        for g, sums, bias_sums in _in_threads(back, len(weights[0]), x.shape[1]):
            for total, part in zip((*of_weights, *of_biases), (*sums, *bias_sums), strict=True):
                total[g] += part
        of_layers = [t for pair in zip(of_weights, of_biases, strict=True) for t in pair]
        of_inputs = None if of_x is None else of_x.unflatten(0, (len(x), ctx.members)).sum(1)
        return of_inputs, None, None, None, None, None, *(of_layers or [None] * (2 * len(weights)))


def _in_threads(work: Callable[[int, range], Result], networks: int, rows: int) -> Iterator[Result]:
    """``work`` on every stretch of rows of every network, in order, as many at a time as torch has threads."""
    stretches = [range(start, min(start + STRETCH, rows)) for start in range(0, rows, STRETCH)]
    orders = [(g, stretch) for g in range(networks) for stretch in stretches]
    threads = _SHARING.threads()
    if min(threads, len(orders)) == 1:
        yield from (work(*order) for order in orders)
        return
    with _SHARING:
        yield from _SHARING.pool(threads).map(torch.no_grad()(lambda order: work(*order)), orders)


class _Sharing(threading.local):
    """While stretches are shared out, torch does not share out single operations too.

    Its number of threads is the whole process's, so whoever begins first sets it to one and whoever ends last sets it
    back; each caller has a pool of its own.
    """

    lock = threading.Lock()
    callers = 0
    before = 1

    def __init__(self) -> None:
        self.executor: ThreadPoolExecutor | None = None
        self.size = 0

    def threads(self) -> int:
        with self.lock:
            return _Sharing.before if _Sharing.callers else torch.get_num_threads()

    def pool(self, threads: int) -> ThreadPoolExecutor:
        """To be asked for inside the context: its threads tell torch's libraries, each for itself, to stay alone."""
        if self.executor is None or self.size != threads:
            self.executor, self.size = ThreadPoolExecutor(threads, "stretches"), threads
            everybody = threading.Barrier(threads)

            def begin(_: int) -> None:
                torch.set_num_threads(1)
                everybody.wait()

            list(self.executor.map(begin, range(threads)))
        return self.executor

    def __enter__(self) -> None:
        with self.lock:
            if not _Sharing.callers:
                _Sharing.before = torch.get_num_threads()
                torch.set_num_threads(1)
            _Sharing.callers += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            _Sharing.callers -= 1
            if not _Sharing.callers:
                torch.set_num_threads(_Sharing.before)


_SHARING = _Sharing()


def _affine(bias: Tensor, x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """x W + b; where the product is in another precision than the bias, it is added as it is."""
    return torch.addmm(bias, x, weight, out=out) if x.dtype == bias.dtype else torch.add(bias, x @ weight, out=out)


def _add_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    if to.dtype == a.dtype:
        to.addmm_(a, b)
    else:
        to.add_(a @ b)


def _relu_backward(gradient: Tensor, result: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(gradient, result, 0)
