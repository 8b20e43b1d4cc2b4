"""One policy for every limit against a TraC training for each: what both score in the simulator, and what variants do.

    python -m benchmarks.any_limit measure BallRun CarCircle --preset fast     # train and play what is not there yet
    python -m benchmarks.any_limit estimate BallRun CarCircle                  # what the log alone says of the policies
    python -m benchmarks.any_limit judge BallRun CarCircle                     # play what the log chooses
    python -m benchmarks.any_limit speed BallRun                               # processor time of an update of both
    python -m benchmarks.any_limit_tables                                      # everything that is there, as Markdown

Everything is kept below ``--out`` (runs/any-limit), a file for each task and variant, and what is there is not done
again. ``--jobs`` trainings go side by side, which a GPU with small networks likes; none begins after ``--seconds``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tracrl
from tracrl.data.episodes import Episodes
from tracrl.data.partition import is_safe
from tracrl.evaluation.evaluate import Evaluator
from tracrl.evaluation.scores import Scores
from tracrl.files import read_json, write_json
from tracrl.methods.method import RunSpec
from tracrl.ope.estimates import Estimates
from tracrl.ope.inner_limits import Candidates, Choice, calibrate, candidates, effort_on
from tracrl.policies.any_limit import AnyLimitPolicy, AnyXPolicy, LimitRangePolicy
from tracrl.policies.mlp import MLPPolicy
from tracrl.tasks.normalise import normalised_reward
from tracrl.tasks.table import get_task
from tracrl.train.stack import Stack

LIMITS = (10.0, 20.0, 40.0)
"""that both are compared at"""
UNSEEN = (5.0, 15.0, 30.0, 60.0)
INNER = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 50.0, 60.0, 70.0, 80.0)
"""at which the default is played: from these an inner limit is chosen"""
SEEDS = (0, 10, 20)
VARIANTS: dict[str, dict[str, Any]] = {
    "trac": {},
    "any": {},
    "any x 25": {"x": 25.0},
    "any most 10": {"most": 10.0},
    "any sharp": {"delta": 0.0, "sharpness": 3.0},
    "any x 25, eta 1": {"x": 25.0, "eta": 1.0},
    "any 2 rounds": {"rounds": 2},
    "any alpha 0.5": {"alpha": 0.5},
    "any ratio 0.5": {"ratio": 0.5},
    "any remaining": {"told": "remaining"},
    "any batch 32": {"batch_size": 32},
    "any x told": {"least_x": 6.0},
    "any x told, eta 1": {"least_x": 6.0, "eta": 1.0},
    "any x told, eta 0.5": {"least_x": 6.0, "eta": 0.5},
}
BOLD = 12.5
"""the x at which a policy that is told x is played, beside the careful one"""
CONFIDENCES = (0.5, 0.7, 0.9)
"""of the bounds by which the log chooses"""
TASKS = ("CarCircle", "DroneCircle", "BallRun", "BallCircle", "CarRun", "DroneRun", "AntRun", "AntCircle")
MEAN = "any, mean of seeds"


def episodes_of(task: str, folder: str | None) -> Episodes:
    return tracrl.load_dataset(task if folder is None else Path(folder) / f"{task}.hdf5", task=task)


def file_of(out: Path, task: str, variant: str, suffix: str) -> Path:
    return out / f"{task}-{variant.replace(' ', '-').replace(',', '')}{suffix}"


def train(task: str, variant: str, options: argparse.Namespace) -> str:
    """Train one variant on one task and keep its policies."""
    warnings.simplefilter("ignore")  # few safe segments at the lowest limit
    data = episodes_of(task, options.data)
    kind = tracrl.TraC if variant == "trac" else tracrl.TraCAny
    changes = VARIANTS[variant] | ({} if options.updates is None else {"updates": options.updates})
    method = kind.preset(get_task(task).suite, options.preset, **changes)
    began = time.monotonic()
    run = tracrl.fit(method, data, limits=LIMITS, seeds=SEEDS, device=options.device)
    trained = time.monotonic() - began
    policy = run.policy[run.policy.networks()] if isinstance(run.policy, LimitRangePolicy) else run.policy
    write_json(
        file_of(options.out, task, variant, ".training.json"),
        {"training_seconds": round(trained, 1), "settings": asdict(method)},
    )
    policy.save(file_of(options.out, task, variant, ".safetensors"))
    return f"{task}, {variant}: trained in {trained:.0f} s"


def measure(task: str, variant: str, options: argparse.Namespace) -> str:
    """Train one variant on one task where that is not done yet, play it, and keep the scores; a line on them."""
    if not file_of(options.out, task, variant, ".safetensors").exists():
        train(task, variant, options)
    data = episodes_of(task, options.data)
    policy = tracrl.load_policy(file_of(options.out, task, variant, ".safetensors"))
    played, wanted = policy, list(LIMITS)
    if isinstance(policy, LimitRangePolicy):
        more = (*UNSEEN, *INNER) if variant == "any" else () if isinstance(policy, AnyXPolicy) else UNSEEN
        everything, lowest = {*LIMITS, *more}, policy.limit_range[0]
        wanted = sorted(limit for limit in set(options.limits or everything) if limit >= lowest)
        played = policy.over(wanted)
    began = time.monotonic()
    with Evaluator(task, episodes=options.episodes, workers=options.simulators) as evaluator:
        if isinstance(policy, AnyXPolicy):
            bold = evaluator.evaluate(policy.at_x(BOLD).over(wanted))
            keep(options, task, f"{variant}, x {BOLD:g}", bold, data, {})
        scores = evaluator.evaluate(played)
        if variant == "any" and isinstance(policy, AnyLimitPolicy):
            together = [mean_of(policy.at(limit)) for limit in LIMITS if limit in wanted]
            keep(options, task, MEAN, evaluator.evaluate(together[0].joined_with(together[1:])), data, {})
    facts = read_json(file_of(options.out, task, variant, ".training.json"))
    keep(options, task, variant, scores, data, {**facts, "playing_seconds": round(time.monotonic() - began, 1)})
    reward, cost, safe = summary(scores, LIMITS)
    return f"{task}, {variant}: {reward:.3f} / {cost:.2f}, {safe} safe; trained in {facts['training_seconds']:.0f} s"


def mean_of(policy: MLPPolicy) -> MLPPolicy:
    """One policy that acts as the mean of a stack's before the last tanh: their layers side by side in one network."""
    tensors = {}
    layers = len(policy.tensor_names()) // 2
    for i in range(layers):
        weight, bias = policy.tensors[f"weight{i}"], policy.tensors[f"bias{i}"]
        count, rows, columns = weight.shape
        if i == 0:
            wide = np.concatenate(list(weight), axis=1)
        elif i == layers - 1:
            wide = np.concatenate(list(weight), axis=0) / count
        else:
            wide = np.zeros((count * rows, count * columns), np.float32)
            for j, block in enumerate(weight):
                wide[j * rows : (j + 1) * rows, j * columns : (j + 1) * columns] = block
        tensors[f"weight{i}"] = wide[None].astype(np.float32)
        joined = bias.mean(0) if i == layers - 1 else np.concatenate(list(bias), axis=1)
        tensors[f"bias{i}"] = joined[None].astype(np.float32)
    metadata = replace(policy.metadata, limits=policy.metadata.limits[:1], seeds=(0,))
    return MLPPolicy(metadata, tensors)


