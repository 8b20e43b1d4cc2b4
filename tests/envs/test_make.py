from __future__ import annotations

import numpy as np
import pytest

from tests.envs.contract import check_vector
from tests.envs.playing import play
from tracrl.envs.make import make_env, make_vec_env
from tracrl.errors import TracrlError
from tracrl.tasks.table import all_tasks, get_task


def test_a_task_may_be_given_by_name_or_by_its_facts() -> None:
    by_name, by_facts = make_env("BallRun"), make_env(get_task("BallRun"))
    assert by_name.task == by_facts.task
    np.testing.assert_array_equal(by_name.reset(seed=1)[0], by_facts.reset(seed=1)[0])


def test_an_unknown_task_is_named() -> None:
    with pytest.raises(TracrlError, match="did you mean BallRun"):
        make_env("Ballrun")


def test_vector_workers_go_on_with_the_next_episode_by_themselves() -> None:
    vector = make_vec_env("BallRun", 2)
    vector.reset(seed=0)
    ends = 0
    for _ in range(210):  # two episodes of 100 steps, and the steps that reset between them
        _, _, _, truncated, _ = vector.step(np.zeros((2, 2), np.float32))
        ends += int(truncated.sum())
    vector.close()
    assert ends == 4


def test_two_simulators_live_in_one_process() -> None:
    """Playing one does not disturb another, step by step."""
    tasks = ["CarRun", "PointGoal1", "HopperVelocity", "easymean"]
    expected = {}
    for task in tasks:
        env = make_env(task)
        expected[task] = play(env, 3, 10).digest
        env.close()
    envs = {task: make_env(task) for task in tasks}
    for task in [*tasks, *reversed(tasks)]:
        play(envs[task], 8, 3)
    assert {task: play(env, 3, 10).digest for task, env in envs.items()} == expected
    for env in envs.values():
        env.close()


@pytest.mark.slow
@pytest.mark.parametrize("task", list(all_tasks()))
def test_any_number_of_workers_plays_the_same_episodes(task: str) -> None:
    for workers in (1, 3):
        check_vector(task, workers, steps=10)
