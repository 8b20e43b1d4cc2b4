"""Final scores with products in float32 and in bfloat16: what `--precision auto` rests on.

    python -m benchmarks.precision CarCircle BallCircle --device cuda --out precision.json      # every method
    python -m benchmarks.precision BallCircle --device cpu --methods bc-safe --seeds 0 --out here.json

Trains every method on each task twice, from the same first weights on the same batches, and plays both policies of a
run in the same episodes. On a GPU the float32 products are exact ones, not TF32. The JSON is written as results come;
``python -m benchmarks.table precision.json`` shows it: mean and spread over the runs, and the mean difference of a
run's two scores with its standard error.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
import traceback
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from tracrl.data.locate import load_dataset
from tracrl.evaluation.evaluate import evaluate
from tracrl.methods.registry import METHODS
from tracrl.tasks.table import get_task
from tracrl.train.fit import fit

PRECISIONS = ("float32", "bfloat16")
ORDER = ("cdt", "trac", "bc-safe", "bcq-lag", "coptidice", "trac-any", "cpq", "bear-lag", "bc-all", "caps", "carl")
"""what takes longest first, then what is asked for most"""
Result = Mapping[str, Any]


def one(task: str, method: str, precision: str, options: argparse.Namespace) -> dict[str, Any]:
    """Scores of each run of one training."""
    warnings.simplefilter("ignore")  # few safe segments at the lowest limit, rounded products on small data
    if precision == "float32":
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # read when this process's first product asks for its library
    facts = get_task(task)
    changes = {} if options.updates is None else {"updates": options.updates}
    settings = METHODS[method].preset(facts.suite, options.preset, **changes)
    began = time.monotonic()
    run = fit(settings, load_dataset(task), limits=facts.limits, seeds=options.seeds, device=options.device,
              precision=precision, progress=False)  # fmt: skip
    trained = time.monotonic()
    scores = evaluate(run.policy, task, episodes=options.episodes, workers=options.simulators)
    means = scores.means()
    return {
        "updates": settings.updates,
        "limits": scores.limits,
        "seeds": scores.seeds,
        "reward": [round(value, 5) for value in means["normalised_reward"]],
        "cost": [round(value, 5) for value in means["normalised_cost"]],
        "training_seconds": round(trained - began, 1),
        "playing_seconds": round(time.monotonic() - trained, 1),
    }


def table(scores: Mapping[str, Mapping[str, Mapping[str, Result]]]) -> list[str]:
    """Markdown, a line for each task and method of which both are there; normalised reward / cost."""
    titles = ("task", "method", *PRECISIONS, "reward, difference", "cost, difference")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    beyond, compared = 0, 0
    for task, methods in scores.items():
        for method, pair in methods.items():
            if len(pair) < len(PRECISIONS):
                continue
            cells = [task, METHODS[method].title]
            for precision in PRECISIONS:
                reward, cost = (np.array(pair[precision][name]) for name in ("reward", "cost"))
                cells.append(f"{reward.mean():.3f} ± {reward.std():.3f} / {cost.mean():.2f} ± {cost.std():.2f}")
            for name, digits in (("reward", 3), ("cost", 2)):
                difference, error = compare(pair, name)
                beyond, compared = beyond + (abs(difference) > 2 * error), compared + 1
                cells.append(f"{difference:+.{digits}f} ± {error:.{digits}f}")
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", f"{beyond} of {compared} differences are beyond two standard errors."]


def compare(pair: Mapping[str, Result], name: str) -> tuple[float, float]:
    """The mean over runs of what bfloat16 scores above float32, and its standard error."""
    before, after = (np.array(pair[precision][name]) for precision in PRECISIONS)
    difference = after - before
    error = difference.std(ddof=1) / len(difference) ** 0.5 if len(difference) > 1 else np.nan
    return float(difference.mean()), float(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--methods", nargs="+", choices=ORDER, default=ORDER[:9])
    parser.add_argument("--preset", default="fast", choices=("full", "fast"))
    parser.add_argument("--updates", type=int, help="in place of the preset's")
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 10, 20))
    parser.add_argument("--episodes", type=int, default=20, help="of each run")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side")
    parser.add_argument("--simulators", type=int, help="processes that play one training's policies")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no training begins")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    before, end = record.facts(options.device), time.monotonic() + options.seconds
    settings = {"preset": options.preset, "seeds": list(options.seeds), "episodes": options.episodes}
    scores: dict[str, dict[str, dict[str, Result]]] = {task: {} for task in options.tasks}
    order = [(task, method, precision) for method in ORDER if method in options.methods for task in options.tasks
             for precision in PRECISIONS]  # fmt: skip
    # A process for each: a fresh one reads the setting of TF32, and leaves nothing on the GPU.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, context, max_tasks_per_child=1) as pool:
        started = {pool.submit(before_end, end, *job, options): job for job in order}
        for done in as_completed(started):
            task, method, precision = started[done]
            found = done.result()
            if isinstance(found, str):
                print(f"{task} {method} {precision}: {found}", flush=True)
                continue
            scores[task].setdefault(method, {})[precision] = found
            record.save(options.out, "precision", before, settings, scores, "scores")
            print(f"{task} {method} {precision}: {np.mean(found['reward']):.3f} / {np.mean(found['cost']):.2f}, "
                  f"{found['training_seconds']} + {found['playing_seconds']} s", flush=True)  # fmt: skip
    print("\n".join(table(scores)))


def before_end(end: float, task: str, method: str, precision: str, options: argparse.Namespace) -> dict[str, Any] | str:
    """In a process of its own: :func:`one`, or why it is not there."""
    if time.monotonic() > end:
        return "no time left"
    try:
        return one(task, method, precision, options)
    except Exception:
        return traceback.format_exc()


if __name__ == "__main__":
    main()
