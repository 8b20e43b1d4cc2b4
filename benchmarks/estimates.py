"""Estimates from the log alone against the truth in the simulator, for policies that differ in method, limit and x.

    python -m benchmarks.estimates policies BallRun CarCircle   # train them, half-trained ones too
    python -m benchmarks.estimates truth BallRun CarCircle      # 50 episodes each in PyBullet
    python -m benchmarks.estimates measure BallRun CarCircle    # estimate them
    python -m benchmarks.estimates compare BallRun CarCircle    # the table, and a line for each policy
    python -m benchmarks.estimates all BallRun CarCircle        # all of it, over all cores, estimates on --device

Everything is kept below ``--out`` (runs/estimates), and what is there already is not done again. ``all`` is for a
machine that is rented for minutes: after ``--seconds`` it compares what is there. ``compare`` leaves what ``--csv``,
``--picture`` and ``--page`` have of other tasks as it is (a picture is drawn from the CSV).
"""

from __future__ import annotations

import argparse
import csv
import heapq
import json
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import numpy as np
import torch

import tracrl
from benchmarks.estimates_table import Result, columns, draw, on_page, table
from benchmarks.opinions import keep_opinions, kept_opinions
from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.methods.method import Method
from tracrl.ope.estimate import Effort, opinions
from tracrl.ope.estimates import is_shown, quantile
from tracrl.ope.weighing import TAKEN_OFF, Opinions, brought_back
from tracrl.policies.base import Policy

LIMITS = [10.0, 20.0, 40.0]
TRAC = {"batch_size": 16, "bc_lr": 1e-3, "lr": 1e-4, "warmup": 200, "ratio": 0.25}
EPISODES = 50


def stacks(costs: np.ndarray, share: float = 1.0, seed: int = 0) -> dict[str, tuple[Method, list[float], list[int]]]:
    """name → (method, limits, seeds); ``share`` of the updates, seeds from ``seed`` on."""
    # Where most episodes cost nothing, some quantiles are the same: those of the others make up four.
    of_all, of_others = (np.quantile(some, [0.2, 0.4, 0.6, 0.8]) for some in (costs, costs[costs > 0]))
    quantiles = sorted(list(dict.fromkeys(max(1.0, float(np.round(q))) for q in (*of_all, *of_others)))[:4])

    def of(updates: int) -> int:
        return max(1, round(share * updates))

    trac = {**TRAC, "warmup": of(200)}
    cpq = tracrl.CPQ.preset("Bullet", "fast", updates=of(300))
    return {
        "trac": (tracrl.TraC(updates=of(2_500), clone_updates=of(1_000), **trac), LIMITS, [seed]),
        "trac-x25": (tracrl.TraC(updates=of(2_500), clone_updates=of(1_000), x=25.0, **trac), LIMITS, [seed]),
        "bc-safe": (tracrl.BCSafe(updates=of(3_000)), quantiles, [seed]),
        "bc-all": (tracrl.BCAll(updates=of(3_000)), [20.0], [seed, seed + 1]),
        "trac-half": (tracrl.TraC(updates=of(500), clone_updates=of(300), **trac), LIMITS, [seed]),
        "cpq": (cpq, [10.0, 40.0], [seed]),
        "bc-safe-half": (tracrl.BCSafe(updates=of(300)), quantiles, [seed]),
        "bc-all-half": (tracrl.BCAll(updates=of(300)), [20.0], [seed, seed + 1]),
    }


def train(task: str, out: Path, name: str, share: float = 1.0, seed: int = 0, device: str = "cpu") -> None:
    data = tracrl.load_dataset(task)
    method, limits, seeds = stacks(data.total_costs, share, seed)[name]
    if is_trained(task, out, name, seeds):
        return
    run = tracrl.fit(method, data, limits=limits, seeds=seeds, out=out / task / name, resume=True, device=device)
    print(task, name, len(run.policy), "trained", flush=True)


def is_trained(task: str, out: Path, name: str, seeds: list[int]) -> bool:
    """Whether these policies are there already; those of other seeds are not taken for them."""
    if not (out / task / name / "policy.safetensors").exists():
        return False
    if set(there := tracrl.load_policy(out / task / name).metadata.seeds) != set(seeds):
        raise TracrlError(f"{out / task / name} has policies of other seeds, {there}: choose another --out.")
    return True


