"""Studies as processes: what fails, dies, is stopped or killed, and that nothing is lost by it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.study.made_up import TINY, TINY_CLONING, write_ball_data
from tracrl.claims import Claim, read_claim
from tracrl.cli.study import StudyOptions, study
from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.policies.load import load_policy
from tracrl.study.board import duration, state_of
from tracrl.study.estimate import estimate
from tracrl.study.local import Machine, run_locally
from tracrl.study.measured import Rates, Stopwatch
from tracrl.study.plan import Plan, make_plan
from tracrl.study.processes import outcome_of, start_worker
from tracrl.study.stack import StackSpec
from tracrl.study.store import Outcome, Store

LONG = ("hidden=[8]", "trac.batch_size=4", "trac.updates=3000", "trac.clone_updates=1300", "trac.warmup=5")
SCORED = {"limits": [10.0], "seeds": [0], "episodes": 2, "evaluations": 2}


def tiny_plan(study: str = "main", settings: Sequence[str] = TINY, **options: object) -> Plan:
    chosen = {"tasks": ["BallRun"], "methods": ["trac"], "settings": settings, **SCORED, **options}
    return make_plan(study, **chosen)  # type: ignore[arg-type]


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def until(holds: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def same_result(a: Path, b: Path, stack: StackSpec) -> None:
    """The scores and weights of a stack in two stores are the same, bit for bit."""
    for name in ("scores.json", "best_scores.json", "evaluations.csv", "metrics.csv", "config.json"):
        assert (a / stack.name / name).read_bytes() == (b / stack.name / name).read_bytes(), name
    for name in ("policy.safetensors", "best.safetensors"):
        one, other = load_policy(a / stack.name / name), load_policy(b / stack.name / name)
        assert all(np.array_equal(one.tensors[key], other.tensors[key]) for key in one.tensors), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The study uniform-reference with LONG settings, as it ends when nothing happens."""
    directory = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSRL_DATASET_DIR", str(directory))
        write_ball_data(directory)
        store = Store(directory / "runs")
        assert run_locally(tiny_plan("uniform-reference", settings=LONG), store, quiet()).count("done") == 2
    return store


def test_less_than_a_second_says_little_about_a_rate(tmp_path: Path) -> None:
    path, kind = tmp_path / "rate.json", {"device": "cpu"}
    Stopwatch(cores=1, updates=4, training=0.9).save(path, kind)
    assert not path.exists()
    Stopwatch(cores=2, updates=4, training=1.2).save(path, kind)
    assert json.loads(path.read_text())["seconds_per_update"] == pytest.approx(0.6)


def test_one_that_fails_does_not_stop_the_others(ball_data: Path, tmp_path: Path) -> None:
    settings = [*TINY, "bc-all.updates=4", "bc-all.batch_size=8"]
    plan = tiny_plan(settings=settings, methods=["trac", "bc-all"])
    console, store = quiet(), Store(tmp_path / "runs")
    taken = store.run(next(stack for stack in plan.stacks if stack.method.name == "trac")).path
    taken.mkdir(parents=True)
    (taken / "mine.txt").write_text("somebody's own")
    board = run_locally(plan, store, console)
    assert (board.count("done"), board.count("failed")) == (1, 1)
    (failure,) = board.failures()
    assert failure.reason == f"{taken} is there already and holds no run: choose another --out."
    log = store.assignment(failure.job).log
    assert failure.reason in log.read_text()
    lines = said(console).splitlines()
    assert f"FAILED: TraC on BallRun: {failure.reason} Log: {log}" in lines
    assert any(line.startswith("done: BC-All on BallRun: reward") for line in lines)
    assert board.summary().startswith("main: 1 of 2 done, 1 failed")
    cloning = next(stack for stack in plan.stacks if stack.method.name == "bc-all")

    before = (store.run(cloning).policy).stat().st_mtime_ns
    again = run_locally(plan, store, quiet())
    assert (again.count("done"), again.count("failed")) == (1, 1)
    assert again.entries[cloning.name].here_before
    assert (store.run(cloning).policy).stat().st_mtime_ns == before


