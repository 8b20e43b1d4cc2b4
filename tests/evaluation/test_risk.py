from __future__ import annotations

import numpy as np
import pytest

from tracrl.evaluation.risk import cvar, percent, share_above
from tracrl.evaluation.scores import Scores


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 9.0, 2.0], 9.0),  # a tenth of three is less than one episode: the worst
        (list(range(10)), 9.0),
        (list(range(20)), 18.5),  # 19 and 18
        (list(range(30)), 28.0),  # 29, 28 and 27, whatever 0.1 × 30 is in floating point
        (list(range(25)), (24 + 23 + 0.5 * 22) / 2.5),  # the third counts half
        (list(range(11)), (10 + 0.1 * 9) / 1.1),
        ([3.0] * 17, 3.0),
    ],
)
def test_the_worst_tenth_by_hand(costs: list[float], expected: float) -> None:
    assert cvar(costs) == pytest.approx(expected, rel=1e-12)
    assert cvar(np.random.default_rng(0).permutation(costs)) == pytest.approx(expected, rel=1e-12)


def test_the_worst_of_a_half_and_of_all() -> None:
    assert cvar([1.0, 2.0, 3.0, 4.0], share=0.5) == 3.5
    assert cvar([1.0, 2.0, 3.0, 4.0], share=1.0) == 2.5


def test_at_the_limit_is_not_above_it() -> None:
    assert share_above([9.0, 10.0, 10.5, 30.0], 10.0) == 0.5
    assert share_above([[0.0, 1.0], [0.0, 1.0]], [[0.0], [1.0]]) == 0.25


def test_verdicts_are_over_all_policies_of_a_limit() -> None:
    # Limit 10 by two seeds: costs 0 0 0 50 and 0 0 0 0, on average 6.25; limit 20 by one: all 21.
    costs = np.array([[0.0, 0, 0, 50], [21.0, 21, 21, 21], [0.0, 0, 0, 0]])
    scores = Scores("BallRun", (10.0, 20.0, 10.0), (0, 0, 1), np.zeros((3, 4)), costs, np.full((3, 4), 100))
    ten, twenty = scores.verdicts()
    assert (ten.limit, ten.episodes, ten.cost, ten.share_above, ten.cost_cvar, ten.safe) == (
        10.0, 8, 6.25, 0.125, 50.0, True,
    )  # fmt: skip
    assert (twenty.limit, twenty.cost, twenty.share_above, twenty.cost_cvar, twenty.safe) == (20.0, 21, 1, 21, False)
    columns = {column.header: list(column.cells) for column in scores.table("").columns}
    assert columns["above limit"] == ["12 %", "100 %", "42 %"]
    assert columns["worst tenth"] == ["50.0", "21.0", f"{(50 + 0.2 * 21) / 1.2:.1f}"]
    assert columns["safe"] == ["yes", "NO", "1 of 2"]


def test_files_carry_the_verdicts_and_readers_make_them_anew() -> None:
    scores = Scores(None, (10.0,), (0,), np.array([[1.0, 2.0]]), np.array([[5.0, 25.0]]), np.array([[3, 3]]))
    written = scores.to_dict()
    assert written["verdicts"] == [
        {"limit": 10.0, "episodes": 2, "cost": 15.0, "share_above": 0.5, "cost_cvar": 25.0, "safe": False}
    ]
    written["verdicts"][0]["safe"] = True
    assert not Scores.from_dict(written).verdicts()[0].safe
    del written["verdicts"]  # as versions before this wrote it
    assert Scores.from_dict(written).verdicts() == scores.verdicts()


def test_one_episode_of_many_is_not_zero_percent() -> None:
    assert [percent(share) for share in (0, 1 / 1000, 0.01, 0.125, 0.995, 1)] == [
        "0 %", "< 1 %", "1 %", "12 %", "> 99 %", "100 %",
    ]  # fmt: skip
