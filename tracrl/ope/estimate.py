"""Estimate what policies will return and cost, from logged episodes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from tracrl.data.episodes import Episodes
from tracrl.data.holdout import Holdout, split
from tracrl.errors import TracrlError
from tracrl.ope.acting import actions_of
from tracrl.ope.alarm import in_logged_states
from tracrl.ope.estimates import Estimates, check_confidence
from tracrl.ope.families import FamilyQ, families
from tracrl.ope.fitting import fit
from tracrl.ope.fqe import FQE, FittedQ, Rows
from tracrl.ope.log import Log, check_policy, draws_actions, has_memory, parted
from tracrl.ope.model import Dynamics, LearnedModel
from tracrl.ope.playing import play, retrace
from tracrl.ope.support import ood_shares
from tracrl.ope.weighing import Opinions
from tracrl.policies.base import Policy
from tracrl.settings import Seed, checked
from tracrl.train.devices import choose_device

Floats = NDArray[np.float64]
LITTLE = 0.2
"""a share of the variance of costs below which it is said that little of it is foretold"""
DRAWS = 4
"""actions that are drawn in each state for a policy that draws them at random"""


@dataclass(frozen=True)
class Effort:
    """How much work estimates are worth."""

    fqe: FQE
    dynamics: Dynamics
    replicas: int = 3
    """value functions of each policy, each fitted to episodes drawn with replacement"""
    members: int = 16
    """models of the dynamics, likewise"""
    rows: int = 10_000_000
    """transitions that value functions are fitted to, at most: every policy must act in all of them"""
    updates_in_all: int = 0
    """updates of the value functions of all policies together: the fewer there are, the more each is worth, up to three
    times its own"""
    together: bool = False
    """one value function for all that a network is told (:mod:`tracrl.ope.families`), where that is what differs"""

    def for_so_many(self, policies: int) -> Effort:
        own = self.fqe.updates
        return replace(self, fqe=replace(self.fqe, updates=min(max(own, self.updates_in_all // policies), 3 * own)))


GPU = Effort(FQE(), Dynamics())
CPU = Effort(
    FQE(updates=5_000, batch_size=256, hidden=(128, 128), lr=2e-3),
    Dynamics(updates=5_000, batch_size=256, starts=50),
    replicas=1,
    members=8,
    rows=200_000,
    updates_in_all=90_000,
)
"""For two cores: smaller networks, fewer updates, and value functions from a part of the episodes"""


def estimate(
    policy: Policy | Mapping[str, Policy],
    data: Episodes,
    *,
    confidence: float = 0.9,
    holdout: float = 0.0,
    trained_on: Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    effort: Effort | None = None,
    progress: Callable[[str], None] | None = None,
    keep: Callable[[Opinions], None] | None = None,
    candidates: bool = False,
) -> Estimates:
    """Estimated return and cost of each policy of a stack, or of several stacks by name.

    Two opinions are weighed: episodes in a model of the dynamics (:mod:`tracrl.ope.model`) and fitted Q evaluation
    (:mod:`tracrl.ope.fqe`). Both are tested, for each policy, on logged episodes that nothing was fitted to: that gives
    their weights, within bounds, and how far estimates may be off. Steps out of the data may bring anything.

    With ``holdout`` only that share of the episodes is used (:func:`tracrl.data.holdout.split`). ``trained_on`` are
    the fingerprints of the data that the policies were trained on, where they are known: the estimates say whether
    they rest on the same episodes. ``keep`` is given the opinions before they are weighed.
    Of ``candidates`` those that nothing can be estimated of are as bad as can be, in place of an error.
    """
    stacks = {policy.metadata.method: policy} if isinstance(policy, Policy) else dict(policy)
    if not stacks:
        raise TracrlError("There is no policy to estimate: give at least one.")
    check_confidence(confidence)
    checked("--seed", seed, Seed)
    for one in stacks.values():
        check_policy(one, data)
    used, note = _episodes(data, holdout, seed, trained_on)
    found = opinions(list(stacks.values()), used, seed=seed, device=device, effort=effort, progress=progress)
    if keep is not None:
        keep(found)
    names = tuple(name for name, one in stacks.items() for _ in range(len(one)))
    unknown, notes = found.unknown, [note, *_remarks(stacks, found)]
    if candidates and unknown.any():
        notes.append(f"Nothing could be estimated of {unknown.sum()} of {len(names)} candidates: they were left out.")
    elif unknown.any():
        which = ", ".join(dict.fromkeys(names[i] for i in np.flatnonzero(unknown)))
        raise TracrlError(
            f"Nothing can be estimated of {which}: for {unknown.sum()} of {len(names)} policies neither the "
            "model of the dynamics nor fitted Q evaluation ends in a number. Leave them out, and look for actions or "
            "logged numbers that are far too large (tracrl data check)."
        )
    values, errors = found.weighed()
    values[unknown], errors[unknown] = (-np.inf, np.inf), 0.0
    metadata = [one.metadata for one in stacks.values()]
    return Estimates(
        names=names,
        limits=tuple(limit for m in metadata for limit in m.limits),
        seeds=tuple(s for m in metadata for s in m.seeds),
        returns=values[:, 0],
        costs=values[:, 1],
        return_errors=errors[:, 0],
        cost_errors=errors[:, 1],
        ood_shares=found.out_of_data,
        confidence=confidence,
        data={
            "fingerprint": used.fingerprint,
            "episodes": len(used),
            "rows": used.rows,
            "horizon": used.max_steps,
            "task": used.task,
        },
        notes=tuple(notes),
        opinions={"fqe": _opinion(found.fitted.mean(axis=0)), "model": _opinion(found.played.mean(axis=0))},
        policies=tuple(mark for one in stacks.values() for mark in one.fingerprints()),
        ood_in_log=tuple(map(float, found.ood_in_log)),
    )


def opinions(
    stacks: Sequence[Policy],
    data: Episodes,
    *,
    seed: int = 0,
    device: str = "auto",
    effort: Effort | None = None,
    progress: Callable[[str], None] | None = None,
) -> Opinions:
    """What each estimator says of each policy."""
    chosen = choose_device(device)
    effort = (effort or (GPU if chosen.type == "cuda" else CPU)).for_so_many(sum(map(len, stacks)))
    log = Log.of(data, chosen)
    say = progress or (lambda _: None)
    held_out, rest = parted(len(data), seed)
    part = np.union1d(held_out, at_most(data, rest, effort.rows, seed))
    part_log = log if len(part) == len(data) else Log.of(data.select(part), chosen)
    values = _value_functions(effort, part_log, stacks, seed, np.flatnonzero(np.isin(part, rest)))
    say("fitting models of the dynamics and value functions")
    model = LearnedModel(effort.dynamics, log, effort.members, seed)
    fit(model, *(learner for learner, _ in values))
    fitted = np.full((effort.replicas, sum(map(len, stacks)), 2), np.nan)
    foretold = np.full((*fitted.shape[:2], len(held_out), 2), np.nan)
    for learner, places in values:
        fitted[:, places] = learner.values().mean(2).double().cpu().numpy()
        told, _ = learner.foretold(np.flatnonzero(np.isin(part, held_out)))
        foretold[:, places] = told.cpu().numpy()
    say("playing the policies in the models")
    played = play(model, stacks, seed)
    retraced, logged = retrace(model, stacks, seed)
    most_cost = log.horizon * float(data.costs.max())
    # Of a return and a cost of which nothing is known but what the log has seen: a return between the lowest and the
    # highest, a cost of up to the most of a step in every step.
    anything = np.array([np.ptp(data.returns), most_cost]) / 12**0.5
    return Opinions(
        fitted=fitted,
        played=played.sums,
        foretold=foretold,
        retraced=retraced,
        logged=logged,
        ood_shares=np.stack([ood_shares(of_kind, log, seed) for of_kind in played.visited]),
        ood_in_log=np.array([share for one in stacks for share in in_logged_states(one, log)]),
        anything=anything,
        most_cost=most_cost,
    )


def _value_functions(
    effort: Effort, log: Log, stacks: Sequence[Policy], seed: int, among: Rows
) -> list[tuple[FittedQ, list[int]]]:
    """Value functions, not fitted yet, and their policies: none of those that are no function of the state."""
    if effort.together and (given := families(stacks)):
        actions = torch.cat([actions_of(one, log.observations) for one in stacks], dim=1)
        learner = FamilyQ(effort.fqe, log, actions, given, effort.replicas, seed, among)
        return [(learner, given.members.flatten().tolist())]
    start, result = 0, []
    by_draws: dict[int, list[tuple[int, Policy]]] = {}
    for one in stacks:
        if not has_memory(one):
            by_draws.setdefault(DRAWS if draws_actions(one) else 1, []).append((start, one))
        start += len(one)
    for draws, group in by_draws.items():
        actions = torch.cat([actions_of(one, log.observations, draws, seed) for _, one in group], dim=1)
        places = [place for first, one in group for place in range(first, first + len(one))]
        result.append((FittedQ(effort.fqe, log, actions, effort.replicas, seed, among), places))
    return result


def at_most(data: Episodes, episodes: NDArray[np.int64], rows: int, seed: int) -> NDArray[np.int64]:
    """Of these episodes some, chosen by the seed, that have so many rows together; one at least."""
    if data.lengths[episodes].sum() <= rows:
        return episodes
    order = np.random.default_rng(seed).permutation(episodes)
    count = max(1, int(np.searchsorted(np.cumsum(data.lengths[order]), rows, side="right")))
    return np.sort(order[:count])


def _opinion(values: Floats) -> dict[str, list[float | None]]:
    """One estimator's own numbers; none where it has no opinion."""
    lists = [[float(value) if np.isfinite(value) else None for value in column] for column in values.T]
    return {"returns": lists[0], "costs": lists[1]}


