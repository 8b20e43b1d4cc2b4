from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.made_up import TINY, ball_episodes, write_ball_data
from tracrl.data.locate import load_dataset
from tracrl.errors import TracrlError
from tracrl.methods.bc import BCAll
from tracrl.methods.trac import TraC
from tracrl.study import plan as plan_module
from tracrl.study.known_data import KnownData
from tracrl.study.plan import Plan, make_plan
from tracrl.study.stack import StackSpec
from tracrl.study.studies import BULLET, PAPER_ORDER, STUDIES
from tracrl.train.directory import default_directory


def values(plan: Plan, setting: str, task: str) -> list[object]:
    return [getattr(stack.method, setting) for stack in plan.stacks if stack.task == task]


def test_the_main_study_is_every_method_on_every_task_as_in_the_paper() -> None:
    plan = make_plan("main")
    assert len(plan.stacks) == 38 * 8
    point = next(s for s in plan.stacks if s.task == "PointGoal1" and s.method.name == "trac")
    assert point.method == TraC.preset("SafetyGymnasium")
    assert point.limits == (20, 40, 80)
    assert point.seeds == (0, 10, 20)
    assert (point.episodes, len(point.trained)) == (20, 9)
    first_task = [s.method.title for s in plan.stacks if s.task == "AntCircle"]
    assert first_task[0] == "BC-All"
    assert first_task[-1] == "TraC"


def test_methods_that_are_newer_than_the_paper_are_added_by_name() -> None:
    def names(*methods: str) -> list[str]:
        return [stack.method.name for stack in make_plan("main", tasks=["BallRun"], methods=methods).stacks]

    assert names() == names("all") == list(PAPER_ORDER)
    assert names("all", "caps") == [*PAPER_ORDER, "caps"]
    assert names("caps", "trac", "caps") == ["caps", "trac"]


def test_one_training_serves_every_limit_where_the_method_does_not_depend_on_it() -> None:
    (stack,) = make_plan("main", tasks=["BallRun"], methods=["bc-all"]).stacks
    assert (len(stack.trained), len(stack.runs)) == (3, 9)


def test_the_ablations_are_the_papers() -> None:
    ant, car, drive = "AntCircle", "CarPush1", "mediummean"
    assert values(make_plan("delta"), "delta", car) == [0, 0.4, 0.7, 1]
    assert values(make_plan("eta"), "eta", drive) == [0.25, 0.5, 1, 2]
    assert values(make_plan("sides"), "sides", ant) == ["both", "desirable", "undesirable"]
    assert [s.task for s in make_plan("no-pretraining").stacks][::2] == list(BULLET)
    assert values(make_plan("no-pretraining"), "clone_updates", "CarRun") == [0, 30_000]
    assert values(make_plan("uniform-reference"), "reference", "CarRun") == ["cloned", "uniform"]
    assert values(make_plan("x"), "x", ant) == [25, 50, 75, 100]
    # What --x leaves: at 50 % desirable at most 50 % can be undesirable, at MetaDrive's 25 % three quarters.
    assert values(make_plan("y"), "y", ant) == [0, 25, 50]
    assert values(make_plan("y"), "y", drive) == [0, 25, 50, 75]


@pytest.mark.parametrize("study", [name for name in STUDIES if name != "main"])
def test_an_ablation_changes_one_setting_and_has_the_preset_among_its_stacks(study: str) -> None:
    plan = make_plan(study, tasks=["BallRun"], preset="fast")
    own = TraC.preset("Bullet", "fast")
    setting = STUDIES[study].setting
    assert setting is not None
    assert sum(stack.method == own for stack in plan.stacks) == 1
    for stack in plan.stacks:
        assert replace(stack.method, **{setting: getattr(own, setting)}) == own


def test_suite_and_tasks_choose() -> None:
    assert {s.task for s in make_plan("main", suite="metadrive", methods=["trac"]).stacks} > {"easysparse", "harddense"}
    assert [s.task for s in make_plan("eta", suite="bullet").stacks] == ["AntCircle"] * 4
    assert len(make_plan("main", suite="all", methods=["trac"]).stacks) == 38
    assert [s.task for s in make_plan("main", tasks=["CarRun", "BallRun", "CarRun"], methods=["trac"]).stacks] == [
        "CarRun",
        "BallRun",
    ]


