from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracrl import claims as claim_module
from tracrl.claims import BusyError, Claim, ClaimLostError, alive, read_claim, this_process
from tracrl.errors import TracrlError


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "run" / "claim"
    assert alive(path) is None
    with Claim(path):
        assert alive(path) is True
        words = rf"^Process {os.getpid()} on \S+ is at work in {path.parent}: wait"
        with pytest.raises(BusyError, match=words), Claim(path):
            pass
        assert alive(path) is True, "who was refused has taken nothing away"
    assert not path.exists()
    with Claim(path):
        (path.parent / "result").touch()
    assert [file.name for file in path.parent.iterdir()] == ["result"]


def test_where_nothing_was_done_nothing_is_left(tmp_path: Path) -> None:
    with Claim(tmp_path / "run" / "claim"):
        pass
    assert not (tmp_path / "run").exists()


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TracrlError, match="cannot be written"), Claim(tmp_path / "file" / "claim"):
        pass


def test_the_patient_get_it_when_the_other_is_done(tmp_path: Path) -> None:
    first = Claim(tmp_path / "claim")
    first.__enter__()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: Claim(tmp_path / "claim", patience=20).__enter__())
        time.sleep(0.1)
        assert not waiting.done()
        first.__exit__(None, None, None)
        waiting.result(20).__exit__(None, None, None)


def test_a_dead_owners_claim_is_taken_over_at_once(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    script = f"import os, pathlib, tracrl.claims as c; c.Claim(pathlib.Path({str(path)!r})).__enter__(); os._exit(9)"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert alive(path) is False, "dead, though nobody has asked how it ended"
    assert process.returncode == 9
    assert alive(path) is False
    with Claim(path):
        assert (read_claim(path) or {})["pid"] == os.getpid()
    assert not path.exists()


def test_a_process_number_that_is_used_again_is_not_the_same_process(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    path.write_text(json.dumps({**this_process(), "started": "1"}))
    assert alive(path) is False


def test_another_machines_claim_counts_until_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    path.write_text(json.dumps({"host": "node7", "machine": "another", "pid": 1, "started": "1", "token": "x"}))
    assert alive(path) is True
    words = "Process 1 on node7 is at work in .*, or was less than a minute ago"
    with pytest.raises(BusyError, match=words), Claim(path):
        pass
    os.utime(path, (time.time() - 61, time.time() - 61))
    assert alive(path) is False
    with Claim(path):
        assert alive(path) is True


def test_of_many_who_want_a_dead_ones_claim_one_gets_it(tmp_path: Path) -> None:
    def attempt(path: Path) -> Claim | None:
        try:
            return Claim(path).__enter__()
        except BusyError:
            return None

    with ThreadPoolExecutor(16) as pool:
        for again in range(100):
            path = tmp_path / str(again) / "claim"
            path.parent.mkdir()
            path.write_text(json.dumps({**this_process(), "started": "1"}))
            winners = [claim for claim in pool.map(attempt, [path] * 32) if claim is not None]
            for winner in winners:  # else its heartbeat goes on after the test
                winner.__exit__(None, None, None)
            assert len(winners) == 1
    assert not list(tmp_path.rglob("*.part"))


def test_who_was_killed_while_taking_over_is_in_the_way_for_a_minute_at_most(tmp_path: Path) -> None:
    path, turn = tmp_path / "claim", tmp_path / ".claim.part"
    path.write_text(json.dumps({**this_process(), "started": "1"}))
    turn.touch()
    with pytest.raises(BusyError), Claim(path):
        pass
    os.utime(turn, (time.time() - 61, time.time() - 61))
    with Claim(path):
        assert alive(path)
    assert not turn.exists()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_module, "BEAT_SECONDS", 0.02)


@pytest.mark.usefixtures("quick")
def test_who_lost_the_claim_is_told_and_goes_on_living(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    with Claim(path) as mine:
        mine.check()
        path.write_text(json.dumps({**this_process(), "host": "node7", "pid": 12, "token": "another's now"}))
        assert mine.lost.wait(10)
        with pytest.raises(ClaimLostError, match=f"Process 12 on node7 has taken over {tmp_path}") as caught:
            mine.check()
        assert caught.value.exit_code == 75
    assert (read_claim(path) or {})["token"] == "another's now", "what is another's is left alone"


def test_a_look_before_writing_finds_it_at_once(tmp_path: Path) -> None:
    with Claim(tmp_path / "claim") as mine:
        mine.path.write_text(json.dumps({**this_process(), "token": "another's now"}))
        mine.check()
        with pytest.raises(ClaimLostError):
            mine.check(look=True)


@pytest.mark.usefixtures("quick")
def test_a_directory_that_is_removed_is_not_made_again(tmp_path: Path) -> None:
    with Claim(tmp_path / "run" / "claim") as mine:
        shutil.rmtree(tmp_path / "run")
        assert mine.lost.wait(10)
        with pytest.raises(ClaimLostError, match=r"run was removed or moved while it was worked in"):
            mine.check()
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("quick")
def test_a_claim_that_alone_was_removed_is_taken_again(tmp_path: Path) -> None:
    with Claim(tmp_path / "claim") as mine:
        mine.path.unlink()
        deadline = time.monotonic() + 10
        while not read_claim(mine.path) and time.monotonic() < deadline:
            time.sleep(0.01)
        mine.check(look=True)
        assert (read_claim(mine.path) or {})["token"] == mine.owner["token"]
    assert not mine.path.exists()


@pytest.mark.usefixtures("quick")
def test_storage_that_is_away_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    with Claim(tmp_path / "claim") as mine:
        hidden = tmp_path / "hidden"
        mine.path.rename(hidden)
        mine.path.symlink_to(mine.path)  # to read it is an OSError: too many levels of symbolic links
        time.sleep(0.3)
        mine.check(look=True)
        hidden.replace(mine.path)
        mine.check(look=True)
        assert not mine.lost.is_set()


@pytest.mark.usefixtures("quick")
def test_it_is_kept_fresh(tmp_path: Path) -> None:
    with Claim(tmp_path / "claim") as mine:
        os.utime(mine.path, (1, 1))
        deadline = time.monotonic() + 10
        while mine.path.stat().st_mtime < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert mine.path.stat().st_mtime > 2
