"""How long it takes from data to a table of scores: one command, fast preset, three cost limits, in the simulator.

    python -m benchmarks.to_a_table CarCircle --out measured/to_a_table.json

Times `tracrl train trac TASK --preset fast --limits ... --seeds 0 --evaluations 1` as a person would run it, the start
of Python and twenty episodes of each policy included, and prints the table that it ends with.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import record
from tracrl.evaluation.scores import Scores
from tracrl.files import read_json
from tracrl.tasks.table import get_task
from tracrl.train.directory import RunDirectory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--method", default="trac")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--updates", type=int, help="in place of the preset's")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    before = record.facts()
    limits = [f"{limit:g}" for limit in get_task(options.task).limits]
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        command = ["train", options.method, options.task, "--preset", "fast", "--limits", *limits, "--seeds", "0"]
        command += ["--evaluations", "1", "--precision", options.precision, "--device", options.device]
        command += [] if options.updates is None else ["--updates", str(options.updates)]
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "tracrl.cli", *command, "--out", str(run.path)], check=True)
        seconds = time.monotonic() - began
        precision, means = read_json(run.config)["precision"], Scores.load(run.scores).means()
    print(f"tracrl {' '.join(command)}: {seconds:.0f} s, products in {precision}")
    if options.out:
        scores = {"reward": means["normalised_reward"], "cost": means["normalised_cost"]}
        settings = {"command": " ".join(command), "precision": precision, **scores}
        record.save(options.out, "to_a_table", before, settings, {options.task: round(seconds, 1)}, "seconds")


if __name__ == "__main__":
    main()
