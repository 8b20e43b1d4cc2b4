"""A real Ray of two nodes on this machine, one of which loses its power in the middle. `make test-ray`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.test_local import SCORED, quiet, same_result, tiny_plan, until
from tracrl.checkpoints import Checkpoint
from tracrl.claims import alive, read_claim
from tracrl.data.locate import load_dataset
from tracrl.errors import TracrlError
from tracrl.study.local import run_locally
from tracrl.study.plan import make_plan
from tracrl.study.store import Store

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
ray_backend = pytest.importorskip("tracrl.study.ray_backend")

LONG = ("hidden=[8]", "trac.batch_size=4", "trac.updates=6000", "trac.clone_updates=3000", "trac.warmup=5")
RAY = [sys.executable, "-c", "import sys; from ray.scripts.scripts import main; sys.exit(main())"]


def children_of(pid: int) -> list[int]:
    """Everything below a process."""
    below: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        below.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found, todo = [], [pid]
    while todo:
        found += (new := below.get(todo.pop(), []))
        todo += new
    return found


class Node:
    """`ray start --block`, in a process of its own."""

    def __init__(self, *words: str):
        self.process = subprocess.Popen(
            [*RAY, "start", "--block", "--num-cpus=1", "--disable-usage-stats", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def lose_power(self) -> None:
        """Everything that belongs to the node dies at once and saves nothing."""
        for pid in [self.process.pid, *children_of(self.process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            below = children_of(self.process.pid)
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
            for pid in below:
                if Path(f"/proc/{pid}").exists():
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Node, Node]]:
    """An address and two nodes of one core each."""
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    monkeypatch.setenv("RAY_health_check_failure_threshold", "4")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    port = address.split(":")[1]
    # Ray's sockets have long names, and the kernel allows 107 letters: not below pytest's directories.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as place:
        head = Node("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={place}")
        second = None
        try:
            until(lambda: _alive(address) == 1, 90)
            second = Node(f"--address={address}")
            until(lambda: _alive(address) == 2, 90)
            yield address, head, second
        finally:
            if second is not None:
                second.close()
            head.close()


def _alive(address: str) -> int:
    script = (
        f"import ray; ray.init(address={address!r}, log_to_driver=False, configure_logging=False)\n"
        "print(sum(node['Alive'] for node in ray.nodes()))"
    )
    try:
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return 0
    return int(result.stdout.split()[-1]) if result.returncode == 0 else 0


def test_a_node_that_dies_in_the_middle_changes_nothing(
    cluster: tuple[str, Node, Node], ball_data: Path, tmp_path: Path
) -> None:
    address, _, second = cluster
    plan = tiny_plan("uniform-reference", settings=LONG)
    store = Store(tmp_path / "runs")
    script = (
        "import sys, pathlib\n"
        "from rich.console import Console\n"
        "from tracrl.study.plan import make_plan\n"
        "from tracrl.study.ray_backend import run_on_ray\n"
        "from tracrl.study.store import Store\n"
        f"plan = make_plan('uniform-reference', tasks=['BallRun'], settings={LONG!r}, **{SCORED!r})\n"
        f"board = run_on_ray(plan, Store(pathlib.Path({str(store.path)!r})), Console(width=200), address={address!r},\n"
        "    device='cpu', checkpoint_seconds=0.3)\n"
        "sys.exit(board.count('done') != 2)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )

    def on_the_second_node() -> list[object]:
        """Stacks at work below the second node that have a checkpoint already."""
        below = set(children_of(second.process.pid))
        return [
            stack
            for stack in plan.stacks
            if (read_claim(store.run(stack).claim) or {}).get("pid") in below and store.started(stack)
        ]

    try:
        until(lambda: on_the_second_node() or driver.poll() is not None, 120)
        hit = on_the_second_node()
        assert len(hit) == 1, "both nodes have work"
        second.lose_power()
        output, _ = driver.communicate(timeout=300)
    finally:
        driver.kill()
    assert driver.returncode == 0, output
    (stack,) = hit
    log = store.assignment(stack).log.read_text()  # type: ignore[arg-type]
    assert log.count("process ") == 2, "it was started twice"
    assert "Going on after update" in log

    local = Store(tmp_path / "local")
    assert run_locally(plan, local, quiet()).count("done") == 2
    for stack in plan.stacks:
        same_result(store.path, local.path, stack)
        assert not store.run(stack).claim.exists()


def test_failures_are_answers_and_all_needs_are_checked(
    cluster: tuple[str, Node, Node], ball_data: Path, tmp_path: Path
) -> None:
    address, _, _ = cluster
    plan = tiny_plan()
    taken = Store(tmp_path / "runs").run(plan.stacks[0]).path
    taken.mkdir(parents=True)
    (taken / "mine.txt").write_text("somebody's own")
    board = ray_backend.run_on_ray(plan, Store(tmp_path / "runs"), quiet(), address=address, device="cpu")
    (failure,) = board.failures()
    assert "is there already and holds no run" in failure.reason
    with pytest.raises(TracrlError, match="TraC on BallRun fits on no machine of the Ray cluster: it needs 64 cores"):
        ray_backend.run_on_ray(plan, Store(tmp_path / "runs"), quiet(), address=address, device="cpu", cores=64)
    with pytest.raises(TracrlError, match="--device cuda: no machine of the Ray cluster has a GPU"):
        ray_backend.run_on_ray(plan, Store(tmp_path / "runs"), quiet(), address=address, device="cuda")


def test_stopped_or_killed_it_is_saved_and_a_second_start_goes_on(
    cluster: tuple[str, Node, Node], ball_data: Path, tmp_path: Path
) -> None:
    address, _, _ = cluster
    words = ["--tasks", "BallRun", "--methods", "trac", "--limits", "10", "--seeds", "0", "--episodes", "2"]
    command = [sys.executable, "-m", "tracrl.cli", "study", "main", *words, "--evaluations", "2", "--set", *LONG]
    command += ["--out", str(tmp_path / "runs"), "--backend", "ray", "--address", address, "--device", "cpu"]
    store = Store(tmp_path / "runs")
    (stack,) = tiny_plan(settings=LONG).stacks
    step = 0
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        until(lambda before=step: store.assignment(stack).read_progress().get("step", 0) > before + 50)  # type: ignore[misc]
        driver.send_signal(number)
        output, _ = driver.communicate(timeout=120)
        assert driver.returncode == code, output
        until(lambda: not alive(store.run(stack).claim), 60)
        reached = Checkpoint.load(store.run(stack).checkpoint).step
        # Stopped, all of it is kept. When the driver is killed, Ray kills the workers: the last checkpoint is kept.
        assert step < reached < 6000 if number == signal.SIGINT else step == reached
        step = reached
    last = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert last.returncode == 0, last.stdout + last.stderr
    assert f"Going on after update {step} of 6000" in store.assignment(stack).log.read_text()


def test_no_cluster_is_said(ball_data: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(TracrlError, match=r"There is no Ray cluster at address '127.0.0.1:1'.*ray start --head"):
        ray_backend.run_on_ray(tiny_plan(), Store(tmp_path / "runs"), quiet(), address="127.0.0.1:1")
    assert time.monotonic() - began < 60
    assert not (tmp_path / "runs").exists()


def test_data_are_collected_on_the_cluster_and_then_trained_on(cluster: tuple[str, Node, Node], tmp_path: Path) -> None:
    tiny = ("updates=20", "hidden=[8]", "batch_size=4")
    plan = make_plan(
        "main", tasks=["DroneRun"], methods=["bc-safe"], limits=[10], seeds=[0], preset="fast", settings=tiny,
        episodes=1, evaluations=1, collect=True, collect_steps=3000, collect_episodes=12,
    )  # fmt: skip
    console = quiet()
    board = ray_backend.run_on_ray(plan, Store(tmp_path / "runs"), console, address=cluster[0])
    assert board.all_done, [entry.reason for entry in board.failures()]
    assert [entry.job.title for entry in board.entries.values()] == ["Collecting DroneRun", "BC-Safe on DroneRun"]
    assert len(load_dataset("DroneRun")) == 12
