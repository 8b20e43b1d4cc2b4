from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores


def scores(returns: list[list[float]], costs: list[list[float]], limits: tuple[float, ...]) -> Scores:
    lengths = np.full(np.shape(returns), 100)
    return Scores("BallRun", limits, tuple(range(len(limits))), np.array(returns), np.array(costs), lengths)


def test_better_is_safe_first_then_reward_then_cost() -> None:
    limits = (10.0,) * 5
    mine = scores([[5], [6], [9], [1], [2]], [[1], [1], [50], [9], [30]], limits)
    theirs = scores([[4], [7], [1], [9], [9]], [[9], [1], [1], [11], [40]], limits)
    # safe and richer; safe and poorer; unsafe against safe; safe against unsafe; less unsafe
    assert mine.better_than(theirs).tolist() == [True, False, False, True, True]
    assert not mine.better_than(mine).any()


def test_saved_and_loaded_they_are_the_same(tmp_path: Path) -> None:
    one = scores([[1.5, 2]], [[3, 4]], (10.0,))
    one.save(tmp_path / "scores.json")
    again = Scores.load(tmp_path / "scores.json")
    assert again.to_dict() == one.to_dict()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        '{"task": "BallRun", "limits": [1, 2], "seeds": [0], "returns": [[1]], "costs": [[1]], "lengths": [[1]]}',
    ],
)
def test_scores_that_were_edited_are_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "scores.json").write_text(text)
    with pytest.raises(TracrlError, match="edited"):
        Scores.load(tmp_path / "scores.json")


def test_the_table_has_a_row_for_each_limit_and_says_what_is_unsafe() -> None:
    from rich.console import Console

    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(scores([[700.0, 710.0], [800.0, 810.0]], [[5, 7], [50, 60]], (10.0, 20.0)).table("title"))
    lines = console.export_text().splitlines()
    row_10 = next(line for line in lines if "│    10 │" in line)
    row_20 = next(line for line in lines if "│    20 │" in line)
    assert "705.0 ± 5.0" in row_10
    assert "0.60 ± 0.10" in row_10
    assert "yes" in row_10
    assert "NO" in row_20
