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


def make_material(bench: Bench, folder: Path, name: str) -> None:
    """Data (``own.hdf5``), finished runs with and without scores, or a run that can go on, made when first needed."""
    small = TINY.split()
    own = ["--data", "own.hdf5", "--limits", 4, *small]
    scored = ["--limits", 10, 20, "--episodes", 1, "--evaluations", 2, *small]
    if not (folder / "own.hdf5").exists():
        write_hdf5(make_small_data(), folder / "own.hdf5")
    if name == "own-run":
        bench.run(folder, "train", "bc-all", *own, "--updates", 4, "--out", name)
    elif name == "stopped-run":
        _stop(folder, [*map(str, ["train", "bc-all", *own, "--updates", 30_000, "--out", name])])
    elif name in ("ball-run", "other-run"):
        updates = 4 if name == "ball-run" else 6
        bench.run(folder, "train", "bc-all", "BallRun", *scored, "--updates", updates, "--out", name)


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