def keep(
    options: argparse.Namespace, task: str, variant: str, scores: Scores, data: Episodes, facts: dict[str, Any]
) -> None:
    write_json(
        file_of(options.out, task, variant, ".json"),
        {
            "task": task,
            "variant": variant,
            "scores": scores.to_dict(),
            "best_safe": {f"{limit:g}": best_safe(data, limit) for limit in (*LIMITS, *UNSEEN)},
            "data": {"fingerprint": data.fingerprint, "episodes": len(data), "rows": data.rows},
            **facts,
        },
    )


def best_safe(data: Episodes, limit: float) -> float | None:
    """The highest normalised return of an episode that keeps to the limit."""
    safe = is_safe(data.total_costs, limit)
    return float(normalised_reward(get_task(str(data.task)), data.returns[safe]).max()) if safe.any() else None


def summary(scores: Scores, limits: tuple[float, ...]) -> tuple[float, float, str]:
    """Mean normalised reward and cost over these limits, and how many of the policies are safe."""
    which = np.isin(scores.limits, limits)
    safe = scores.safe[which]
    return (
        float(scores.rewards[which].mean()),
        float(scores.normalised_costs[which].mean()),
        f"{int(safe.sum())} of {len(safe)}",
    )


def estimate(task: str, variant: str, options: argparse.Namespace) -> str:
    """What the log alone says of a variant's policies at each inner limit, and with each x where they are told x."""
    given, data = tried(task, variant, options), episodes_of(task, options.data)
    began = time.monotonic()
    effort = effort_on(options.device)
    found = tracrl.estimate(given.stacks, data, trained_on=[data.fingerprint], device=options.device, effort=effort)
    found.save(file_of(options.out, task, variant, ".estimates.json"))
    return f"{task}, {variant}: {len(found)} policies estimated in {time.monotonic() - began:.0f} s"


