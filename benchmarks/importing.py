"""Bringing a large table in: seconds per million rows, and peak memory against the size of the result.

    python -m benchmarks.importing [--rows 10000000] [--kind parquet|csv]

The table is written by pyarrow itself, in float64; each measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

OBSERVATIONS, ACTIONS, STEPS = 8, 2, 500


def write(path: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    generator = np.random.default_rng(0)
    names = [f"obs_{i}" for i in range(OBSERVATIONS)] + [f"act_{i}" for i in range(ACTIONS)]
    writer = None
    for start in range(0, rows, 500_000):
        part = min(500_000, rows - start)
        number = np.arange(start, start + part)
        columns = {"episode": number // STEPS, "step": number % STEPS}
        columns |= {name: generator.uniform(-1, 1, part) for name in names}
        columns |= {"reward": generator.normal(size=part), "cost": (generator.random(part) < 0.1).astype(float)}
        table = pa.table(columns)
        if writer is None:
            make = pa.parquet.ParquetWriter if path.suffix == ".parquet" else pa.csv.CSVWriter
            writer = make(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def measure(path: Path) -> None:
    """In a process of its own: import, and say what it took."""
    import tracrl.data.arrow
    from tracrl.data.sources import import_episodes

    tracrl.data.arrow.pyarrow()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    episodes, _ = import_episodes([path])
    read = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    episodes.save(path.with_suffix(".hdf5"))
    saved = time.perf_counter() - start - read
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    arrays = (episodes.observations, episodes.actions, episodes.rewards, episodes.costs)
    size = sum(array.nbytes for array in arrays)
    print(json.dumps({"read_s": read, "save_s": saved, "peak": peak * 1024 / size, "peak_save": after * 1024 / size}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--kind", choices=("parquet", "csv"), default="parquet")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        measure(options.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log.{options.kind}"
        write(path, options.rows)
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.importing", "--measure", str(path)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    millions = options.rows / 1e6
    print(f"{options.kind}, {options.rows} rows of {OBSERVATIONS} observations and {ACTIONS} actions")
    print(f"read   {found['read_s'] / millions:.2f} s per million rows, peak memory {found['peak']:.2f} x the result")
    print(
        f"saved  {found['save_s'] / millions:.2f} s per million rows, peak memory {found['peak_save']:.2f} x the result"
    )


if __name__ == "__main__":
    main()