def test_the_directory_is_the_one_that_train_would_choose(ball_data: Path) -> None:
    (stack,) = make_plan("main", tasks=["BallRun"], methods=["trac"], settings=TINY).stacks
    data = load_dataset("BallRun")
    assert stack.name == default_directory(stack.method, data, stack.limits, stack.seeds).name


def test_a_changed_setting_is_a_new_run_and_the_same_is_the_same(ball_data: Path) -> None:
    def identity(**options: object) -> str:
        chosen = {"tasks": ["BallRun"], "methods": ["trac"], "settings": TINY, **options}
        (stack,) = make_plan("main", **chosen).stacks  # type: ignore[arg-type]
        return stack.identity

    same = identity()
    assert identity() == same
    assert identity(episodes=5) == same, "how it is scored does not change what is trained"
    others = [
        identity(settings=[*TINY, "alpha=0.3"]),
        identity(limits=[10]),
        identity(seeds=[1]),
        identity(preset="fast"),
    ]
    write_ball_data(ball_data.parent, seed=1)
    assert len({same, *others, identity()}) == 6


def test_a_plan_has_an_identity_from_its_contents(ball_data: Path) -> None:
    plan = make_plan("eta", tasks=["BallRun"], settings=TINY)
    assert Plan("eta", plan.stacks[::-1]).identity == plan.identity
    assert make_plan("eta", tasks=["BallRun"], settings=TINY, episodes=3).identity != plan.identity
    assert Plan("eta", plan.stacks[:-1]).identity != plan.identity
    told = json.loads(json.dumps(plan.to_dict()))
    assert tuple(map(StackSpec.from_dict, told["stacks"])) == plan.stacks


def test_studies_share_the_runs_that_are_the_same(ball_data: Path) -> None:
    names = [{s.name for s in make_plan(study, tasks=["BallRun"]).stacks} for study in ("eta", "delta", "alpha")]
    assert len(names[0] & names[1] & names[2]) == 1


def test_missing_data_and_simulators_are_named_with_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "installed", lambda name: name == "bullet")
    plan = make_plan("main", tasks=["BallRun", "AntRun", "easymean"], methods=["trac"])
    assert plan.missing.sentence == (
        "Nothing was started, because the data of AntRun, easymean and the simulator metadrive are missing: "
        "tracrl data fetch AntRun easymean; tracrl sims install metadrive. With --collect, "
        "data that are missing are made first."
    )
    assert not make_plan("main", tasks=["BallRun"], methods=["trac"]).missing
    with pytest.raises(TracrlError, match="TraC on AntRun has no data on this machine: tracrl data fetch AntRun"):
        _ = plan.stacks[1].identity


