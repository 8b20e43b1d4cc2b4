"""What the cases start from: data, a finished run, a run that was stopped, a collection that was stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import make_small_data
from tracrl.data.hdf5 import write_hdf5

if TYPE_CHECKING:
    from tests.corpus.case import Bench

TINY = "--hidden 8 8 --batch-size 8"


def make_materials(bench: Bench, folder: Path) -> None:
    """Data, two finished runs with scores, one without, one that can go on."""
    write_hdf5(make_small_data(), folder / "own.hdf5")
    small = TINY.split()
    own = ["--data", "own.hdf5", "--limits", 4, *small]
    bench.run(folder, "train", "bc-all", *own, "--updates", 4, "--out", "own-run")
    scored = ["--limits", 10, 20, "--episodes", 1, "--evaluations", 2]
    bench.run(folder, "train", "bc-all", "BallRun", *scored, *small, "--updates", 4, "--out", "ball-run")
    bench.run(folder, "train", "bc-all", "BallRun", *scored, *small, "--updates", 6, "--out", "other-run")
    _stop(folder, [*map(str, ["train", "bc-all", *own, "--updates", 30_000, "--out", "stopped-run"])])


def _stop(folder: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "tracrl", *words]
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=-3
    )
    log = folder / "stopped-run" / "metrics.csv"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (log.exists() and log.read_text().count("\n") > 1):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert (folder / "stopped-run" / "checkpoint.safetensors").exists()
