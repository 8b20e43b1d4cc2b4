"""Every benchmark that needs nothing but this machine, one after the other, cut for 20 minutes on two quiet cores.

    python -m benchmarks.all --out measured [--reference PYTHON]

Each writes what it prints to ``measured/NAME.txt``, and its numbers to ``measured/NAME.json`` where it has them as
JSON. ``--reference`` is the Python of an environment with osrl-lib (``benchmarks/baselines.py`` says how to make it).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

JSON = ("trac_update", "baselines")
COMMANDS: dict[str, list[str]] = {
    "trac_update": ["benchmarks.trac_update", "--blocks", "3", "--seconds", "1"],
    "baselines": ["benchmarks.baselines", "--blocks", "3", "--seconds", "0.7"],
    "product_share": ["benchmarks.product_share", "trac", "bc-safe", "bcq-lag"],
    "evaluation": ["benchmarks.evaluation", "BallCircle", "--episodes", "10"],
    "loading": ["benchmarks.memory_and_loading", "loading"],
    "memory": ["benchmarks.memory_and_loading", "memory"],
    "importing": ["benchmarks.importing", "--rows", "2000000"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for what they print")
    parser.add_argument("--reference", help="python of an environment with osrl-lib")
    parser.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.only:
        command = [sys.executable, "-m", *COMMANDS[name]]
        if name in JSON:
            command += ["--out", str(options.out / f"{name}.json")]
        if name == "baselines" and options.reference:
            command += ["--reference", options.reference]
        began = time.monotonic()
        with (options.out / f"{name}.txt").open("w") as text:
            code = subprocess.run(command, stdout=text, stderr=subprocess.STDOUT, check=False).returncode
        print(f"{name:<16}{time.monotonic() - began:6.0f} s{'' if code == 0 else f'   failed ({code})'}", flush=True)
        failed += [name] * (code != 0)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
