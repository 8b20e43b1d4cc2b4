"""TraC's network in one kernel each way on a GPU: which forms of the kernels are right, and how long each takes.

    python -m benchmarks.kernel_forms --out forms.json
    TRITON_PTXAS_PATH=PTXAS python -m benchmarks.kernel_forms --out forms-other.json     # by another assembler

Without the variable the kernels are assembled as in a training (``tracrl.nets.assembler``); with Triton's own ptxas
(``triton/backends/nvidia/bin/ptxas``) in it, as other kernels are.

Sizes are shared out over processes, which compile side by side: each form of ``tracrl.nets.fused.FORMS``, forward and
back apart, beside the plain path with the same masks, for several numbers of runs and rows. A form is off by the
largest relative difference of a result or gradient in one run, and wrong from ``tracrl.nets.stacked.FUSED_TOLERANCE``
on; "changes" says that a second call gave other bits, and a wrong one that a training's own trial would take is named.
Then the forms are timed at two sizes, one after the other, alone: kernels forward and back, and the products behind
them that give the weights' gradients.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as TooLate
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks import record
from tracrl.nets import random
from tracrl.nets.assembler import newer
from tracrl.nets.stacked import FUSED_TOLERANCE, TRIED_ROWS, StackedMLP, difference, generators

Size = tuple[int, int, int, int]
INPUTS = (7, 34, 60, 72, 88, 259)
SIZES: list[Size] = [
    *((inputs, 256, 256, outputs) for outputs in (2, 8) for inputs in INPUTS),
    *((60, 256, 256, outputs) for outputs in (1, 3, 4, 5, 6, 7)),
    *((inputs, side, side, 2) for side in (64, 128) for inputs in (7, 60, 259)),
    *((60, first, second, 2) for first, second in ((64, 256), (256, 128))),
]
SHAPES = ((1, 1536), (9, 1600), (9, 24000), (1, 72000))
"""runs and rows; a trial's come before them"""
TIMED = {"PointGoal1": (60, 9, 24000), "BallRun": (7, 9, 1600)}
"""name → inputs, runs and rows; with 256 units, 256 and 2 outputs"""
DROPOUT = 0.25


def network(size: Size, runs: int) -> StackedMLP:
    return StackedMLP(generators(range(runs)), size, output=torch.tanh, dropout=DROPOUT, init="orthogonal").cuda()


def checked(size: Size) -> tuple[Size, list[dict[str, Any]]]:
    """Every form in every shape, each way beside the last form on the other way."""
    from tracrl.nets.fused import FORMS, fused_mlp

    torch.set_num_threads(1)
    last, rows_of = len(FORMS) - 1, []
    for runs, rows in ((2, TRIED_ROWS), *SHAPES):
        tried = network(size, runs)
        expected = tried.tried(rows)
        for form, way in itertools.product(range(len(FORMS)), ("forward", "back")):
            forward = way == "forward"
            tried.fused, tried.forms = fused_mlp, (form, last) if forward else (last, form)
            row: dict[str, Any] = {"form": form, "way": way, "runs": runs, "rows": rows}
            try:
                found, again = (tried.tried(rows, slopes=not forward) for _ in range(2))
                off = difference(found, expected[: len(found)])
                same = all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
                row |= {"off": off if math.isfinite(off) else None, "repeats": same}
            except Exception as error:  # whatever a compiler says
                row["error"] = f"{type(error).__name__}: {error}"[:300]
            rows_of.append(row)
    return size, rows_of


def is_right(row: dict[str, Any]) -> bool:
    off = row.get("off")
    return off is not None and off < FUSED_TOLERANCE


def summary(size: Size, rows: list[dict[str, Any]], forms: int) -> str:
    """One line: for each form, how far it is off at most, forward / back."""
    cells = []
    for form in range(forms):
        ways = []
        for way in ("forward", "back"):
            mine = [row for row in rows if row["form"] == form and row["way"] == way]
            if any("error" in row for row in mine):
                ways.append("fails")
                continue
            offs = [row["off"] for row in mine]
            text = "NaN" if None in offs else f"{max(offs):.3f}"
            text += "" if all(row["repeats"] for row in mine) else " changes"
            if not all(is_right(row) for row in mine):
                text += " WRONG" if not is_right(mine[0]) else " WRONG, BUT PASSES ITS TRIAL"
            ways.append(text)
        cells.append(f"{' / '.join(ways):<30}")
    return f"{'-'.join(map(str, size)):<18}" + "".join(cells)


