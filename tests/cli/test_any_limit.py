"""One policy for every limit as a user meets it: trained once a seed, played at limits that nobody trained for."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_ope import SHORT
from tests.conftest import make_small_data
from tests.test_cli import TINY, refused, tracrl
from tracrl.cli import main
from tracrl.cli.evaluate import EvaluateOptions, evaluate
from tracrl.cli.train import train
from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.methods.bc import BCSafe
from tracrl.policies.any_limit import AnyLimitPolicy, AnyXPolicy
from tracrl.policies.load import load_policy
from tracrl.report.collection import collect
from tracrl.report.groups import overview
from tracrl.report.page import page_data
from tracrl.train import checksums
from tracrl.train.fit import fit

TRAIN = ["train", "trac-any", "BallRun", "--no-eval", *TINY]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("any")
    result = tracrl(*TRAIN, "--limits", 10, 20, "--seeds", 0, 10, "--out", "run", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder / "run"


def test_a_run_a_seed_answers_for_each_limit(run: Path) -> None:
    policy = load_policy(run)
    assert isinstance(policy, AnyLimitPolicy)
    assert policy.metadata.limits == (10, 10, 20, 20)
    assert len(policy.networks()) == 2
    assert [spec["seed"] for spec in json.loads((run / "config.json").read_text())["trained"]] == [0, 10]


def test_evaluated_at_limits_that_it_was_not_trained_for(run: Path) -> None:
    options = ["--episodes", 1, "--workers", 1]
    result = tracrl("evaluate", run, "--limits", 5, 60, *options, cwd=run.parent)
    assert result.returncode == 0, result.stderr
    assert re.findall(r"│\s+(5|60|all) │\s+2 │", result.stdout) == ["5", "60", "all"]
    above = tracrl("evaluate", run, "--limits", 500, *options, cwd=run.parent)
    assert "note: A limit of 500 is above those that this policy was trained for, 0 to 89: it acts as at 89." in (
        above.stderr + above.stdout
    )


def test_scores_at_other_limits_stay_with_the_run_and_come_to_the_page(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "runs" / "any"
    shutil.copytree(run, copy)
    options = ["--episodes", 1, "--workers", 1, "--save"]
    assert tracrl("evaluate", copy, *options, cwd=tmp_path).returncode == 0
    first = tracrl("evaluate", copy, "--limits", 5, 10, 60, *options, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "At its own limits (10) the run keeps the scores that it has" in " ".join(first.stdout.split())
    assert tracrl("evaluate", copy, "--limits", 15, *options, cwd=tmp_path).returncode == 0
    (cell,) = page_of(tmp_path / "runs")["cells"]
    assert [at["limit"] for at in cell["limits"]["final"]] == [5, 10, 15, 20, 60]
    assert len(cell["runs"]) == 4, "tables are of the run's own limits"
    assert Scores.load(copy / "scores.json").limits == (10, 10, 20, 20)
    kept = Scores.load(copy / "further_scores.json")
    assert sorted(zip(kept.limits, kept.seeds, strict=True)) == [
        (limit, seed) for limit in (5, 15, 60) for seed in (0, 10)
    ]
    costs = np.full_like(kept.costs, 0.0)
    costs[[limit == 15 for limit in kept.limits]] = 16
    replace(kept, costs=costs).save(copy / "further_scores.json")
    checksums.write(copy)
    assert any("UNSAFE at 15, beyond its own limits" in note for note in collect([copy]).notes)
    # Of other episodes they cannot stand in one curve.
    again = tracrl("evaluate", copy, "--limits", 5, "--seed", 3, *options, cwd=tmp_path)
    assert "Scores at other limits were of other episodes: they are gone." in " ".join(again.stdout.split())
    assert [at["limit"] for at in page_of(tmp_path / "runs")["cells"][0]["limits"]["final"]] == [5, 10, 20]
    assert any(
        "scores at 5 are not comparable with those at its own limits (seed 3 and 0)" in n for n in collect([copy]).notes
    )
    # Edited ones are refused, in a sentence.
    replace(Scores.load(copy / "further_scores.json"), seeds=(7, 8)).save(copy / "further_scores.json")
    with pytest.raises(TracrlError, match=r"further_scores.json is not what the run wrote"):
        collect([copy])
    checksums.write(copy)
    with pytest.raises(TracrlError, match=r"holds the scores of other runs than its config.json"):
        collect([copy])


def page_of(runs: Path) -> Any:
    collection = collect([runs])
    return page_data(collection, overview(collection.results), [], {})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limits": (5.0,), "save": True, "ood": True}, "leave out --limits, or --ood"),
        ({"limits": (5.0,), "limit": 10.0}, "give one of them"),
        ({"limits": (-5.0,)}, "0 or more"),
        ({"limits": (5.0, 5.0)}, "twice"),
    ],
)
def test_limits_that_cannot_be_meant(run: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(TracrlError, match=said):
        evaluate(EvaluateOptions(run, **options))


def test_limits_are_refused_where_they_mean_nothing(tmp_path: Path) -> None:
    low = tracrl(*TRAIN, "--lowest", 60, "--limits", 60, 10, "--out", "low", cwd=tmp_path)
    assert "A limit of 10 is below those that this policy was trained for" in refused(low)
    assert not (tmp_path / "low").exists()
    one_limit = BCSafe(updates=1, batch_size=4, hidden=(4,))
    fit(one_limit, make_small_data(), limits=[4], out=tmp_path / "safe", device="cpu")
    with pytest.raises(TracrlError, match="for policies that serve every limit"):
        evaluate(EvaluateOptions(tmp_path / "safe", limits=(5.0,)))
    for words in (["trac", "BallRun"], ["trac-any", "BallRun", "--told", "remaining"]):
        with pytest.raises(TracrlError, match="--calibrate chooses inner limits: it is for trac-any with --told limit"):
            train([*words, "--calibrate", *TINY])


@pytest.mark.filterwarnings("ignore")
def test_inner_limits_are_chosen_from_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tracrl.ope.estimate.CPU", SHORT)
    monkeypatch.setattr("tracrl.ope.inner_limits.ON_CPU", replace(SHORT, together=True))
    make_small_data().save("own.hdf5")
    words = ["trac-any", "--data", "own.hdf5", "--limits", "2", "9", "--seeds", "0", "1", "--device", "cpu"]
    assert train([*words, "--no-eval", "--calibrate", "--holdout", "0.3", "--out", "run", *TINY]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "episodes were held out: the policies were not trained on them" in said
    assert "Inner limits, chosen from the log alone" in said
    assert "Assumed: episodes begin" in said
    kept = json.loads(Path("run/calibration.json").read_text())
    assert [(choice["limit"], choice["seed"]) for choice in kept["choices"]] == [(2, 0), (2, 1), (9, 0), (9, 1)]
    calibrated = load_policy("run/calibrated.safetensors")
    assert calibrated.metadata.limits == (2, 2, 9, 9)
    policy, observations = load_policy("run"), make_small_data().observations[:4]
    assert isinstance(policy, AnyXPolicy)
    assert json.loads(Path("run/config.json").read_text())["settings"]["eta"] == 1
    assert kept["confidence"] == 0.9
    for i, choice in enumerate(kept["choices"]):
        alone = policy.at_x(choice["x"]).at(choice["inner"]).act(observations)
        assert np.allclose(calibrated.act(observations)[i], alone[i % 2], atol=1e-6)
    status = main(["choose", "run", "--limit", "9", "--device", "cpu"])
    said = " ".join(capsys.readouterr().out.split())
    assert status in (0, 3)
    assert ("Its inner limit is" in said) == (status == 0)
    assert "policies" in said
