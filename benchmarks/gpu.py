"""Every method's update on a GPU beside its reference, in a few minutes: compiled side by side, measured in turn.

    python -m benchmarks.gpu --out measured --reference PYTHON
    python -m benchmarks.gpu --out measured --methods --plain      # TraC alone, with kernels of our own and without

Starts ``benchmarks.baselines`` and ``benchmarks.trac_update`` once for every method, shape and precision. Each compiles
and then waits; when all do, or after ``--compile`` seconds, they measure one after the other, alone on the machine.
What each prints is in ``measured/NAME.txt``, all numbers are in ``measured/gpu.json`` and, as a table, on the screen.
A kernel of our own that is not used is a failure: its process measures nothing and says why.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.table import table

METHODS = ("bcq-lag", "bear-lag", "cpq", "cdt", "coptidice", "bc-all")
SHAPES = ("PointGoal1", "BallRun", "AntCircle")
PRECISIONS = ("bfloat16", "float32")
PLAIN = "-plain"
"""how names of what goes without the kernels of tracrl.nets.fusing end"""
WITH_KERNELS = {"TRACRL_FUSED": "", "PYTHONWARNINGS": "error:Left out"}
"""as users have it, in fast forms"""
WITHOUT = {"TRACRL_FUSED": "0"}


def jobs(reference: str, out: Path, blocks: int, seconds: float, methods: list[str], shapes: list[str],
         device: str, plain: bool = False) -> dict[str, list[str]]:  # fmt: skip
    """Name → arguments of Python; those that compile longest first."""
    common = ["--device", device, "--blocks", str(blocks), "--seconds", str(seconds)]
    found = {}
    for method in methods:
        for precision in PRECISIONS:
            own = ["--methods", method, "--precisions", precision, "--sequences", "512", "--reference", reference]
            runs = ["--runs", "9"] if precision == "float32" else []
            found[f"{method}-{precision}"] = ["benchmarks.baselines", *own, *runs, *common]
    for shape in shapes:
        for end in ("", PLAIN) if plain else ("",):
            found[f"trac-{shape}{end}"] = ["benchmarks.trac_update", "--shapes", shape, *common]
    for name, command in found.items():
        command += ["--turn", str(out / f"{name}.turn"), "--out", str(out / f"{name}.json")]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--reference", help="python of an environment with osrl-lib; needed unless --methods is empty")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=SHAPES)
    parser.add_argument("--plain", action="store_true", help="TraC a second time, with TRACRL_FUSED=0")
    parser.add_argument("--compile", type=float, default=300.0, help="seconds after which those that are ready begin")
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.4, help="of a block")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    options = parser.parse_args()
    if options.methods and not options.reference:
        parser.error("--reference is needed for --methods")
    if options.plain and options.device == "cpu":
        parser.error("--plain is of a GPU")
    options.out.mkdir(parents=True, exist_ok=True)
    for old in (*options.out.glob("*.turn"), *options.out.glob("*.ready"), *options.out.glob("*.json")):
        old.unlink()
    before, end = record.facts(options.device), time.monotonic() + options.compile
    commands = jobs(options.reference, options.out, options.blocks, options.seconds, options.methods, options.shapes,
                    options.device, options.plain)  # fmt: skip
    variables = {name: WITHOUT if name.endswith(PLAIN) else WITH_KERNELS for name in commands}
    record.in_turn(commands, options.out, end, lambda: save(options.out, list(commands), before), variables)
    print("\n".join(table(json.loads((options.out / "gpu.json").read_text(encoding="utf-8"))["ms"])))


def save(out: Path, names: list[str], before: dict[str, Any]) -> None:
    """What has been measured so far."""
    ms: dict[str, dict[str, float]] = {}
    for name in names:
        if (out / f"{name}.json").exists():
            for what, numbers in json.loads((out / f"{name}.json").read_text(encoding="utf-8"))["ms"].items():
                bf16 = name.endswith("-bfloat16")  # each process has its own reference beside it
                row = f"{what}, plain" if name.endswith(PLAIN) else what
                ms.setdefault(row, {}).update({f"{k}, bf16" if bf16 and k == "reference" else k: v
                                                for k, v in numbers.items()})  # fmt: skip
    record.save(out / "gpu.json", "gpu", before, {}, ms)


if __name__ == "__main__":
    main()
