"""A slice of the benchmark: what it runs, and what a rented machine gives back."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_slice", ROOT / "tools" / "benchmark_slice.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["benchmark_slice"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_task_is_collected_trained_and_evaluated_in_this_order(tool: ModuleType, tmp_path: Path) -> None:
    options = argparse.Namespace(
        collect=["DroneRun:1000:10:2", "easysparse:1:12:4:12"], train=["BallRun"], untrained=["DroneRun"], even=[],
        also=["BallRun=trac:full", "easysparse=trac:fast:x=25"], standardise=["easysparse"],
        unstandardised=["easysparse"], curves=["BallRun"], stacks=["trac:fast"], players=3,
    )  # fmt: skip
    jobs = {job.name: job for job in tool.jobs_of(tmp_path, options)}
    assert list(jobs) == [
        "collect DroneRun",
        "collect easysparse",
        *("train BallRun trac-fast", "evaluate BallRun trac-fast"),
        *("train easysparse trac-fast", "evaluate easysparse trac-fast"),
        *("train easysparse.off trac-fast", "evaluate easysparse.off trac-fast"),
        *("train BallRun trac-full", "evaluate BallRun trac-full"),
        *("train easysparse trac-fast-x=25", "evaluate easysparse trac-fast-x=25"),
    ]
    assert [name for name, job in jobs.items() if job.long] == ["train BallRun trac-full"]
    assert jobs["train easysparse trac-fast-x=25"].words[-3:] == ["on", "0", "trac:fast:x=25"]
    assert jobs["train BallRun trac-fast"].words[-2:] == ["1", "trac:fast"]
    assert jobs["collect easysparse"].words[-2:] == ["12", "0"]
    trained, evaluated = jobs["train easysparse trac-fast"], jobs["evaluate easysparse trac-fast"]
    assert trained.after == jobs["collect easysparse"].done
    assert evaluated.after == trained.done
    assert jobs["train BallRun trac-fast"].after is None  # the repository has its data
    assert trained.words[-3] == "on"
    assert jobs["train easysparse.off trac-fast"].words[-3] == "off"
    assert not trained.ready
    assert jobs["collect DroneRun"].ready


def test_the_middle_preset_is_the_fast_one_but_slower(tool: ModuleType) -> None:
    fast, middle = (tool.method_of("trac", preset, "Bullet") for preset in ("fast", "middle"))
    assert middle.updates == 2 * fast.updates
    assert middle.lr < fast.lr
    assert tool.method_of("trac", "fast", "Bullet", ["x=25", "sides=desirable"]) == replace(
        fast, x=25.0, sides="desirable"
    )


def test_what_comes_back_stays_within_what_the_machine_gives(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data in parts, each once; then policies, as far as there is room."""
    monkeypatch.setattr(tool, "PART", 400_000)
    work, first, second = tmp_path / "work", tmp_path / "first", tmp_path / "second"
    for name, size in (("A", 900_000), ("B", 1_500_000), ("C", 100_000)):
        tool.data_of(work, name).parent.mkdir(parents=True, exist_ok=True)
        tool.data_of(work, name).write_bytes(bytes([len(name)]) * size)
    for number in range(5):
        run = work / "runs" / f"task{number}" / "trac-fast"
        run.mkdir(parents=True)
        (run / "policy.safetensors").write_bytes(bytes(120_000))
    too_large = work / "runs" / "task0" / "bcq-lag-fast" / "policy.safetensors"
    too_large.parent.mkdir()
    too_large.write_bytes(bytes(500_000))
    (run / "scores.json").write_text("{}")
    for out in (first, second):
        tool.pack(work, out, ["A", "B", "C"], room=2_000_000)
        assert len(list(out.iterdir())) <= tool.FILES
        assert sum(path.stat().st_size for path in out.iterdir()) <= 2_100_000
    assert b"".join(path.read_bytes() for path in sorted(first.glob("A.*"))) == tool.data_of(work, "A").read_bytes()
    assert sorted(path.name for path in first.glob("*.hdf5.*")) == ["A.hdf5.0", "A.hdf5.1", "A.hdf5.2", "C.hdf5.0"]
    assert {path.name[0] for path in second.glob("*.hdf5.*")} == {"B"}
    with tarfile.open(first / "results.tar.gz") as tar:
        assert tar.getnames() == ["runs/task4/trac-fast/scores.json"]
    with tarfile.open(first / "policies0.tar") as tar:
        assert tar.getnames() == [f"runs/task{number}/trac-fast/policy.safetensors" for number in (0, 1)]
    tool.pack(work, tmp_path / "little", [], room=200_000)
    assert [path.name for path in (tmp_path / "little").iterdir()] == ["results.tar.gz"], "and no empty archives"


def test_a_learner_comes_back_if_it_can_go_on_alone(tool: ModuleType, tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    for task, names in (
        ("Early", ("recipe.json", "learner.safetensors", "claim.json")),
        ("Late", ("recipe.json", "learner.safetensors", "learner000.safetensors")),
    ):
        part = tool.data_of(work, task).with_suffix(".hdf5.part")
        part.mkdir(parents=True)
        for name in names:
            (part / name).write_text(name)
    tool.pack(work, out, [])
    with tarfile.open(out / "parts.tar") as tar:
        assert tar.getnames() == [f"data/Early.hdf5.part/{name}" for name in ("recipe.json", "learner.safetensors")]
