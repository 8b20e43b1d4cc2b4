"""Runs have identities of their own: what is there is found in whatever stack it was trained, and only the rest is."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np

from tests.study.made_up import TINY_CLONING, ball_episodes, made_up_stack, write_run
from tests.study.test_local import quiet, said, tiny_plan
from tracrl.evaluation.scores import EvaluationProtocol, Scores
from tracrl.policies.load import load_policy
from tracrl.report.collection import collect
from tracrl.study.inventory import Inventory
from tracrl.study.local import run_locally
from tracrl.study.stack import StackSpec
from tracrl.study.store import Store

WRITTEN_BY_0_4_0 = Path(__file__).parent / "written_by_0_4_0" / "runs"


def grids(parts: list[StackSpec]) -> list[tuple[tuple[float, ...], tuple[int, ...]]]:
    return [(part.limits, part.seeds) for part in parts]


def test_a_fourth_seed_is_one_more_run_for_each_limit(tmp_path: Path) -> None:
    write_run(tmp_path)
    asked = made_up_stack(seeds=(0, 10, 20, 30))
    inventory = Inventory(tmp_path)
    assert not inventory.done(asked)
    (part,) = inventory.parts(asked)
    assert grids([part]) == [((10, 20, 40), (30,))]
    assert part.title == "TraC on BallRun, seed 30"
    assert inventory.done(made_up_stack(seeds=(20, 0), limits=(40,))), "a part of a stack is done with it"


def test_what_is_missing_is_as_few_stacks_as_can_be(tmp_path: Path) -> None:
    write_run(tmp_path, seeds=(0,), limits=(10, 20))
    write_run(tmp_path, seeds=(10,), limits=(20,))
    parts = Inventory(tmp_path).parts(made_up_stack(seeds=(0, 10), limits=(10, 20, 40)))
    assert grids(parts) == [((10,), (10,)), ((40,), (0, 10))]


def test_runs_count_whatever_their_directory_is_called_and_wherever_it_lies(tmp_path: Path) -> None:
    write_run(tmp_path / "deeper", name="mine")
    assert Inventory(tmp_path).done(made_up_stack())


def test_other_settings_data_or_episodes_are_other_runs(tmp_path: Path) -> None:
    write_run(tmp_path)
    inventory = Inventory(tmp_path)
    for other in (made_up_stack(eta=2.0), made_up_stack(data="e" * 32), made_up_stack(episodes=5)):
        assert len(inventory.missing(other)) == 9


def test_runs_that_were_scored_by_other_episodes_are_scored_anew(tmp_path: Path) -> None:
    write_run(tmp_path, protocol=EvaluationProtocol("BallRun", 4, seed=7))
    (part,) = Inventory(tmp_path).parts(made_up_stack())
    assert part == made_up_stack()
    write_run(tmp_path, protocol=EvaluationProtocol("BallRun", 4, seed=0))
    assert Inventory(tmp_path).done(made_up_stack())


def test_a_stack_that_was_begun_is_gone_on_with_and_the_rest_is_a_stack_of_its_own(tmp_path: Path) -> None:
    begun = write_run(tmp_path, seeds=(0, 10))
    for name in ("policy.safetensors", "scores.json"):
        (begun / name).unlink()
    parts = Inventory(tmp_path).parts(made_up_stack(seeds=(0, 10, 20)))
    assert grids(parts) == [((10, 20, 40), (0, 10)), ((10, 20, 40), (20,))]
    assert parts[0].name == begun.name
    # One that holds runs that nobody asked for is left alone.
    assert grids(Inventory(tmp_path).parts(made_up_stack(seeds=(0, 30)))) == [((10, 20, 40), (0, 30))]


def test_a_run_whose_weights_were_damaged_is_not_done_and_not_reported(tmp_path: Path) -> None:
    good, bad = write_run(tmp_path, eta=0.5), write_run(tmp_path)
    content = bytearray((bad / "policy.safetensors").read_bytes())
    content[-3] ^= 4
    (bad / "policy.safetensors").write_bytes(content)
    assert len(Inventory(tmp_path).missing(made_up_stack())) == 9
    found = collect([tmp_path])
    assert {r.stack.path for r in found.results} == {good}
    assert "policy.safetensors is not as it was written: its checksum does not hold." in found.unreadable[0]


def test_another_seed_trains_one_run_and_another_limit_none_where_training_does_not_depend_on_it(
    ball_data: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path / "runs")
    cloning = {"methods": ["bc-all"], "settings": TINY_CLONING}
    assert run_locally(tiny_plan(**cloning), store, quiet()).count("done") == 1
    (first,) = (p for p in store.path.iterdir() if p.name != "study")
    before = {p.name: p.stat().st_mtime_ns for p in first.iterdir()}

    console = quiet()
    more = tiny_plan(**cloning, seeds=[0, 10], limits=[10.0, 20.0])
    assert not store.done(more.stacks[0])
    board = run_locally(more, store, console)
    assert board.count("done") == len(board.entries) == 2
    assert "1 run of earlier stacks used as they are" in said(console)
    assert store.done(more.stacks[0])
    assert {p.name: p.stat().st_mtime_ns for p in first.iterdir()} == before
    derived, trained = sorted(
        (p for p in store.path.iterdir() if p.name not in ("study", first.name)),
        key=lambda p: len(Scores.load(p / "scores.json").limits),
    )
    assert not (derived / "checkpoint.safetensors").exists(), "nothing was trained for another limit"
    mine, theirs = load_policy(derived), load_policy(first)
    assert mine.metadata.limits == (20,)
    assert all(np.array_equal(mine.tensors[key], theirs.tensors[key]) for key in theirs.tensors)
    assert Scores.load(trained / "scores.json").seeds == (10, 10)
    assert len(collect([store.path]).results) == 4


def test_a_study_of_version_0_4_0_is_counted_gone_on_with_and_reported(ball_data: Path, tmp_path: Path) -> None:
    """Its directories are named by stack and sealed; one was stopped after 142 of 400 updates."""
    store = Store(tmp_path / "runs")
    shutil.copytree(WRITTEN_BY_0_4_0, store.path)
    ours = ("hidden=[8]", "trac.batch_size=4", "trac.updates=60", "trac.clone_updates=20", "trac.warmup=5")
    (finished,) = tiny_plan(settings=ours).stacks
    assert finished.data is not None
    assert finished.data.fingerprint == ball_episodes().fingerprint
    assert store.done(finished)
    assert store.done(tiny_plan(methods=["bc-all"], settings=TINY_CLONING).stacks[0])
    longer = ("hidden=[8]", "trac.batch_size=4", "trac.updates=400", "trac.clone_updates=100", "trac.warmup=5")
    begun = tiny_plan(settings=longer, seeds=[10])
    assert [part.name for part in store.remaining(begun).stacks] == ["BallRun-trac-f32dbe809faf5818"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        board = run_locally(begun, store, quiet())
    assert board.count("done") == 1, [entry.reason for entry in board.failures()]
    assert "Going on after update 142 of 400" in store.assignment(begun.stacks[0]).log.read_text()
    found = collect([store.path])
    assert len(found.results) == 3
    assert any("have no checksum" in note for note in found.notes)
