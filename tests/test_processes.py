from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.odd_envs import DyingEnv
from tracrl.envs.environment import EnvSpec
from tracrl.envs.pool import EnvPool
from tracrl.errors import TracrlError
from tracrl.evaluation.evaluate import Evaluator
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.mlp import MLPPolicy
from tracrl.processes import Processes, WorkerError, number_of


def test_as_many_as_asked_for_else_one_per_core() -> None:
    cores = len(os.sched_getaffinity(0))
    assert [number_of(3), number_of(3, 5), number_of(None, 5), number_of(None)] == [3, 3, 5, cores]


@pytest.mark.parametrize("workers", [0, -2])
def test_less_than_one_is_refused_wherever_processes_are_started(workers: int) -> None:
    sentence = f"--workers is {workers}; expected at least 1."
    with pytest.raises(TracrlError, match=sentence):
        EnvPool(EnvSpec("BallRun"), workers)
    with pytest.raises(TracrlError, match=sentence):
        Evaluator("BallRun", workers=workers)


def test_no_more_processes_than_work() -> None:
    metadata = PolicyMetadata("trac", (1.0,), (0,), action_low=(-1.0,) * 2, action_high=(1.0,) * 2)
    layer = {"weight0": np.zeros((1, 3, 2), np.float32), "bias0": np.zeros((1, 1, 2), np.float32)}
    with Evaluator(functools.partial(DyingEnv, Path(), 0), episodes=2, workers=1000) as evaluator:
        evaluator.evaluate(MLPPolicy(metadata, layer))
        assert len(evaluator.pool.processes) == 2


@pytest.fixture
def answering() -> Iterator[Processes]:
    processes = Processes("tests.answering", "nothing", answer_seconds=20)
    processes.start()
    yield processes
    processes.close()


def ask(processes: Processes, *jobs: object) -> list[object]:
    return [answer for _, answer in processes.share_out(jobs, lambda _, job: job)]


def test_each_job_has_its_answer(answering: Processes) -> None:
    answering.start()
    assert [answer[0] for answer in ask(answering, *[("hello",)] * 5)] == ["hello"] * 5  # type: ignore[index]
    assert ask(answering) == []


def test_what_lies_in_the_current_folder_is_not_taken_for_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = str(Path.cwd())
    for name in ("random", "numpy", "gymnasium", "pybullet", "json", "typing", "tracrl"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", home, *sys.path[1:]])
    processes = Processes("tests.answering", "nothing")
    processes.start()
    try:
        [(_, _, used)] = ask(processes, ("hello",))  # type: ignore[misc]
    finally:
        processes.close()
    assert Path(used).parent == Path(os.__file__).parent  # type: ignore[has-type]


def test_the_job_of_a_process_that_dies_is_given_to_another(answering: Processes, tmp_path: Path) -> None:
    first = answering.pids
    answers = ask(answering, ("hello",), ("die once", str(tmp_path / "mark")), ("hello",))
    assert sorted(answer[0] for answer in answers) == ["die once", "hello", "hello"]  # type: ignore[index]
    assert len(answering) == 1
    assert answering.pids != first


def test_a_job_that_ends_every_process_is_said(answering: Processes) -> None:
    words = "A simulator process of nothing died: it was killed by SIGKILL; another one that was given the same"
    with pytest.raises(WorkerError, match=words):
        ask(answering, ("hello",), ("die",))
    assert len(answering) == 0


def test_one_that_stands_still_is_given_up(answering: Processes) -> None:
    ask(answering, ("hello",))
    answering.answer_seconds = 0.3
    with pytest.raises(WorkerError, match=r"gave no answer for 0.3 seconds and was given up.*TRACRL_ANSWER_SECONDS"):
        ask(answering, ("stand still",))
    assert len(answering) == 0


def test_one_that_reads_nothing_is_given_up() -> None:
    processes = Processes("tests.answering", "nothing", answer_seconds=1)
    connection = processes.start()
    connection.send(("read nothing",))
    with pytest.raises(WorkerError, match=r"gave no answer for 1 seconds"):
        ask(processes, bytes(5_000_000))
    assert len(processes) == 0


def test_to_stop_in_the_middle_does_not_wait(answering: Processes) -> None:
    ask(answering, ("hello",))
    [pid] = answering.pids
    answers = answering.share_out([("hello",), ("stand still",)], lambda _, job: job)
    next(answers)
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(answers)
    assert time.monotonic() - began < 2
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_to_close_in_the_middle_does_not_wait(answering: Processes) -> None:
    """As when an error comes from what is done with the answers, and keeps their iterator alive."""
    ask(answering, ("hello",))
    answering.start()
    answers = answering.share_out([("hello",), ("stand still",), ("stand still",)], lambda _, job: job)
    next(answers)
    began = time.monotonic()
    answering.close()
    assert time.monotonic() - began < 2
    assert len(answering) == 0


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    script = (
        "import os, time; from tracrl.processes import Processes; p = Processes('tests.answering', 'nothing');"
        "connection = p.start(); connection.send(('hello',)); connection.recv();"
        "connection.send(('stand still',)); print(p.pids[0], flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "it stands still for ever"
        time.sleep(0.05)


def test_no_temporary_folder_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tracrl.processes.tempfile.TemporaryFile", full)
    processes = Processes("tests.answering", "nothing")
    with pytest.raises(TracrlError, match=r"cannot be started \(No space left on device\): make room in the temporary"):
        processes.start()
    assert len(processes) == 0


@pytest.mark.parametrize("given", ["soon", "-1", "nan"])
def test_a_time_for_answers_that_is_none_is_said(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACRL_ANSWER_SECONDS", given)
    with pytest.raises(TracrlError, match=f"TRACRL_ANSWER_SECONDS is '{given}'; expected a number of seconds"):
        Processes("tests.answering", "nothing")