def timed(inputs: int, runs: int, rows: int) -> dict[str, dict[str, float]]:
    """Form → milliseconds forward and back, and of the products behind."""
    from triton.testing import do_bench_cudagraph  # type: ignore[import-not-found,unused-ignore]

    from tracrl.nets import fused

    net = network((inputs, 256, 256, 2), runs)
    wide = inputs + -inputs % 8
    x = torch.randn(runs, rows, wide, device="cuda").bfloat16()
    slope = torch.randn(runs, rows, 2, device="cuda")
    seeds = torch.arange(runs, device="cuda")
    keys = [random.keys(seeds, seeds[0], stream) for stream in (0, 1)]
    draws = torch.stack([*keys, torch.zeros_like(seeds)])
    parameters = [t.detach() for layer in net.layers for t in (layer.weight, layer.bias)]
    parameters[0] = torch.nn.functional.pad(parameters[0], (0, 0, 0, wide - inputs))
    results: dict[str, dict[str, float]] = {}
    for i, form in enumerate(fused.FORMS):
        try:
            _, first, second, *bits = fused._mlp(x, *parameters, draws, net.dropped, i, i)
            back = (slope, *bits, parameters[2], parameters[4], net.dropped, i, x.dtype)
            slope_1, slope_2, *_ = fused._mlp_slopes(*back)
            narrow = torch.nn.functional.pad(slope.bfloat16(), (0, 6))
            pairs = ((x, slope_1), (first, slope_2), (second, narrow))
            parts: dict[str, Callable[[], object]] = {
                "forward": lambda i=i: fused._mlp(x, *parameters, draws, net.dropped, i, i),
                "back": lambda back=back: fused._mlp_slopes(*back),
                "products": lambda pairs=pairs: [fused._product(a, b) for a, b in pairs],
            }
            results["-".join(map(str, form))] = {
                name: float(do_bench_cudagraph(run, rep=20, return_mode="median")) for name, run in parts.items()
            }
        except Exception as error:  # whatever a compiler says
            print(f"{form}: {type(error).__name__}: {error}"[:300])
    return results


def assembler() -> str:
    try:
        from triton import knobs  # type: ignore[import-not-found,unused-ignore]

        return f"ptxas {(newer() or knobs.nvidia.ptxas).version}"
    except (ImportError, AttributeError):
        return "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--seconds", type=float, default=120.0, help="after which no more sizes are waited for")
    parser.add_argument("--processes", type=int, default=12)
    options = parser.parse_args()
    from tracrl.nets.fused import FORMS

    before, began = record.facts("cuda"), time.monotonic()
    print(f"{before['gpu']}, torch {before['torch']}, {assembler()}")
    names = ["-".join(map(str, form)) for form in FORMS]
    print("rows-units-warps-stages, off by at most, forward / back\n" + " " * 18 + "".join(f"{n:<30}" for n in names))
    found: dict[str, list[dict[str, Any]]] = {}
    pool = ProcessPoolExecutor(options.processes, mp_context=get_context("spawn"))
    waiting = [pool.submit(checked, size) for size in SIZES]
    try:
        for done in as_completed(waiting, timeout=options.seconds):
            if done.exception() is not None:
                print(f"a size was given up: {done.exception()}"[:300])
                continue
            size, rows = done.result()
            found["-".join(map(str, size))] = rows
            print(summary(size, rows, len(FORMS)), flush=True)
    except TooLate:
        print(f"{len(SIZES) - len(found)} sizes were not done in {options.seconds:.0f} s")
    pool.shutdown(wait=True, cancel_futures=True)  # what runs is finished: it would disturb the times
    ms = {name: timed(*shape) for name, shape in TIMED.items()}
    for name, forms in ms.items():
        print(f"\n{name}: inputs, runs and rows {TIMED[name]}, milliseconds")
        for form, parts in forms.items():
            cells = "".join(f"{part} {value:.4f}   " for part, value in parts.items())
            print(f"  {form:<12}{cells}both ways {parts['forward'] + parts['back']:.4f}")
    results = [row for rows in found.values() for row in rows]
    wrong = sum(not is_right(row) for row in results)
    print(f"\n{wrong} of {len(results)} results are wrong; {time.monotonic() - began:.0f} s")
    if options.out:
        settings = {"assembler": assembler(), "forms": names, "tolerance": FUSED_TOLERANCE, "checked": found}
        record.save(options.out, "kernel_forms", before, settings, ms)


if __name__ == "__main__":
    main()
