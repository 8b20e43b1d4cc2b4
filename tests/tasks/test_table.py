from __future__ import annotations

import pytest

from tracrl.errors import TracrlError
from tracrl.tasks.table import SUITES, all_tasks, get_task


def test_the_table_has_the_38_tasks_of_the_three_suites() -> None:
    suites = [task.suite for task in all_tasks().values()]
    assert [suites.count(suite) for suite in SUITES] == [8, 21, 9]


def test_a_row_holds_the_constants_of_its_task() -> None:
    task = get_task("PointGoal1")
    assert (task.suite, task.observation_size, task.action_size, task.max_steps) == (
        "SafetyGymnasium",
        60,
        2,
        1000,
    )
    assert task.limits == (20.0, 40.0, 80.0)
    assert task.max_return == pytest.approx(30.071114857340543)


def test_every_row_is_sane() -> None:
    for task in all_tasks().values():
        assert task.min_return < task.max_return
        assert task.max_cost >= max(task.limits)
        assert task.dataset_file.endswith(f"-{task.episodes}.hdf5")


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("ballrun", "did you mean BallRun?"),
        ("PointGoal", "PointGoal1"),
        ("xyzzy", "`tracrl tasks` lists all 38"),
    ],
)
def test_an_unknown_task_is_answered_with_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(TracrlError, match="There is no task called") as caught:
        get_task(wrong)
    assert hint in str(caught.value)
