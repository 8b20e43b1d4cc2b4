"""Interrupts at every moment: a word, a status, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.corpus.case import Case

OWN = "train bc-all --data own.hdf5 --limits 4 --hidden 8 8 --batch-size 8 --updates 1000000 --out run"
COMMANDS = {
    "train": OWN,
    "train a task": "train bc-all BallRun --hidden 8 8 --updates 1000000 --out run",
    "evaluate": "evaluate ball-run --episodes 2000 --workers 2",
    "collect": "collect BallRun --steps 1000000 --workers 2",
    "study": "study main --tasks BallRun --methods bc-all --out runs",
}
SHORT = {
    "tasks": "tasks",
    "inspect": "data inspect BallRun",
    "check": "data check BallRun",
    "report": "report ball-run --out report",
}


def cases() -> Iterator[Case]:
    for name, words in COMMANDS.items():
        for number in (signal.SIGINT, signal.SIGTERM):
            for seconds in (0.0, 0.3, 1.0, 4.0):
                yield _case(f"{number.name} after {seconds:g} s: {name}", words, _after(seconds, number))
        yield _case(f"SIGINT twice: {name}", words, _after(1.5, signal.SIGINT, signal.SIGINT))
    for name, words in SHORT.items():
        for number in (signal.SIGINT, signal.SIGTERM):
            yield _case(f"{number.name} at once: {name}", words, _after(0.0, number))
    for name, words in COMMANDS.items():
        yield _case(
            f"SIGINT ignored: {name}", words, _after(2.0, signal.SIGINT, signal.SIGTERM),
            shell="trap '' INT; exec {}",
        )  # fmt: skip


def _case(name: str, words: str, during: Callable[[subprocess.Popen[bytes], Path], object], **more: str) -> Case:
    return Case(
        "signals", name, words, "stopped", "tracrl: ", takes=("own.hdf5", "ball-run"), own_process=True, during=during,
        writes=("run", "run/*", "runs", "runs/*", "BallRun.hdf5.part", "BallRun.hdf5.part/*"), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def _after(seconds: float, *numbers: signal.Signals) -> Callable[[subprocess.Popen[bytes], Path], None]:
    def during(process: subprocess.Popen[bytes], folder: Path) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not _handles(process.pid, signal.SIGTERM):
            time.sleep(0.002)  # until then it is Python that starts, and not yet tracrl
        time.sleep(seconds)
        for number in numbers:
            os.kill(process.pid, number)
            time.sleep(0.3)

    return during


def _handles(pid: int, number: signal.Signals) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    found = re.search(r"SigCgt:\s*([0-9a-f]+)", status)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)
