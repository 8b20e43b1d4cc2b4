"""A stacked MLP on a CPU as calls that are the same in every update, on the same memory, and so put together once.

With autograd and an optimiser they are four times as many, and the books of autograd cost a small network a third of
its time. Here the large products are left to torch, all else is in compiled passes between them
(:mod:`tracrl.nets.passes`), which have to be there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from tracrl.nets.blocks import side_by_side
from tracrl.nets.passes import Passes, compiled_passes
from tracrl.nets.products import array, multiply, numbers
from tracrl.nets.stacked import StackedAdam, StackedMLP

Calls = list[Callable[[], Any]]


def call(calls: Calls) -> None:
    for each in calls:
        each()


def joined(parts: Iterable[Calls]) -> Calls:
    return list(itertools.chain.from_iterable(parts))


def call_each(of_threads: Sequence[Calls]) -> None:
    """Calls of several threads, side by side."""
    side_by_side(call, [(calls,) for calls in of_threads])


class Room(NamedTuple):
    """Where a block of rows is on its way through the layers."""

    x: Tensor
    result: Tensor
    """the last layer's, in float32; on the way back the slopes of a loss in it"""
    hidden: list[Tensor]
    deltas: list[Tensor]
    """gradients before each layer's ReLU; the last takes the layer's place. Empty where nothing goes back"""

    @classmethod
    def of(cls, x: Tensor, result: Tensor, units: Sequence[int], back: bool = True) -> Self:
        hidden = [x.new_empty(len(x), n) for n in units]
        return cls(x, result, hidden, [*map(torch.empty_like, hidden[:-1]), hidden[-1]] if back else [])

    def part(self, rows: slice) -> Room:
        return Room(self.x[rows], self.result[rows], [h[rows] for h in self.hidden], [d[rows] for d in self.deltas])


class Unrolled:
    """The parameters of a network whose hidden layers are ReLUs, and the calls that take rows through it and move it.

    Nobody else moves them from now on. What torch multiplies, all layers but the last, is in ``kind``, float32 or
    bfloat16. Every run's gradients are in the same places, those of each of so many ``blocks`` of rows apart.
    """

    def __init__(self, network: StackedMLP, kind: torch.dtype, blocks: int):
        passes, plain = compiled_passes(kind == torch.bfloat16), compiled_passes(False)
        assert passes is not None
        assert plain is not None
        self.passes, self.plain = passes, plain
        self.values = [p.detach().view(len(p), -1, *p.shape[-2:]) for p in network.parameters()]
        """(R, members, in, out), and (R, members, 1, out) of biases"""
        self.multiplied = range(0, len(self.values) - 2, 2)
        self.copies = [v.to(kind) if i in self.multiplied else v for i, v in enumerate(self.values)]
        self.gradients = [c.new_empty(blocks, *c.shape[1:]) for c in self.copies]
        others = [i for i in range(len(self.values)) if i not in self.multiplied]
        self.kinds: list[tuple[Passes, Sequence[int]]] = [(passes, self.multiplied), (plain, others)]
        """of parameters, and the passes that move them"""
        self.units = [weight.shape[3] for weight in self.values[:-2:2]]

    def there(self, room: Room, run: int, member: int = 0) -> Calls:
        """From a block's rows to its results."""
        *parameters, weight, bias = (c[run, member] for c in self.copies)
        weights, biases = parameters[0::2], parameters[1::2]
        calls: Calls = []
        for x, w, b, h in zip([room.x, *room.hidden], weights, biases, room.hidden, strict=False):
            calls.append(partial(multiply, x, w, h))
            calls.append(partial(self.passes.relu, array(h), numbers(b)))
        top, result = array(room.hidden[-1]), array(room.result)
        return [*calls, partial(self.passes.last, top, array(weight), numbers(bias), result)]

    def back(self, room: Room, run: int, block: int, member: int = 0, *, frozen: bool = False) -> Calls:
        """From the slopes of a block's results to its gradients; ``frozen``: to the deltas alone, which leaves nothing
        of use where the gradients were."""
        weights = [c[run, member] for c in self.copies[0::2]]
        of_weights = [g[block, member] for g in self.gradients[0::2]]
        of_biases = [numbers(g[block, member]) for g in self.gradients[1::2]]
        sources, results, deltas = [room.x, *room.hidden], [array(h) for h in room.hidden], room.deltas
        ends = array(of_weights[-1]), of_biases[-1], of_biases[-2]
        calls: Calls = [
            partial(self.passes.back, array(room.result), results[-1], array(weights[-1]), results[-1], *ends, False)
        ]
        for i in range(len(deltas) - 1, -1, -1):
            if not frozen:
                calls.append(partial(multiply, sources[i].t(), deltas[i], of_weights[i]))
            if i:
                calls.append(partial(multiply, deltas[i], weights[i].t(), deltas[i - 1]))
                calls.append(partial(self.passes.slope, array(deltas[i - 1]), results[i - 1], of_biases[i - 1]))
        return calls

    def to_inputs(self, room: Room, run: int, columns: slice, slopes: Tensor, member: int = 0) -> Callable[[], Any]:
        """From a block's deltas to the slopes of these columns of its rows, in float32."""
        weight = self.values[0][run, member, columns].t()
        given = room.deltas[0], weight, torch.zeros(weight.shape[1]), slopes
        return partial(self.passes.last, *map(array, given))

    def follows(self, leader: Unrolled, run: int, tau: float) -> Calls:
        """θ ← (1 − τ) θ + τ θ' (Polyak), θ' those of a ``leader`` of the same shape."""
        arrays = [[numbers(v[run]) for v in of_all] for of_all in (self.values, self.copies, leader.values)]
        return [
            partial(passes.follow, *(tuple(a[i] for i in some) for a in arrays), tau) for passes, some in self.kinds
        ]

    def moves(self, run: int, adam: StackedAdam, lr: float, first: int = 0) -> Calls:
        """A step of Adam, whose parameters from the ``first`` on are these, along the gradients of all blocks."""
        here = slice(first, first + len(self.values))
        state = [[numbers(m[run]) for m in of_all[here]] for of_all in adam.moments()]
        of_blocks = [numbers(g).reshape(len(g), -1) for g in self.gradients]
        arrays = [[numbers(v[run]) for v in self.values], [numbers(c[run]) for c in self.copies], of_blocks, *state]
        return [step_of(passes, [[a[i] for i in some] for a in arrays], run, adam, lr) for passes, some in self.kinds]


def step_of(passes: Passes, moved: Sequence[Sequence[Any]], run: int, adam: StackedAdam, lr: float) -> partial[Any]:
    """A call of the pass that moves arrays of a run: values, copies, gradients, moments and squares."""
    count = adam.count.numpy()[run : run + 1]
    return partial(passes.adam, *map(tuple, moved), count, lr, *adam.betas, adam.eps)
