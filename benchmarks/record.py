"""What was measured, on which machine and at which commit, as one JSON file."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]


def facts(device: str = "cpu") -> dict[str, Any]:
    """Where and with what. ``load`` is how busy the machine was when this was asked for."""
    return {
        "machine": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "load": [round(load, 1) for load in os.getloadavg()],
        "torch": torch.__version__,
        "commit": os.environ.get("BENCHMARK_COMMIT") or _git("rev-parse", "--short=12", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def save(
    path: Path,
    benchmark: str,
    before: Mapping[str, Any],
    settings: Mapping[str, Any],
    numbers: Mapping[str, Any],
    unit: str = "ms",
) -> None:
    """``before`` are the facts from before it began; the numbers, by whatever names, are filed under their unit."""
    measured = {"benchmark": benchmark, **before, "settings": dict(settings), unit: numbers}
    path.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")


def wait_for_turn(turn: Path | None) -> None:
    """Say that all is compiled, and wait until the file ``turn`` is there; None: begin at once."""
    if turn is not None:
        turn.with_suffix(".ready").touch()
        while not turn.exists():
            time.sleep(0.05)


def in_turn(
    commands: Mapping[str, Sequence[str]],
    out: Path,
    end: float,
    after: Callable[[], None],
    variables: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Start Python with these arguments, all at once; when all are ready, or at ``end``, each that is has its turn.

    ``out/NAME.ready`` says that a process has compiled, ``out/NAME.turn`` tells it to measure; ``after`` each that did.
    ``variables``: name → what its process has in its environment beside ours.
    """
    started = {}
    for name, command in commands.items():
        text = (out / f"{name}.txt").open("w")
        own = {**os.environ, **(variables or {}).get(name, {})}
        started[name] = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=text, stderr=subprocess.STDOUT, env=own
        )
    waiting = dict(started)
    try:
        while waiting:
            ready = [n for n, p in waiting.items() if (out / f"{n}.ready").exists() or p.poll() is not None]
            if len(ready) < len(waiting) and (time.monotonic() < end or not ready):
                time.sleep(0.1)
                continue
            name = ready[0]
            (out / f"{name}.turn").touch()
            code = waiting.pop(name).wait()
            print(f"{name:<22}{'measured' if code == 0 else f'failed ({code})'}", flush=True)
            after()
    finally:
        for process in waiting.values():
            process.terminate()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()
