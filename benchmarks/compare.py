"""Two files of the same benchmark side by side: what became faster and what slower.

    python -m benchmarks.compare before.json after.json

A number above 1 is how many times faster the second is. Times of different machines, or of a busy one, say little:
that is said first. Ratios within one file do not suffer from it; each file's are printed where it has a reference.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

REFERENCES = ("reference", "plain loop, one run")
SAME = ("benchmark", "machine", "cores", "gpu", "torch", "settings")


def flat(ms: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """The numbers with their names, outermost first."""
    for name, value in ms.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*above, name))
        else:
            yield (*above, name), float(value)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What makes the two hard to compare, a line each."""
    lines = [f"{key}: {before.get(key)} / {after.get(key)}" for key in SAME if before.get(key) != after.get(key)]
    for name, one in (("first", before), ("second", after)):
        load, cores = one.get("load") or [0.0], one.get("cores") or 1
        if load[0] > 0.5 * cores:
            lines.append(f"the machine was busy in the {name}: load {load[0]:g} on {cores} cores")
    return lines


def ratio_within(numbers: Mapping[tuple[str, ...], float], name: tuple[str, ...]) -> float | None:
    """How many times faster than the reference in the same file; several runs count as often."""
    reference = next((numbers[(*name[:-1], r)] for r in REFERENCES if (*name[:-1], r) in numbers), None)
    if reference is None or name[-1] in REFERENCES:
        return None
    return (9 if "nine runs" in name[-1] else 1) * reference / numbers[name]


def table(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    first, second = dict(flat(before["ms"])), dict(flat(after["ms"]))
    lines = [f"{'':<44}{'first':>10}{'second':>10}{'faster':>9}   against the reference"]
    for name, ms in first.items():
        if name not in second:
            continue
        ratios = [ratio_within(numbers, name) for numbers in (first, second)]
        told = "" if None in ratios else f"   {ratios[0]:.2f}x -> {ratios[1]:.2f}x"
        speed = ms / second[name]
        lines.append(f"{' / '.join(name):<44}{ms:10.2f}{second[name]:10.2f}{speed:8.2f}x{told}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args()
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (options.before, options.after))
    for line in differences(before, after):
        print(f"! {line}")
    print(f"commits {before.get('commit')} and {after.get('commit')}, milliseconds")
    print("\n".join(table(before, after)))


if __name__ == "__main__":
    main()
