"""Make the data set that travels with the package: a recorded file, thinned over the cost-return plane.

    python tools/make_bundled_data.py SOURCE.hdf5

The plane is cut into cells and the fullest cells give up episodes first, so that the picture keeps its shape
while the file shrinks. The ends of the data (lowest and highest return and cost, the best safe episode at
each of the task's limits) are always kept, as are enough safe and unsafe episodes at each limit. The same source and
seed give the same episodes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import tracrl
from tracrl.collect.thinning import CELLS, thin
from tracrl.data.hdf5 import read_hdf5, write_hdf5
from tracrl.tasks.table import get_task

BUNDLED = Path(tracrl.__file__).parent / "data" / "bundled"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--cells", type=int, default=CELLS, help="cells along each axis of the cost-return plane")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: the package's bundled folder")
    options = parser.parse_args()

    source = read_hdf5(options.source)
    task = get_task(str(source.task))
    kept = thin(
        source.total_costs,
        source.returns,
        options.episodes,
        limits=task.limits,
        cells=options.cells,
        seed=options.seed,
    )
    chosen = source.select(kept)
    metadata = {
        "task": task.name,
        "made_by": source.metadata.get("made_by", "unknown"),
        "thinned_by": (
            f"tools/make_bundled_data.py: {len(chosen)} of {len(source)} episodes, "
            f"the fullest of {options.cells} x {options.cells} cells of the cost-return plane thinned first, "
            f"seed {options.seed}"
        ),
        "source_fingerprint": source.fingerprint,
        "note": "Recorded for tracrl; not a DSRL data set, so results on it are not DSRL results.",
    }
    path = options.out or BUNDLED / f"{task.name}.hdf5"
    write_hdf5(replace(chosen, metadata=metadata), path, compact=True)
    safe = ", ".join(f"{int((chosen.total_costs <= limit).sum())} at {limit:g}" for limit in task.limits)
    print(f"{path}: {len(chosen)} episodes, {path.stat().st_size / 1e6:.2f} MB, safe: {safe}")


if __name__ == "__main__":
    main()