def test_what_is_known_of_data_is_remembered_as_long_as_the_file_is_the_same(
    ball_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    monkeypatch.setattr(
        "tracrl.study.known_data.load_dataset", lambda name, **told: read.append(name) or load_dataset(name, **told)
    )
    task = plan_module.get_task("BallRun")
    memory = tmp_path / "data.json"
    known = KnownData(memory)
    first = known.data_set(task)
    assert first is not None
    assert not memory.exists()  # before the plan is taken up
    known.remember()
    assert (first.fingerprint, len(first)) == (ball_episodes().fingerprint, 40)
    assert KnownData(memory).data_set(task) == first
    assert len(read) == 1
    write_ball_data(ball_data.parent, seed=1)
    os.utime(ball_data, ns=(1, 1))
    known = KnownData(memory)
    second = known.data_set(task)
    known.remember()
    assert second is not None
    assert second.fingerprint != first.fingerprint
    memory.write_text("{cut off")
    assert KnownData(memory).data_set(task) == second
    assert len(read) == 3


def test_settings_are_changed_where_they_exist() -> None:
    with pytest.warns(UserWarning, match="go along with --updates 40000"):
        plan = make_plan("main", tasks=["BallRun"], methods=["trac", "bc-all"], settings=["updates=40000", "trac.x=30"])
    trac, cloning = (stack.method for stack in plan.stacks)
    assert isinstance(trac, TraC)
    assert isinstance(cloning, BCAll)
    assert (trac.updates, cloning.updates, trac.x) == (40_000, 40_000, 30.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"study": "etta"}, "There is no study called 'etta': did you mean eta?"),
        ({"tasks": ["BalRun"]}, "There is no task called 'BalRun': did you mean BallRun"),
        ({"methods": ["trak"]}, "There is no method called 'trak': did you mean trac?"),
        ({"study": "eta", "methods": ["bc-all"]}, "The study eta varies a setting of TraC"),
        ({"suite": "bullet"}, "--suite and --tasks exclude each other"),
        ({"suite": "mujoco", "tasks": []}, "--suite is 'mujoco'; expected bullet, safety-gymnasium, metadrive or all"),
        ({"study": "x", "suite": "safety-gymnasium", "tasks": []}, "This study has no task in safety-gymnasium"),
        ({"limits": [10, 10]}, "--limits names a value twice: 10 10"),
        ({"limits": [-1]}, "--limits must be numbers of 0 or more"),
        ({"limits": [float("nan")]}, "--limits must be numbers of 0 or more"),
        ({"seeds": []}, "At least one seed is needed: for example --seeds 0."),
        ({"seeds": [-1]}, "--seeds is -1; expected a whole number from 0 to "),
        ({"seeds": [2**63]}, "--seeds is 9223372036854775808; expected a whole number from 0 to "),
        ({"seeds": [1, 1]}, "--seeds names a value twice: 1 1"),
        ({"episodes": 0}, "--episodes is 0; expected a whole number from 1 to "),
        ({"evaluations": 0}, "--evaluations is 0; expected a whole number from 1 to "),
        ({"settings": ["updates"]}, "--set 'updates': expected name=value"),
        (
            {"settings": ["nothing=1"]},
            "--set 'nothing=1': None of the methods of this study has a setting called 'nothing'",
        ),
        ({"settings": ["trac.nothing=1"]}, "--set 'trac.nothing=1': TraC has no setting called 'nothing'"),
        ({"settings": ["cpq.alpha=1"]}, "--set 'cpq.alpha=1': CPQ is not part of this study."),
        ({"settings": ["cqp.alpha=1"]}, "There is no method called 'cqp'"),
        ({"settings": ["hidden=8"]}, "trac.hidden is 8; expected "),
        ({"settings": ["hidden=[8.5]"]}, "trac.hidden is [8.5]; expected "),
        ({"settings": ["alpha=NaN"]}, "trac.alpha is nan; expected a "),
        ({"settings": ["eta=-Infinity"]}, "trac.eta is -inf; expected a "),
        ({"settings": ["alpha=big"]}, "trac.alpha is 'big'; expected a "),
        ({"settings": ["updates=1.5"]}, "trac.updates is 1.5; expected a whole number"),
        ({"settings": ["sides=left"]}, "trac.sides is 'left'; expected both or desirable or undesirable"),
        ({"settings": ["delta=7"]}, ("trac.delta is 7; expected ", "TraC: --delta is 7.0; expected ")),
    ],
)
def test_bad_choices_are_said_in_a_sentence(options: dict[str, object], words: str | tuple[str, ...]) -> None:
    chosen = {"study": "main", "tasks": ["BallRun"], **options}
    if chosen["study"] == "main":
        chosen.setdefault("methods", ["trac"])
    with pytest.raises(TracrlError) as refused:
        make_plan(**chosen)  # type: ignore[arg-type]
    assert str(refused.value).startswith(words)


def test_an_edited_plan_is_said(ball_data: Path) -> None:
    stack = make_plan("main", tasks=["BallRun"], methods=["trac"]).stacks[0].to_dict()
    del stack["limits"]
    with pytest.raises(TracrlError, match="This stack was not written by tracrl, or was edited"):
        StackSpec.from_dict(stack)


def test_fewer_updates_take_the_phases_along() -> None:
    """The help's own example: --set updates=500."""
    with pytest.warns(UserWarning, match="--clone-updates 150 .* go along with --updates 500"):
        plan = make_plan("main", tasks=["BallRun"], settings=["updates=500"])
    assert {stack.method.updates for stack in plan.stacks} == {500}
    trac = next(stack.method for stack in plan.stacks if stack.method.name == "trac")
    assert isinstance(trac, TraC)
    assert trac.clone_updates == 150
