"""Studies that make their data: collecting is a job, stopped and gone on with like any other."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tracrl.claims import alive
from tracrl.cli import main
from tracrl.data.locate import load_dataset
from tracrl.report.build import make_report
from tracrl.study.board import Board
from tracrl.study.collecting import CollectionSpec
from tracrl.study.estimate import Work, estimate
from tracrl.study.local import Machine
from tracrl.study.measured import Measurement, Rates
from tracrl.study.plan import make_plan
from tracrl.study.store import Outcome, Store
from tracrl.study.typical import STEPS_PER_SECOND
from tracrl.tasks.table import all_tasks

LINE = (
    "study main --tasks DroneRun --methods bc-safe --limits 10 --seeds 0 --preset fast --evaluations 1 --episodes 1 "
    "--set updates=20 hidden=[8] batch_size=4 --collect --collect-steps 2000 --collect-episodes 12"
)


def command(out: Path) -> list[str]:
    return [sys.executable, "-m", "tracrl.cli", *LINE.split(), "--out", str(out)]


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_study_that_is_killed_while_it_collects_goes_on_and_ends_with_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    spec = CollectionSpec.of("DroneRun", 2000, 12)
    assert Path(spec.file) == Path(os.environ["DSRL_DATASET_DIR"]) / "DroneRun.hdf5", "where data are looked for"
    assert main([*LINE.split(), "--out", str(out), "--plan"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"collecting: about .* \(by the table of another machine\)", told)
    assert "training: about" in told
    assert "evaluating: about" in told
    assert not spec.parts.exists(), "a plan starts nothing"

    first = subprocess.Popen(command(out), stdout=subprocess.PIPE, text=True)
    until(lambda: spec.started)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    until(lambda: not alive(spec.claim))  # the worker notices and stops
    assert not spec.done

    second = subprocess.run(command(out), capture_output=True, text=True, timeout=300, check=False)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "going on: Collecting DroneRun" in second.stdout
    assert "Going on after" in (out / "study" / "DroneRun-data" / "log.txt").read_text()
    assert "Normalised reward and cost, final policy" in second.stdout
    data = load_dataset("DroneRun")
    assert len(data) == 12
    assert main([*LINE.split(), "--out", str(out)]) == 0
    third = capsys.readouterr().out
    assert "main: 1 stack, 1 of them done already" in third
    assert "ollecting" not in third

    # Scores, policies, configurations and fingerprints stay when the data go.
    shutil.rmtree(tmp_path / "datasets")
    make_report([out], tmp_path / "report", Console(file=io.StringIO()), figures=False)
    with (tmp_path / "report" / "tables" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["fingerprint"] for row in rows} == {data.fingerprint}
    assert "tracrl collect DroneRun --steps=2000 --episodes=12" in rows[0]["data"]


def test_data_that_cannot_be_collected_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan("main", tasks=["DroneRun"], methods=["bc-safe"], limits=[10], seeds=[0], collect=True)
    assert not plan.missing
    (collection,) = plan.collections
    assert (collection.steps, collection.episodes) == (1_000_000, 1_000)
    store = Store(tmp_path / "runs")
    board = Board(store.prepare(plan), store, Console(width=200), "cpu", 2)
    with board:
        assert [job.title for job in board.waiting()] == ["Collecting DroneRun"]
        assert "1 waiting for data, 1 waiting" in board.summary()
        board.started(collection)
        board.ended(collection, Outcome("done"))  # and yet there is no file
    assert board.count("failed") == 1
    assert not board.all_done
    assert "set DSRL_DATASET_DIR to a folder that all machines share" in capsys.readouterr().out.replace("\n", " ")


def test_what_a_collection_took_is_remembered_and_scaled() -> None:
    spec = CollectionSpec("DroneRun", "x.hdf5", 4000, 20)
    rates = Rates([Measurement(spec.kind(), seconds_per_update=0.01, seconds_per_episode=None, memory=1)])
    assert rates.collecting(spec, cores=2) == pytest.approx(20)
    assert rates.collecting(CollectionSpec("DroneRun", "x.hdf5", 8000, 20), cores=1) == pytest.approx(80)
    assert rates.collecting(CollectionSpec("AntRun", "x.hdf5", 4000, 20), cores=1) is None


def test_the_plan_adds_up_each_kind_of_work_by_hand(tmp_path: Path) -> None:
    plan = make_plan(
        "main",
        tasks=["PointCircle1"],
        methods=["trac", "bc-safe"],
        preset="fast",
        collect=True,
        collect_steps=2_000_000,
        precision="float32",
    )
    told = estimate(plan, Store(tmp_path / "runs"), "cpu", 2)
    assert list(told.kinds) == ["collecting", "training", "evaluating"]
    speed = STEPS_PER_SECOND["PointCircle1"]
    assert told.collecting.seconds == pytest.approx(2e6 * (1 / speed + 0.0004) / 2)
    trac, cloning = plan.stacks
    rows = trac.method.batch_size * trac.method.ratio * 500  # type: ignore[attr-defined]
    updates = 9 * trac.method.updates * rows * 5.8e-6 + 9 * cloning.method.updates * 0.0025
    assert told.training.seconds == pytest.approx(updates / 2)
    assert told.evaluating.seconds == pytest.approx(2 * 12 * 9 * 20 * 500 / speed / 2)
    assert {work.source for work in told.kinds.values()} == {"by the table of another machine"}
    on_a_gpu = estimate(plan, Store(tmp_path / "runs"), "cuda", 2)
    assert (on_a_gpu.training.seconds, on_a_gpu.training.source) == (0.0, "unknown")


def test_the_table_of_speeds_is_that_of_the_docs() -> None:
    """The last column of docs/simulators.md: whole episodes, as they are played now."""
    docs = (Path(__file__).parents[2] / "docs" / "simulators.md").read_text()
    lines = docs.partition("## Speed")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    measured = {row[0]: int(row[-1].replace(",", "")) for row in rows if row[0] in STEPS_PER_SECOND and len(row) == 7}
    assert measured == STEPS_PER_SECOND
    assert set(measured) == set(all_tasks())


def test_where_numbers_come_from_in_words() -> None:
    work = Work()
    work.add(3.0, lambda: None, 2)
    work.add(None, lambda: 4.0, 2)
    work.add(None, lambda: None, 2)
    assert (work.seconds, work.source) == (5.0, "1 measured here, 1 by the table of another machine, 1 unknown")


def test_on_a_gpu_machine_a_collection_takes_cores_and_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.study.made_up import write_ball_data
    from tracrl.study import local

    write_ball_data(tmp_path / "datasets")
    started: list[tuple[str, int, int | None, str]] = []

    class Endless:
        """A worker that goes on."""

        returncode = None

        def poll(self) -> None: ...

        def kill(self) -> None: ...

        def wait(self) -> int:
            return 0

    def start(assignment, *_: object, device: str, cores: tuple[int, ...], gpu: int | None, **__: object) -> Endless:  # type: ignore[no-untyped-def]
        started.append((assignment.path.name.rpartition("-")[0], len(cores), gpu, device))
        return Endless()

    monkeypatch.setattr(local, "start_worker", start)
    plan = make_plan("main", tasks=["DroneRun", "BallRun"], methods=["trac", "bc-all"], preset="fast", collect=True)
    store = Store(tmp_path / "runs")
    board = Board(store.prepare(plan), store, Console(file=(tmp_path / "said").open("w")), "cuda", 16)
    workers = local._Workers(board, Machine(tuple(range(16)), 64 << 30, 1), "cuda", 2, 2, 60.0)
    workers._start()
    assert started[0] == ("DroneRun", 8, None, "cpu")
    assert [(name, gpu, device) for name, _, gpu, device in started[1:]] == [
        ("BallRun-trac", 0, "cuda"),
        ("BallRun-bc-all", 0, "cuda"),
    ]


def test_cores_that_nobody_needs_go_to_who_is_still_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two jobs ends early: the other is stopped, saved, and goes on with both cores."""
    from tests.study.made_up import write_ball_data
    from tracrl.study import local

    write_ball_data(tmp_path / "datasets")
    started: list[tuple[str, int]] = []

    class Worker:
        """Ends when told to, and says so."""

        returncode = 0

        def __init__(self) -> None:
            self.told = ""
            self.stdout = io.StringIO()

        def poll(self) -> int | None:
            return 0 if self.told else None

        def end(self, state: str) -> None:
            self.told = state
            self.stdout = io.StringIO(f'{{"state": "{state}", "final": false}}\n')

        def terminate(self) -> None:
            self.end("stopped")

    processes: dict[str, Worker] = {}

    def start(assignment, *_: object, cores: tuple[int, ...], **__: object) -> Worker:  # type: ignore[no-untyped-def]
        name = assignment.path.name.rpartition("-")[0]
        started.append((name, len(cores)))
        processes[name] = Worker()
        return processes[name]

    monkeypatch.setattr(local, "start_worker", start)
    plan = make_plan("main", tasks=["BallRun"], methods=["trac", "bc-all"], preset="fast")
    store = Store(tmp_path / "runs")
    board = Board(store.prepare(plan), store, Console(file=(tmp_path / "said").open("w")), "cpu", 2)
    workers = local._Workers(board, Machine((0, 1), 64 << 30, 0), "cpu", 2, 2, 60.0)
    workers._start()
    assert started == [("BallRun-trac", 1), ("BallRun-bc-all", 1)]
    trac = next(entry for entry in board.entries.values() if entry.job.name.startswith("BallRun-trac"))
    processes["BallRun-bc-all"].end("done")
    workers._check()
    (left,) = workers.at_work
    left.since -= 100.0
    trac.progress = {"step": 9000, "first": 0, "updates": 10_000}  # 11 seconds to go: not worth a restart
    workers._widen()
    assert not left.widening
    trac.progress = {"step": 1000, "first": 0, "updates": 10_000}  # 900 to go, on twice the cores 450
    workers._widen()
    assert left.widening
    workers._check()
    workers._start()
    assert started[2:] == [("BallRun-trac", 2)]
