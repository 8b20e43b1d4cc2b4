from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import tracrl
from tracrl.collect.report import markdown_table, missed
from tracrl.data.summary import summarise


def test_a_row_for_each_file_with_what_it_misses() -> None:
    bundled = Path(tracrl.__file__).parent / "data" / "bundled" / "BallRun.hdf5"
    header, rule, row = markdown_table([bundled]).splitlines()
    cells = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    assert rule.count("---") == len(cells)
    data = tracrl.load_dataset(bundled)
    assert cells["safe"] == " / ".join(str(int((data.total_costs <= limit).sum())) for limit in (10, 20, 40))
    assert cells["limits"] == "10 / 20 / 40"
    assert "(26.34 … 1327)" in cells["returns (DSRL's)"]


def test_targets() -> None:
    data = tracrl.load_dataset("BallRun")
    # As many safe as unsafe episodes as are wanted, with the best safe one at 60 % of DSRL's 1 327.4.
    costs, returns = np.repeat([0.0, 50.0], 500), np.full(1000, 10.0)
    returns[0] = 0.6 * 1327.5
    made = replace(
        data,
        offsets=np.arange(1001),
        terminated=np.zeros(1000, bool),
        costs=costs.astype(np.float32),
        rewards=returns.astype(np.float32),
        observations=data.observations[:1000],
        actions=data.actions[:1000],
        final_observations=None,
    )
    assert missed(summarise(made), 1e6) == []
    assert missed(summarise(made), 9e6) == ["8 MB"]
    poor = replace(made, rewards=np.ones(1000, np.float32))
    assert missed(summarise(poor), 1e6) == ["best safe return 796.5 at 40"]
    few = missed(summarise(made.select(np.arange(350, 1000))), 1e6)
    assert few == [
        "1,000 episodes",
        "200 safe at 10",
        "200 safe at 20",
        "200 safe at 40",
        "best safe return 796.5 at 40",
    ]
