from __future__ import annotations

import os

import pytest

from tracrl.collect.environment import EnvSpec
from tracrl.collect.pool import RolloutPool
from tracrl.errors import TracrlError
from tracrl.evaluation.evaluate import SimulatorPool
from tracrl.processes import number_of


def test_as_many_as_asked_for_else_one_a_core() -> None:
    cores = len(os.sched_getaffinity(0))
    assert [number_of(3), number_of(3, 5), number_of(None, 5), number_of(None)] == [3, 3, 5, cores]


@pytest.mark.parametrize("workers", [0, -2])
def test_less_than_one_is_refused_wherever_processes_are_started(workers: int) -> None:
    sentence = f"--workers is {workers}; expected at least 1."
    with pytest.raises(TracrlError, match=sentence):
        RolloutPool(EnvSpec("BallRun"), workers)
    with pytest.raises(TracrlError, match=sentence):
        SimulatorPool("BallRun", workers)
