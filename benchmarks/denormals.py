"""How an update slows down once moments of Adam are too small for whole floats, and what taking those for 0 does.

    python -m benchmarks.denormals coptidice cpq bc-safe bcq-lag

One run of each method on the data of ``benchmarks/baselines.py``, fast preset: milliseconds an update at the beginning
and after ``--updates``, with denormals taken for 0, as a training has it, and without; and by how much the weights of
both differ in the end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.baselines import made_up
from tracrl.data.episodes import Episodes
from tracrl.methods.method import RunSpec
from tracrl.methods.registry import METHODS
from tracrl.nets import blocks
from tracrl.study.studies import PAPER_ORDER
from tracrl.train.stack import Stack, has_bf16

TIMED = 150


def trained(name: str, data: Episodes, updates: int) -> tuple[list[float], Mapping[str, Tensor]]:
    """Milliseconds of an update at the beginning and at the end, and the weights."""
    blocks._threads.cache_clear()  # whose threads keep what they once began with
    cpu = torch.device("cpu")
    precision = "bfloat16" if has_bf16(cpu) else "float32"
    with Stack(METHODS[name].preset("Bullet", "fast"), data, [RunSpec(10.0, 0)], cpu, precision=precision) as stack:
        stack.update(10)
        times = []
        for count in (TIMED, updates - 2 * TIMED - 10, TIMED):
            began = time.perf_counter()
            stack.update(count)
            times.append((time.perf_counter() - began) / count * 1e3)
        weights = {key: tensor for key, tensor in stack.state().items() if key.endswith((".weight", ".bias"))}
    return [times[0], times[-1]], weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+", choices=PAPER_ORDER)
    parser.add_argument("--updates", type=int, default=2_000)
    options = parser.parse_args()
    data = made_up()
    for name in options.methods:
        mine, weights = trained(name, data, options.updates)
        with patch.object(torch, "set_flush_denormal", lambda _: False):
            plain, others = trained(name, data, options.updates)
        apart = max(float((tensor - others[key]).abs().max()) for key, tensor in weights.items())
        print(
            f"{name:<10} {plain[0]:6.2f} ms, then {plain[1]:6.2f}   taken for 0: {mine[0]:6.2f}, then {mine[1]:6.2f}   "
            f"{plain[1] / mine[1]:.2f}x   weights differ by {apart:.0e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
