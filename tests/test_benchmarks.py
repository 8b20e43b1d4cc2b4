"""The tools around benchmarks; the benchmarks themselves are run by hand."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import compare, record

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
    for path in (Path(record.__file__).parent / "results").glob("*.json"):
        stored = json.loads(path.read_text())
        assert len(compare.table(stored, stored)) == 1 + len(dict(compare.flat(stored["ms"]))), path