def tried(task: str, variant: str, options: argparse.Namespace) -> Candidates:
    """The candidates that are estimated and chosen from."""
    policy = tracrl.load_policy(file_of(options.out, task, variant, ".safetensors"))
    assert isinstance(policy, AnyLimitPolicy)
    if options.inner is None:
        return candidates(policy, LIMITS)
    over = policy.over([limit for limit in options.inner if limit >= policy.limit_range[0]])
    return Candidates({"trac-any": over}, [None])


def judge(task: str, variant: str, options: argparse.Namespace) -> str:
    """Play those of the candidates that the log chooses, each once, and keep what they scored."""
    file = file_of(options.out, task, variant, ".judged.json")
    known: dict[str, Any] = read_json(file) if file.exists() else {}
    estimates = Estimates.load(file_of(options.out, task, variant, ".estimates.json"))
    given = tried(task, variant, options)
    todo: dict[str, MLPPolicy] = {}
    for confidence in options.confidences:
        chosen = calibrate(given, estimates, LIMITS, confidence)
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


JOBS = {
    "train": (train, ".safetensors"),
    "measure": (measure, ".json"),
    "estimate": (estimate, ".estimates.json"),
    "judge": (judge, None),
}


def work(options: argparse.Namespace) -> None:
    """All that is not there yet, some of it side by side, in the order of variants, each over all tasks."""
    options.out.mkdir(parents=True, exist_ok=True)
    job, suffix = JOBS[options.command]
    todo = [
        (task, variant)
        for variant in options.variants
        for task in options.tasks or TASKS
        if suffix is None or not file_of(options.out, task, variant, suffix).exists()
    ]
    began = time.time()
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(in_time, job, task, variant, options, began) for task, variant in todo]
        for done in as_completed(waiting):
            print(f"[{time.time() - began:4.0f} s] {done.result()}", flush=True)


def in_time(job: Any, task: str, variant: str, options: argparse.Namespace, began: float) -> str:
    if time.time() - began > options.seconds:
        return f"{task}, {variant}: not begun, no time is left"
    try:
        return str(job(task, variant, options))
    except Exception:  # the other tasks go on
        return f"{task}, {variant}: {traceback.format_exc()}"


def speed(task: str, options: argparse.Namespace) -> None:
    """Processor time of an update of classification: three runs for every limit, nine of TraC; medians of blocks."""
    data, cpu = episodes_of(task, options.data), torch.device("cpu")
    nine = [RunSpec(limit, seed) for limit in LIMITS for seed in SEEDS]
    contenders = {}
    warnings.simplefilter("ignore")
    for kind, runs in ((tracrl.TraC, nine), (tracrl.TraCAny, nine[:3])):
        method = kind.preset(get_task(task).suite, options.preset)
        stack = Stack(method, data, runs, cpu, threads=1)
        stack.skip_to(method.clone_updates)
        stack.update(2)
        contenders[method.title] = stack
    times: dict[str, list[float]] = {title: [] for title in contenders}
    for _ in range(5):
        for title, stack in contenders.items():
            began = time.process_time()
            stack.update(10)
            times[title].append(100 * (time.process_time() - began))
    trac, any_limit = (float(np.median(values)) for values in times.values())
    print(f"{task}, {options.preset}: TraC {trac:.1f} ms, TraC-Any {any_limit:.1f} ms, {any_limit / trac:.2f} of it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=[*JOBS, "speed"])
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/any-limit"))
    parser.add_argument("--data", help="a folder of TASK.hdf5; without it, the data that are at hand")
    parser.add_argument("--preset", choices=["fast", "full"], default="fast")
    parser.add_argument("--updates", type=int, help="in place of the preset's")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--inner", type=float, nargs="+", help="inner limits that are estimated, in place of a spread")
    parser.add_argument("--limits", type=float, nargs="+", help="that are played, in place of each variant's own")
    parser.add_argument("--confidences", type=float, nargs="+", default=CONFIDENCES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--simulators", type=int, help="processes that play, for each job")
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    usual = ["any x told"] if options.command in ("estimate", "judge") else list(VARIANTS)
    options.variants = options.variants or usual
    if options.command == "speed":
        for task in options.tasks:
            speed(task, options)
    else:
        work(options)


if __name__ == "__main__":
    main()
