"""How long estimates take: nine policies by tracrl, and one of them by d3rlpy's fitted Q evaluation, in one run.

    python -m venv peer && peer/bin/python -m pip install d3rlpy torch==2.13.0
    python -m benchmarks.estimates_speed CarRun --peer peer/bin/python

CarRun's log has 200 000 transitions. d3rlpy knows no finite horizon without a discount: it is given γ = 1 − 1/T, one
signal and one policy a fit, so that return and cost of nine policies are 18 fits. Processor time is said beside
the time that passed, for machines that do other work too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import tracrl
from tracrl.ope.estimate import CPU
from tracrl.policies.mlp import MLPPolicy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--peer", help="the Python of an environment with d3rlpy")
    parser.add_argument("--policies", type=int, default=9)
    parser.add_argument("--updates", type=int, default=CPU.fqe.updates, help="of d3rlpy's fit")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    data = tracrl.load_dataset(chosen.task)
    method = tracrl.BCAll(updates=300)
    policy = tracrl.fit(method, data, limits=[20.0], seeds=range(chosen.policies), device="cpu").policy
    assert isinstance(policy, MLPPolicy)
    started, busy = time.monotonic(), time.process_time()
    found = tracrl.estimate(policy, data, device=chosen.device)
    seconds, busy = time.monotonic() - started, time.process_time() - busy
    print(
        f"tracrl: {len(policy)} policies, return and cost, {data.rows:,} transitions, {chosen.device} "
        f"({chosen.threads} threads): {seconds:.0f} s, {busy:.0f} s of processor time"
    )
    print(f"  the first: return {found.returns[0]:.1f}, cost {found.costs[0]:.1f}")
    if chosen.peer:
        peer(chosen.peer, policy, data, chosen.updates, chosen.threads)


def peer(python: str, policy: MLPPolicy, data: tracrl.Episodes, updates: int, threads: int) -> None:
    ends = np.zeros(data.rows, bool)
    ends[data.offsets[1:] - 1] = True
    terminals = np.zeros(data.rows, bool)
    terminals[data.offsets[1:] - 1] = data.terminated
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "arrays.npz"
        np.savez(
            arrays,
            observations=data.observations,
            actions=data.scaled_actions(),
            signal=data.costs,
            terminals=terminals.astype(np.float32),
            timeouts=(ends & ~terminals).astype(np.float32),
            first=data.observations[data.offsets[:-1]],
            gamma=1 - 1 / data.max_steps,
            **{name: tensor[0] for name, tensor in policy.tensors.items()},
        )
        script = Path(__file__).with_name("d3rlpy_fqe.py")
        answer = subprocess.run(
            [python, script, arrays, str(updates), str(threads)], check=True, capture_output=True, text=True
        ).stdout
    said = json.loads(answer.splitlines()[-1])
    print(
        f"d3rlpy {said['version']}: one policy, cost alone, {said['updates']:,} updates of 100 rows: "
        f"{said['seconds']:.0f} s, {said['busy']:.0f} s of processor time; discounted cost {said['value']:.1f}"
    )


if __name__ == "__main__":
    main()
