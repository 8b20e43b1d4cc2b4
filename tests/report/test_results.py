from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tracrl
from tests.conftest import make_small_data
from tests.study.made_up import ball_episodes, write_run
from tracrl.data.hdf5 import write_hdf5
from tracrl.errors import TracrlError
from tracrl.evaluation.evaluate import Evaluator
from tracrl.methods.trac import TraC
from tracrl.report.collection import collect
from tracrl.report.groups import overview
from tracrl.report.results import nearest_preset, read_run
from tracrl.tasks.table import get_task
from tracrl.train import checksums
from tracrl.train.directory import identity_of

DSRL_BALL = {"file": get_task("BallRun").dataset_file, "task": "BallRun", "episodes": get_task("BallRun").episodes}


def edit(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_a_run_that_was_really_trained_is_read(tmp_path: Path) -> None:
    """What `tracrl train` leaves behind, without a study."""
    write_hdf5(ball_episodes(), tmp_path / "BallRun.hdf5")
    data = tracrl.load_dataset(tmp_path / "BallRun.hdf5", task="BallRun")
    method = TraC.preset(preset="fast", updates=20, clone_updates=10, batch_size=4, hidden=(8,))
    run = tracrl.fit(
        method, data, limits=[10, 15], out=tmp_path / "run", evaluator=Evaluator("BallRun", episodes=2), evaluations=2
    )
    first, second = read_run(tmp_path / "run")
    assert run.scores is not None
    assert run.best_scores is not None
    assert np.array_equal(first.rewards, run.scores.rewards[0])
    assert np.array_equal(second.costs, run.scores.normalised_costs[1])
    assert np.array_equal(second.best_rewards, run.best_scores.rewards[1])  # type: ignore[arg-type]
    assert (first.limit, first.seed, second.limit) == (10, 0, 15)
    assert [point[0] for point in first.curve] == [10, 20]
    on_the_way = Evaluator("BallRun", episodes=2).evaluate(run.policy, on_the_way=True)
    assert first.curve[-1][1] == pytest.approx(on_the_way.rewards[0].mean(), rel=1e-4)
    assert len(first.losses) == 20
    assert first.stack.preset == "fast"
    assert first.stack.changes == {"updates": 20, "clone_updates": 10, "batch_size": 4, "hidden": [8]}
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert identity_of(config) == config["identity"]
    edit(tmp_path / "run" / "scores.json", lambda scores: scores["returns"][0].__setitem__(0, 1300.0))  # type: ignore[index]
    with pytest.raises(TracrlError, match=r"scores.json is not what the run wrote"):
        read_run(tmp_path / "run")


def test_where_data_come_from_is_said_and_ours_are_never_called_dsrls(tmp_path: Path) -> None:
    ours = read_run(write_run(tmp_path / "a"))[0].stack
    assert not ours.from_dsrl
    assert ours.source == "BallRun.hdf5, 40 episodes, not DSRL's (made up for the tests)"
    theirs = read_run(write_run(tmp_path / "b", source=DSRL_BALL))[0].stack
    assert theirs.from_dsrl
    assert theirs.source == "DSRL's SafetyBallRun-v0-80-940.hdf5"
    # DSRL's name on a file that somebody recorded, or that has other episodes, does not make it DSRL's.
    for name, source in {"c": {**DSRL_BALL, "made_by": "us"}, "d": {**DSRL_BALL, "episodes": 500}}.items():
        other = read_run(write_run(tmp_path / name, source=source))[0].stack
        assert not other.from_dsrl
        assert "not DSRL's" in other.source


def test_the_nearest_preset_and_what_differs() -> None:
    import dataclasses

    def settings(**changes: object) -> dict[str, object]:
        method = TraC.preset("SafetyGymnasium", **changes)  # type: ignore[arg-type]
        return json.loads(json.dumps(dataclasses.asdict(method)))

    assert nearest_preset("trac", "SafetyGymnasium", settings()) == ("full", {})
    assert nearest_preset("trac", "SafetyGymnasium", settings(preset="fast", eta=2.0)) == ("fast", {"eta": 2.0})
    assert nearest_preset("trac", "Bullet", settings())[1] == {"ratio": 0.75, "alpha": 0.1, "eta": 0.5, "y": 50.0}


def test_directories_are_found_below_and_each_once(tmp_path: Path) -> None:
    one = write_run(tmp_path / "runs")
    other = write_run(tmp_path / "runs" / "deeper", eta=0.5)
    write_run(tmp_path / "runs" / "report", eta=1.0)
    found = collect([tmp_path / "runs", one, other])
    assert {r.stack.path for r in found.results} == {one, other}
    assert len(found.results) == 18
    assert found.notes == ()


def test_unfinished_runs_are_left_out_with_a_note(tmp_path: Path) -> None:
    write_run(tmp_path)
    half = write_run(tmp_path, eta=0.5)
    (half / "policy.safetensors").unlink()
    unscored = write_run(tmp_path, eta=1.0)
    (unscored / "scores.json").unlink()
    found = collect([tmp_path])
    assert len(found.results) == 9
    assert set(found.notes) == {
        f"{half} is not finished: the command that began it goes on with it.",
        f"{unscored} has no scores: tracrl evaluate {unscored} --save makes them.",
    }
    with pytest.raises(TracrlError, match=f"No finished run lies below {half}"):
        collect([half])


def edit_with_identity(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    def both(config: dict[str, object]) -> None:
        change(config)
        config["identity"] = identity_of(config)

    edit(path, both)


def with_last_value(path: Path, value: str) -> None:
    path.write_text(path.read_text().rstrip().rpartition(",")[0] + f",{value}\n")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("with_checksums", [True, False])
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("config.json", cut),
        ("config.json", lambda p: edit(p, lambda c: c["settings"].__setitem__("eta", 9.0))),
        ("config.json", lambda p: edit(p, lambda c: c.pop("data"))),
        ("config.json", lambda p: p.write_text("[]")),
        ("config.json", lambda p: p.write_text('{"method": ["trac"]}')),
        ("config.json", lambda p: edit_with_identity(p, lambda c: c.__setitem__("settings", {"updates": "x"}))),
        ("config.json", lambda p: edit_with_identity(p, lambda c: c.__setitem__("limits", {"a": 1}))),
        ("config.json", lambda p: (p.unlink(), p.mkdir())),
        ("scores.json", cut),
        ("scores.json", lambda p: edit(p, lambda s: s["returns"][2].__setitem__(1, 5000.0))),
        ("scores.json", lambda p: edit(p, lambda s: s["costs"][0].__setitem__(0, -1.0))),
        ("scores.json", lambda p: edit(p, lambda s: s["costs"][0].__setitem__(0, None))),
        ("scores.json", lambda p: edit(p, lambda s: s["lengths"].pop())),
        ("scores.json", lambda p: edit(p, lambda s: s["lengths"][0].__setitem__(0, 0))),
        ("scores.json", lambda p: edit(p, lambda s: s["returns"].pop())),
        ("scores.json", lambda p: edit(p, lambda s: s.__setitem__("returns", 1.0))),
        ("scores.json", lambda p: edit(p, lambda s: s["returns"].__setitem__(0, 1.0))),
        ("scores.json", lambda p: edit(p, lambda s: s["returns"][0].__setitem__(0, 1e308))),
        ("scores.json", lambda p: p.write_text("3")),
        ("scores.json", lambda p: (p.unlink(), p.mkdir())),
        ("scores.json", lambda p: edit(p, lambda s: s["limits"].__setitem__(0, 999.0))),
        ("scores.json", lambda p: edit(p, lambda s: s.__setitem__("task", "CarRun"))),
        ("best_scores.json", cut),
        ("evaluations.csv", lambda p: p.write_text("\n".join(p.read_text().splitlines()[:-3]))),
        ("evaluations.csv", lambda p: p.write_text("\n".join(p.read_text().splitlines()[1:]))),
        ("evaluations.csv", lambda p: p.write_bytes(p.read_bytes()[:100] + b"\xff\xfe" + p.read_bytes()[100:])),
        ("evaluations.csv", lambda p: p.write_text(p.read_text().replace("normalised_cost", "cost_of"))),
        ("metrics.csv", lambda p: p.write_text(p.read_text().replace("loss", "lost"))),
        ("metrics.csv", lambda p: p.write_text("\n".join(p.read_text().splitlines()[1:]))),
        ("metrics.csv", lambda p: p.write_bytes(b"\xff" + p.read_bytes())),
        ("metrics.csv", lambda p: p.write_bytes(bytes(range(256)))),
        ("metrics.csv", lambda p: (p.unlink(), p.mkdir())),
        ("metrics.csv", lambda p: with_last_value(p, "inf")),
        ("evaluations.csv", lambda p: with_last_value(p, "-inf")),
        ("evaluations.csv", lambda p: (p.unlink(), p.mkdir())),
    ],
)
def test_what_was_edited_or_cut_is_listed_in_a_sentence_and_stops_nothing(
    tmp_path: Path, name: str, damage: Callable[[Path], object], with_checksums: bool
) -> None:
    good = write_run(tmp_path, eta=0.5)
    bad = write_run(tmp_path, with_checksums=with_checksums)
    damage(bad / name)
    found = collect([tmp_path])
    (sentence,) = found.unreadable
    assert str(bad) in sentence
    assert name.split(".", maxsplit=1)[0] in sentence
    assert "\n" not in sentence
    assert {r.stack.path for r in found.results} == {good}
    assert found.notes == ()


