"""What it gains that a training goes on while its policies are scored: TraC, nine runs, ten evaluations on the way.

    python -m benchmarks.beside BallCircle --device cuda

Trains twice with the same settings, once waiting for each evaluation and once not, after a short training that starts
the simulators' files and compiles; the final scores of both are the same, which is checked.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from tracrl.data.locate import load_dataset
from tracrl.evaluation.evaluate import Evaluator
from tracrl.methods.trac import TraC
from tracrl.tasks.table import get_task
from tracrl.train.fit import fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=10)
    options = parser.parse_args()
    task, data = get_task(options.task), load_dataset(options.task)
    method = TraC.preset(task.suite, "fast", updates=options.updates)

    def seconds(evaluations: int, beside: bool, episodes: int, method: TraC = method) -> tuple[float, np.ndarray]:
        began = time.monotonic()
        evaluator = Evaluator(options.task, episodes=episodes)
        run = fit(method, data, limits=task.limits, seeds=(0, 10, 20), device=options.device, evaluator=evaluator,
                  evaluations=evaluations, evaluate_beside=beside, progress=False)  # fmt: skip
        assert run.scores is not None
        return time.monotonic() - began, run.scores.returns

    # As many updates as are compiled for; of both phases.
    seconds(1, False, 1, replace(method, updates=10_000, clone_updates=9_990) if options.device != "cpu" else method)
    results = {beside: seconds(options.evaluations, beside, options.episodes) for beside in (False, True)}
    assert np.array_equal(results[False][1], results[True][1])
    waiting, beside = (results[key][0] for key in (False, True))
    print(f"{options.task}, {options.device}: {waiting:.1f} s waiting for evaluations, {beside:.1f} s beside them")


if __name__ == "__main__":
    main()
