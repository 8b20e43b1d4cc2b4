from __future__ import annotations

import math
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import make_small_data
from tracrl.errors import TracrlError
from tracrl.methods.trac import TraC
from tracrl.train.fit import fit
from tracrl.train.logs import CsvLog, TensorBoardLog, read_log

ROW = {"step": 3, "phase": "cloning", "limit": "10", "seed": 0, "loss": 0.25}
SMALL = TraC(updates=4, clone_updates=2, batch_size=4, hidden=(8, 8), warmup=0)
COLUMNS = ["step", "phase", "limit", "seed", "loss"]


def test_what_is_logged_is_read(tmp_path: Path) -> None:
    log = CsvLog(tmp_path / "metrics.csv", COLUMNS, None)
    log.write(ROW)
    log.write({**ROW, "step": 4})
    log.close()
    assert [row["step"] for row in read_log(tmp_path / "metrics.csv")] == ["3", "4"]
    assert read_log(tmp_path / "missing.csv") == []


def test_a_line_that_is_cut_off_is_dropped_though_it_has_all_columns(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"step,phase,limit,seed,loss\r\n1,cloning,10,0,0.5\r\n2,cloning,10,0,0.1")
    assert [row["step"] for row in read_log(path)] == ["1"]
    path.write_bytes(b"step,pha")
    assert read_log(path) == []


def test_a_line_in_the_middle_with_too_few_columns_is_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    lines = [
        "step,phase,limit,seed,loss",
        "1,cloning,10,0,0.5",
        "2,cloning,10",
        "3,cloning,10,0,0.1,7",
        "4,cloning,10,0,1",
    ]
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(
        UserWarning, match=r"metrics.csv: line 3 has more or fewer columns .* left out \(2 such in all\)"
    ):
        assert [row["step"] for row in read_log(path)] == ["1", "4"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n", "it has no column step"),
        (b"step,phase,limit\n1,cloning,10\n", "it has no column seed"),
        (b"\xff\xfe\x00\x01\n", "decode"),
        (b"\0\0\0\n", "it holds zero bytes"),
        (b"step,phase,limit,seed\n1,cloning,10,0\n\0\0\0\n", "it holds zero bytes"),
        (b"step,phase,limit,seed,loss\n1,cloning,10,0,high\n", "its column loss holds 'high', where a number"),
        (b"step,phase,limit,seed,loss\n1,cloning,10,0,inf\n", "its column loss holds 'inf'"),
        (b"step,phase,limit,seed,loss\n1.5,cloning,10,0,1\n", "its column step holds '1.5'"),
        (b"step,phase,limit,seed,loss\n,cloning,10,0,1\n", "its column step holds ''"),
        (b"step,phase,limit,seed,loss\n%b,cloning,10,0,1\n" % (b"9" * 400), "its column step holds '999"),
        (b'step,phase,limit,seed,loss\n1,"cloning,10,0,1\n', "unexpected end of data"),
        (b"step,phase,limit,seed\n1,%b,1,1\n" % (b"x" * 200_000), "field larger"),
    ],
)
def test_a_log_of_another_shape_is_said(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "evaluations.csv"
    path.write_bytes(content)
    with pytest.raises(TracrlError, match=rf"evaluations.csv is not a log written by tracrl.*({words}).*: remove it"):
        read_log(path)


def test_a_directory_in_its_place_is_said(tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match=r"is not a log .*directory"):
        read_log(tmp_path)
    with pytest.raises(TracrlError, match="cannot be written"):
        CsvLog(tmp_path, COLUMNS, None)


def test_tensorboard_reads_what_is_written_for_it(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for steps, purge in (((1, 2, 3), 0), ((3, 4), 3)):
        log = TensorBoardLog(tmp_path, purge)
        for step in steps:
            log.write({**ROW, "step": step, "loss": step + purge / 10})
        log.close()
    events = accumulator.EventAccumulator(str(tmp_path / "limit10-seed0")).Reload()
    found = [(event.step, event.value) for event in events.Scalars("loss")]
    assert [step for step, _ in found] == [1, 2, 3, 4]
    assert [value for _, value in found] == pytest.approx([1, 2, 3.3, 4.3])


@pytest.fixture
def no_room() -> Iterator[None]:
    """No file may grow beyond 2 kB: the nearest to a full disk that needs no privileges."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("no_room")
@pytest.mark.filterwarnings("error")
def test_a_log_that_finds_no_room_is_said(tmp_path: Path) -> None:
    for log in (CsvLog(tmp_path / "metrics.csv", COLUMNS, None), TensorBoardLog(tmp_path / "tensorboard", 0)):
        with pytest.raises(TracrlError, match=r"cannot be written \(File too large\)"):  # noqa: PT012
            for step in range(1000):
                log.write({**ROW, "step": step, "loss": math.pi})
        log.close()


def test_training_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    fit(SMALL, make_small_data(), limits=[4.0], out=tmp_path / "run")
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert read_log(tmp_path / "run" / "metrics.csv")


def test_without_wandb_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(TracrlError, match="--wandb needs the package wandb"):
        fit(SMALL, make_small_data(), limits=[4.0], out=tmp_path / "run", wandb="project")
    assert not (tmp_path / "run").exists()


def test_a_log_of_another_shape_ends_a_resumed_training_with_its_sentence(tmp_path: Path) -> None:
    data = make_small_data()
    fit(SMALL, data, limits=[4.0], out=tmp_path / "run")
    (tmp_path / "run" / "policy.safetensors").unlink()
    (tmp_path / "run" / "metrics.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TracrlError, match=r"metrics.csv is not a log written by tracrl"):
        fit(SMALL, data, limits=[4.0], out=tmp_path / "run", resume=True)