@pytest.mark.parametrize("workers", [None, 1])
def test_a_gpu_that_is_asked_for_and_not_there_is_said(ball_data: Path, tmp_path: Path, workers: int | None) -> None:
    words = "--device cuda: PyTorch sees no CUDA GPU on this machine; use --device cpu."
    without = Machine(cores=(0,), memory=8 << 30, gpus=0)
    with pytest.raises(TracrlError, match=words):
        run_locally(tiny_plan(), Store(tmp_path / "runs"), quiet(), device="cuda", workers=workers, machine=without)
    assert not (tmp_path / "runs").exists()


def test_a_worker_that_is_killed_is_started_again_and_goes_on(
    ball_data: Path, tmp_path: Path, undisturbed: Store
) -> None:
    plan = tiny_plan(settings=LONG)
    (stack,) = plan.stacks
    store = Store(tmp_path / "runs")

    def kill() -> None:
        until(lambda: store.started(stack))
        until(lambda: (read_claim(store.run(stack).claim) or {}).get("pid"))
        os.kill(read_claim(store.run(stack).claim)["pid"], signal.SIGKILL)  # type: ignore[index]

    killer = threading.Thread(target=kill)
    killer.start()
    console = quiet()
    board = run_locally(plan, store, console, checkpoint_seconds=0.1)
    killer.join()
    assert board.count("done") == 1
    assert "trying again: TraC on BallRun: Its process was killed by SIGKILL" in said(console)
    assert "going on: TraC on BallRun" in said(console)
    assert "Going on after update" in store.assignment(stack).log.read_text()
    assert not store.run(stack).claim.exists()
    same_result(store.path, undisturbed.path, stack)


def test_rates_are_measured_and_others_unknown(ball_data: Path, undisturbed: Store) -> None:
    store = undisturbed
    (stack,) = tiny_plan(settings=LONG).stacks
    found = Rates.of(store).find(stack, "cpu")
    assert found is not None
    assert 1e-5 < found.seconds_per_update < 1
    assert 50e6 < found.memory < 5e9
    longer = tiny_plan(settings=[*LONG, "trac.updates=300000", "eta=0.5"])
    told = estimate(longer, store, "cpu", 2)
    assert told.seconds == pytest.approx(
        300_000 * found.seconds_per_update / 2 + 4 * (found.seconds_per_episode or 0) / 2, rel=1e-6
    )
    unknown = estimate(tiny_plan(settings=[*LONG, "trac.batch_size=3"]), store, "cpu", 2)
    assert (unknown.training.measured, unknown.training.typical) == (0, 1), "nothing of that kind was measured"
    assert unknown.training.source == "by the table of another machine"