def play(task: str, out: Path, name: str, episodes: int, workers: int = 1) -> None:
    """The truth."""
    to = out / task / name / "truth.json"
    if to.exists() and Scores.load(to).returns.shape[1] >= episodes:
        return
    scores = tracrl.evaluate(tracrl.load_policy(out / task / name), task, episodes=episodes, seed=1, workers=workers)
    scores.save(to)
    print(task, name, scores.costs.mean(1).round(1), scores.returns.mean(1).round(1), flush=True)


def trained(task: str, out: Path) -> dict[str, Policy]:
    return {file.parent.name: tracrl.load_policy(file) for file in sorted((out / task).glob("*/policy.safetensors"))}


def measure(task: str, out: Path, device: str, effort: Effort | None = None) -> None:
    """The opinions, before they are weighed: so another way to weigh them needs no other measurement."""
    to = out / task / "opinions.npz"
    if to.exists():
        return
    data, policies = tracrl.load_dataset(task), trained(task, out)
    started = time.monotonic()
    found = opinions(list(policies.values()), data, device=device, effort=effort)
    seconds = time.monotonic() - started
    print(f"{task}: {len(found.ood_in_log)} policies estimated in {seconds:.0f} s on {device}", flush=True)
    keep_opinions(
        found,
        to,
        names=np.concatenate([[name] * len(policy) for name, policy in policies.items()]),
        limits=np.concatenate([policy.metadata.limits for policy in policies.values()]),
        range=np.ptp(data.returns),
        seconds=seconds,
        device=device,
    )


def compare(task: str, out: Path, taken_off: float = TAKEN_OFF) -> Result:
    """Estimates against the truth: numbers of the whole task, and of each policy whose truth is known."""
    saved = np.load(out / task / "opinions.npz")
    found = kept_opinions(out / task / "opinions.npz")
    names = sorted(file.parent.name for file in (out / task).glob("*/truth.json"))
    truths = [Scores.load(out / task / name / "truth.json") for name in names]
    returns, costs = (np.concatenate([getattr(t, key).mean(1) for t in truths]) for key in ("returns", "costs"))
    unsure = np.concatenate([t.costs.std(1, ddof=1) / t.costs.shape[1] ** 0.5 for t in truths])
    chosen = np.flatnonzero(np.isin(saved["names"], names))
    values, errors = (part[chosen] for part in found.weighed(taken_off))
    (return_low, low), (return_high, high) = (values.T + sign * quantile(0.95) * errors.T for sign in (-1, 1))
    bound = values[:, 1] + quantile(0.9) * errors[:, 1]
    passed = {limit: is_shown(bound, found.out_of_data[chosen], limit) for limit in LIMITS}
    fitted, played = found.fitted.mean(0)[chosen], found.played.mean(0)[chosen]
    lower = np.fmin(fitted[:, 0], (found.among * found.of_kinds).sum(axis=0)[chosen, 0])
    # Up to a rounding: a cost of exactly 0 has a lowest estimate just above it.
    held = (low.clip(min=0) <= costs + 0.05) & (costs <= high + 0.05)
    result: Result = {
        "task": task,
        "device": str(saved["device"]),
        "seconds": float(saved["seconds"]),
        "policies": len(costs),
        "episodes": int(truths[0].costs.shape[1]),
        **{name: np.median(part[chosen], axis=0).tolist() for name, part in tested(found).items()},
        "held": int(held.sum()),
        "held_return": int(((return_low <= returns) & (returns <= return_high)).sum()),
        "cost": {**against(values[:, 1], costs), "rightly_ordered": rightly_ordered(values[:, 1], costs, unsure)},
        "cost_fqe": against(fitted[:, 1], costs),
        "cost_model": against(played[:, 1], costs),
        "return": against(values[:, 0] / saved["range"], returns / saved["range"]),
        "return_fqe": against(fitted[:, 0] / saved["range"], returns / saved["range"]),
        "return_model": against(played[:, 0] / saved["range"], returns / saved["range"]),
        "return_lower": against(lower / saved["range"], returns / saved["range"]),
        "kinds": [
            {
                "left": np.median(1 - brought_back(told, found.logged)[chosen], axis=0).tolist(),
                "cost": against(of_kind[chosen, 1], costs),
                "return": against(of_kind[chosen, 0] / saved["range"], returns / saved["range"]),
            }
            for of_kind, told in zip(found.of_kinds, found.told_by_kinds, strict=True)
        ],
        "gate": {
            f"{limit:g}": {
                "above": int((costs > limit).sum()),
                "above_passed": int((passed[limit] & (costs > limit)).sum()),
                "within": int((costs <= limit).sum()),
                "within_passed": int((passed[limit] & (costs <= limit)).sum()),
            }
            for limit in LIMITS
        },
    }
    columns = {
        "cost": costs,
        "estimate": values[:, 1],
        "low": low.clip(min=0),
        "high": high,
        "fqe": fitted[:, 1],
        "model": played[:, 1],
        "return": returns,
        "return_estimate": values[:, 0],
        "return_low": return_low,
        "return_high": return_high,
        "ood": found.out_of_data[chosen],
    }
    result["each"] = [
        {
            "name": str(saved["names"][place]),
            "limit": float(saved["limits"][place]),
            **{key: round(float(values[i]), 2) for key, values in columns.items()},
        }
        for i, place in enumerate(chosen)
    ]
    return result


