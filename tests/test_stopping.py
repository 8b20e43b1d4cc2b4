"""Ctrl-C and SIGTERM, sent to real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import make_small_data
from tracrl.data.hdf5 import write_hdf5
from tracrl.stopping import Stopped, stop_requests


def test_the_first_is_a_request_and_the_second_an_end() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped) as caught, stop_requests() as stop:  # noqa: PT012
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(5)
        assert stop.exit_code == 143
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    assert caught.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_requests() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stop.wait(0.05)
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait(5)
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_the_background_of_a_script_sigterm_stops_a_training(tmp_path: Path) -> None:
    write_hdf5(make_small_data(), tmp_path / "own.hdf5")
    command = [sys.executable, "-m", "tracrl", "train", "trac", "--data", "own.hdf5", "--limits", "4"]
    command += ["--hidden", "8", "8", "--batch-size", "4", "--out", "run", "--updates", "1000000"]
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],  # as behind an & in a script
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "metrics.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None, process.communicate()
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "tracrl: Stopped after" in errors
    assert "Go on with the same command and --resume" in errors
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_sigterm_stops_a_collection_and_its_processes_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tracrl", "collect", "--env", "tests.odd_envs:SlowEnv", "--steps", "100000"]
    command += ["--episodes", "10", "--workers", "2", "--out", str(tmp_path / "slow.hdf5")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(workers := _children(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)  # they play by now
    began = time.monotonic()
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 20, "an episode takes a minute"
    assert process.returncode == 143
    assert errors.startswith("tracrl: Stopped")
    assert "Traceback" not in errors
    assert len(workers) == 2
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_a_command_loads_is_no_traceback(number: signal.Signals) -> None:
    """From the moment on in which Python itself has started."""
    for milliseconds in (1, 30, 100, 200):
        script = (
            "import os, signal, sys\n"
            f"signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), {int(number)}))\n"
            "from tracrl.cli import main\n"
            f"signal.setitimer(signal.ITIMER_REAL, {milliseconds / 1000})\n"
            "sys.argv = ['tracrl', 'methods']\n"
            "sys.exit(main())\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (128 + number, "tracrl: Stopped.\n"), milliseconds


def test_the_command_line_loads_nothing_before_it_listens() -> None:
    """But for what Python loads by itself."""
    script = (
        f"import os, sys; sys.path.insert(0, {str(Path.cwd())!r}); before = set(sys.modules); import tracrl.cli;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__future__", "importlib", "tracrl", "warnings"]
