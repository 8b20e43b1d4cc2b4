"""How much of an update is matrix products: one run on one core, under torch's profiler.

    python -m benchmarks.product_share trac bc-safe bcq-lag

TraC on BallRun's shape with dropout, the others as in ``benchmarks/baselines.py``. First comes the speed of a product
of the size that updates are made of, on one core.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import baselines, trac_update
from tracrl.methods.method import RunSpec
from tracrl.methods.registry import METHODS
from tracrl.train.stack import Stack

PRODUCTS = {"aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise"}
UPDATES, TURNS = 10, 5
ROWS, UNITS = 512, 256


def gigaflops() -> float:
    a, b, out = torch.randn(ROWS, UNITS), torch.randn(UNITS, UNITS), torch.empty(ROWS, UNITS)
    times = []
    for _ in range(200):
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        times.append(time.perf_counter() - began)
    return 2 * ROWS * UNITS * UNITS / statistics.median(times) / 1e9


def one_run(name: str) -> Stack:
    cpu, run = torch.device("cpu"), [RunSpec(10.0, 0)]
    if name != "trac":
        return Stack(METHODS[name](), baselines.made_up(), run, cpu, threads=1)
    shape = trac_update.SHAPES["BallRun"]
    return Stack(trac_update.settings(shape), trac_update.made_up(shape), run, cpu, threads=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+", choices=list(METHODS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"one core, torch {torch.__version__}: {gigaflops():.0f} GFLOP/s ({ROWS} x {UNITS} x {UNITS}, float32)")
    for name in options.methods:
        with one_run(name) as stack:
            stack.update(3)
            times = []
            for _ in range(TURNS):
                began = time.perf_counter()
                stack.update(UPDATES)
                times.append((time.perf_counter() - began) / UPDATES * 1e3)
            with profile(activities=[ProfilerActivity.CPU]) as seen:
                stack.update(UPDATES)
        inside = sum(event.self_cpu_time_total for event in seen.key_averages() if event.key in PRODUCTS)
        update = statistics.median(times)  # not the sum of what the profiler saw: compiled kernels are not in it
        share = inside / UPDATES / 1e3 / update
        print(f"{name:<10}{update:9.2f} ms an update, {share:.0%} in matrix products", flush=True)


if __name__ == "__main__":
    main()
