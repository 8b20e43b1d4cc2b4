"""Estimates beside scores: in the tables and on the page."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.report.made_up_estimates import write_estimates
from tests.study.made_up import write_run
from tracrl.report.build import make_report


def report(runs: Path) -> tuple[str, dict[str, Any]]:
    """The page, and the data in it."""
    page = make_report([runs], None, Console(file=io.StringIO()), figures=False).read_text()
    found = re.search(r'type="application/json"[^>]*>(.*?)</script>', page, re.S)
    assert found is not None
    return page, json.loads(found[1])


def test_estimates_stand_beside_what_was_played(tmp_path: Path) -> None:
    run = write_run(tmp_path, limits=(10, 20), seeds=(0,), reward=0.5, cost=0.4)
    write_estimates(run)
    page, data = report(tmp_path)
    runs = {r["limit"]: r for cell in data["cells"] for r in cell["runs"]}
    assert runs[20.0]["estimated"]["cost"][0] == 0.5
    assert runs[20.0]["estimated"]["shown"]
    assert runs[10.0]["estimated"]["cost"][0] == 3.0
    assert not runs[10.0]["estimated"]["shown"]
    text = (tmp_path / "report" / "tables" / "estimates.txt").read_text()
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "3.00 (2.84 to 3.16)" in lines["BallRun, TraC, limit 10, seed 0"]
    assert lines["BallRun, TraC, limit 10, seed 0"].split()[-2:] == ["NO", "40%"]
    assert lines["BallRun, TraC, limit 20, seed 0"].split()[-2:] == ["yes", "1%"]
    for said in ("90% intervals", "were held out", "Assumed: "):
        assert said in text
        assert said in page


def test_estimates_of_other_policies_are_not_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path, limits=(10, 20), seeds=(0,))
    estimates = write_estimates(run)
    replace(estimates, policies=("another", "one")).save(run / "estimates.json")
    _, data = report(tmp_path)
    assert all(r["estimated"] is None for cell in data["cells"] for r in cell["runs"])
    assert any("is of other policies" in note for note in data["notes"])
    (run / "estimates.json").write_text("{}")
    _, data = report(tmp_path)
    assert any("holds no estimates of tracrl" in note for note in data["notes"])
    assert data["cells"], "the scores are shown all the same"
    assert not (tmp_path / "report" / "tables" / "estimates.txt").exists()
