"""The benchmark of estimates against the truth: which policies, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.estimates import against, compare, kept, rank_correlation, rightly_ordered, stacks, write
from benchmarks.estimates_table import Result, columns, on_page, table
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


COSTS, SAID = np.array([0.0, 15.0, 30.0]), np.array([0.0, 12.0, 30.0])


def measured(tmp_path: Path) -> Result:
    """Three policies that cost 0, 15 and 30 are estimated to cost 0, 12 and 30, the middle one too low."""
    costs, said = COSTS, SAID
    values = np.stack([np.arange(3.0), said], axis=1)
    logged = np.stack([np.zeros(30), np.linspace(0, 29, 30)], axis=1)
    (tmp_path / "T" / "bc-all").mkdir(parents=True)
    np.savez(
        tmp_path / "T" / "opinions.npz",
        fitted=values[None],
        played=values[None],
        foretold=np.tile(logged, (1, 3, 1, 1)),
        retraced=np.tile(logged, (1, 3, 1, 1)),
        ood_shares=np.zeros((1, 3)),
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
    return compare("T", tmp_path)


def test_the_table_says_what_the_gate_did(tmp_path: Path) -> None:
    result = measured(tmp_path)
    assert result["held"] == 2, "12 without an error does not hold 15"
    assert result["cost"] == {**against(SAID, COSTS), "rightly_ordered": 1.0}
    lines = {
        line.split("|")[1].strip(): line.split("|")[2].strip() for line in table(columns([result])).splitlines()[2:-2]
    }
    assert lines["gate at 10: passed of those truly above, within"] == "0 of 2, 1 of 1"
    assert lines["gate at 20"] == "0 of 1, 2 of 2"
    assert lines["mean error of cost; true mean, estimated"] == "1.0; 15.0, 14.0"
    assert "passed of those above 0 of 3, of those within 6 of 6 (100%); the return is off by 0.0%" in table(
        columns([result])
    )


def test_what_is_there_of_other_tasks_stays(tmp_path: Path) -> None:
    """In the CSV line by line, in the table column by column; and the totals are those of all."""
    result = measured(tmp_path)
    other = {**result, "task": "S", "held": 3, "seconds": 7.0}
    write([other, result], tmp_path / "all.csv")
    before = (tmp_path / "all.csv").read_text()
    (found,) = kept(tmp_path / "all.csv", ["T"])
    assert found["cost"]["rank_correlation"] == 1
    write([found, result], tmp_path / "all.csv")
    assert (tmp_path / "all.csv").read_text() == before
    assert kept(tmp_path / "none.csv", ["T"]) == []
    old = table(columns([other, {**result, "held": 0}])).splitlines()[:-2]
    page = "\n".join(["Text.", "", *old, "", "| a | b |", ""])
    page, cells = on_page(page, columns([result]))
    new = "\n".join(table(columns([other, result])).splitlines()[:-2])
    assert page == f"Text.\n\n{new}\n\n| a | b |\n"
    assert "Together: 5 of 6 intervals hold" in table(cells)
    assert "passed of those above 0 of 6, of those within 12 of 12" in table(cells)
    with pytest.raises(ValueError, match="no table of estimates"):
        on_page("| a | b |\n", cells)
