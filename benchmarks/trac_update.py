"""TraC's update against the plain loop that people run today, side by side on this machine.

    python -m benchmarks.trac_update                       # CPU: BallRun and PointGoal1 shapes, one run and nine
    python -m benchmarks.trac_update --device cuda         # GPU: BallRun, AntCircle and PointGoal1 shapes

The plain loop is the published form: one run, nn.Dropout, the reference evaluated in every step, segments copied out
ahead of training, torch.optim.Adam; on a CPU the batches come from a DataLoader, on a GPU they already lie there, which
spares it the transfers. Both do the same mathematics on the same made-up data. Times are medians over repeated blocks,
the two taking turns.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import record
from tracrl.data.episodes import Episodes
from tracrl.methods.method import RunSpec
from tracrl.methods.trac import TraC
from tracrl.train.stack import Stack, has_bf16


@dataclass(frozen=True)
class Shape:
    name: str
    steps: int
    """of a segment"""
    observation: int
    action: int
    ratio: float
    episodes: int = 200


SHAPES = {
    "BallRun": Shape("BallRun", 100, 7, 2, 1.0),
    "AntCircle": Shape("AntCircle", 500, 34, 8, 1.0),
    "PointGoal1": Shape("PointGoal1", 750, 60, 2, 0.75),
}
BATCH = 96
Clock = Callable[[], float]


def made_up(shape: Shape) -> Episodes:
    generator = np.random.default_rng(0)
    length = round(shape.steps / shape.ratio)
    rows = shape.episodes * length
    timeouts = np.zeros(rows, bool)
    timeouts[length - 1 :: length] = True
    costs = np.repeat(np.arange(shape.episodes) % 2, length).astype(np.float32)
    return Episodes.from_arrays(
        {
            "observations": generator.normal(size=(rows, shape.observation)).astype(np.float32),
            "actions": generator.uniform(-1, 1, size=(rows, shape.action)).astype(np.float32),
            "rewards": generator.normal(size=rows).astype(np.float32),
            "costs": costs,
            "timeouts": timeouts,
        }
    )


def plain_loop(shape: Shape, data: Episodes, device: torch.device) -> Callable[[int], None]:
    """The usual way: modules, dropout and optimiser from torch.nn, the reference in every step."""

    def network() -> nn.Sequential:
        hidden = [nn.Linear(shape.observation, 256), nn.ReLU(), nn.Dropout(0.25)]
        hidden += [nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.25)]
        return nn.Sequential(*hidden, nn.Linear(256, shape.action), nn.Tanh()).to(device)

    policy, reference = network(), network().eval()
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-5)
    starts = data.offsets[:-1]
    rows = starts[:, None] + np.arange(shape.steps)
    tensors = [torch.from_numpy(a[rows]) for a in (data.observations, data.actions)]
    labels = torch.from_numpy((np.arange(len(starts)) % 2).astype(np.float32))
    discount = 0.99 ** torch.arange(shape.steps, device=device)

    def batches() -> Iterator[tuple[Tensor, ...]]:
        if device.type == "cpu":
            loader = DataLoader(TensorDataset(*tensors, labels), BATCH, shuffle=True, drop_last=True)
            while True:
                yield from loader
        resident = [t.to(device) for t in (*tensors, labels)]
        while True:
            index = torch.randint(len(labels), (BATCH,), device=device)
            yield tuple(t[index] for t in resident)

    drawn = batches()

    def run(times: int) -> None:
        for _ in range(times):
            states, actions, label = next(drawn)
            log_pi = -((policy(states) - actions) ** 2).sum(-1)
            with torch.no_grad():
                log_ref = -((reference(states) - actions) ** 2).sum(-1)
            probability = torch.sigmoid(0.2 * (discount * (log_pi - log_ref)).sum(-1)).clamp(1e-6, 1 - 1e-6)
            loss = -(label * probability.log() + 0.25 * (1 - label) * (1 - probability).log()).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return run


def products_alone(shape: Shape, device: torch.device) -> Callable[[int], None]:
    """The floor: the eight matrix products of one run's update and nothing else."""
    rows = BATCH * shape.steps
    sizes = (shape.observation, 256, 256, shape.action)
    inputs = [torch.randn(rows, n, device=device) for n in sizes]
    weights = [torch.randn(a, b, device=device) for a, b in itertools.pairwise(sizes)]

    def run(times: int) -> None:
        for _ in range(times):
            for i, weight in enumerate(weights):
                torch.mm(inputs[i], weight)
                torch.mm(inputs[i].T, inputs[i + 1])
                if i:
                    torch.mm(inputs[i + 1], weight.T)

    return run


