"""Calibrated policies in tables, on the page and on the card."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.ope.test_inner_limits import estimated, policy
from tests.study.made_up import write_run
from tracrl.errors import TracrlError
from tracrl.ope.inner_limits import NO_BOLDER, Calibration, calibrate, candidates
from tracrl.report.build import make_report
from tracrl.report.card import write_card
from tracrl.train.directory import RunDirectory


def calibrated_run(folder: Path, **how: str) -> Path:
    """A run whose policy for a limit of 20 may act at 16 by one seed, and whose other seed is shown nowhere."""
    run = write_run(folder, limits=(10, 20), seeds=(0, 10), **how)  # type: ignore[arg-type]
    tried = candidates(policy(), [20])
    estimates = estimated(tried.stacks["trac-any"], (0.5, 0.5), error=9.0)
    estimates.costs[np.array(estimates.seeds) == 10] += 30
    calibrate(tried, estimates, [20]).save(RunDirectory(run))
    return run


def test_inner_limits_are_told_in_the_report(tmp_path: Path) -> None:
    calibrated_run(tmp_path)
    said = io.StringIO()
    page = make_report([tmp_path], None, Console(file=said, width=200), figures=False).read_text()
    text = (tmp_path / "report" / "tables" / "calibrated.txt").read_text()
    lines = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    shown, not_shown = (lines[f"BallRun, TraC, limit 20, seed {seed}"][6:] for seed in (0, 10))
    assert shown == ["16", "–", "8.0", "19.5", "16.0", "yes"]
    assert not_shown == ["0", "–", "30.0", "41.5", "0.0", "NO"]
    for where in (page, text, " ".join(said.getvalue().split())):
        for sentence in ("chosen from the log alone", "with 90% confidence", "One note.", NO_BOLDER, "Assumed: "):
            assert sentence in where


def test_of_a_calibration_by_an_older_version_nothing_is_said_that_was_not_so(tmp_path: Path) -> None:
    """What was not shown could be bolder than told before version 0.14.0, whose files have marks of the policies."""
    run = RunDirectory(calibrated_run(tmp_path))
    stored = json.loads(run.calibration.read_text())
    del stored["policies"]
    stored["notes"].remove(NO_BOLDER)
    run.calibration.write_text(json.dumps(stored))
    card = write_card(run.path).read_text()
    assert "| 20 | 10 | 0 | – | 30.0 | 41.5 | 0.0 | NO |" in card
    assert NO_BOLDER not in card


def test_calibrations_of_runs_without_scores_are_told_too(tmp_path: Path) -> None:
    """They were made for those who have no simulator."""
    run = calibrated_run(tmp_path / "unscored")
    (run / "scores.json").unlink()
    write_run(tmp_path / "scored", method="bc-safe")
    make_report([tmp_path], None, Console(file=io.StringIO()), figures=False)
    text = (tmp_path / "report" / "tables" / "calibrated.txt").read_text()
    assert "BallRun, TraC, limit 20, seed 0 " in text


def test_each_of_several_runs_says_what_its_choices_rest_on(tmp_path: Path) -> None:
    """Two runs of the same task and method on other data, at different confidences."""
    for name, confidence in (("one", 0.9), ("two", 0.7)):
        run = RunDirectory(calibrated_run(tmp_path / name, name="run", data=f"{name:0>32}"))
        replace(Calibration.load(run), confidence=confidence).save(run)
    make_report([tmp_path], None, Console(file=io.StringIO()), figures=False)
    text = (tmp_path / "report" / "tables" / "calibrated.txt").read_text()
    for name, confidence in (("one", 90), ("two", 70)):
        assert f"BallRun, TraC ({name}/run), limit 20, seed 0 " in text
        assert f"BallRun, TraC ({name}/run): At most: with {confidence}% confidence." in " ".join(text.split())
    assert text.count("One note.") == 1, "what both say is said once"


def test_runs_whose_last_two_folders_are_called_alike_are_told_apart(tmp_path: Path) -> None:
    for name, confidence in (("one", 0.9), ("two", 0.7)):
        run = RunDirectory(calibrated_run(tmp_path / name / "task", name="run", data=f"{name:0>32}"))
        replace(Calibration.load(run), confidence=confidence).save(run)
    make_report([tmp_path], None, Console(file=io.StringIO()), figures=False)
    text = (tmp_path / "report" / "tables" / "calibrated.txt").read_text()
    for name, confidence in (("one", 90), ("two", 70)):
        run_of_it = f"BallRun, TraC ({tmp_path / name / 'task' / 'run'})"
        assert f"{run_of_it}, limit 20, seed 0 " in text
        assert f"{run_of_it}: At most: with {confidence}% confidence." in " ".join(text.split())


def test_inner_limits_are_told_on_the_card(tmp_path: Path) -> None:
    run = calibrated_run(tmp_path)
    card = write_card(run).read_text()
    assert "| 20 | 0 | 16 | – | 8.0 | 19.5 | 16.0 | yes |" in card
    assert "what is said above is not about them" in card
    assert "Assumed: " in card[card.index("## Calibrated policies") : card.index("## Data")]


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    run = RunDirectory(calibrated_run(tmp_path))
    found = Calibration.load(run)
    before = run.calibration.read_text(), run.calibrated.read_bytes()
    found.save(run)
    assert (run.calibration.read_text(), run.calibrated.read_bytes()) == before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"choices": []}, "is of other policies"),
        ({"choices": [{}]}, "holds no calibration"),
        ({"notes": 1}, "holds no"),
        ({"confidence": 7}, "--confidence is 7"),
        ({"policies": ["another", "and another"]}, "is of other policies"),
        ({"inner": 10**400}, "holds no calibration"),
        ({"cost": None}, "holds no calibration"),
        ({"inner": "x"}, "holds no calibration"),
        ({"cost_bound": float("nan")}, "holds no calibration"),
        ({"shown": "no"}, "shown is 'no'"),
        ({"shown": True, "cost_bound": 500.0}, "with a bound of 500.0 for 20.0"),
    ],
)
def test_a_calibration_that_was_edited_is_said(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    run = RunDirectory(calibrated_run(tmp_path))
    stored = json.loads(run.calibration.read_text())
    if changes.keys() <= stored.keys():
        stored |= changes
    else:
        stored["choices"][0] |= changes
    run.calibration.write_text(json.dumps(stored))
    with pytest.raises(TracrlError, match=sentence):
        write_card(run.path)
    said = io.StringIO()
    make_report([tmp_path], None, Console(file=said), figures=False)
    assert sentence in " ".join(said.getvalue().split())
    assert not (tmp_path / "report" / "tables" / "calibrated.txt").exists()
