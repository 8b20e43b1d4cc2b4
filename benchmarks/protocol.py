"""How long TraC's whole protocol takes on one GPU: 38 tasks, three limits × three seeds, the full preset.

    python -m benchmarks.protocol --out measured

Measures an update of nine runs, products as `--precision auto` has them, once for every shape that tasks have, on
made-up data of that shape and of the size of the task's data set, and adds up what all updates of all tasks take.
Updates are those of the classification; cloning, which is a little cheaper, counts as much. A process for each shape
compiles beside the others; then they measure one after the other, alone on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks import record
from tracrl.data.episodes import Episodes
from tracrl.methods.method import RunSpec
from tracrl.methods.trac import TraC
from tracrl.tasks.table import Task, all_tasks, get_task
from tracrl.train.devices import choose_precision
from tracrl.train.stack import Stack

DIFFERENT_EPISODES = 100


def shapes() -> dict[str, list[Task]]:
    """By the name of the task with the largest data set, the tasks whose updates are of the same shape."""
    found: dict[tuple[object, ...], list[Task]] = {}
    for task in all_tasks().values():
        shape = (task.suite, task.max_steps, task.observation_size, task.action_size)
        found.setdefault(shape, []).append(task)
    return {max(tasks, key=lambda task: task.episodes).name: tasks for tasks in found.values()}


def made_up(task: Task, episodes: int) -> Episodes:
    """As many rows as the task's data set has; what is in them comes round again."""
    generator, length = np.random.default_rng(0), task.max_steps
    rows = episodes * length
    few = min(episodes, DIFFERENT_EPISODES) * length
    timeouts = np.zeros(rows, bool)
    timeouts[length - 1 :: length] = True
    return Episodes.from_arrays(
        {
            "observations": np.resize(
                generator.standard_normal((few, task.observation_size), np.float32), (rows, task.observation_size)
            ),
            "actions": np.resize(
                generator.random((few, task.action_size), np.float32) * 2 - 1, (rows, task.action_size)
            ),
            "rewards": np.resize(generator.standard_normal(few, np.float32), rows),
            "costs": np.repeat(np.arange(episodes) % 2, length).astype(np.float32),
            "timeouts": timeouts,
        }
    )


def measure(name: str, options: argparse.Namespace) -> None:
    """One shape, in a process of its own."""
    task, device = get_task(name), torch.device(options.device)
    before, began = record.facts(options.device), time.monotonic()
    data = made_up(task, options.episodes or task.episodes)
    method = replace(TraC.preset(task.suite), clone_updates=0)
    runs = [RunSpec(limit, seed) for limit in task.limits for seed in (0, 10, 20)]
    made = time.monotonic()
    with Stack(method, data, runs, device, precision=choose_precision("auto", device, method)) as stack:

        def milliseconds(times: int) -> float:
            began = time.perf_counter()
            stack.update(times)
            if device.type == "cuda":
                torch.cuda.synchronize()
            return (time.perf_counter() - began) / times * 1e3

        milliseconds(2)
        print(f"{name}: {made - began:.1f} s for the data, {time.monotonic() - made:.1f} s to start", flush=True)
        record.wait_for_turn(options.turn)
        times = max(2, int(options.seconds * 1e3 / milliseconds(3)))
        taken = [milliseconds(times) for _ in range(options.blocks)]
    record.save(options.turn.with_suffix(".json"), "protocol", before, {}, {name: statistics.median(taken)})


def added_up(ms: dict[str, float]) -> list[str]:
    """What the tasks of each shape take, and all of them."""
    lines = ["| shape | tasks | updates | nine runs' update | all tasks of the shape |", "|---|---|---|---|---|"]
    hours, tasks = 0.0, 0
    for name, alike in shapes().items():
        if name not in ms:
            continue
        facts, updates = get_task(name), TraC.preset(alike[0].suite).updates
        seconds = len(alike) * updates * ms[name] / 1e3
        hours, tasks = hours + seconds / 3600, tasks + len(alike)
        sizes = f"{facts.max_steps} × {facts.observation_size} × {facts.action_size}"
        lines.append(f"| {name} ({sizes}) | {len(alike)} | {updates:,} | {ms[name]:.2f} ms | {seconds / 60:.1f} min |")
    return [*lines, f"| all | {tasks} | | | **{hours:.2f} h** |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a folder")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--shapes", nargs="+", choices=list(shapes()), default=list(shapes()))
    parser.add_argument("--episodes", type=int, help="of the made-up data, in place of the data set's")
    parser.add_argument("--compile", type=float, default=300.0, help="seconds after which those that are ready begin")
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a block")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--turn", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.one, options)
        return
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("*.turn"), *out.glob("*.ready"), *out.glob("*.json")):
        old.unlink()
    before, end = record.facts(options.device), time.monotonic() + options.compile
    common = ["--device", options.device, "--blocks", str(options.blocks), "--seconds", str(options.seconds)]
    common += [] if options.episodes is None else ["--episodes", str(options.episodes)]
    commands = {
        name: ["benchmarks.protocol", "--one", name, "--turn", str(out / f"{name}.turn"), *common]
        for name in sorted(options.shapes, key=lambda name: -get_task(name).episodes * get_task(name).max_steps)
    }
    ms: dict[str, float] = {}

    def save() -> None:
        for name in commands:
            if (out / f"{name}.json").exists():
                ms.update(json.loads((out / f"{name}.json").read_text(encoding="utf-8"))["ms"])
        record.save(out / "protocol.json", "protocol", before, {}, ms)

    record.in_turn(commands, out, end, save)
    print("\n".join(added_up(ms)))


if __name__ == "__main__":
    main()
