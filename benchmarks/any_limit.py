"""One policy for every limit against a TraC training for each: what both score in the simulator, and what variants do.

    python -m benchmarks.any_limit measure BallRun CarCircle --preset fast     # train and play what is not there yet
    python -m benchmarks.any_limit estimate BallRun CarCircle                  # what the log alone says of the policies
    python -m benchmarks.any_limit reweigh BallRun CarCircle                   # by what is known of estimates since
    python -m benchmarks.any_limit judge BallRun CarCircle                     # play what the log chooses
    python -m benchmarks.any_limit speed BallRun                               # processor time of an update of both
    python -m benchmarks.any_limit choice-speed BallRun                        # and of estimates of all candidates
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
from benchmarks.any_limit_choices import choice_speed, estimate, judge, reweigh
from benchmarks.any_limit_setup import (
    BOLD,
    CONFIDENCES,
    INNER,
    MEAN,
    POOLS,
    SEEDS,
    TASKS,
    TOLD_X,
    VARIANTS,
    best_safe,
    episodes_of,
    file_of,
    limits_of,
    parts_of,
    summary,
    unseen_of,
)
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.evaluation.evaluate import Evaluator
from tracrl.evaluation.scores import Scores
from tracrl.files import read_json, write_json
from tracrl.methods.method import RunSpec
from tracrl.policies.any_limit import AnyLimitPolicy, AnyXPolicy, LimitRangePolicy
from tracrl.policies.mlp import MLPPolicy
from tracrl.tasks.table import get_task
from tracrl.train.stack import Stack


def train(task: str, variant: str, options: argparse.Namespace) -> str:
    """Train one variant on one task and keep its policies."""
    warnings.simplefilter("ignore")  # few safe segments at the lowest limit
    data = episodes_of(task, options.data)
    kind = tracrl.TraC if variant == "trac" else tracrl.TraCAny
    told = {"updates": options.updates, "dropout": options.dropout}
    changes = VARIANTS[variant] | {name: value for name, value in told.items() if value is not None}
    method = kind.preset(get_task(task).suite, options.preset, **changes)
    began = time.monotonic()
    own_units = "on" if task in options.standardise else "auto"
    limits = limits_of(task)
    run = tracrl.fit(method, data, limits=limits, seeds=options.seeds, device=options.device, standardise=own_units)
    trained = time.monotonic() - began
    policy = run.policy[run.policy.networks()] if isinstance(run.policy, LimitRangePolicy) else run.policy
    write_json(
        file_of(options, task, variant, ".training.json"),
        {
            "training_seconds": round(trained, 1),
            "settings": asdict(method),
            "seeds": list(options.seeds),
            "standardise": own_units,
        },
    )
    policy.save(file_of(options, task, variant, ".safetensors"))
    return f"{task}, {variant}: trained in {trained:.0f} s"


def measure(task: str, variant: str, options: argparse.Namespace) -> str:
    """Train one variant on one task where that is not done yet, play it, and keep the scores; a line on them."""
    if not file_of(options, task, variant, ".safetensors").exists():
        train(task, variant, options)
    data = episodes_of(task, options.data)
    policy = tracrl.load_policy(file_of(options, task, variant, ".safetensors"))
    own, on_bullet = limits_of(task), get_task(task).suite == "Bullet"
    played, wanted = policy, list(own)
    if isinstance(policy, LimitRangePolicy):
        more = () if isinstance(policy, AnyXPolicy) else unseen_of(task)
        everything, lowest = {*own, *more, *(INNER if variant == "any" and on_bullet else ())}, policy.limit_range[0]
        wanted = sorted(limit for limit in set(options.limits or everything) if limit >= lowest)
        played = policy.over(wanted)
    began = time.monotonic()
    with Evaluator(task, episodes=options.episodes, workers=options.simulators) as evaluator:
        if isinstance(policy, AnyXPolicy):
            bold = evaluator.evaluate(policy.at_x(BOLD).over(wanted))
            keep(options, task, f"{variant}, x {BOLD:g}", bold, data, {})
        scores = evaluator.evaluate(played)
        if variant == "any" and on_bullet and isinstance(policy, AnyLimitPolicy):
            together = [mean_of(policy.at(limit)) for limit in own if limit in wanted]
            keep(options, task, MEAN, evaluator.evaluate(together[0].joined_with(together[1:])), data, {})
    facts = read_json(file_of(options, task, variant, ".training.json"))
    keep(options, task, variant, scores, data, {**facts, "playing_seconds": round(time.monotonic() - began, 1)})
    reward, cost, safe = summary(scores, own)
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
        file_of(options, task, variant, ".json"),
        {
            "task": task,
            "variant": variant,
            "scores": scores.to_dict(),
            "best_safe": {f"{limit:g}": best_safe(data, limit) for limit in (*limits_of(task), *unseen_of(task))},
            "data": {"fingerprint": data.fingerprint, "episodes": len(data), "rows": data.rows},
            **facts,
        },
    )


JOBS = {
    "train": (train, None, ".safetensors"),
    "measure": (measure, None, ".json"),
    "estimate": (estimate, ".safetensors", ".estimates.json"),
    "reweigh": (reweigh, ".opinions.npz", None),
    "judge": (judge, ".estimates.json", None),
    "choice-speed": (choice_speed, ".safetensors", None),
}
"""what is done, the file that it needs, and the one that shows that it was done"""


def work(options: argparse.Namespace) -> None:
    """All that is not there yet, some of it side by side, in the order of variants, each over all tasks."""
    options.out.mkdir(parents=True, exist_ok=True)
    job, needed, made = JOBS[options.command]
    todo = [
        (task, variant)
        for variant in options.variants
        for task in options.tasks or TASKS
        if (needed is None or all(file_of(options, task, part, needed).exists() for part in needed_of(variant, needed)))
        and (made is None or not file_of(options, task, variant, made).exists())
    ]
    began = time.time()
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(in_time, job, task, variant, options, began) for task, variant in todo]
        for done in as_completed(waiting):
            print(f"[{time.time() - began:4.0f} s] {done.result()}", flush=True)


def needed_of(variant: str, needed: str) -> list[str]:
    """Whose files a job needs: of a pool, policies are those of its parts."""
    return parts_of(variant) if needed == ".safetensors" else [variant]


def in_time(job: Any, task: str, variant: str, options: argparse.Namespace, began: float) -> str:
    if time.time() - began > options.seconds:
        return f"{task}, {variant}: not begun, no time is left"
    try:
        return str(job(task, variant, options))
    except TracrlError as error:
        return f"{task}, {variant}: {error}"
    except Exception:  # the other tasks go on
        return f"{task}, {variant}: {traceback.format_exc()}"


def speed(task: str, options: argparse.Namespace) -> None:
    """Processor time of an update of classification: three runs for every limit, nine of TraC; medians of blocks."""
    data, cpu = episodes_of(task, options.data), torch.device("cpu")
    nine = [RunSpec(limit, seed) for limit in limits_of(task) for seed in SEEDS]
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
    parser.add_argument("--variants", nargs="+", choices=[*VARIANTS, *POOLS], default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/any-limit"))
    parser.add_argument("--data", help="a folder of TASK.hdf5; without it, the data that are at hand")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=SEEDS, help="of trainings; for others take another --out"
    )
    parser.add_argument("--standardise", nargs="*", default=(), metavar="TASK", help="trained on standardised data")
    parser.add_argument("--preset", choices=["fast", "full"], default="fast")
    parser.add_argument("--updates", type=int, help="in place of the preset's")
    parser.add_argument("--dropout", type=float, help="in place of the method's")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--inner", type=float, nargs="+", help="inner limits that are estimated, in place of a spread")
    parser.add_argument(
        "--value-functions", choices=["each", "together"], help="one for each candidate, or one for those of a seed"
    )
    parser.add_argument("--limits", type=float, nargs="+", help="that are played, in place of each variant's own")
    parser.add_argument("--confidences", type=float, nargs="+", default=CONFIDENCES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--simulators", type=int, help="processes that play, for each job")
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    if options.command in ("train", "measure") and options.variants is not None:
        options.variants = list(dict.fromkeys(part for name in options.variants for part in parts_of(name)))
    usual = [*TOLD_X, *POOLS] if options.command in ("estimate", "reweigh", "judge", "choice-speed") else list(VARIANTS)
    options.variants = options.variants or usual
    if options.command == "speed":
        for task in options.tasks:
            speed(task, options)
    else:
        work(options)


if __name__ == "__main__":
    main()
