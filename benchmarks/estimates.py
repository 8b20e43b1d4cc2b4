"""Estimates from the log alone against the truth in the simulator, for policies that differ in method, limit and x.

    python benchmarks/estimates.py policies BallRun CarCircle   # train them, half-trained ones too
    python benchmarks/estimates.py truth BallRun CarCircle      # 30 episodes each in PyBullet
    python benchmarks/estimates.py measure BallRun CarCircle    # estimate them, and compare
    python benchmarks/estimates.py variants BallRun             # fitted Q evaluation alone, with other settings

Everything is kept below ``--out`` (runs/estimates), and what is there already is not done again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import tracrl
from tracrl.data.episodes import Episodes
from tracrl.evaluation.scores import Scores
from tracrl.methods.method import Method
from tracrl.ope.estimate import CPU
from tracrl.ope.estimates import Estimates
from tracrl.ope.fqe import FittedQ
from tracrl.ope.log import Log, actions_of
from tracrl.policies.base import Policy

LIMITS = [10.0, 20.0, 40.0]
TRAC = {"batch_size": 16, "bc_lr": 1e-3, "lr": 1e-4, "warmup": 200, "ratio": 0.25}


def stacks(costs: np.ndarray) -> dict[str, tuple[Method, list[float], list[int]]]:
    """name → (method, limits, seeds)"""
    quantiles = sorted({max(1.0, float(np.round(q))) for q in np.quantile(costs, [0.2, 0.4, 0.6, 0.8])})
    return {
        "bc-all": (tracrl.BCAll(updates=3_000), [20.0], [0, 1]),
        "bc-all-half": (tracrl.BCAll(updates=300), [20.0], [0, 1]),
        "bc-safe": (tracrl.BCSafe(updates=3_000), quantiles, [0]),
        "bc-safe-half": (tracrl.BCSafe(updates=300), quantiles, [0]),
        "trac": (tracrl.TraC(updates=2_500, clone_updates=1_000, **TRAC), LIMITS, [0]),
        "trac-x25": (tracrl.TraC(updates=2_500, clone_updates=1_000, x=25.0, **TRAC), LIMITS, [0]),
        "trac-half": (tracrl.TraC(updates=500, clone_updates=300, **TRAC), LIMITS, [0]),
        "cpq": (tracrl.CPQ.preset("Bullet", "fast", updates=300), [10.0, 40.0], [0]),
    }


def train(task: str, out: Path, device: str) -> None:
    data = tracrl.load_dataset(task)
    for name, (method, limits, seeds) in stacks(data.total_costs).items():
        if (out / task / name / "policy.safetensors").exists():
            continue
        run = tracrl.fit(method, data, limits=limits, seeds=seeds, out=out / task / name, resume=True, device=device)
        print(task, name, len(run.policy), flush=True)


def truth(task: str, out: Path, episodes: int) -> None:
    for file in sorted((out / task).glob("*/policy.safetensors")):
        to = file.with_name("truth.json")
        if to.exists() and Scores.load(to).returns.shape[1] >= episodes:
            continue
        scores = tracrl.evaluate(tracrl.load_policy(file), task, episodes=episodes, seed=1, workers=1)
        scores.save(to)
        print(task, file.parent.name, scores.costs.mean(1).round(1), scores.returns.mean(1).round(1), flush=True)


def known(task: str, out: Path) -> tuple[dict[str, Policy], np.ndarray, np.ndarray]:
    """The policies whose truth is known, their true returns and costs."""
    files = sorted((out / task).glob("*/truth.json"))
    truths = [Scores.load(file) for file in files]
    returns, costs = (np.concatenate([getattr(t, key).mean(1) for t in truths]) for key in ("returns", "costs"))
    print(f"\n{task}: {len(costs)} policies, {truths[0].costs.shape[1]} episodes each", flush=True)
    return {file.parent.name: tracrl.load_policy(file.parent) for file in files}, returns, costs


def measure(task: str, out: Path, device: str) -> None:
    data = tracrl.load_dataset(task)
    policies, returns, costs = known(task, out)
    to = out / task / f"estimates-{device}.json"
    if not to.exists():
        started = time.monotonic()
        found = tracrl.estimate(policies, data, trained_on=[data.fingerprint], device=device)
        print(f"estimated in {time.monotonic() - started:.0f} s", flush=True)
        found.save(to)
    found = Estimates.load(to)
    print(found.notes[1])
    print(f"{'policy':<22}{'cost':>7}{'estimate':>10}{'from':>8}{'to':>8}{'return':>9}{'estimate':>10}{'ood':>6}")
    for i, (low, high) in enumerate(found.cost_intervals):
        print(
            f"{found.names[i] + ' ' + format(found.limits[i], 'g'):<22}{costs[i]:>7.1f}{found.costs[i]:>10.1f}"
            f"{low:>8.1f}{high:>8.1f}{returns[i]:>9.1f}{found.returns[i]:>10.1f}{found.ood_shares[i]:>6.0%}"
        )
    compare("both", found.returns, found.costs, returns, costs, data)
    for name, opinion in found.opinions.items():
        compare(name, np.array(opinion["returns"]), np.array(opinion["costs"]), returns, costs, data)
    low, high = found.cost_intervals.T
    # Up to a rounding: a cost of exactly 0 has a lowest estimate just above it.
    held = (low <= costs + 0.05) & (costs <= high + 0.05)
    print(f"90 % intervals that hold the true cost: {held.sum()} of {len(held)}")
    for limit in LIMITS:
        passed, above = found.cost_bounds(0.9) <= limit, costs > limit
        print(
            f"gate at limit {limit:g}, 90 %: passed {(passed & above).sum()} of {above.sum()} truly above it, "
            f"{(passed & ~above).sum()} of {(~above).sum()} truly within it"
        )


def variants(task: str, out: Path, device: str) -> None:
    """Fitted Q evaluation alone: how fast its target follows, and how long it is fitted."""
    data = tracrl.load_dataset(task)
    policies, returns, costs = known(task, out)
    log = Log.of(data, torch.device(device))
    acted = [actions_of(policy, log.observations.cpu().numpy()) for policy in policies.values()]
    usual = CPU.fqe
    for name, settings in {
        "as it is": usual,
        "slower target": replace(usual, passes=0.5),
        "fewer updates": replace(usual, updates=usual.updates // 3),
    }.items():
        started = time.monotonic()
        learner = FittedQ(settings, log, np.concatenate(acted, axis=1))
        for _ in range(settings.updates):
            learner.learn()
        values = learner.values().mean(2)[0].cpu().numpy()
        compare(f"{name} ({time.monotonic() - started:.0f} s)", values[:, 0], values[:, 1], returns, costs, data)


def compare(
    name: str,
    estimated: np.ndarray,
    estimated_costs: np.ndarray,
    returns: np.ndarray,
    costs: np.ndarray,
    data: Episodes,
) -> None:
    """Estimates against the truth, in a line."""
    error = np.abs(estimated - returns) / np.ptp(data.returns)
    print(
        f"{name:<24} cost: rank correlation {rank_correlation(estimated_costs, costs):.2f}, "
        f"mean error {np.abs(estimated_costs - costs).mean():.1f}, mean {estimated_costs.mean():.1f} "
        f"(true {costs.mean():.1f}); return: rank correlation {rank_correlation(estimated, returns):.2f}, "
        f"mean error {error.mean():.1%} of the range, median {np.median(error):.1%}",
        flush=True,
    )


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, ties at their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(values.round(1), return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["policies", "truth", "measure", "variants"])
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("runs/estimates"))
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for task in chosen.tasks:
        if chosen.what == "policies":
            train(task, chosen.out, chosen.device)
        elif chosen.what == "truth":
            truth(task, chosen.out, chosen.episodes)
        elif chosen.what == "measure":
            measure(task, chosen.out, chosen.device)
        else:
            variants(task, chosen.out, chosen.device)


if __name__ == "__main__":
    main()
