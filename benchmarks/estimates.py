"""Estimates from the log alone against the truth in the simulator, for policies that differ in method, limit and x.

    python benchmarks/estimates.py policies BallRun CarCircle   # train them, half-trained ones too
    python benchmarks/estimates.py truth BallRun CarCircle      # 30 episodes each in PyBullet
    python benchmarks/estimates.py measure BallRun CarCircle    # estimate them, and compare

Everything is kept below ``--out`` (runs/estimates), and what is there already is not done again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import tracrl
from tracrl.evaluation.scores import Scores
from tracrl.methods.method import Method
from tracrl.ope.estimates import Estimates

TRAC = {"batch_size": 16, "bc_lr": 1e-3, "lr": 1e-4, "warmup": 200, "ratio": 0.25}


def stacks(costs: np.ndarray) -> dict[str, tuple[Method, list[float], list[int]]]:
    """name → (method, limits, seeds)"""
    quantiles = sorted({max(1.0, float(np.round(q))) for q in np.quantile(costs, [0.2, 0.4, 0.6, 0.8])})
    usual = [10.0, 20.0, 40.0]
    return {
        "bc-all": (tracrl.BCAll(updates=3_000), [20.0], [0, 1]),
        "bc-all-half": (tracrl.BCAll(updates=300), [20.0], [0, 1]),
        "bc-safe": (tracrl.BCSafe(updates=3_000), quantiles, [0]),
        "bc-safe-half": (tracrl.BCSafe(updates=300), quantiles, [0]),
        "trac": (tracrl.TraC(updates=2_500, clone_updates=1_000, **TRAC), usual, [0]),
        "trac-x25": (tracrl.TraC(updates=2_500, clone_updates=1_000, x=25.0, **TRAC), usual, [0]),
        "trac-half": (tracrl.TraC(updates=500, clone_updates=300, **TRAC), usual, [0]),
        "cpq": (tracrl.CPQ.preset("Bullet", "fast", updates=300), [10.0, 40.0], [0]),
    }


def train(task: str, out: Path) -> None:
    data = tracrl.load_dataset(task)
    for name, (method, limits, seeds) in stacks(data.total_costs).items():
        if (out / task / name / "policy.safetensors").exists():
            continue
        run = tracrl.fit(method, data, limits=limits, seeds=seeds, out=out / task / name, resume=True, device="cpu")
        print(task, name, len(run.policy), flush=True)


def truth(task: str, out: Path, episodes: int) -> None:
    for file in sorted((out / task).glob("*/policy.safetensors")):
        to = file.with_name("truth.json")
        if to.exists() and Scores.load(to).returns.shape[1] >= episodes:
            continue
        scores = tracrl.evaluate(tracrl.load_policy(file), task, episodes=episodes, seed=1, workers=1)
        scores.save(to)
        print(task, file.parent.name, scores.costs.mean(1).round(1), scores.returns.mean(1).round(1), flush=True)


def measure(task: str, out: Path, limit: float) -> None:
    data = tracrl.load_dataset(task)
    stacks, truths = {}, []
    for file in sorted((out / task).glob("*/truth.json")):
        stacks[file.parent.name] = tracrl.load_policy(file.parent)
        truths.append(Scores.load(file))
    to = out / task / "estimates.json"
    if not to.exists():
        started = time.monotonic()
        found = tracrl.estimate(stacks, data, trained_on=[data.fingerprint], device="cpu")
        print(f"{task}: {len(found)} policies estimated in {time.monotonic() - started:.0f} s", flush=True)
        found.save(to)
    found = Estimates.load(to)
    costs = np.concatenate([truth.costs.mean(1) for truth in truths])
    returns = np.concatenate([truth.returns.mean(1) for truth in truths])
    print(f"\n{task}: {len(costs)} policies, {truths[0].costs.shape[1]} episodes each; {found.notes[1]}")
    print(
        f"{'policy':<22}{'true cost':>10}{'estimate':>10}{'from':>8}{'to':>8}{'return':>13}{'estimate':>10}{'ood':>6}"
    )
    for i in range(len(costs)):
        low, high = found.cost_intervals[i]
        print(
            f"{found.names[i] + ' ' + format(found.limits[i], 'g'):<22}{costs[i]:>10.1f}{found.costs[i]:>10.1f}"
            f"{low:>8.1f}{high:>8.1f}{returns[i]:>13.1f}{found.returns[i]:>10.1f}{found.ood_shares[i]:>6.0%}"
        )
    opinions = {"both": (found.costs, found.returns)}
    opinions |= {name: (np.array(o["costs"]), np.array(o["returns"])) for name, o in found.opinions.items()}
    print(f"{'':<8}{'cost: rank':>12}{'error':>13}{'mean':>11}{'true':>7}{'return: rank':>14}{'error / range':>23}")
    for name, (cost, value) in opinions.items():
        error = np.abs(value - returns).mean() / np.ptp(data.returns)
        print(
            f"{name:<8}{rank_correlation(cost, costs):>12.2f}{np.abs(cost - costs).mean():>13.1f}{cost.mean():>11.1f}"
            f"{costs.mean():>7.1f}{rank_correlation(value, returns):>14.2f}{error:>23.1%}"
        )
    low, high = found.cost_intervals.T
    passed, unsafe = found.cost_bounds(0.9) <= limit, costs > limit
    print(
        f"90 % intervals that hold the true cost: {np.mean((low <= costs + 0.05) & (costs <= high + 0.05)):.0%}\n"
        f"gate at limit {limit:g}, 90 %: passed {np.sum(passed & unsafe)} of {unsafe.sum()} above it, "
        f"{np.sum(passed & ~unsafe)} of {np.sum(~unsafe)} within it"
    )


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, ties at their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(values.round(1), return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["policies", "truth", "measure"])
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("runs/estimates"))
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--limit", type=float, default=20.0, help="of the gate")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for task in chosen.tasks:
        if chosen.what == "policies":
            train(task, chosen.out)
        elif chosen.what == "truth":
            truth(task, chosen.out, chosen.episodes)
        else:
            measure(task, chosen.out, chosen.limit)


if __name__ == "__main__":
    main()