def settings(shape: Shape) -> TraC:
    """Classification from the first update on."""
    return replace(TraC(), clone_updates=0, ratio=shape.ratio, batch_size=BATCH)


def stack_of(shape: Shape, data: Episodes, runs: int, device: torch.device, half: bool) -> Callable[[int], None]:
    specs = [RunSpec(limit, seed) for limit in (10.0, 20.0, 40.0) for seed in (0, 10, 20)][:runs]
    stack = Stack(settings(shape), data, specs, device, precision="bfloat16" if half else "float32")

    def run(times: int) -> None:
        stack.update(times)

    return run


def block(run: Callable[[int], None], times: int, device: torch.device, clock: Clock = time.perf_counter) -> float:
    """Milliseconds an update."""
    began = clock()
    run(times)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (clock() - began) / times * 1e3


def measure(
    shape: Shape,
    device: torch.device,
    blocks: int,
    seconds: float,
    turn: Path | None = None,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    data = made_up(shape)
    threads = torch.get_num_threads()
    contenders: dict[str, tuple[int, Callable[[int], None], int]] = {
        "plain loop, one run": (1, plain_loop(shape, data, device), threads),
        "products alone, one run": (1, products_alone(shape, device), threads),
    }
    for half in (False, True) if has_bf16(device) else (False,):
        for runs in (1, 9):
            run = stack_of(shape, data, runs, device, half)
            name = f"tracrl, {'one run' if runs == 1 else 'nine runs'}{', bf16 products' if half else ''}"
            contenders[name] = (runs, run, torch.get_num_threads())
            torch.set_num_threads(threads)  # each contender's own count is set again before its blocks
    times: dict[str, list[float]] = {name: [] for name in contenders}
    counts: dict[str, int] = {}
    for _, run, count in contenders.values():
        torch.set_num_threads(count)
        block(run, 3, device)
    record.wait_for_turn(turn)
    for name, (_, run, count) in contenders.items():
        torch.set_num_threads(count)
        counts[name] = max(2, int(seconds * 1e3 / block(run, 3, device, clock)))
    for _ in range(blocks):
        for name, (_, run, count) in contenders.items():
            torch.set_num_threads(count)
            times[name].append(block(run, counts[name], device, clock))
    torch.set_num_threads(threads)
    result = {name: statistics.median(values) for name, values in times.items()}
    plain = result["plain loop, one run"]
    print(f"\n{shape.name}: batch {BATCH} x {shape.steps} steps x {shape.observation}, dropout on")
    for name, value in result.items():
        runs = contenders[name][0]
        spread = (max(times[name]) - min(times[name])) / value
        print(
            f"  {name:<34}{value:9.3f} ms an update {1e3 * runs / value:10.1f} run-updates/s "
            f"{plain * runs / value:7.2f}x the plain loop   (spread {spread:.0%})",
            flush=True,
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES))
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a block")
    parser.add_argument("--threads", type=int, help="of torch, in every contender")
    parser.add_argument(
        "--clock", default="wall", choices=("wall", "cpu"), help="cpu: the process's own time, for a busy machine"
    )
    parser.add_argument("--turn", type=Path, help="compile, then wait for this file: see benchmarks/gpu.py")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    before = record.facts(options.device)
    device = torch.device(options.device)
    names = options.shapes or (["BallRun", "PointGoal1"] if device.type == "cpu" else list(SHAPES))
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU cores"
    print(f"{where}, torch {torch.__version__}")
    results = {
        name: measure(SHAPES[name], device, options.blocks, options.seconds, options.turn, clock) for name in names
    }
    if options.out:
        settings = {
            "batch": BATCH,
            "clock": options.clock,
            "threads": torch.get_num_threads(),
            "blocks": options.blocks,
        }
        record.save(options.out, "trac_update", before, settings, results)


if __name__ == "__main__":
    main()
