from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracrl.errors import TracrlError
from tracrl.evaluation.scores import EvaluationProtocol, Scores


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
        "[]",
        "3",
        '{"task": "BallRun", "limits": 3, "seeds": [0], "returns": [[1]], "costs": [[1]], "lengths": [[1]]}',
        '{"task": "BallRun", "limits": [3], "seeds": [0], "returns": 1, "costs": 1, "lengths": 1}',
        '{"task": "BallRun", "limits": [3], "seeds": [0], "returns": [[1]], "costs": 2, "lengths": [[1]]}',
        '{"task": "BallRun", "limits": [3], "seeds": [0], "returns": [[]], "costs": [[]], "lengths": [[]]}',
        '{"task": "BallRun", "limits": [3], "seeds": [0], "returns": [[1]], "costs": [[1]], "lengths": [[1]],'
        ' "protocol": 1}',
        '{"task": "BallRun", "limits": [1, 2], "seeds": [0], "returns": [[1]], "costs": [[1]], "lengths": [[1]]}',
    ],
)
def test_scores_that_were_edited_are_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "scores.json").write_text(text)
    with pytest.raises(TracrlError, match=r"scores.json .*edited"):
        Scores.load(tmp_path / "scores.json")


def test_scores_of_version_0_4_have_an_unknown_protocol(tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text(
        '{"task": "BallRun", "limits": [10.0], "seeds": [0], "returns": [[1]], "costs": [[1]], "lengths": [[1]]}'
    )
    assert Scores.load(tmp_path / "scores.json").protocol is None


def test_protocols_are_compared_in_words() -> None:
    one = EvaluationProtocol("BallRun", 20, 0, versions={"pybullet": "3.2.7", "tracrl": "0.5.0"})
    other = EvaluationProtocol("BallRun", 100, 0, versions={"pybullet": "3.2.6", "tracrl": "0.5.1"})
    assert one.differences(other) == ["episodes 20 and 100", "pybullet 3.2.7 and 3.2.6"]
    assert one.differences(one) == []


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
    row_all = next(line for line in lines if "│   all │" in line)
    assert "1 of 2" in row_all, "the mean over limits hides the violated one"


def test_all_is_safe_only_where_every_limit_is() -> None:
    # On average 0.75 of the limits, but 1.5 of the second.
    mixed = scores([[1.0], [1.0]], [[0.0], [30.0]], (10.0, 20.0))
    assert mixed.normalised_costs.mean() < 1
    assert mixed.safe_at() == {10.0: True, 20.0: False}
    assert list(mixed.table("").columns[-1].cells) == ["yes", "NO", "1 of 2"]
    assert list(scores([[1.0], [1.0]], [[0.0], [3.0]], (10.0, 20.0)).table("").columns[-1].cells) == ["yes"] * 3


def test_without_a_task_the_table_shows_returns_as_they_are() -> None:
    table = replace(scores([[700.0, 710.0]], [[5, 7]], (10.0,)), task=None).table("title")
    assert [column.header for column in table.columns] == [
        "limit", "seeds", "return", "cost", "norm. cost", "above limit", "worst tenth", "safe",
    ]  # fmt: skip
    assert "DSRL" not in str(table.caption)


def test_in_a_line() -> None:
    two = scores([[300, 500], [700, 700]], [[8, 10], [30, 31]], (10.0, 20.0))
    assert repr(two) == (
        "<Scores in BallRun: 2 × 2 episodes; limit 10: return 400, cost 9, safe; limit 20: return 700, cost 30.5, NOT "
        "safe>"
    )
    many = scores([[1]] * 5, [[8]] * 5, (1.0, 2.0, 10.0, 20.0, 30.0))
    assert repr(many).endswith("limit 10: return 1, cost 8, safe; safe at 3 of 5 limits>")
