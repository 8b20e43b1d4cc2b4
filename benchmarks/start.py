"""How long a training on a GPU takes to start: the seconds from a new process to its first updates.

    python -m benchmarks.start trac bc-safe --out FILE

Nine runs of a method on the bundled data set, in a process that nothing else runs beside: first with nothing compiled
before, then once more with what the first one left in the caches of torch and Triton. It counts from the start of
Python to its end, after the second update of every phase.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import record

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def begin(name: str, device: str) -> None:
    """What the new process does."""
    import torch

    import tracrl
    from tracrl.methods.method import RunSpec
    from tracrl.methods.registry import METHODS
    from tracrl.train.devices import choose_precision
    from tracrl.train.stack import Stack

    method = METHODS[name]()
    if hasattr(method, "clone_updates"):
        method = replace(method, clone_updates=2)
    data = tracrl.load_dataset("BallRun")
    limits = (10.0, 20.0, 40.0) if method.depends_on_limit else (10.0,)
    runs = [RunSpec(limit, seed) for limit in limits for seed in (0, 10, 20)]
    where = torch.device(device)
    Stack(method, data, runs, where, precision=choose_precision("auto", where, method)).update(4)
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(name: str, device: str, caches: Path) -> float:
    command = [sys.executable, "-m", "benchmarks.start", "--begin", name, "--device", device]
    began = time.monotonic()
    subprocess.run(command, check=True, env={**os.environ, **{cache: str(caches / cache) for cache in CACHES}})
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=["trac"])
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--begin", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.begin:
        begin(options.begin, options.device)
        return
    before = record.facts(options.device)
    numbers: dict[str, dict[str, float]] = {}
    for name in options.methods:
        with tempfile.TemporaryDirectory() as caches:
            first, again = (seconds(name, options.device, Path(caches)) for _ in range(2))
        numbers[name] = {"nothing compiled before": first, "once more": again}
        print(f"{name:<12}{first:6.1f} s with nothing compiled before, {again:5.1f} s once more", flush=True)
    if options.out:
        record.save(options.out, "start", before, {}, numbers, "s")


if __name__ == "__main__":
    main()
