"""Stacked MLPs on a CPU, network by network and in blocks of rows whose hidden layers stay in the cache.

A batched product over a whole stack passes every hidden layer through memory several times: bias, product, activation,
and the same again backwards. Taken in blocks the same products run about twice as fast.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from tracrl.nets import denormals
from tracrl.nets.passes import compiled_passes
from tracrl.nets.products import NARROW, array, assign, last_layer, layer, numbers, product_of, times_slope

ROWS = 1024
"""of a block, about: 256 units of them are a megabyte"""

FEWEST_ROWS = 128
"""that are worth a thread of their own"""
FEWEST_TILED_ROWS = 512
"""the same of products in bfloat16 on processors with tiles for them (AMX), which are done before threads have met"""

FEW = 8
"""outputs of a last layer for which compiled passes are faster than products in bfloat16"""

Blocks = list[tuple[int, slice]]
"""of rows that a thread takes, counted through over all threads"""
Done = TypeVar("Done")


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
    threads: int | None = None,
) -> Tensor:
    """(R, rows, in) → (R · members, rows, out) through layers (R · members, in, out) and (R · members, 1, out).

    Between layers is a ReLU, a ReLU with dropout, or a tanh. Differentiable once, in x and in the layers. With ``bf16``
    what is multiplied is in bfloat16, for which newer processors have instructions of their own. ``threads`` share the
    rows out between them, each computing by itself; None: as many as torch would use.
    """
    parameters = (t for layer in layers for t in layer)
    # Inside a function's forward pass gradients are always off: whether they are asked for is known only here.
    kept = torch.is_grad_enabled()
    threads = how_many(threads)
    return _BlockedMLP.apply(x, members, tanh, masks, bf16, kept, threads, *parameters)  # type: ignore[no-untyped-call]


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
        threads: int,
        *parameters: Tensor,
    ) -> Tensor:
        multiplied = torch.bfloat16 if bf16 else x.dtype
        rows, outputs = x.shape[1], parameters[-1].shape[2]
        # The last layer's, whose weights then stay in float32.
        passes = compiled_passes(True) if bf16 and outputs <= FEW and not tanh and len(parameters) > 2 else None
        weights, biases = list(parameters[0::2]), list(parameters[1::2])
        weights[:-1], biases[:-1] = ([t.to(multiplied) for t in tensors[:-1]] for tensors in (weights, biases))
        if passes is None:
            weights[-1] = weights[-1].to(multiplied)
        source = x.to(multiplied)
        activation = "none" if masks is not None else "tanh" if tanh else "relu"
        kept = gradients and any(ctx.needs_input_grad)
        result = x.new_empty(len(weights[0]), rows, outputs)
        keys = [key.numpy() for key in masks.keys] if masks is not None else []
        lying = weights[-1]
        if passes is None and 1 < outputs < NARROW:
            lying = lying.transpose(1, 2).contiguous().transpose(1, 2)
        layers = [list(zip(w, b, strict=True)) for w, b in zip([*weights[:-1], lying], biases, strict=True)]
        last = [] if passes is None else [(array(w), numbers(b)) for w, b in layers[-1]]

        def work(share: _Share) -> list[Tensor]:
            hidden: list[Tensor] = []
            for g in share.networks:
                of_run, out = source[g // members], result[g]
                for block in share.blocks:
                    h = of_run[block]
                    for i, of_layer in enumerate(layers[:-1]):
                        h = layer(h, *of_layer[g], activation)
                        if masks is not None:
                            first = (masks.first_row + block.start) * h.shape[1] // 8
                            masks.kernel(numbers(h)[None], keys[i][g : g + 1], masks.threshold, first)
                        if kept:
                            hidden.append(h)
                    if passes is None:
                        last_layer(h, *layers[-1][g], out[block])
                    else:
                        passes.last(array(h), *last[g], array(out[block]))
            return hidden

        ctx.members, ctx.tanh, ctx.passes = members, tanh, passes
        ctx.shares = _shared_out(len(x), members, rows, threads, fewest_rows(bf16))
        hidden = side_by_side(work, [(share,) for share in ctx.shares])
        ctx.save_for_backward(source, *weights, *itertools.chain(*hidden))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        count, members = (len(ctx.needs_input_grad) - 7) // 2, ctx.members
        source, weights, hidden = ctx.saved_tensors[0], ctx.saved_tensors[1 : count + 1], ctx.saved_tensors[count + 1 :]
        need_x, need_layers = ctx.needs_input_grad[0], any(ctx.needs_input_grad[7:])
        passes, kind = ctx.passes, gradients[0].dtype
        slopes = gradients[0].contiguous() if passes is not None else gradients[0].to(source.dtype)
        turned = [list(w.transpose(1, 2)) for w in weights]
        units, outputs = weights[-1].shape[1:]

        def places() -> list[Tensor]:
            """For the gradients of weights and biases."""
            of_weights = [torch.empty_like(w, dtype=kind) for w in weights]
            of_biases = [w.new_empty(len(w), 1, w.shape[2], dtype=kind) for w in weights]
            return [t for pair in zip(of_weights, of_biases, strict=True) for t in pair]

        def work(share: _Share, held: Iterator[Tensor], to: Sequence[Tensor], of_x: Tensor | None) -> None:
            """The gradients of these networks over these rows."""
            to_weights, to_biases = list(to[0::2]), [b.squeeze(1) for b in to[1::2]]
            unasked = [torch.empty(shape) for shape in ((units, outputs), (outputs,), (units,))]
            for g in share.networks:
                run = g // members
                for block in share.blocks:
                    delta, later, top = slopes[g, block], block is not share.blocks[0], count - 1
                    inputs = [source[run, block], *itertools.islice(held, count - 1)]
                    if passes is not None:
                        ends = [to_weights[-1][g], to_biases[-1][g], to_biases[-2][g]] if need_layers else unasked
                        arrays = [array(t) for t in (delta, inputs[top], weights[top][g])]
                        delta, top = torch.empty_like(inputs[top]), top - 1
                        passes.back(*arrays, array(delta), *map(array, ends), later)
                    elif need_layers:
                        assign(to_biases[-1][g], delta.sum(0), added=later)
                    for i in range(top, -1, -1):
                        if need_layers:
                            product_of(inputs[i], delta, to_weights[i][g], added=later)
                        if i:
                            delta, sums = layer(delta, turned[i][g]), to_biases[i - 1][g] if need_layers else None
                            times_slope(delta, inputs[i], ctx.tanh, sums, added=later)
                        elif of_x is not None:
                            first = g in (run * members, share.networks[0])
                            assign(of_x[run, block], layer(delta, turned[0][g]), added=not first)

        # Threads of other rows add to the same layers' gradients, threads of other networks to the same rows'.
        by_rows, left = len(ctx.shares[0].networks) == len(weights[0]), iter(hidden)
        of_layers = [places() for _ in (ctx.shares if by_rows else [1])] if need_layers else []
        of_x = [torch.empty_like(source, dtype=kind) for _ in ([1] if by_rows else ctx.shares)] if need_x else []
        held = [iter(list(itertools.islice(left, (count - 1) * share.pieces))) for share in ctx.shares]
        to = itertools.cycle(of_layers or [[]]), itertools.cycle(of_x or [None])
        side_by_side(work, list(zip(ctx.shares, held, *to, strict=False)))
        for more in of_layers[1:]:
            torch._foreach_add_(of_layers[0], more)
        for other in of_x[1:]:
            of_x[0].add_(other)
        layers = of_layers[0] if need_layers else [None] * (2 * count)
        return of_x[0] if need_x else None, None, None, None, None, None, None, *layers


@dataclass(frozen=True)
class _Share:
    """What a thread takes: these networks over these rows."""

    networks: range
    blocks: Sequence[slice]

    @property
    def pieces(self) -> int:
        return len(self.networks) * len(self.blocks)


def _shared_out(runs: int, members: int, rows: int, threads: int, fewest: int) -> list[_Share]:
    """A run alone hands out whole networks, unless more threads could take rows: a product of half the rows takes more
    than half the time, and the gradients of both halves have to be added up."""
    most = min(threads, members * rows // fewest)
    takers = max((n for n in range(1, most + 1) if members % n == 0), default=1)
    by_rows = shares(rows, threads, fewest)
    if runs > 1 or takers < max(2, len(by_rows)):
        return [_Share(range(runs * members), blocks) for blocks in by_rows]
    each, (blocks,) = members // takers, shares(rows, 1)
    return [_Share(range(first, first + each), blocks) for first in range(0, members, each)]


def how_many(threads: int | None) -> int:
    """None: as many as torch would use"""
    return torch.get_num_threads() if threads is None else threads


def fewest_rows(bf16: bool) -> int:
    """that are worth a thread of their own where products are all that it does"""
    tiled = getattr(torch.cpu, "_is_amx_tile_supported", None) if bf16 else None  # not part of torch's promises
    return FEWEST_TILED_ROWS if tiled is not None and tiled() else FEWEST_ROWS


def shares(rows: int, threads: int, fewest: int | None = None) -> list[list[slice]]:
    """The blocks that each thread takes: nearly equal ones, of about ``ROWS`` rows, that begin at multiples of 8, so
    that blocks of masks begin with whole words. No thread has fewer than the ``fewest``, ``FEWEST_ROWS``."""
    threads = min(threads, max(1, rows // (fewest or FEWEST_ROWS)))
    blocks = threads * max(1, round(rows / (threads * ROWS)))
    size = max(8, -(-rows // (8 * blocks)) * 8)
    found = [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
    each = -(-len(found) // threads)
    return [found[i : i + each] for i in range(0, len(found), each)]


def numbered(cut: Sequence[Sequence[slice]]) -> list[Blocks]:
    """With each block its number, counted through over all threads."""
    count = itertools.count()
    return [[(next(count), rows) for rows in blocks] for blocks in cut]


def side_by_side(work: Callable[..., Done], of_shares: Sequence[tuple[Any, ...]]) -> list[Done]:
    """``work`` on each share, in threads that do not wait for each other in every product; this one takes the first."""
    if len(of_shares) == 1:
        return [work(*of_shares[0])]

    def alone(of_share: tuple[Any, ...]) -> Done:
        torch.set_num_threads(1)  # of this thread
        denormals.take_for_zero()
        with torch.no_grad():
            return work(*of_share)

    if torch.get_num_threads() > 1:  # here each product would be shared out again
        return list(_threads().map(alone, of_shares))
    others = [_threads().submit(alone, of_share) for of_share in of_shares[1:]]
    return [work(*of_shares[0]), *(other.result() for other in others)]


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="rows")


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
        return _stacked([layer(*of_run) for of_run in zip(x, weight, bias.to(kind), strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        delta, (kind_of_x, kind) = gradients[0].to(weight.dtype), ctx.kinds
        of_weight = torch.empty_like(weight, dtype=kind)
        for of_run in zip(x, delta, of_weight, strict=True):
            product_of(*of_run, added=False)
        of_x = None
        if ctx.needs_input_grad[0]:
            turned = weight.transpose(1, 2)
            of_x = _stacked([layer(*of_run) for of_run in zip(delta, turned, strict=True)]).to(kind_of_x)
        return of_x, of_weight, delta.sum(1, keepdim=True).to(kind), None


def _stacked(results: Sequence[Tensor]) -> Tensor:
    return results[0][None] if len(results) == 1 else torch.stack(list(results))
