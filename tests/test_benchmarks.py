"""The tools around benchmarks; the benchmarks themselves are run by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import compare, gpu, precision, record

NINE = {"reference": 4.0, "one run": 2.0, "nine runs": 12.0}


def test_numbers_are_compared_by_their_names() -> None:
    before = {"ms": {"bc-all": NINE, "cdt": {"one run": 1.0}}}
    after = {"ms": {"bc-all": {**NINE, "one run": 1.0}, "new": {"one run": 3.0}}}
    lines = compare.table(before, after)[1:]
    assert [line.split("  ")[0] for line in lines] == ["bc-all / reference", "bc-all / one run", "bc-all / nine runs"]
    assert lines[1].split()[-6:] == ["2.00", "1.00", "2.00x", "2.00x", "->", "4.00x"]
    assert lines[2].split()[-3:] == ["3.00x", "->", "3.00x"]  # nine runs of 12 ms against one of 4


def test_what_makes_two_files_hard_to_compare_is_said() -> None:
    quiet = {"machine": "A", "cores": 2, "load": [0.3, 0, 0], "torch": "2"}
    assert compare.differences(quiet, quiet) == []
    assert compare.differences(quiet, {**quiet, "machine": "B", "load": [16.0, 9, 9]}) == [
        "machine: A / B",
        "the machine was busy in the second: load 16 on 2 cores",
    ]


def test_a_record_says_where_and_at_which_commit(tmp_path: Path) -> None:
    record.save(tmp_path / "one.json", "baselines", record.facts(), {"batch": 512}, {"bc-all": NINE})
    stored = json.loads((tmp_path / "one.json").read_text())
    assert stored["ms"] == {"bc-all": NINE}
    assert stored["machine"]
    assert stored["cores"] >= 1
    assert {"commit", "changed", "torch", "load", "date", "settings"} <= stored.keys()


def test_the_committed_results_can_be_compared() -> None:
    files = (Path(record.__file__).parent / "results").rglob("*.json")
    timed = {path: stored for path in files if "ms" in (stored := json.loads(path.read_text()))}
    assert timed
    for path, stored in timed.items():
        assert len(compare.table(stored, stored)) == 1 + len(dict(compare.flat(stored["ms"]))), path


def test_scores_of_two_precisions_are_compared_run_by_run() -> None:
    """Runs differ by far more than one run's two scores do, so it is these differences that count."""
    before = {"reward": [0.1, 0.5, 0.9], "cost": [0.0, 1.0, 2.0]}
    after = {"reward": [0.2, 0.6, 1.0], "cost": [0.1, 0.9, 2.0]}
    both = {"float32": before, "bfloat16": after}
    lines = precision.table({"BallRun": {"bc-safe": both, "cdt": {"float32": before}}})
    assert [line.split(" | ")[1:] for line in lines[2:-2]] == [
        ["BC-Safe", "0.500 ± 0.327 / 1.00 ± 0.82", "0.600 ± 0.327 / 1.00 ± 0.78", "+0.100 ± 0.000", "+0.00 ± 0.06 |"]
    ]
    assert lines[-1] == "1 of 2 differences are beyond two standard errors."


def test_a_gpu_is_measured_with_kernels_of_our_own_and_without(tmp_path: Path) -> None:
    commands = gpu.jobs("", tmp_path, 1, 0.1, [], ["BallRun"], "cuda", plain=True)
    assert list(commands) == ["trac-BallRun", "trac-BallRun-plain"]
    for name, ms in zip(commands, (1.0, 2.0), strict=True):
        record.save(tmp_path / f"{name}.json", "trac_update", {}, {}, {"BallRun": {"nine runs": ms}})
    gpu.save(tmp_path, list(commands), {})
    stored = json.loads((tmp_path / "gpu.json").read_text())
    assert stored["ms"] == {"BallRun": {"nine runs": 1.0}, "BallRun, plain": {"nine runs": 2.0}}


def test_processes_have_their_own_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "said.py").write_text("import os; print(repr(os.environ.get('TRACRL_FUSED')))")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("TRACRL_FUSED", raising=False)
    record.in_turn({"with": ["said"], "without": ["said"]}, tmp_path, 0.0, lambda: None, {"with": gpu.WITH_KERNELS})
    assert (tmp_path / "with.txt").read_text().split() == ["''"]
    assert (tmp_path / "without.txt").read_text().split() == ["None"]
