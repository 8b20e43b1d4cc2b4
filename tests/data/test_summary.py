"""What is said about a data set."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tests.data.made_up import episodes_of
from tracrl.data.episodes import Episodes
from tracrl.data.locate import load_dataset
from tracrl.data.summary import coverage, summarise
from tracrl.data.summary_table import print_summary
from tracrl.errors import TracrlError
from tracrl.tasks.table import get_task


def printed(summary: Any, width: int = 100) -> str:
    text = io.StringIO()
    print_summary(Console(file=text, width=width), summary)
    return text.getvalue()


def test_the_facts(five: Episodes) -> None:
    summary = summarise(five, [5])
    assert (summary.name, summary.task, summary.made_by) == ("five.hdf5", None, "hand")
    assert (summary.episodes, summary.transitions, summary.terminated) == (5, 10, 0)
    assert (summary.observation_size, summary.action_size) == (1, 1)
    assert (summary.lengths.low, summary.lengths.median, summary.lengths.high) == (1, 2, 3)
    assert (summary.returns.low, summary.returns.median, summary.returns.high) == (10, 30, 50)
    assert (summary.costs.low, summary.costs.median, summary.costs.high) == (0, 5, 12)
    assert summary.dsrl is None
    assert summary.fingerprint == five.fingerprint


def test_the_sets_at_a_limit(five: Episodes) -> None:
    at = summarise(five, [5], x=50, y=0).limits[0]  # safe: returns 30, 20, 10
    assert (at.limit, at.safe, at.unsafe, at.share_safe) == (5, 3, 2, 0.6)
    assert (at.desirable, at.undesirable, at.left_out) == (2, 2, 1)
    assert at.best_safe_return == 30
    assert at.best_safe_score is None
    assert at.note == ""
    at = summarise(five, [5], x=30, y=30).limits[0]
    assert (at.desirable, at.undesirable, at.left_out) == (1, 3, 1)


def test_limits_at_which_nothing_or_everything_is_safe(five: Episodes) -> None:
    dear = five.select([1, 2, 3, 4])
    none, all_ = summarise(dear, [1, 100]).limits
    assert (none.safe, none.desirable, none.undesirable, none.left_out) == (0, 0, 4, 0)
    assert (none.best_safe_return, none.share_safe) == (None, 0)
    assert none.note == "no episode is safe; the lowest cost is 4."
    assert (all_.safe, all_.desirable, all_.undesirable, all_.left_out) == (4, 2, 0, 2)
    assert all_.note == "every episode is safe, so nothing is undesirable; the highest cost is 12."
    text = printed(summarise(dear, [1, 100]))
    assert "Limit 1: no episode is safe; the lowest cost is 4." in text
    assert "Limit 100: every episode is safe" in text
    assert "none" in text
    assert summarise(dear, [100], x=50, y=50).limits[0].note == ""


def test_a_known_task_brings_its_limits_scores_and_dsrls_constants() -> None:
    task = get_task("BallRun")
    summary = summarise(load_dataset("BallRun"))
    assert [at.limit for at in summary.limits] == [10, 20, 40]
    assert [at.safe for at in summary.limits] == [200, 282, 486]
    best = summary.limits[0].best_safe_return
    assert best is not None
    assert summary.limits[0].best_safe_score == pytest.approx(
        (best - task.min_return) / (task.max_return - task.min_return)
    )
    assert summary.dsrl == {
        "episodes": 940,
        "longest": 100,
        "lowest_return": task.min_return,
        "highest_return": task.max_return,
        "highest_cost": 80,
    }


def test_coverage_is_the_share_of_occupied_cells() -> None:
    corners = episodes_of([[0], [0], [10], [10]], [[0], [10], [0], [10]])
    assert coverage(corners) == 4 / 100
    assert coverage(corners, cells=2) == 1
    diagonal = episodes_of([[value] for value in range(11)], [[value] for value in range(11)])
    assert coverage(diagonal) == 10 / 100
    line = episodes_of([[value] for value in range(11)], [[0]] * 11)
    assert coverage(line) == 1  # no spread of costs, so ten cells in all
    assert coverage(line.select([0])) == 1


def test_as_plain_values(five: Episodes) -> None:
    summary = summarise(five, [5], name="mine")
    plain = json.loads(json.dumps(summary.to_dict()))
    assert plain["name"] == "mine"
    assert plain["limits"][0]["safe"] == 3
    assert plain["returns"] == {"low": 10, "median": 30, "high": 50}


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables(width: int) -> None:
    text = printed(summarise(load_dataset("BallRun"), y=25), width=width)
    lines = [line.split() for line in text.splitlines()]
    assert "BallRun.hdf5, task BallRun" in text
    assert "1,000 episodes, 100,000 transitions (DSRL's data: 940 episodes)" in text
    assert "Covers 52% of the cost-return plane" in text
    assert ["return", "-443.3", "594.4", "1611.7", "26.3", "1327.4"] in lines
    assert ["10", "200", "(20%)", "800", "455.2", "0.33", "100", "850", "50"] in lines
    assert "bottom 25 %" in text
    assert "…" not in text  # nothing cut off
    assert max(len(line) for line in text.splitlines()) <= width


def test_names_are_not_taken_for_markup(five: Episodes) -> None:
    odd = replace(five, metadata={"file": "[red]five[/red].hdf5", "made_by": "[/nonsense]"})
    text = printed(summarise(odd, [5]))
    assert "[red]five[/red].hdf5" in text
    assert "[/nonsense]" in text


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ([float("nan")], "--limits must be numbers of 0 or more"),
        ([float("inf")], "--limits must be numbers of 0 or more"),
        ([10, -1], "--limits must be numbers of 0 or more"),
        ([5, 5], "--limits names a value twice: 5 5."),
        ([10, 10 + 1e-9], "differ by less than the six digits that logs and tables print"),
    ],
)
def test_limits_that_are_none(five: Episodes, limits: list[float], said: str) -> None:
    with pytest.raises(TracrlError, match=said):
        summarise(five, limits)


@pytest.mark.parametrize("share", [-1.0, 100.5, float("nan"), float("inf")])
def test_shares_that_are_none(five: Episodes, share: float) -> None:
    with pytest.raises(TracrlError, match=f"--x is {share}; expected a number from 0 to 100."):
        summarise(five, [5], x=share)
    with pytest.raises(TracrlError, match=f"--y is {share}; expected a number from 0 to 100."):
        summarise(five, [5], y=share)