def test_checksums_see_what_the_numbers_do_not_show(tmp_path: Path) -> None:
    """Two episodes exchanged between runs, a curve made prettier: consistent, and still not what was written."""
    run = write_run(tmp_path)
    lines = (run / "evaluations.csv").read_text().splitlines()
    (run / "evaluations.csv").write_text("\n".join([lines[0], lines[2], lines[1], *lines[3:]]) + "\n")
    with pytest.raises(TracrlError, match=r"evaluations.csv is not what the run wrote: it was edited"):
        collect([tmp_path])
    checksums.write(run)
    (run / "best_scores.json").unlink()
    with pytest.raises(TracrlError, match=r"best_scores.json was removed after the run"):
        collect([tmp_path])
    (run / "checksums.json").write_text('{"anything": 1}')
    with pytest.raises(TracrlError, match=r"checksums.json was edited"):
        collect([tmp_path])


def test_a_copy_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    shutil.copytree(run, tmp_path / "b" / "copy")
    found = collect([tmp_path / "a", tmp_path / "b"])
    assert len(found.results) == 9
    assert found.notes == (f"{tmp_path / 'b' / 'copy'} is a copy of {run} and is counted once.",)


def test_the_same_identity_with_different_results_counts_once_and_is_listed(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a")
    other = write_run(tmp_path / "b", reward=0.7)
    assert one.name == other.name
    found = collect([tmp_path])
    identity = json.loads((one / "config.json").read_text())["identity"]
    assert found.unreadable == (
        f"{other} is left out: it and {one} are the same run (TraC on BallRun, identity {identity}) with different "
        "results; keep one of them.",
    )
    assert {r.stack.path for r in found.results} == {one}


def test_runs_that_are_part_of_two_stacks_count_once(tmp_path: Path) -> None:
    alone = write_run(tmp_path, seeds=[0], limits=[10.0, 80.0])
    many = write_run(tmp_path)
    found = collect([tmp_path])
    assert len(found.results) == 10
    assert [r.stack.path for r in found.results if (r.limit, r.seed) == (10, 0)] == [many]
    assert [(r.limit, r.seed) for r in found.results if r.stack.path == alone] == [(80, 0)]
    assert found.notes == (
        f"1 run of {alone} is part of {many} too and counted once, from there (1 of them with other scores).",
    )


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match="No finished run lies below"):
        collect([tmp_path])
    with pytest.raises(TracrlError, match="nowhere is not a directory"):
        collect([tmp_path / "nowhere"])
    with pytest.raises(TracrlError, match="Say where the runs lie"):
        collect([])


