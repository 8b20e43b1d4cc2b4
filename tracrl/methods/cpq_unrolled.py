"""CPQ's update on a CPU: the large products by torch, all between them in compiled passes.

Threads share out the rows of the batch. They wait for each other where a network has to move before rows go through it
again, and where the actions out of distribution are chosen, of the whole batch. What is computed, and why, is said in
:mod:`tracrl.methods.cpq`. Two things are spared here: the policy is asked once about the batch's states, for its
candidates and for its own loss, and Q_c is asked about no candidate that is not out of distribution, as none counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tracrl.methods.cpq import ACTION, NEXT_ACTION, CPQLearner, looked_at, most_ood
from tracrl.methods.cpq_passes import compiled_cpq
from tracrl.nets.blocks import how_many, numbered, shares
from tracrl.nets.products import array, numbers
from tracrl.nets.unrolled import Calls, Room, Unrolled, call, call_each, joined

TENTHS = 10
"""Q_c is asked about so many tenths of the actions looked at as those out of distribution fill. Libraries prepare their
products anew for every other number of rows."""
BELLMAN, SQUARES, DIVERGENCE, GAIN = slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 6)
"""where what the passes find in a block is kept"""


class Rows(NamedTuple):
    """What is kept of the rows of a batch, beside what is in the rooms of networks."""

    states: Tensor
    """s, as networks take it"""
    following: Tensor
    """s'"""
    logged: Tensor
    """(s, a)"""
    sampled: Tensor
    """(s', a'), then (s, a), with actions of the policy"""
    actions: Tensor
    """a, as logged"""
    rewards: Tensor
    costs: Tensor
    more: Tensor
    """γ, or 0 behind the end"""
    spread_of_latents: Tensor
    """z − μ"""
    of_latents: Tensor
    """slopes of z"""
    spread: Tensor
    """what noise adds to the policy's μ"""

    def part(self, rows: slice) -> Rows:
        return Rows(*(of_all[rows] for of_all in self))


class Member(NamedTuple):
    """One of a critic's ensemble, and a block's rows there."""

    critic: Unrolled
    target: Unrolled
    number: int
    room: Room
    followed: Tensor
    """what the target says of the next states and actions"""
    of_actions: Tensor
    """slopes of the policy's actions"""


class OfRun(NamedTuple):
    """What an update of a run calls, one after the other, mostly in several threads."""

    batch: list[Calls]
    vae: list[Calls]
    """moves"""
    judge: list[Calls]
    penalty: list[list[Calls]]
    """for each number of tenths"""
    critics: list[Calls]
    """move, and their targets follow"""
    policy: list[Calls]
    actor: Calls
    """moves"""


