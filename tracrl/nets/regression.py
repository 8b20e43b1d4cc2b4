"""Regression by an MLP on a CPU: an update of a run, from drawing its rows to moving its weights, in fourteen calls.

With autograd and an optimiser they are sixty (:mod:`tracrl.nets.unrolled`). A run is taken from beginning to end while
its numbers are in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from tracrl.nets.blocks import fewest_rows, how_many, numbered, shares
from tracrl.nets.passes import Draws
from tracrl.nets.products import array, numbers
from tracrl.nets.stacked import StackedAdam, StackedMLP
from tracrl.nets.unrolled import Calls, Room, Unrolled, call, call_each


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
        kind, tables = torch.bfloat16 if bf16 else torch.float32, (inputs.numpy(), targets.numpy())
        cut = numbered(shares(batch, how_many(network.threads), fewest_rows(bf16)))
        count = sum(map(len, cut))
        unrolled = Unrolled(network, kind, count)
        passes = unrolled.passes
        self.steps = adam.count.numpy()
        self.size = batch * targets.shape[1]
        self.squares = torch.empty(len(draws), count, 1)
        """Σ wrong² of each run's blocks"""
        self.shares: list[list[Calls]] = []
        """for each run: what each thread calls for the gradients"""
        self.moves: list[Calls] = []
        """for each run: what is called then"""
        most = [rows.stop - rows.start for (_, rows), *_ in cut]
        answers = [torch.empty(rows, targets.shape[1]) for rows in most]
        rooms = [
            Room.of(torch.empty(rows, inputs.shape[1], dtype=kind), torch.empty_like(y), unrolled.units)
            for rows, y in zip(most, answers, strict=True)
        ]
        for run, of_run in enumerate(draws):
            of_threads: list[Calls] = []
            for blocks, room, answer in zip(cut, rooms, answers, strict=True):
                calls: Calls = []
                for block, rows in blocks:
                    some = slice(rows.stop - rows.start)
                    here, y, squares = room.part(some), array(answer[some]), numbers(self.squares[run, block])
                    calls.append(partial(passes.gather, *of_run, rows.start, *tables, array(here.x), y))
                    calls += unrolled.there(here, run)
                    calls.append(partial(passes.errors, array(here.result), y, 2 / self.size, squares))
                    calls += unrolled.back(here, run, block)
                of_threads.append(calls)
            self.shares.append(of_threads)
            self.moves.append(unrolled.moves(run, adam, lr))

    def update(self) -> Tensor:
        """A step of Adam for each run along the mean squared error of its batch; these errors (R,)."""
        self.steps += 1
        for of_threads, moves in zip(self.shares, self.moves, strict=True):
            call_each(of_threads)
            call(moves)
        return self.squares.sum((1, 2)).div_(self.size)
