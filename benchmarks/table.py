"""The numbers of a benchmark's JSON as the tables of docs/performance.md.

    python -m benchmarks.table measured/baselines.json measured/trac_update.json measured/gpu.json precision.json

Each cell: milliseconds an update, and how many times as many run-updates a second as the reference beside it; of
precisions, the scores of both.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import precision, protocol

BASES = ("reference", "plain loop, one run")
COLUMNS = (("one run", ""), ("nine runs", ""), ("one run", ", bf16"), ("nine runs", ", bf16"))


def table(ms: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Markdown, a line for each method or shape."""
    titles = [runs + (", bfloat16" if suffix else "") for runs, suffix in COLUMNS]
    lines = [f"| | reference | {' | '.join(titles)} |", "|---" * (len(titles) + 2) + "|"]
    for what, numbers in ms.items():
        base = next((numbers[name] for name in BASES if name in numbers), None)
        cells = [what, "" if base is None else shown(base)]
        for runs, suffix in COLUMNS:
            found = numbers.get(runs + suffix, numbers.get(f"tracrl, {runs}{suffix}{' products' if suffix else ''}"))
            beside = numbers.get(f"reference{suffix}", base)
            if found is None:
                cells.append("")
            else:
                times = (9 if runs == "nine runs" else 1) * (beside or 0) / found
                cells.append(shown(found) + (f", {times:.{1 if times > 9.5 else 2}f}×" if beside else ""))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


KINDS: Mapping[str, Callable[[Any], list[str]]] = {"precision": precision.table, "protocol": protocol.added_up}
"""what is no table of methods beside a reference"""


def shown(ms: float) -> str:
    """Three digits."""
    return f"{ms:.{max(0, 2 - math.floor(math.log10(ms)))}f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    for path in parser.parse_args().files:
        measured = json.loads(path.read_text(encoding="utf-8"))
        told = [measured["gpu"] or f"{measured['machine']}, {measured['cores']} cores", f"torch {measured['torch']}"]
        told += [f"commit {measured['commit']}", f"load {measured['load']}", f"{measured['settings']}"]
        lines = KINDS.get(measured["benchmark"], table)(measured.get("ms", measured.get("scores")))
        print("\n".join([", ".join(told), "", *lines, ""]))


if __name__ == "__main__":
    main()
