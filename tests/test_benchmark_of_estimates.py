"""The benchmark of estimates against the truth: which policies, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.estimates import against, compare, rank_correlation, rightly_ordered, stacks
from benchmarks.estimates_table import table
from tracrl.evaluation.scores import Scores


def test_there_are_twenty_policies_even_where_most_episodes_cost_nothing() -> None:
    for costs in (np.arange(100.0), np.concatenate([np.zeros(90), np.arange(10.0)])):
        assert sum(len(limits) * len(seeds) for _, limits, seeds in stacks(costs).values()) == 23


def test_ranks_with_ties() -> None:
    assert rank_correlation(np.array([0.0, 0.0, 5.0]), np.array([0.0, 0.0, 9.0])) == pytest.approx(1)
    assert rank_correlation(np.array([3.0, 2.0, 1.0]), np.array([0.0, 1.0, 2.0])) == pytest.approx(-1)


def test_pairs_that_truly_tie_are_not_asked_for() -> None:
    costs, unsure = np.array([0.0, 0.0, 5.0, 50.0]), np.array([0.0, 0.0, 4.0, 1.0])
    assert rightly_ordered(np.array([3.0, 0.0, 1.0, 9.0]), costs, unsure) == 1, "5 ± 4 is not told from nothing"
    assert rightly_ordered(np.array([3.0, 0.0, 9.0, 1.0]), costs, unsure) == pytest.approx(1 / 3)
    assert rightly_ordered(np.zeros(4), costs, unsure) == 0.5


def test_the_table_says_what_the_gate_did(tmp_path: Path) -> None:
    """Three policies that cost 0, 15 and 30 are estimated to cost 0, 12 and 30, the middle one too low."""
    costs = np.array([0.0, 15.0, 30.0])
    said = np.array([0.0, 12.0, 30.0])
    values = np.stack([np.arange(3.0), said], axis=1)
    logged = np.stack([np.zeros(30), np.linspace(0, 29, 30)], axis=1)
    (tmp_path / "T" / "bc-all").mkdir(parents=True)
    np.savez(
        tmp_path / "T" / "opinions.npz",
        fitted=values[None],
        played=values[None],
        foretold=np.tile(logged, (1, 3, 1, 1)),
        retraced=np.tile(logged, (1, 3, 1, 1)),
        ood_shares=np.zeros(3),
        ood_in_log=np.zeros(3),
        anything=np.array([1.0, 10.0]),
        most_cost=100.0,
        logged=logged,
        names=["bc-all"] * 3,
        limits=[20.0] * 3,
        range=10.0,
        seconds=1.0,
        device="cpu",
    )
    returns, rows = (np.repeat(one[:, None], 4, axis=1) for one in (np.arange(3.0), costs))
    truth = Scores(None, (20.0,) * 3, (0, 1, 2), returns, rows, np.full((3, 4), 9))
    truth.save(tmp_path / "T" / "bc-all" / "truth.json")
    result = compare("T", tmp_path)
    assert result["held"] == 2, "12 without an error does not hold 15"
    assert result["cost"] == {**against(said, costs), "rightly_ordered": 1.0}
    lines = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in table([result]).splitlines()[2:-2]}
    assert lines["gate at 10: passed of those truly above, within"] == "0 of 2, 1 of 1"
    assert lines["gate at 20"] == "0 of 1, 2 of 2"
    assert lines["mean error of cost; true mean, estimated"] == "1.0; 15.0, 14.0"
    assert "passed of those above 0 of 3, of those within 6 of 6 (100%); the return is off by 0.0%" in table([result])
