"""How TraC's update grows: with the batch, the segment length, the number of runs and the size of the data set.

    python -m benchmarks.growth --out docs/growth.png [--device cuda]

Median milliseconds an update, each axis varied alone around 16 segments of 100 steps, one run, 200 episodes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.trac_update import Shape, block, made_up
from tracrl.methods.method import RunSpec
from tracrl.methods.trac import TraC
from tracrl.report.run_figures import COLOURS, figure
from tracrl.train.stack import Stack

AXES: dict[str, Sequence[int]] = {
    "batch (segments)": (8, 16, 32, 64, 96),
    "segment length (steps)": (50, 100, 200, 400, 800),
    "runs": (1, 2, 4, 6, 9),
    "data set (episodes)": (200, 1_000, 5_000, 20_000),
}


def milliseconds(axis: str, value: int, device: torch.device) -> float:
    chosen = {"batch (segments)": 16, "segment length (steps)": 100, "runs": 1, "data set (episodes)": 200, axis: value}
    shape = Shape("", chosen["segment length (steps)"], 7, 2, 1.0, chosen["data set (episodes)"])
    method = replace(TraC(), clone_updates=0, batch_size=chosen["batch (segments)"])
    runs = [RunSpec(10.0, seed) for seed in range(chosen["runs"])]
    with Stack(method, made_up(shape), runs, device) as stack:
        block(stack.update, 3, device)
        times = max(2, int(300 / block(stack.update, 3, device)))
        return statistics.median(block(stack.update, times, device) for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=Path("growth.png"))
    options = parser.parse_args()
    device = torch.device(options.device)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU cores"
    with figure(options.out, len(AXES), f"TraC's update on {where}", width=3.2, height=3.0) as panels:
        for axes, (axis, values) in zip(panels, AXES.items(), strict=True):
            times = [milliseconds(axis, value, device) for value in values]
            for value, time in zip(values, times, strict=True):
                print(f"{axis:<24}{value:>8}{time:10.2f} ms", flush=True)
            axes.plot(values, times, marker="o", color=COLOURS[0])
            if not axis.startswith("data"):
                axes.plot([0, values[-1]], [0, times[-1]], ls="--", lw=1, color="0.6", label="proportional")
                axes.legend(frameon=False, fontsize=8)
            axes.set_xlabel(axis)
            axes.set_ylim(0, 1.12 * max(times))
            axes.set_xlim(left=0)
            axes.grid(alpha=0.25)
        panels[0].set_ylabel("ms an update")


if __name__ == "__main__":
    main()
