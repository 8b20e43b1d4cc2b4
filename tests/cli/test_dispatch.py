"""What is said about commands that are none, and about errors that nobody foresaw."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tracrl
from tracrl.cli import main


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("foo", "There is no command called 'foo': tracrl --help lists them."),
        ("trian trac", "There is no command called 'trian': did you mean tracrl train?"),
        ("inspect my.hdf5", "There is no command called 'inspect': did you mean tracrl data inspect?"),
        ("data", "Say what to do with it: tracrl data import, tracrl data inspect, tracrl data check"),
        ("data chekc my.hdf5", "There is no command called 'data chekc': did you mean tracrl data check?"),
        ("--verison", "There is no option called '--verison'"),
    ],
)
def test_a_command_that_is_none_is_answered(words: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"tracrl: {sentence}")
    assert said.out == ""


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_the_version_is_printed(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    assert capsys.readouterr().out == f"tracrl {tracrl.__version__}\n"


@pytest.mark.parametrize("words", [["--out", ""], ["--out="]])
def test_an_empty_value_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "trac", "BallRun", *words]) == 1
    assert "--out has an empty value" in capsys.readouterr().err


@pytest.fixture
def broken_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """``tracrl tasks`` with a mistake in it; a folder for temporary files."""

    def tasks(options: object) -> int:
        raise ZeroDivisionError("nobody\nforesaw this")

    from tracrl.cli import dispatch

    monkeypatch.setitem(dispatch.COMMANDS, ("tasks",), (tasks, dispatch.COMMANDS["tasks",][1]))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_an_unforeseen_error_is_a_sentence_that_names_a_file(
    broken_command: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks"]) == 70
    said = capsys.readouterr().err
    (file,) = broken_command.iterdir()
    assert "ZeroDivisionError: nobody foresaw this" in said
    assert str(file) in said
    assert said.count("\n") == 1
    assert "Traceback (most recent call last)" in file.read_text()
    assert "tracrl tasks" in file.read_text()


@pytest.mark.parametrize("words", [["--debug", "tasks"], ["tasks", "--debug"]])
def test_debug_shows_the_traceback(broken_command: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_traceback_that_cannot_be_written_is_said(
    broken_command: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(broken_command / "missing"))
    assert main(["tasks"]) == 70
    assert "could not be written (No such file or directory): --debug shows it" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("seconds", [0.12, 0.3, 0.8])
def test_an_interrupt_while_it_starts_is_a_word(number: int, status: int, seconds: float, tmp_path: Path) -> None:
    """The process says when Python itself is up: from there on it is our start that is interrupted."""
    started, waiting = os.pipe()
    code = f"import os, sys; os.write({waiting}, b'.'); from tracrl.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "train", "trac", "BallRun", "--out", "run"],
        cwd=tmp_path,
        pass_fds=[waiting],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(waiting)
    os.read(started, 1)
    os.close(started)
    time.sleep(seconds)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == status, errors
    assert errors.startswith("tracrl: Stopped")
    assert errors.count("\n") == 1


def with_module(name: str, source: str, folder: Path, *words: str) -> tuple[int, str]:
    """How a command ends, and what it says, with this in place of a module that it loads."""
    (folder / f"{name}.py").write_text(source)
    process = subprocess.run(
        [sys.executable, "-c", "import sys; from tracrl.cli import main; sys.exit(main())", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return process.returncode, process.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_no_exception_passes_through_torch_while_it_loads(number: int, status: int, tmp_path: Path) -> None:
    """In its C++ it would end the process by SIGABRT, with words of its own."""
    told = f"import os\ntry:\n    os.kill(os.getpid(), {number:d})\n    [0 for _ in range(9)]\n"
    ended = with_module("torch", f"{told}except BaseException:\n    os.abort()\n", tmp_path, "train", "trac", "BallRun")
    assert ended == (status, "tracrl: Stopped.\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_no_interrupt_is_lost_where_nothing_can_be_raised(number: int, status: int, tmp_path: Path) -> None:
    """Python's own import runs code while it gives up an object, too, and ignores what is raised there."""
    given_up = f"import os\nclass GivenUp:\n    def __del__(self):\n        os.kill(os.getpid(), {number:d})\n"
    ended = with_module("tyro", f"{given_up}        [0 for _ in range(9)]\nGivenUp()\nos._exit(9)\n", tmp_path, "tasks")
    assert ended == (status, "tracrl: Stopped.\n")
