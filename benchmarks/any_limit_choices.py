"""What the log alone says of candidates, inner limits and x, and how those score that it chooses."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import tracrl
from benchmarks.any_limit_setup import POOLS, episodes_of, file_of, limits_of
from benchmarks.opinions import keep_opinions, kept_opinions
from tracrl.data.episodes import Episodes
from tracrl.evaluation.evaluate import Evaluator
from tracrl.files import read_json, write_json
from tracrl.ope.acting import actions_of
from tracrl.ope.estimate import CPU, at_most
from tracrl.ope.estimates import Estimates
from tracrl.ope.families import FamilyQ, families
from tracrl.ope.fqe import FittedQ
from tracrl.ope.inner_limits import ON_CPU, Candidates, Choice, calibrate, candidates, effort_on
from tracrl.ope.log import Log
from tracrl.policies.any_limit import AnyLimitPolicy
from tracrl.policies.mlp import MLPPolicy

TIMED, TIMED_ROWS = 5, 20_000
"""updates and rows of the log by which the time of estimates is taken"""


def estimate(task: str, variant: str, options: argparse.Namespace) -> str:
    """What the log alone says of a variant's policies at each inner limit, and with each x where they are told x; the
    opinions are kept, too, so that they can be weighed once more without a GPU."""
    given, data = tried(task, variant, options), episodes_of(task, options.data)
    began, effort = time.monotonic(), effort_on(options.device)
    if options.value_functions is not None:
        effort = replace(effort, together=options.value_functions == "together")
    found = tracrl.estimate(
        given.stacks,
        data,
        trained_on=[data.fingerprint],
        device=options.device,
        effort=effort,
        keep=lambda opinions: keep_opinions(opinions, file_of(options, task, variant, ".opinions.npz")),
    )
    found.save(file_of(options, task, variant, ".estimates.json"))
    return f"{task}, {variant}: {len(found)} policies estimated in {time.monotonic() - began:.0f} s"


def reweigh(task: str, variant: str, options: argparse.Namespace) -> str:
    """The kept opinions weighed by the present code, in place of the estimates that are there."""
    file, opinions = (file_of(options, task, variant, suffix) for suffix in (".estimates.json", ".opinions.npz"))
    before = Estimates.load(file)
    kept = kept_opinions(opinions)
    values, errors = kept.weighed()
    after = replace(
        before,
        returns=values[:, 0],
        costs=values[:, 1],
        return_errors=errors[:, 0],
        cost_errors=errors[:, 1],
        ood_shares=kept.out_of_data,
    )
    after.save(file)
    moved = np.abs(after.costs - before.costs).mean(), np.abs(after.cost_errors - before.cost_errors).mean()
    return f"{task}, {variant}: weighed again; costs moved by {moved[0]:.2f}, their errors by {moved[1]:.2f} on average"


def choice_speed(task: str, variant: str, options: argparse.Namespace) -> str:
    """Processor time of fitted Q evaluation of all candidates on a CPU, in all its updates: with a value function for
    each, and with one for those of a seed; from a few updates of both."""
    given, data = tried(task, variant, options), episodes_of(task, options.data)
    stacks, log = list(given.stacks.values()), Log.of(at_most_rows(data), torch.device("cpu"))
    torch.set_num_threads(1)
    actions, found = torch.cat([actions_of(stack, log.observations) for stack in stacks], dim=1), families(stacks)
    assert found is not None
    seconds = []
    for learner in (FittedQ(CPU.fqe, log, actions), FamilyQ(ON_CPU.fqe, log, actions, found)):
        learner.learn()
        began = time.process_time()
        for _ in range(TIMED):
            learner.learn()
        seconds.append((time.process_time() - began) / TIMED * learner.updates)
    each, together = seconds
    return (
        f"{task}, {variant}: {actions.shape[1]} candidates, value functions of each {each:.0f} s, together "
        f"{together:.0f} s, {together / each:.3f} of it"
    )


def at_most_rows(data: Episodes) -> Episodes:
    return data.select(at_most(data, np.arange(len(data)), TIMED_ROWS, 0))


def tried(task: str, variant: str, options: argparse.Namespace) -> Candidates:
    """The candidates that are estimated and chosen from."""
    if variant in POOLS:
        of_x = {x: tried(task, part, options) for x, part in POOLS[variant].items()}
        stacks = {f"trac-any, x {x:g}": stack for x, given in of_x.items() for stack in given.stacks.values()}
        return Candidates(stacks, list(of_x))
    policy = tracrl.load_policy(file_of(options, task, variant, ".safetensors"))
    assert isinstance(policy, AnyLimitPolicy)
    if options.inner is None:
        return candidates(policy, limits_of(task))
    over = policy.over([limit for limit in options.inner if limit >= policy.limit_range[0]])
    return Candidates({"trac-any": over}, [None])


def judge(task: str, variant: str, options: argparse.Namespace) -> str:
    """Play those of the candidates that the log chooses, each once, and keep what they scored."""
    file = file_of(options, task, variant, ".judged.json")
    known: dict[str, Any] = read_json(file) if file.exists() else {}
    estimates = Estimates.load(file_of(options, task, variant, ".estimates.json"))
    given = tried(task, variant, options)
    todo: dict[str, MLPPolicy] = {}
    for confidence in options.confidences:
        chosen = calibrate(given, estimates, limits_of(task), confidence)
        for i, choice in enumerate(chosen.choices):
            if mark(choice) not in known:
                todo.setdefault(mark(choice), chosen.policy[[i]])
    if todo:
        first, *others = todo.values()
        with Evaluator(task, episodes=options.episodes, workers=options.simulators) as evaluator:
            scores = evaluator.evaluate(first.joined_with(others))
        for i, name in enumerate(todo):
            known[name] = {"rewards": scores.rewards[i].tolist(), "costs": scores.costs[i].tolist()}
        write_json(file, known)
    return f"{task}, {variant}: {len(todo)} policies played"


def mark(choice: Choice) -> str:
    x = "" if choice.x is None else f"x {choice.x:g}, "
    return f"{x}inner limit {choice.inner:g}, seed {choice.seed}"