def test_a_short_calibration_gives_a_rate(ball_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from argparse import Namespace

    from tracrl.study import worker

    monkeypatch.setattr(worker, "CALIBRATION_SECONDS", 1.1)
    plan, store = tiny_plan(), Store(tmp_path / "runs")
    store.prepare(plan)
    assert estimate(plan, store, "cpu", 1).training.measured == 0
    worker.calibrate(plan.stacks[0], store.assignment(plan.stacks[0]), Namespace(device="cpu", cores=1))
    told = estimate(plan, store, "cpu", 1)
    assert (told.training.source, told.evaluating.source) == ("measured here", "measured here")
    assert 0 < told.seconds < 60
    assert not store.run(plan.stacks[0]).path.exists(), "nothing was trained"


def test_one_that_keeps_dying_is_given_up_with_the_reason(
    ball_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shot = tmp_path / "site"
    shot.mkdir()
    (shot / "sitecustomize.py").write_text(
        "import os, signal, sys\nif 'tracrl.study.worker' in sys.orig_argv: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(shot))
    console = quiet()
    board = run_locally(tiny_plan(), Store(tmp_path / "runs"), console, retries=1)
    assert [entry.reason for entry in board.failures()] == [
        "Its process was killed by SIGKILL (out of memory, if nobody did it on purpose)."
    ]
    assert said(console).count("trying again") == 1


def test_a_full_disk_is_said_and_loses_nothing(
    ball_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the worker every write below the run directory fails, and so does the log, from the first checkpoint on."""
    full = tmp_path / "site"
    full.mkdir()
    (full / "sitecustomize.py").write_text(
        "import os, pathlib, sys\n"
        "if 'tracrl.study.worker' in sys.orig_argv:\n"
        "    def full(self, *given, **named):\n"
        "        raise OSError(28, 'No space left on device')\n"
        "    pathlib.Path.write_bytes = full\n"
        "    def no_log(descriptor, data, write=os.write):\n"
        "        if descriptor not in (1, 2):\n"
        "            return write(descriptor, data)\n"
        "        raise OSError(28, 'No space left on device')\n"
        "    os.write = no_log\n"
    )
    plan, store = tiny_plan(), Store(tmp_path / "runs")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(full))
        board = run_locally(plan, store, quiet())
    (failure,) = board.failures()
    assert failure.reason.startswith("The disk is full: ")
    assert not store.done(failure.job)
    assert run_locally(plan, store, quiet()).count("done") == 1


def start_study(study: str, settings: Sequence[str], out: Path) -> subprocess.Popen[str]:
    """The whole command."""
    words = ["--tasks", "BallRun", "--limits", "10", "--seeds", "0", "--episodes", "2", "--evaluations", "2"]
    command = [sys.executable, "-m", "tracrl.cli", "study", study, *words, "--set", *settings, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_killed_and_stopped_on_the_way_it_ends_as_if_nothing_had_been(
    ball_data: Path, tmp_path: Path, undisturbed: Store
) -> None:
    """Killed, stopped with Ctrl-C, and started a third time."""
    stacks = tiny_plan("uniform-reference", settings=LONG).stacks
    store = Store(tmp_path / "runs")

    def logged() -> list[int]:
        logs = [store.run(stack).metrics for stack in stacks]
        return [log.read_text().count("\n") if log.exists() else 0 for log in logs]

    def trains_since(before: list[int]) -> bool:
        """Someone is in the middle of a training that has gone on since then."""
        claimed = [store.run(stack).claim.exists() for stack in stacks]
        return any(busy and now > then for busy, now, then in zip(claimed, logged(), before, strict=True))

    def someone_at_work() -> bool:
        return any(store.run(stack).claim.exists() for stack in stacks)

    first = start_study("uniform-reference", LONG, store.path)
    until(lambda: sum(logged()) > 20)
    first.kill()
    first.communicate()
    until(lambda: not someone_at_work())  # the workers notice, save and go
    assert any(store.started(stack) for stack in stacks)

    before = logged()
    second = start_study("uniform-reference", LONG, store.path)
    until(lambda: trains_since(before))
    second.send_signal(signal.SIGINT)
    output, _ = second.communicate(timeout=120)
    assert second.returncode == 130, output
    assert "Stopping: every run is being saved" in output
    assert "Nothing is lost: the same command goes on with what is not done." in output
    assert not someone_at_work()
    outcomes = [store.assignment(stack).last_outcome() for stack in stacks]
    assert any(
        o is not None and o.state == "stopped" and "updates; all of them are kept in" in o.reason for o in outcomes
    )

    third = start_study("uniform-reference", LONG, store.path)
    output, _ = third.communicate(timeout=120)
    assert third.returncode == 0, output
    assert "going on: TraC on BallRun" in output
    assert f"tracrl report {store.path}" in output
    for stack in stacks:
        same_result(store.path, undisturbed.path, stack)
    assert sorted(p.name for p in store.path.iterdir()) == sorted([*(s.name for s in stacks), "study"])


def test_two_studies_at_once_share_the_work(ball_data: Path, tmp_path: Path) -> None:
    plan = tiny_plan("uniform-reference")
    store = Store(tmp_path / "runs")
    other = start_study("uniform-reference", TINY, store.path)
    assert run_locally(plan, store, quiet()).count("done") == 2
    output, _ = other.communicate(timeout=120)
    assert other.returncode == 0, output
    for stack in plan.stacks:
        steps = [line.split(",")[0] for line in store.run(stack).metrics.read_text().splitlines()[1:]]
        assert steps == [str(step) for step in range(1, 61)], "no update was made twice"


def test_a_training_of_the_same_run_is_waited_for(ball_data: Path, tmp_path: Path) -> None:
    plan, store = tiny_plan(), Store(tmp_path / "runs")
    (stack,) = plan.stacks
    store.prepare(plan)
    with Claim(store.run(stack).claim):  # as tracrl train holds it
        assert state_of(stack, store, store.inventory()) == "at work"
        worker = start_worker(store.assignment(stack), store, device="cpu", cores=(0,))
        worker.wait()
        outcome = outcome_of(worker)
    assert outcome.state == "busy"
    assert f"is at work in {store.run(stack).path}" in outcome.reason
    assert state_of(stack, store, store.inventory()) == "new"


def test_what_was_scored_over_other_episodes_is_scored_as_asked(ball_data: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    (stack,) = tiny_plan().stacks
    run_locally(tiny_plan(), store, quiet())
    weights, two = store.run(stack).policy.read_bytes(), Scores.load(store.run(stack).scores)
    more = tiny_plan(episodes=3)
    assert not store.done(more.stacks[0])
    assert run_locally(more, store, quiet()).count("done") == 1
    assert store.done(more.stacks[0])
    assert store.run(stack).policy.read_bytes() == weights
    assert np.array_equal(Scores.load(store.run(stack).scores).returns[:, :2], two.returns)

    # Edited scores are made anew; an edited log cannot be, and no new checksum hides it.
    whole = store.run(stack).scores.read_bytes()
    store.run(stack).scores.write_bytes(whole.replace(b"100", b"099"))
    assert not store.done(more.stacks[0])
    assert run_locally(more, store, quiet()).count("done") == 1
    assert store.run(stack).scores.read_bytes() == whole
    log = store.run(stack).evaluations
    log.write_text(log.read_text().replace("classification", "classified"))
    (failure,) = run_locally(more, store, quiet()).failures()
    assert f"{log} is not what the run wrote: it was edited, cut off or made anew" in failure.reason


def test_nothing_starts_where_data_are_missing(tmp_path: Path) -> None:
    plan = tiny_plan(tasks=["BallRun", "AntRun"], settings=())
    with pytest.raises(TracrlError, match="because the data of AntRun are missing: tracrl data fetch AntRun"):
        run_locally(plan, Store(tmp_path / "runs"), quiet())
    assert not (tmp_path / "runs").exists()


def test_data_that_changed_after_planning_are_refused(ball_data: Path, tmp_path: Path) -> None:
    plan = tiny_plan()
    write_ball_data(ball_data.parent, seed=1)
    (failure,) = run_locally(plan, Store(tmp_path / "runs"), quiet()).failures()
    assert failure.reason.startswith("The data of BallRun are not those that the study was planned with")


def test_the_plan_is_shown_and_starts_nothing(ball_data: Path, tmp_path: Path) -> None:
    words = ["study", "eta", "--tasks", "BallRun", "AntRun", "--plan", "--set", *TINY, "--out", str(tmp_path / "runs")]
    result = subprocess.run(
        [sys.executable, "-m", "tracrl.cli", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith(("BallRun", "AntRun"))]
    assert len(rows) == 8
    assert rows[0][:7] == ["BallRun", "TraC", "η", "0.25", "9", "60", "new"]
    assert rows[0][7] == "unknown"
    assert re.search(r"training: about .* \(by the table of another machine\)", result.stdout)
    assert "  tracrl data fetch AntRun" in result.stdout
    assert sorted(p.name for p in (tmp_path / "runs" / "study").iterdir()) == ["data.json"]
    unstarted = subprocess.run(
        [sys.executable, "-m", "tracrl.cli", *(w for w in words if w != "--plan")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert unstarted.returncode == 1
    assert unstarted.stderr.startswith("tracrl: Nothing was started, because the data of AntRun are missing")


def test_a_plan_for_a_gpu_is_refused_where_starting_it_would_be(
    ball_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = Machine(cores=(0,), memory=8 << 30, gpus=0)
    monkeypatch.setattr(Machine, "this", lambda: without)
    options = StudyOptions(
        "main", tasks=("BallRun",), methods=("trac",), plan=True, device="cuda", out=tmp_path / "runs"
    )
    with pytest.raises(TracrlError, match="--device cuda: PyTorch sees no CUDA GPU on this machine"):
        study(options)
    assert not (tmp_path / "runs").exists()
    assert study(replace(options, backend="ray")) == 0, "the cluster may have one"


def test_cores_and_memory_bound_how_many_run_side_by_side(
    ball_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracrl.study import local

    started: list[tuple[int, ...]] = []
    cards: list[int | None] = []
    at_once: list[int] = []

    class Fake:
        """A worker that is done at the second look."""

        returncode = 0

        def __init__(self) -> None:
            self.looks = 0
            self.stdout = io.StringIO('{"state": "done"}\n')

        def poll(self) -> int | None:
            self.looks += 1
            return 0 if self.looks > 1 else None

        def kill(self) -> None: ...

        def wait(self) -> int:
            return 0

    def start(*_: object, cores: tuple[int, ...], gpu: int | None, **__: object) -> Fake:
        started.append(cores)
        cards.append(gpu)
        return Fake()

    monkeypatch.setattr(local, "start_worker", start)
    monkeypatch.setattr(local, "SECONDS_A_LOOK", 0.0)
    start_all = local._Workers._start

    def count(self: local._Workers) -> None:
        start_all(self)
        at_once.append(len(self.at_work))

    monkeypatch.setattr(local._Workers, "_start", count)
    plan = tiny_plan("delta", limits=[5, 10, 15], seeds=[0, 1, 2])

    def shares(cores: int, gibibytes: float, gpus: int = 0, **options: int) -> tuple[list[int], int]:
        for told in (started, at_once, cards):
            told.clear()
        machine = Machine(tuple(range(cores)), int(gibibytes * 2**30), gpus)
        store = Store(tmp_path / f"runs-{cores}-{gibibytes}-{gpus}-{options}")
        run_locally(plan, store, quiet(), machine=machine, **options)
        return [len(c) for c in started], max(at_once)

    assert shares(2, 64) == ([1, 1, 1, 1], 2)
    assert shares(8, 64) == ([2, 2, 2, 2], 4)
    assert shares(64, 64) == ([9, 9, 9, 9], 4), "more cores than runs are no use"
    assert shares(8, 0.1)[1] == 1
    assert shares(8, 64, workers=1)[1] == 1
    assert set(cards) == {None}
    assert shares(8, 64, gpus=1)[1] == 2, "one trains while the other's policies are in the simulator"
    assert set(cards) == {0}
    assert shares(8, 64, gpus=2) == ([2, 2, 2, 2], 4)
    assert cards == [0, 1, 0, 1]
    with pytest.raises(TracrlError, match="--workers is 0"):
        run_locally(plan, Store(tmp_path / "none"), quiet(), workers=0)


def test_on_a_terminal_it_is_a_picture(ball_data: Path, tmp_path: Path) -> None:
    from tracrl.study.board import Board

    plan, store = tiny_plan("sides"), Store(tmp_path / "runs")
    console = Console(file=io.StringIO(), width=140, force_terminal=True, color_system=None)
    store.prepare(plan)
    both, desirable, _ = plan.stacks
    with Board(plan, store, console, "cpu", cores=2) as board:
        board.started(both)
        board.started(desirable)
        watch = {"cores": 1, "updates": 30, "training": 3.0, "episodes": 2, "evaluating": 1.0}
        progress = {"step": 30, "updates": 60, "phase": "classification", "watch": watch, "reward": 0.5, "cost": 0.25}
        store.assignment(both).progress.write_text(json.dumps(progress))
        board.tick()
        shown = said(console)
        assert "sides: 0 of 3 done, 2 running, 1 waiting; about " in shown
        assert "30/60" in shown
        assert "10 updates/s" in shown
        assert "reward 0.50, cost 0.25" in shown
        board.ended(desirable, Outcome("failed", "It broke."))
        board.tick()
    assert "failed: TraC on BallRun, sets desirable: It broke. Log: " in said(console)
    # What was measured of one is known of the others of its kind: 30 updates of 0.1 s and half of 4 episodes of 0.5 s,
    # then two whole stacks, on two cores.
    assert board.remaining() == f"about {duration(((30 + 60) * 0.1 + (2 + 4) * 0.5) / 2)} left"


def test_durations_for_people() -> None:
    assert [duration(s) for s in (0.2, 89, 91, 3599, 3 * 3600 + 300, 60 * 3600)] == [
        "1 s", "89 s", "2 min", "1 h 00 min", "3 h 05 min", "2 d 12 h",
    ]  # fmt: skip


def test_a_finished_directory_with_another_run_in_it_is_refused(ball_data: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    plan = tiny_plan(methods=["bc-all"], settings=TINY_CLONING)
    run_locally(plan, store, quiet())
    config = store.run(plan.stacks[0]).config
    told = json.loads(config.read_text())
    config.write_text(json.dumps({**told, "identity": "0" * 16, "seeds": [7]}))
    (failure,) = run_locally(plan, store, quiet()).failures()
    assert "holds another run, whose seeds are different ([7] there, [0] here)" in failure.reason