def _episodes(data: Episodes, holdout: float, seed: int, trained_on: Sequence[str]) -> tuple[Episodes, str]:
    """The episodes that are used, and a sentence on whether they chose the policies too."""
    used = split(data, holdout, seed)[1] if holdout else data
    parted = Holdout.of(used.metadata)
    if parted is not None and parted.held_out == used.fingerprint and set(trained_on) == {parted.trained}:
        return used, f"These {len(used)} episodes were held out: the policies were not trained on them."
    if {used.fingerprint, data.fingerprint} & set(trained_on):
        return used, "The policies were trained on these very episodes: estimates may flatter them."
    if not trained_on:
        return used, "Whether the policies were trained on these episodes is not known."
    return used, "The policies were trained on other data, as far as the data's fingerprint tells."


def _remarks(stacks: Mapping[str, Policy], found: Opinions) -> list[str]:
    skill, weight = np.median(found.skill, axis=0), found.weight
    remarks = [
        f"Tested on {len(found.logged)} logged episodes that nothing was fitted to: {skill[1]:.0%} of the variance of "
        f"their costs is foretold, {skill[0]:.0%} of that of their returns (median of the policies). The model of the "
        f"dynamics weighs {np.median(weight[:, 1]):.0%} for costs, fitted Q evaluation the rest. Of returns the lower "
        f"opinion counts: the model's for {weight[:, 0].sum():.0f} of {len(weight)} policies."
    ]
    if skill[1] < LITTLE:
        remarks.append("That is little: the estimates of cost say hardly more than what episodes of the log cost.")
    if any(map(draws_actions, stacks.values())):
        remarks.append(f"Policies that draw their actions: fitted Q evaluation takes the mean over {DRAWS} draws.")
    if alone := [name for name, one in stacks.items() if has_memory(one)]:
        remarks.append(
            f"Fitted Q evaluation knows no policy with a memory: {', '.join(alone)} is estimated by the model alone."
        )
    return remarks