def test_runs_on_own_data_that_were_evaluated_nowhere_are_named_and_have_no_results(tmp_path: Path) -> None:
    data = make_small_data()
    tracrl.fit(TraC(updates=3, clone_updates=1, batch_size=3, hidden=(8,)), data, limits=[4.0], out=tmp_path / "own")
    write_run(tmp_path)
    found = collect([tmp_path])
    (note,) = found.notes
    assert note.endswith(f"has no scores: tracrl evaluate {tmp_path / 'own'} --env my_package:MyEnv --save makes them.")
    assert [stack.path for stack in found.unscored] == [tmp_path / "own"]


def test_links_to_oneself_do_not_keep_it_walking(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    for name in ("a", "b", "c"):
        (tmp_path / "runs" / name).symlink_to(tmp_path / "runs")
    (tmp_path / "runs" / "self").symlink_to("self")
    found = collect([tmp_path / "runs", tmp_path / "runs" / "a"])
    assert {r.stack.path for r in found.results} == {run}


def test_a_name_that_is_too_long_is_said(tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match="cannot be looked into"):
        collect([tmp_path / ("x" * 5000)])


def test_a_method_that_is_not_known_here_is_shown_by_its_recorded_title(tmp_path: Path) -> None:
    write_run(tmp_path)
    own = write_run(tmp_path, method="bc-all", name="own")
    edit_with_identity(own / "config.json", lambda c: c.update(method="bc-top", method_metadata={"title": "BC-Top"}))
    checksums.write(own)
    found = collect([tmp_path])
    assert {r.stack.title for r in found.results} == {"TraC", "BC-Top"}
    columns = overview(found.results).columns
    assert [column.label for column in columns] == ["TraC", "BC-Top"]
    assert columns[1].about.startswith("its own settings (")


def test_what_looked_dead_in_a_training_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "warnings.json").write_text(json.dumps(["All 9 policies give the same action in every state."]))
    assert collect([tmp_path]).notes == (f"{run}: All 9 policies give the same action in every state.",)
    (run / "warnings.json").write_text('{"not": "a list"}')
    with pytest.raises(TracrlError, match=r"warnings\.json holds no list of sentences"):
        collect([tmp_path])
