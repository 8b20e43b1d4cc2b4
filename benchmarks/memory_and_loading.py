"""Memory of a training on data of PointGoal2's size, and the time to load a large file.

    python -m benchmarks.memory_and_loading memory [--device cuda] [--batch 96] [--precision bfloat16]
    python -m benchmarks.memory_and_loading loading [--gigabytes 1]

Memory: 3 442 episodes of 1 000 steps and 60 observations, segment ratio 0.75, nine runs; the peak of the process (or of
the GPU) above what it had before the data, against the data's own float32 size. Loading: our reader with all its checks
against plain h5py reading of the same arrays, the two taking turns on a file that is already in the page cache.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

EPISODES, STEPS, OBSERVATION, ACTION = 3442, 1000, 60, 2
MIB = 2**20


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_file(path: Path, episodes: int) -> None:
    """A file in DSRL's layout, uncompressed, written in blocks so that this process stays small."""
    generator = np.random.default_rng(0)
    rows = episodes * STEPS
    with h5py.File(path, "w") as file:
        shapes = {
            "observations": (rows, OBSERVATION),
            "next_observations": (rows, OBSERVATION),
            "actions": (rows, ACTION),
        }
        arrays = {key: file.create_dataset(key, shape, "f4") for key, shape in shapes.items()}
        for episode in range(episodes):
            part = slice(episode * STEPS, (episode + 1) * STEPS)
            states = generator.normal(size=(STEPS + 1, OBSERVATION)).astype(np.float32)
            arrays["observations"][part], arrays["next_observations"][part] = states[:-1], states[1:]
            arrays["actions"][part] = generator.uniform(-1, 1, size=(STEPS, ACTION))
        file["rewards"] = generator.normal(size=rows).astype(np.float32)
        file["costs"] = (generator.uniform(size=rows) < np.repeat(generator.uniform(size=episodes) / 8, STEPS)).astype(
            "f4"
        )
        timeouts = np.zeros(rows, bool)
        timeouts[STEPS - 1 :: STEPS] = True
        file["terminals"], file["timeouts"] = np.zeros(rows, bool), timeouts


def memory(path: Path, device: str, precision: str, updates: int, batch: int) -> None:
    """Runs in a process of its own, so that the peak is this training's."""
    import torch

    import tracrl
    from tracrl.methods.method import RunSpec
    from tracrl.nets.dropout import relu_dropout
    from tracrl.train.devices import choose_precision
    from tracrl.train.stack import Stack

    relu_dropout(torch.zeros(1, 8, 8), torch.zeros(1, dtype=torch.int64), 64)  # libraries do not count: load them first
    before = peak_mib()
    data = tracrl.load_dataset(path)
    own = sum(a.nbytes for a in (data.observations, data.actions, data.rewards, data.costs)) / MIB
    loaded = peak_mib() - before
    print(f"data: {own:.0f} MiB of float32")
    print(f"host peak after loading: {loaded:.0f} MiB above start, {loaded / own:.2f}x the data")
    runs = [RunSpec(limit, seed) for limit in (20.0, 40.0, 80.0) for seed in (0, 10, 20)]
    method = tracrl.TraC.preset("SafetyGymnasium", clone_updates=updates // 2, updates=updates, batch_size=batch)
    there = torch.device(device)
    chosen = choose_precision(precision, there, method)
    with Stack(method, data, runs, there, precision=chosen) as stack:
        stack.update(updates)
    trained = peak_mib() - before
    print(f"host peak of nine runs, batch {batch}: {trained:.0f} MiB, {trained / own:.2f}x")
    if device == "cuda":
        most = torch.cuda.max_memory_allocated() / MIB
        print(f"GPU peak, batch {batch}, {chosen} products: {most:.0f} MiB, {most / own:.2f}x")


def loading(path: Path, turns: int) -> None:
    import tracrl

    def plain() -> None:
        with h5py.File(path) as file:
            {key: file[key][...] for key in file}

    def ours() -> None:
        tracrl.load_dataset(path)

    plain()
    seconds: dict[str, list[float]] = {"plain h5py": [], "tracrl": []}
    for _ in range(turns):
        for name, read in (("plain h5py", plain), ("tracrl", ours)):
            began = time.perf_counter()
            read()
            seconds[name].append(time.perf_counter() - began)
    print(f"{path.stat().st_size / 2**30:.2f} GiB")
    base = statistics.median(seconds["plain h5py"])
    for name, values in seconds.items():
        print(f"  {name:<12}{statistics.median(values):7.3f} s {statistics.median(values) / base:6.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("memory", "loading", "memory-of"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--batch", type=int, default=96, help="segments in a batch, by default the preset's")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if options.what == "memory-of":
        memory(options.file, options.device, options.precision, options.updates, options.batch)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "large.hdf5"
        if options.what == "loading":
            row = 4 * (2 * OBSERVATION + ACTION + 2)
            write_file(path, int(options.gigabytes * 2**30 / row / STEPS))
            loading(path, options.turns)
            return
        write_file(path, EPISODES)
        passed_on = ("device", "precision", "updates", "batch")
        again = [f"--{name}={getattr(options, name)}" for name in passed_on]
        subprocess.run([sys.executable, __file__, "memory-of", str(path), *again], check=True)


if __name__ == "__main__":
    main()
