"""Regression by an MLP on a CPU: an update of a run, from drawing its rows to moving its weights, in fourteen calls.

With autograd and an optimiser they are sixty, and the books of autograd cost a small network a third of its time. Here
the large products are left to torch, all else is in compiled passes between them (:mod:`tracrl.nets.passes`), and a run
is taken from beginning to end while its numbers are in the cache. The calls are the same in every update, on the same
memory, so they are put together once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from tracrl.nets.blocks import shares, side_by_side
from tracrl.nets.passes import Draws, Passes, compiled_passes
from tracrl.nets.products import array, numbers
from tracrl.nets.stacked import StackedAdam, StackedMLP

Calls = list[Callable[[], Any]]


class Regression:
    """Moves tanh(MLP(x)) of each run towards targets, by rows of ``inputs`` (n, in) and ``targets`` (n, out).

    The network's hidden layers are ReLUs. Nobody else moves its parameters from now on. A run's batches are drawn as
    its ``draws`` say; the network's threads share out their rows. With ``bf16`` what torch multiplies is in bfloat16.
    The compiled passes have to be there (:func:`tracrl.nets.passes.compiled_passes`).
    """

    def __init__(
        self,
        network: StackedMLP,
        adam: StackedAdam,
        inputs: Tensor,
        targets: Tensor,
        draws: Sequence[Draws],
        batch: int,
        lr: float,
        bf16: bool,
    ):
        passes, plain = compiled_passes(bf16), compiled_passes(False)
        assert passes is not None
        assert plain is not None
        kind, tables = torch.bfloat16 if bf16 else torch.float32, (inputs.numpy(), targets.numpy())
        parameters = [p.detach() for p in network.parameters()]
        multiplied = range(0, len(parameters) - 2, 2)  # torch multiplies by all weights but the last
        others = [i for i in range(len(parameters)) if i not in multiplied]
        cut = shares(batch, torch.get_num_threads() if network.threads is None else network.threads)
        rooms = [_Room.of(parameters, blocks[0].stop - blocks[0].start, kind) for blocks in cut]
        gradients = [
            torch.empty(sum(map(len, cut)), *p.shape[1:], dtype=kind if i in multiplied else torch.float32)
            for i, p in enumerate(parameters)
        ]
        self.steps = adam.count.numpy()
        self.size = batch * targets.shape[1]
        self.squares = torch.empty(len(draws), len(gradients[0]), 1)
        """Σ wrong² of each run's blocks"""
        self.shares: list[list[tuple[Calls]]] = []
        """for each run: what each thread calls for the gradients"""
        self.moves: list[Calls] = []
        """for each run: what is called then"""
        for run, of_run in enumerate(draws):
            mine = [p[run] for p in parameters]
            copies = [p.to(kind) if i in multiplied else p for i, p in enumerate(mine)]
            places = zip(self.squares[run], *gradients, strict=True)
            of_threads: list[tuple[Calls]] = []
            for blocks, room in zip(cut, rooms, strict=True):
                calls: Calls = []
                for rows in blocks:
                    here = room.first(rows.stop - rows.start)
                    calls.append(partial(passes.gather, *of_run, rows.start, *tables, array(here.x), array(here.y)))
                    calls += _there_and_back(passes, here, copies, 2 / self.size, *next(places))
                of_threads.append((calls,))
            self.shares.append(of_threads)
            of_blocks = [numbers(g).reshape(len(g), -1) for g in gradients]
            moments, squares = ([numbers(m[run]) for m in of_all] for of_all in adam.moments())
            moved = [[numbers(p) for p in mine], [numbers(p) for p in copies], of_blocks, moments, squares]
            step = self.steps[run : run + 1], lr, *adam.betas, adam.eps
            self.moves.append(
                [
                    partial(kernel, *(tuple(arrays[i] for i in which) for arrays in moved), *step)
                    for kernel, which in ((passes.adam, multiplied), (plain.adam, others))
                ]
            )

    def update(self) -> Tensor:
        """A step of Adam for each run along the mean squared error of its batch; these errors (R,)."""
        self.steps += 1
        for of_threads, moves in zip(self.shares, self.moves, strict=True):
            side_by_side(_call, of_threads)
            _call(moves)
        return self.squares.sum((1, 2)).div_(self.size)


def _call(calls: Calls) -> None:
    for call in calls:
        call()


class _Room(NamedTuple):
    """Where a thread has a block of rows on its way through the layers."""

    x: Tensor
    y: Tensor
    result: Tensor
    hidden: list[Tensor]
    deltas: list[Tensor]
    """gradients before each layer's ReLU; the last takes the layer's place"""

    @classmethod
    def of(cls, parameters: Sequence[Tensor], rows: int, kind: torch.dtype) -> Self:
        inputs, *units, outputs = parameters[0].shape[1], *(weight.shape[2] for weight in parameters[0::2])
        hidden = [torch.empty(rows, n, dtype=kind) for n in units]
        deltas = [*map(torch.empty_like, hidden[:-1]), hidden[-1]]
        x, (y, result) = torch.empty(rows, inputs, dtype=kind), (torch.empty(rows, outputs) for _ in range(2))
        return cls(x, y, result, hidden, deltas)

    def first(self, rows: int) -> _Room:
        alone = self.x[:rows], self.y[:rows], self.result[:rows]
        return _Room(*alone, [h[:rows] for h in self.hidden], [d[:rows] for d in self.deltas])


def _there_and_back(
    passes: Passes, room: _Room, parameters: Sequence[Tensor], scale: float, squares: Tensor, *gradients: Tensor
) -> Calls:
    """From a block's rows to its gradients."""
    weights, biases = parameters[:-2:2], [numbers(b) for b in parameters[1:-2:2]]
    of_weights, of_biases = gradients[:-2:2], [numbers(b) for b in gradients[1:-2:2]]
    last, of_last = ((array(weight), numbers(bias)) for weight, bias in (parameters[-2:], gradients[-2:]))
    sources, results = [room.x, *room.hidden[:-1]], [array(h) for h in room.hidden]
    top, deltas = len(results) - 1, room.deltas
    calls: Calls = []
    for i in range(top + 1):
        calls.append(partial(torch.mm, sources[i], weights[i], out=room.hidden[i]))
        calls.append(partial(passes.relu, results[i], biases[i]))
    y, result = array(room.y), array(room.result)
    calls.append(partial(passes.last, results[top], *last, result))
    calls.append(partial(passes.errors, result, y, scale, numbers(squares)))
    of_end = *of_last, of_biases[top]
    calls.append(partial(passes.back, result, results[top], last[0], results[top], *of_end, False))
    for i in range(top, -1, -1):
        calls.append(partial(torch.mm, sources[i].t(), deltas[i], out=of_weights[i]))
        if i:
            calls.append(partial(torch.mm, deltas[i], weights[i].t(), out=deltas[i - 1]))
            calls.append(partial(passes.slope, array(deltas[i - 1]), results[i - 1], of_biases[i - 1]))
    return calls