class UnrolledCPQ:
    """Moves the networks and α of a learner, as its own :meth:`~CPQLearner.learn` would.

    Nobody else moves them from now on. The reference library's form is not known here, and the compiled passes have to
    be there (:func:`tracrl.nets.passes.compiled_passes`).
    """

    def __init__(self, learner: CPQLearner):
        self.learner, self.method, bf16 = learner, learner.method, learner.compute.bf16
        self.passes, kind = compiled_cpq(bf16), torch.bfloat16 if bf16 else torch.float32
        self.size, members, runs = self.method.batch_size, self.method.critics, len(learner.runs)
        self.threads = how_many(learner.actor.network.threads)
        self.cut = numbered(shares(self.size, self.threads))
        blocks = sum(map(len, self.cut))
        vae, critics, target = learner.vae, learner.critics, learner.target
        self.encoder, self.decoder = Unrolled(vae.encoder, kind, blocks), Unrolled(vae.decoder, kind, blocks)
        self.actor = Unrolled(learner.actor.network, kind, blocks)
        self.behind = blocks
        """where the blocks of what is out of distribution begin, one for each thread"""
        self.reward = Unrolled(critics.of_reward, kind, blocks)
        self.cost = Unrolled(critics.of_cost, kind, blocks + len(self.cut))
        self.targets = Unrolled(target.of_reward, kind, 0), Unrolled(target.of_cost, kind, 0)

        # Runs take turns in what follows.
        state, action = learner.transitions.observations.shape[1], learner.actor.actions
        tries = 1 + self.method.ood_actions

        def layers(rows: int, width: int) -> Tensor:
            return torch.empty(rows, width, dtype=kind)

        def room(x: Tensor, network: Unrolled, back: bool = True) -> Room:
            return Room.of(x, torch.empty(len(x), network.values[-1].shape[3]), network.units, back)

        self.kept = Rows(
            states=layers(self.size, state),
            following=layers(self.size, state),
            logged=layers(self.size, state + action),
            sampled=layers(self.size, state + action),
            actions=torch.empty(self.size, action),
            rewards=torch.empty(self.size),
            costs=torch.empty(self.size),
            more=torch.empty(self.size),
            spread_of_latents=torch.empty(self.size, vae.latent),
            of_latents=torch.empty(self.size, vae.latent),
            spread=torch.empty(self.size, action),
        )
        self.encoding = room(self.kept.logged, self.encoder)
        self.decoding = room(layers(self.size, state + vae.latent), self.decoder)
        self.acting = room(self.kept.states, self.actor)
        self.values, self.followed = torch.empty(2, 2, members, self.size, 1)
        """of Q and Q_c, and of their targets: of rewards and of costs, by each member of the ensembles"""
        self.rooms = [Room.of(self.kept.logged, values, self.reward.units) for values in self.values.flatten(0, 1)]
        self.of_actions = torch.empty(2 * members, self.size, action)
        self.candidates, self.divergences = layers(self.size * tries, state + action), torch.empty(self.size, tries)
        """each logged action, and behind it those of the policy"""
        judged = shares(len(self.candidates), self.threads)
        most = max(rows.stop - rows.start for blocks in judged for rows in blocks)
        self.judging = [(blocks, room(self.candidates[:most], self.encoder, back=False)) for blocks in judged]
        """of each thread: blocks of candidates, and where they are in the VAE's encoder"""
        looked = looked_at(self.size * self.method.ood_actions)
        self.ood, self.ood_values = layers(looked, state + action), torch.empty(members, looked, 1)
        self.chosen = torch.zeros(1, dtype=torch.int64)
        """how many of these are out of distribution"""
        self.ood_rooms = [Room.of(self.ood, values, self.cost.units) for values in self.ood_values]
        self.found = torch.zeros(runs, blocks, 6)
        """what each block is of the metrics"""
        self.lacks = torch.zeros(runs, len(self.cut), 2)
        """what each thread's part of what is out of distribution is of the loss, and of E_ood[1.5 l − Q_c]"""
        self.ood_share = torch.zeros(runs)
        self.runs = [self.of_run(run) for run in range(runs)]

    def update(self) -> dict[str, Tensor]:
        """An update of every run; metrics are (R,)."""
        learner = self.learner
        for adam in (learner.vae_adam, learner.critic_adam, learner.actor_adam):
            adam.count += 1
        for run, calls in enumerate(self.runs):
            call_each(calls.batch)
            call_each(calls.vae)
            call_each(calls.judge)
            call_each(calls.penalty[self.choose(run)])
            call_each(calls.critics)
            call_each(calls.policy)
            call(calls.actor)
        bellman, cost_value, squares, divergence, actor_loss, safe_share = self.found.sum(1).t()
        penalty, lack = self.lacks.sum(1).t()
        learner.adjust_alpha(lack)
        return {
            "loss": bellman + penalty,
            "cost_value": cost_value,
            "ood_share": self.ood_share.clone(),
            "alpha": learner.log_alpha.exp(),
            "safe_share": safe_share,
            "vae_loss": squares / self.kept.actions.numel() + divergence,
            "actor_loss": actor_loss,
        }

    def of_run(self, run: int) -> OfRun:
        learner, method = self.learner, self.method
        vae, critics = (learner.vae_adam, method.vae_lr), (learner.critic_adam, method.critic_lr)
        of_reward, of_cost = self.targets
        return OfRun(
            batch=self.of_blocks(partial(self.batch, run)),
            vae=self.apart(
                self.encoder.moves(run, *vae),
                self.decoder.moves(run, *vae, first=len(self.encoder.values)),
            ),
            judge=[joined(self.judge(run, *of_thread)) for of_thread in self.judging],
            penalty=[self.penalty(run, tenths) for tenths in range(TENTHS + 1)],
            critics=self.apart(
                self.reward.moves(run, *critics) + of_reward.follows(self.reward, run, method.tau),
                self.cost.moves(run, *critics, first=len(self.reward.values))
                + of_cost.follows(self.cost, run, method.tau),
            ),
            policy=self.of_blocks(partial(self.policy, run)),
            actor=self.actor.moves(run, learner.actor_adam, method.actor_lr),
        )

    def of_blocks(self, calls: Callable[[int, slice], Iterator[Calls]]) -> list[Calls]:
        """For each thread what is called for its blocks of a batch's rows."""
        return [joined(each for block in blocks for each in calls(*block)) for blocks in self.cut]

    def apart(self, *parts: Calls) -> list[Calls]:
        """Parts that do not need each other."""
        return list(parts) if self.threads > 1 else [joined(parts)]

    def batch(self, run: int, block: int, rows: slice) -> Iterator[Calls]:
        """To the gradients of the VAE and, of Bellman's errors, of the critics; and to candidates."""
        here = self.kept.part(rows)
        yield [self.draw(run, rows.start, here)]
        yield from self.coding(run, block, rows, here)
        yield from self.bellman(run, block, rows, here)
        acting, tries = self.acting.part(rows), self.divergences.shape[1]
        yield self.actor.there(acting, run)
        candidates = self.candidates[tries * rows.start : tries * rows.stop]
        places = acting.result, here.logged, candidates
        yield [partial(self.passes.candidates, *self.seed(run, rows.start), *map(array, places))]

    def draw(self, run: int, first: int, here: Rows) -> Callable[[], Any]:
        data = self.learner.transitions
        tables = data.observations, data.actions, data.rewards, data.costs, data.ends, data.terminated, data.final
        drawn = *self.learner.drawing(run), first, *data.sampler.pieces(run), *map(array, tables)
        places = here.states, here.following, here.logged, here.actions, here.rewards, here.costs, here.more
        return partial(self.passes.draw, *drawn, self.method.gamma, *map(array, places))

    def coding(self, run: int, block: int, rows: slice, here: Rows) -> Iterator[Calls]:
        """There and back through the VAE."""
        encoding, decoding, found = self.encoding.part(rows), self.decoding.part(rows), self.found[run, block]
        encoded, decoded, spread = map(array, (encoding.result, decoding.result, here.spread_of_latents))
        of_square, of_divergence = 2 / self.kept.actions.numel(), self.method.beta / self.size
        states, latents = array(here.states), slice(here.states.shape[1], None)
        yield self.encoder.there(encoding, run)
        yield [partial(self.passes.latents, *self.seed(run, rows.start), encoded, states, array(decoding.x), spread)]
        yield self.decoder.there(decoding, run)
        yield [partial(self.decoder.passes.errors, decoded, array(here.actions), of_square, array(found[SQUARES]))]
        yield self.decoder.back(decoding, run, block)
        yield [self.decoder.to_inputs(decoding, run, latents, here.of_latents)]
        of_latents = array(here.of_latents)
        yield [partial(self.passes.encoded, encoded, of_latents, spread, of_divergence, array(found[DIVERGENCE]))]
        yield self.encoder.back(encoding, run, block)

    def bellman(self, run: int, block: int, rows: slice, here: Rows) -> Iterator[Calls]:
        """The critics' targets, and there and back through the critics."""
        following = self.acting.part(rows)._replace(x=here.following)
        yield self.actor.there(following, run)
        yield [self.sample(run, NEXT_ACTION, rows.start, following, here)]
        members = self.members(rows)
        for each in members:
            room = each.room._replace(x=here.sampled, result=each.followed)
            yield each.target.there(room, run, each.number)
        for each in members:
            yield each.critic.there(each.room, run, each.number)
        values, followed = (of_all[:, :, rows, 0] for of_all in (self.values, self.followed))
        given = values, followed, here.rewards, here.costs, here.more
        found = array(self.found[run, block, BELLMAN])
        yield [partial(self.passes.regress, *map(array, given), self.threshold(run), self.size, found)]
        for each in members:
            yield each.critic.back(each.room, run, block, each.number)

    def members(self, rows: slice) -> list[Member]:
        """Of both critics."""
        kinds = zip((self.reward, self.cost), self.targets, strict=True)
        each = ((*kind, number) for kind in kinds for number in range(self.method.critics))
        places = zip(self.rooms, self.followed.flatten(0, 1), self.of_actions, strict=True)
        return [
            Member(*which, room.part(rows), followed[rows], of_actions[rows])
            for which, (room, followed, of_actions) in zip(each, places, strict=True)
        ]

    def sample(self, run: int, stream: int, first: int, room: Room, here: Rows) -> Callable[[], Any]:
        """Draws actions of the policy, whose result is in the room."""
        seed, clock, *of_batch = self.seed(run, first)
        places = room.result, room.x, here.sampled, here.spread
        return partial(self.passes.sample, seed, clock, stream, *of_batch, *map(array, places))

    def judge(self, run: int, blocks: Sequence[slice], room: Room) -> Iterator[Calls]:
        """Logged actions and candidates through the VAE's encoder."""
        for rows in blocks:
            part = room.part(slice(rows.stop - rows.start))._replace(x=self.candidates[rows])
            yield self.encoder.there(part, run)
            yield [partial(self.passes.divergences, array(part.result), numbers(self.divergences)[rows])]

    def choose(self, run: int) -> int:
        """The candidates that are out of distribution, and how many tenths of what is kept of them they fill."""
        usual, of_policy = self.divergences[:, 0].max(), self.divergences[:, 1:].reshape(1, -1)
        divergent = most_ood(of_policy)[0]
        ood = divergent[of_policy[0, divergent] > usual]
        rows, most = ood + ood // self.method.ood_actions + 1, len(divergent)
        torch.index_select(self.candidates, 0, rows, out=self.ood[: len(rows)])
        self.ood[len(rows) :] = 0
        self.chosen.fill_(len(rows))
        self.ood_share[run] = len(rows) / most
        return -(-len(rows) * TENTHS // most)

    def penalty(self, run: int, tenths: int) -> list[Calls]:
        """There and back through the cost critic with what is out of distribution, where it fills so many tenths."""
        count, parts = -(-len(self.ood) * tenths // TENTHS), len(self.cut)
        bounds = [count * part // parts for part in range(parts + 1)]
        return [
            joined(self.lacking(run, part, slice(*of_part))) for part, of_part in enumerate(itertools.pairwise(bounds))
        ]

    def lacking(self, run: int, part: int, rows: slice) -> Iterator[Calls]:
        rooms = [room.part(rows) for room in self.ood_rooms]
        for member, room in enumerate(rooms):
            yield self.cost.there(room, run, member)
        values, wanted = array(self.ood_values[:, rows, 0]), self.method.ood_cost * self.threshold(run)
        log_alpha, found = numbers(self.learner.log_alpha[run : run + 1]), array(self.lacks[run, part])
        yield [partial(self.passes.lack, values, rows.start, array(self.chosen), wanted, log_alpha, found)]
        for member, room in enumerate(rooms):
            yield self.cost.back(room, run, self.behind + part, member)

    def policy(self, run: int, block: int, rows: slice) -> Iterator[Calls]:
        """What the critics say of the policy's own actions, back to its gradients."""
        here, acting, members = self.kept.part(rows), self.acting.part(rows), self.members(rows)
        rooms = [each.room._replace(x=here.sampled) for each in members]
        yield [self.sample(run, ACTION, rows.start, acting, here)]
        for each, room in zip(members, rooms, strict=True):
            yield each.critic.there(room, run, each.number)
        values, found = array(self.values[:, :, rows, 0]), array(self.found[run, block, GAIN])
        yield [partial(self.passes.gain, values, self.threshold(run), self.size, found)]
        actions = slice(here.states.shape[1], None)
        for each, room in zip(members, rooms, strict=True):
            yield each.critic.back(room, run, block, each.number, frozen=True)
            yield [each.critic.to_inputs(room, run, actions, each.of_actions, each.number)]
        yield [partial(self.passes.act, array(acting.result), array(here.spread), array(self.of_actions[:, rows]))]
        yield self.actor.back(acting, run, block)

    def threshold(self, run: int) -> float:
        return float(self.learner.threshold[run])

    def seed(self, run: int, first: int) -> tuple[Any, ...]:
        """What the random numbers of a batch's rows from the ``first`` on follow from."""
        return *self.learner.drawing(run), first, self.size
