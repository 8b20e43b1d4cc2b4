"""Studies on data of one's own: scored in an environment of one's own, or nowhere."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import tracrl
from tests.conftest import make_small_data
from tracrl.cli import main
from tracrl.data.hdf5 import write_hdf5
from tracrl.data.locate import load_dataset
from tracrl.envs.environment import EnvSpec
from tracrl.errors import TracrlError
from tracrl.evaluation.scores import Scores
from tracrl.study.plan import make_plan
from tracrl.study.processes import Outside, outcome_of, start_worker
from tracrl.study.store import Store
from tracrl.train.directory import default_directory

BUNDLED = Path(tracrl.__file__).parent / "data" / "bundled" / "BallRun.hdf5"
TINY = "--limits 3 30 --seeds 0 --preset fast --set updates=20 hidden=[8] batch_size=4 --evaluations 1 --episodes 2"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "my plant.hdf5"
    write_hdf5(make_small_data(), path)
    return path


def study(own: Path, more: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["study", "main", "--data", str(own), "--methods", "bc-safe", *TINY.split(), *more.split()]) == 0
    return capsys.readouterr().out


def test_a_study_and_a_report_of_own_data_show_returns_and_costs_as_they_are(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    printed = study(own, f"--env tiny_envs:Field --cost-key price --out {runs}", capsys)
    (run,) = (path for path in runs.iterdir() if path.name != "study")
    assert run.name.startswith("my-plant-bc-safe-")
    scores = Scores.load(run / "scores.json")
    assert (scores.task, scores.protocol and scores.protocol.cost_key) == (None, "price")
    assert scores.costs.tolist() == [[20.0, 20.0]] * 2, "the environment's own price of each step"
    earned = f"{scores.returns[0].mean():.2f}"
    assert f"{earned}/20.00" in next(line for line in printed.splitlines() if "my-plant, limit 3 " in line)
    verdicts = [line.split()[-1] for line in printed.splitlines() if "my-plant, limit" in line and ": BC-Safe" in line]
    assert verdicts == ["UNSAFE", "safe"]

    again = study(own, f"--env tiny_envs:Field --cost-key price --out {runs}", capsys)
    assert "1 stack, 1 of them done already" in again

    assert main(["report", str(runs)]) == 0
    text = (runs / "report" / "tables" / "own-data.txt").read_text()
    lines = [line for line in text.splitlines() if line.startswith("my-plant, limit")]
    assert ["20.00 ± 0.00**" in line for line in lines] == [False, True]
    assert "DSRL" not in text
    assert not (runs / "report" / "tables" / "main-final.txt").exists()
    with (runs / "report" / "tables" / "runs.csv").open() as file:
        assert {row["fingerprint"] for row in csv.DictReader(file)} == {load_dataset(own).fingerprint}
    page = (runs / "report" / "report.html").read_text()
    assert '"suite": "own data"' in page


def test_without_an_environment_nothing_looks_safe(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = study(own, f"--out {tmp_path / 'runs'}", capsys)
    assert sum("not evaluated: no environment" in line for line in printed.splitlines()) == 2
    assert "verdict" not in printed
    assert "1 of them done already" in study(own, f"--out {tmp_path / 'runs'}", capsys)
    assert main(["report", str(tmp_path / "runs")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "not evaluated: no environment" in out
    assert "--env my_package:MyEnv --save makes them" in out
    # Once an environment is named, the policies that are there are scored in it, and not trained again.
    (policy,) = (tmp_path / "runs").glob("my-plant-*/policy.safetensors")
    before = policy.stat().st_mtime_ns
    assert "verdict" in study(own, f"--env tiny_envs:Field --out {tmp_path / 'runs'}", capsys)
    assert policy.stat().st_mtime_ns == before
    assert (policy.parent / "scores.json").exists()


def test_a_study_finds_what_train_has_trained(own: Path) -> None:
    (stack,) = make_plan("main", data=own, methods=["bc-safe"], limits=[3.0], seeds=[0], preset="fast").stacks
    trained = default_directory(stack.method, load_dataset(own), [3.0], [0], standardise=True)
    assert trained == Path("runs") / stack.name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limits": ()}, "Say which cost an episode may have"),
        ({"tasks": ["BallRun"]}, "leave out --tasks and --suite"),
        ({"data": None, "env": EnvSpec("tiny_envs:Field")}, "add --data my.hdf5"),
        ({"env": EnvSpec("Field")}, "'Field'"),
        ({"data": Path("no/such.hdf5")}, r"no/such.hdf5"),
        ({"data": BUNDLED, "env": EnvSpec("tiny_envs:Field")}, "holds episodes of BallRun.*leave out --env"),
        ({"collect_steps": 5}, "--collect-steps says how much to collect: add --collect"),
        ({"collect": True, "collect_steps": 0}, "--collect-steps is 0"),
    ],
)
def test_what_does_not_fit_together_is_said(own: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(TracrlError, match=words):
        make_plan("main", **{"data": own, "limits": [3.0], "methods": ["bc-safe"], **options})  # type: ignore[arg-type]


def test_a_file_alone_does_not_say_what_is_imported(own: Path, tmp_path: Path) -> None:
    plan = make_plan("main", data=own, env=EnvSpec("tiny_envs:Field"), methods=["bc-safe"], limits=[3.0], seeds=[0])
    store, (stack,) = Store(tmp_path / "runs"), plan.stacks
    store.prepare(plan)
    told = json.loads(store.assignment(stack).stack.read_text())
    told["env"]["name"] = "antigravity:Env"
    store.assignment(stack).stack.write_text(json.dumps(told))
    worker = start_worker(store.assignment(stack), store, device="cpu", cores=(0,), outside=Outside.of(stack))
    worker.wait()
    assert "is not an environment that this process was told to import" in outcome_of(worker).reason
