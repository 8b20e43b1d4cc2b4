"""Updates of the seven baselines, one run and a stack of nine, beside the reference library's own trainers.

    python -m venv /tmp/osrl && /tmp/osrl/bin/pip install torch gymnasium tqdm && /tmp/osrl/bin/pip install --no-deps osrl-lib
    python -m benchmarks.baselines --reference /tmp/osrl/bin/python

Same batch, same networks, made-up data of BallCircle's shape; only updates are timed (the reference's batches lie ready,
ours are drawn). Times are medians over repeated blocks, the three taking turns, so that whatever else the machine does
falls on all of them; behind each line how many times faster one run and nine runs (by run-updates per second) are than
the reference, in float32 and, where the machine has it, with products in bfloat16. Where the reference is not at hand, leave out ``--reference``.
"""  # noqa: E501

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks import record
from tracrl.data.episodes import Episodes
from tracrl.methods.method import Method, RunSpec
from tracrl.methods.registry import METHODS
from tracrl.study.studies import PAPER_ORDER
from tracrl.train.stack import Precision, Stack, has_bf16

OBSERVATION, ACTION, STEPS, EPISODES = 8, 2, 200, 250
BATCH = 512
SUFFIX = {"float32": "", "bfloat16": ", bf16"}
LABEL = {1: "one run", 9: "nine runs"}
BASELINES = [name for name in PAPER_ORDER if name != "trac"]
Contender = Callable[[int], float]
"""so many updates → milliseconds each"""


def made_up() -> Episodes:
    generator = np.random.default_rng(0)
    rows = EPISODES * STEPS
    timeouts = np.zeros(rows, bool)
    timeouts[STEPS - 1 :: STEPS] = True
    return Episodes.from_arrays(
        {
            "observations": generator.normal(size=(rows, OBSERVATION)),
            "actions": generator.uniform(-1, 1, size=(rows, ACTION)),
            "rewards": generator.normal(size=rows),
            "costs": (generator.uniform(size=rows) < np.repeat(generator.uniform(0, 0.3, EPISODES), STEPS)).astype(
                float
            ),
            "timeouts": timeouts,
            "final_observations": generator.normal(size=(EPISODES, OBSERVATION)),
        }
    )


class Reference:
    """The reference library in a process of its own."""

    def __init__(self, python: str, device: str, sequences: int, clock: str):
        script = Path(__file__).with_name("osrl_updates.py")
        sizes = [str(n) for n in (OBSERVATION, ACTION, BATCH, sequences)]
        self.process = subprocess.Popen(
            [python, str(script), "--sizes", *sizes, "--device", device, "--clock", clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        )
        self.answer()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit("the reference library did not start; see above")
        return line

    def contender(self, method: str) -> Contender:
        def run(times: int) -> float:
            assert self.process.stdin is not None
            self.process.stdin.write(f"{method} {times}\n")
            self.process.stdin.flush()
            return float(self.answer())

        return run


def ours(
    method: Method, data: Episodes, runs: int, device: torch.device, clock: str, precision: Precision
) -> Contender:
    specs = [RunSpec(limit, seed) for limit in (10.0, 20.0, 40.0) for seed in (0, 10, 20)][:runs]
    if not method.depends_on_limit:
        specs = [RunSpec(10.0, seed) for seed in range(runs)]
    now = time.perf_counter if clock == "wall" else time.process_time
    threads = torch.get_num_threads()
    began = time.perf_counter()
    stack = Stack(method, data, specs, device, precision=precision)
    if device.type == "cuda":  # where the first update compiles
        stack.update()
        print(f"{method.name}, {runs} runs, {precision}: {time.perf_counter() - began:.1f} s to start", flush=True)
    own_threads = torch.get_num_threads()
    torch.set_num_threads(threads)

    def run(times: int) -> float:
        torch.set_num_threads(own_threads)
        began = now()
        stack.update(times)
        if device.type == "cuda":
            torch.cuda.synchronize()
        elapsed = (now() - began) / times * 1e3
        torch.set_num_threads(threads)
        return elapsed

    return run


def measure(contenders: dict[str, Contender], blocks: int, seconds: float, turn: Path | None) -> dict[str, list[float]]:
    """Milliseconds an update of each, block by block."""
    for run in contenders.values():
        run(1)
    record.wait_for_turn(turn)
    counts = {name: max(2, int(seconds * 1e3 / run(2))) for name, run in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(blocks):
        for name, run in contenders.items():
            times[name].append(run(counts[name]))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", help="python of an environment with osrl-lib")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, help="of torch, in every contender")
    parser.add_argument(
        "--clock", default="wall", choices=("wall", "cpu"), help="cpu: the processes' own time, for a busy machine"
    )
    parser.add_argument("--methods", nargs="+", choices=BASELINES, default=BASELINES)
    parser.add_argument("--precisions", nargs="+", choices=("float32", "bfloat16"), default=("float32", "bfloat16"))
    parser.add_argument("--runs", nargs="+", type=int, choices=(1, 9), default=(1, 9))
    parser.add_argument("--turn", type=Path, help="compile, then wait for this file: see benchmarks/gpu.py")
    parser.add_argument("--sequences", type=int, default=64, help="CDT's batch, of 10 steps each")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a block")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    before = record.facts(options.device)
    device, data = torch.device(options.device), made_up()
    precisions = [p for p in options.precisions if p == "float32" or has_bf16(device)]
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}, batch {BATCH} (cdt {options.sequences} x 10), {options.clock} ms")
    reference = None
    if options.reference:
        reference = Reference(options.reference, options.device, options.sequences, options.clock)
    results: dict[str, dict[str, float]] = {}
    for name in options.methods:
        method = METHODS[name].preset("Bullet")
        if name == "cdt":
            method = METHODS[name].preset("Bullet", batch_size=options.sequences)
        contenders = {"reference": reference.contender(name)} if reference else {}
        for runs in options.runs:
            label = LABEL[runs]
            for precision in precisions:
                contenders[label + SUFFIX[precision]] = ours(method, data, runs, device, options.clock, precision)
        times = measure(contenders, options.blocks, options.seconds, options.turn)
        medians = results[name] = {k: statistics.median(v) for k, v in times.items()}
        line = "  ".join(f"{k} {v:8.2f}" for k, v in medians.items())
        if reference:
            base = medians["reference"]
            for label in (SUFFIX[p] for p in precisions):
                ratios = (runs * base / medians[LABEL[runs] + label] for runs in options.runs)
                line += "  " + "".join(f" {ratio:.2f}x" for ratio in ratios)
        print(f"{name:<10}{line}", flush=True)
    if options.out:
        settings = {"batch": BATCH, "sequences": options.sequences, "clock": options.clock}
        settings |= {"threads": torch.get_num_threads(), "blocks": options.blocks}
        record.save(options.out, "baselines", before, settings, results)


if __name__ == "__main__":
    main()