def tested(found: Opinions) -> dict[str, np.ndarray]:
    """(policies, 2) each: the model's weight, and the shares of the variance of held-out episodes that are foretold."""
    return {
        "weight": found.weight,
        "skill": found.skill,
        "skill_fqe": brought_back(found.foretold.mean(0), found.logged),
        "skill_model": brought_back(found.retraced.mean(0), found.logged),
    }


def against(estimated: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    error = np.abs(estimated - truth)
    return {
        "rank_correlation": rank_correlation(estimated, truth),
        "mean_error": float(error.mean()),
        "median_error": float(np.median(error)),
        "mean": float(estimated.mean()),
        "true_mean": float(truth.mean()),
    }


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, ties at their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def rightly_ordered(estimated: np.ndarray, truth: np.ndarray, errors: np.ndarray) -> float:
    """Of all pairs whose truths differ by more than two standard errors, the share that the estimates order as they
    are; estimates that are the same count half. Unlike a rank correlation it asks nothing of those that truly tie."""
    apart = truth[:, None] - truth
    told = np.sign(estimated[:, None] - estimated)[apart > 2 * np.hypot(errors[:, None], errors)]
    return float((told + 1).mean() / 2) if len(told) else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def show(result: Result) -> None:
    print(json.dumps({key: value for key, value in result.items() if key != "each"}))
    for one in result["each"]:
        print("".join(f"{value:>9g}" if isinstance(value, float) else f"{value:<14}" for value in one.values()))


def write(results: list[Result], path: Path) -> None:
    keys = ("task", "device", "episodes")
    rows = [{**{key: result[key] for key in keys}, **one} for result in results for one in result["each"]]
    with path.open("w", newline="") as file:
        # Lines of earlier versions have no intervals of returns.
        writer = csv.DictWriter(file, max(rows, key=len), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def kept(path: Path, but: Sequence[str]) -> list[Result]:
    """What such a file has of other tasks than these: as much as it takes to write and to draw it again."""
    if not path.exists():
        return []
    found: dict[str, Result] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            task = row.pop("task")
            if task not in but:
                facts = {"task": task, "device": row.pop("device"), "episodes": int(row.pop("episodes"))}
                result = found.setdefault(task, {**facts, "each": []})
                numbers = {key: value if key == "name" else float(value) for key, value in row.items() if value}
                result["each"].append(numbers)
    for result in found.values():
        estimated, costs = (np.array([one[key] for one in result["each"]]) for key in ("estimate", "cost"))
        result["cost"] = {"rank_correlation": rank_correlation(estimated, costs)}
    return list(found.values())


def everything(
    tasks: list[str],
    out: Path,
    device: str,
    seconds: float,
    episodes: int,
    share: float,
    seed: int,
    processes: int | None,
) -> None:
    """Policies and truth on a process a core, or so many of them; estimates beside them, one task after the other."""
    started = time.monotonic()
    # Policies that are there already need no training, and their estimates wait for nobody.
    waiting = [
        (place, int(is_trained(task, out, name, seeds)), i, name)
        for place, task in enumerate(tasks)
        for i, (name, (_, _, seeds)) in enumerate(stacks(np.arange(9.0), seed=seed).items())
    ]
    heapq.heapify(waiting)
    left = {place: sum(job[:2] == (place, 0) for job in waiting) for place in range(len(tasks))}
    ready: queue.Queue[int] = queue.Queue()
    for place, missing in left.items():
        if not missing:
            ready.put(place)
    estimator = threading.Thread(target=_estimator, args=(ready, tasks, out, device), daemon=True)
    estimator.start()
    cores = [{core} for core in sorted(os.sched_getaffinity(0))]
    if processes is not None:  # of a machine that others use, too: wherever there is room
        cores = [os.sched_getaffinity(0)] * processes
    context = multiprocessing.get_context("spawn")
    pins = context.Queue()
    for core in cores:
        pins.put(core)
    pool = ProcessPoolExecutor(len(cores), context, initializer=_pinned, initargs=(pins,))
    running: dict[Future[None], tuple[int, int, int, str]] = {}
    while (waiting or running) and time.monotonic() - started < seconds:
        while waiting and len(running) < len(cores):
            job = heapq.heappop(waiting)
            task = tasks[job[0]]
            if job[1] == 0:
                running[pool.submit(train, task, out, job[3], share, seed)] = job
            else:
                running[pool.submit(play, task, out, job[3], episodes)] = job
        done, _ = wait(running, timeout=1, return_when=FIRST_COMPLETED)
        for future in done:
            place, kind, i, name = running.pop(future)
            if future.exception() is not None:
                print(tasks[place], name, repr(future.exception()), flush=True)
            elif kind == 0:
                heapq.heappush(waiting, (place, 1, i, name))
            if kind == 0:
                left[place] -= 1
                if not left[place]:
                    ready.put(place)
    print(f"policies and truth after {time.monotonic() - started:.0f} s", flush=True)
    while time.monotonic() - started < seconds and estimator.is_alive():
        time.sleep(1)
    known = [task for task in tasks if (out / task / "opinions.npz").exists()]
    results = [compare(task, out) for task in known if list((out / task).glob("*/truth.json"))]
    for result in results:
        show(result)
    if results:
        print(table(columns(results)), flush=True)
    for process in list(pool._processes.values()):  # whatever still runs is not waited for
        process.kill()
    os._exit(0)


def _pinned(pins: multiprocessing.Queue[set[int]]) -> None:
    os.sched_setaffinity(0, pins.get())
    torch.set_num_threads(1)


def _estimator(ready: queue.Queue[int], tasks: list[str], out: Path, device: str) -> None:
    """Estimates of each task as soon as its policies are there."""
    for _ in tasks:
        task = tasks[ready.get()]
        try:
            measure(task, out, device)
        except Exception as error:  # the next may do better
            print(task, repr(error), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["policies", "truth", "measure", "compare", "all"])
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("runs/estimates"))
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=1e9, help="all: compare what is there after so many")
    parser.add_argument("--share", type=float, default=1.0, help="of the updates of each policy")
    parser.add_argument("--seed", type=int, default=0, help="of the policies: others make others")
    parser.add_argument("--processes", type=int, help="truth: simulators; all: in place of one on each core")
    parser.add_argument(
        "--csv", type=Path, help="compare: a file with a line for each policy; those of other tasks stay"
    )
    parser.add_argument("--picture", type=Path, help="compare: estimates against the truth, a panel for each task")
    parser.add_argument("--page", type=Path, help="compare: its table gets these columns; those of other tasks stay")
    parser.add_argument(
        "--taken-off",
        type=float,
        default=TAKEN_OFF,
        help="compare: of what was off for held-out episodes, as far as these are foretold",
    )
    chosen = parser.parse_args()
    if chosen.what == "all":
        limits = (chosen.seconds, chosen.episodes, chosen.share, chosen.seed, chosen.processes)
        everything(chosen.tasks, chosen.out, chosen.device, *limits)
    if chosen.what == "compare":
        results = [compare(task, chosen.out, chosen.taken_off) for task in chosen.tasks]
        for result in results:
            show(result)
        cells = columns(results)
        if chosen.page:
            page, cells = on_page(chosen.page.read_text(), cells)
            chosen.page.write_text(page)
        print(table(cells))
        if chosen.csv:
            results = sorted([*results, *kept(chosen.csv, chosen.tasks)], key=lambda result: result["task"])
            write(results, chosen.csv)
        if chosen.picture:
            draw(results, chosen.picture)
    for task in chosen.tasks if chosen.what in ("policies", "truth", "measure") else ():
        of_each = stacks(np.arange(9.0), seed=chosen.seed)
        for name, (_, _, seeds) in of_each.items():
            is_trained(task, chosen.out, name, seeds)  # refuses policies of other seeds
        if chosen.what == "measure":
            measure(task, chosen.out, chosen.device)
        for name in of_each if chosen.what != "measure" else ():
            if chosen.what == "policies":
                train(task, chosen.out, name, chosen.share, chosen.seed, chosen.device)
            else:
                play(task, chosen.out, name, chosen.episodes, chosen.processes or 1)


if __name__ == "__main__":
    main()
