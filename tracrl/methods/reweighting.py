"""COptiDICE's update on a CPU: the large products by torch, all between them in compiled passes.

Threads wait for each other twice: when each has taken its rows through ν and χ, and one pass over the batch turns the
values into slopes; and when each has taken these back, and its rows of the policy's batch there and back.
What is computed, and why, is said in :mod:`tracrl.methods.coptidice`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tracrl.methods.coptidice import FIRST_STATES, COptiDICELearner
from tracrl.methods.reweighting_passes import FOUND, compiled_reweighting
from tracrl.nets.blocks import Blocks, how_many, numbered, shares
from tracrl.nets.products import array, numbers
from tracrl.nets.unrolled import Calls, Room, Unrolled, call, call_each, joined, step_of


class OfRun(NamedTuple):
    """What an update of a run calls, one after the other."""

    draw: Callable[[], Any]
    there: list[Calls]
    """of each thread: its rows through ν and χ"""
    dual: Callable[[], Any]
    back: list[Calls]
    """of each thread: to the gradients of ν, of χ and of the policy"""
    moves: Calls


class Reweighting:
    """Moves the networks, λ and τ of a learner, as its own :meth:`~COptiDICELearner.learn` would.

    Nobody else moves them from now on. The reference library's form is not known here, and the compiled passes have to
    be there (:func:`tracrl.nets.passes.compiled_passes`).
    """

    def __init__(self, learner: COptiDICELearner):
        self.learner, self.method, bf16 = learner, learner.method, learner.compute.bf16
        kind, size = torch.bfloat16 if bf16 else torch.float32, self.method.batch_size
        rows, threads = 2 * size + FIRST_STATES, how_many(learner.nu.threads)
        self.cut, self.actor_cut = numbered(shares(rows, threads)), numbered(shares(size, threads))
        blocks, actor_blocks = (sum(map(len, cut)) for cut in (self.cut, self.actor_cut))
        self.passes = compiled_reweighting(bf16)
        self.nu, self.chi = (Unrolled(network, kind, blocks) for network in (learner.nu, learner.chi))
        self.actor = Unrolled(learner.actor.network, kind, actor_blocks)
        # Runs take turns in what follows.
        inputs, actions = learner.transitions.observations.shape[1], learner.transitions.actions.shape[1]
        self.states = torch.empty(rows, inputs, dtype=kind)
        """s, s' and s₀"""
        self.values = torch.empty(2, self.method.critics, rows, 1)
        """of these, by every network of ν and of χ"""
        self.critics = [
            (network, member, Room.of(self.states, values, network.units))
            for network, of_members in zip((self.nu, self.chi), self.values, strict=True)
            for member, values in enumerate(of_members)
        ]
        self.rows = torch.empty(size, dtype=torch.int64)
        self.rewards, self.costs, self.more, self.w = torch.empty(4, size)
        self.cloned, result = torch.empty(size, actions), torch.empty(size, 2 * actions)
        self.room = Room.of(torch.empty(size, inputs, dtype=kind), result, self.actor.units)
        """the policy's"""
        self.of_scalars = torch.empty(2, 1, 1)
        self.found = torch.empty(len(learner.runs), len(FOUND))
        self.actor_losses = torch.empty(len(learner.runs), actor_blocks, 1)
        """of each run's blocks"""
        self.runs = [
            OfRun(self.draw(run), self.there(run), self.dual(run), self.back(run), self.moves(run))
            for run in range(len(learner.runs))
        ]

    def update(self) -> dict[str, Tensor]:
        """An update of every run; metrics are (R,)."""
        for adam in (self.learner.value_adam, self.learner.scalar_adam, self.learner.actor_adam):
            adam.count += 1
        for run in self.runs:
            run.draw()
            call_each(run.there)
            run.dual()
            call_each(run.back)
            call(run.moves)
        return dict(zip(FOUND, self.found.t().clone(), strict=True)) | {"actor_loss": self.actor_losses.sum((1, 2))}

    def draw(self, run: int) -> Callable[[], Any]:
        """A batch, and first states."""
        data = self.learner.transitions
        tables = data.observations, data.rewards, data.costs, data.ends, data.first
        places = self.states, self.rows, self.rewards, self.costs, self.more
        drawn = *self.learner.drawing(run), *data.sampler.pieces(run), *map(array, tables)
        return partial(self.passes.draw, *drawn, self.method.gamma, *map(array, places))

    def there(self, run: int) -> list[Calls]:
        def calls(blocks: Blocks) -> Calls:
            parts = [(*critic, rows) for critic in self.critics for _, rows in blocks]
            each = (network.there(room.part(rows), run, member) for network, member, room, rows in parts)
            return joined(each)

        return [calls(blocks) for blocks in self.cut]

    def dual(self, run: int) -> Callable[[], Any]:
        """From the values to their slopes."""
        batch = self.values.squeeze(-1), self.rewards, self.costs, self.more
        settings = float(self.learner.threshold[run]), self.method.gamma, self.method.alpha, self.method.epsilon
        places = self.w, self.of_scalars.view(-1), self.found[run]
        return partial(self.passes.dual, *map(array, batch), *self.scalars(run), *settings, *map(array, places))

    def back(self, run: int) -> list[Calls]:
        def calls(blocks: Blocks, actor_blocks: Blocks) -> Calls:
            parts = [(*critic, *block) for critic in self.critics for block in blocks]
            each = (network.back(room.part(rows), run, i, member) for network, member, room, i, rows in parts)
            return joined([*each, *(self.cloning(run, *block) for block in actor_blocks)])

        none: Blocks = []
        both = itertools.zip_longest(self.cut, self.actor_cut, fillvalue=none)
        return [calls(*of_thread) for of_thread in both]

    def cloning(self, run: int, block: int, rows: slice) -> Calls:
        """There and back through the policy with a block of its batch."""
        data, room = self.learner.transitions, self.room.part(rows)
        cloned, loss = array(self.cloned[rows]), numbers(self.actor_losses[run, block])
        tables = data.observations, data.actions, self.learner.state_noise, self.learner.action_noise
        drawn = *self.learner.drawing(run), array(self.rows), rows.start, *map(array, tables)
        return [
            partial(self.passes.noisy, *drawn, array(room.x), cloned),
            *self.actor.there(room, run),
            partial(self.passes.likelihood, array(room.result), cloned, array(self.w[rows]), len(self.w), loss),
            *self.actor.back(room, run, block),
        ]

    def moves(self, run: int) -> Calls:
        learner, lr = self.learner, self.method.lr
        scalars = self.scalars(run)
        state = [[numbers(m[run : run + 1]) for m in of_all] for of_all in learner.scalar_adam.moments()]
        moved = [scalars, scalars, [array(slope) for slope in self.of_scalars], *state]
        return [
            *self.nu.moves(run, learner.value_adam, lr),
            *self.chi.moves(run, learner.value_adam, lr, first=len(self.nu.values)),
            step_of(self.nu.plain, moved, run, learner.scalar_adam, self.method.scalar_lr),
            *self.actor.moves(run, learner.actor_adam, lr),
        ]

    def scalars(self, run: int) -> list[Any]:
        """λ and τ before the softplus."""
        return [numbers(p.detach()[run : run + 1]) for p in self.learner.scalars.parameters()]
