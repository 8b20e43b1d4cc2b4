from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.study.made_up import write_run
from tracrl.evaluation.scores import Scores
from tracrl.report.build import make_report
from tracrl.report.cells import Cell
from tracrl.report.collection import collect
from tracrl.report.csv_files import limits_csv, results_csv, runs_csv
from tracrl.report.groups import overview
from tracrl.report.limits import raw_cost, verdicts_grid
from tracrl.report.page import page_data
from tracrl.tasks.normalise import normalised_cost
from tracrl.tasks.table import get_task
from tracrl.train import checksums


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two limits, a seed, five episodes: one bad episode at 10 of a good mean, and every one a little above 20."""
    run = write_run(tmp_path / "runs", limits=[10.0, 20.0], seeds=[0], episodes=5)
    task = get_task("BallRun")
    returns = np.full((2, 5), task.min_return + 0.5 * (task.max_return - task.min_return))
    costs = np.array([[0.0, 0.0, 0.0, 0.0, 40.0], [21.0, 21.0, 21.0, 21.0, 21.0]])
    Scores("BallRun", (10.0, 20.0), (0, 0), returns, costs, np.full((2, 5), 100)).save(run / "scores.json")
    checksums.write(run)
    return run


def test_each_limit_by_hand(run: Path) -> None:
    found = overview(collect([run]).results)
    ten, twenty = verdicts_grid(found).lines
    assert ten.label == "BallRun, limit 10: TraC"
    assert [entry.text for entry in ten.entries] == ["0.50", "8.00", "20 %", "40.00", "safe"]
    assert [entry.text for entry in twenty.entries] == ["0.50", "21.00", "100 %", "21.00", "UNSAFE"]
    cell = Cell.of(collect([run]).results, "final")
    assert cell is not None
    assert cell.solved, "in the mean over limits"
    assert not cell.safe
    assert cell.share_above == pytest.approx(0.6)
    assert cell.cost_cvar == pytest.approx(4.0)  # of ten episodes the worst: 40 at a limit of 10


def test_csv_files_and_the_page_have_the_same_numbers(run: Path) -> None:
    collection = collect([run])
    found = overview(collection.results)
    rows = [row for row in csv.DictReader(io.StringIO(limits_csv(found))) if row["policy"] == "final"]
    names = ("limit", "cost_mean", "normalised_cost_mean", "share_above", "cost_cvar", "safe")
    assert [tuple(r[name] for name in names) for r in rows] == [
        ("10", "8", "0.8", "0.2", "40", "True"),
        ("20", "21", "1.05", "1", "21", "False"),
    ]
    whole = next(r for r in csv.DictReader(io.StringIO(results_csv(found))) if r["policy"] == "final")
    assert (whole["share_above"], whole["cost_cvar"], whole["safe"]) == ("0.6", "4", "False")
    runs = [r for r in csv.DictReader(io.StringIO(runs_csv(collection.results))) if r["policy"] == "final"]
    assert [(r["limit"], r["share_above"], r["cost_cvar"]) for r in runs] == [("10", "0.2", "4"), ("20", "1", "1.05")]
    (cell,) = page_data(collection, found, [], {})["cells"]
    assert (cell["final"]["share_above"], cell["final"]["cost_cvar"]) == (0.6, 4.0)
    assert [(at["limit"], at["safe"]) for at in cell["limits"]["final"]] == [(10.0, True), (20.0, False)]


def test_the_command_prints_each_limit_where_they_are_few(run: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", task="CarRun", limits=[10.0], seeds=[0])
    console = Console(file=io.StringIO(), width=120)
    make_report([tmp_path / "runs"], tmp_path / "report", console, figures=False)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Each limit, final policy" in printed
    assert "UNSAFE" in next(line for line in printed.splitlines() if "BallRun, limit 20: TraC" in line)
    assert "UNSAFE" in (tmp_path / "report" / "tables" / "verdicts.txt").read_text()


@pytest.mark.parametrize("limit", [0.0, 7.0])
def test_a_normalised_cost_goes_back_to_the_limits_unit(limit: float) -> None:
    assert raw_cost(float(normalised_cost(3.5, limit)), limit) == pytest.approx(3.5)
