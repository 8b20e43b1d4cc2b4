"""Where data sets are looked for, in which order, and what is said when there are none."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import write_hdf5
from tracrl.data.locate import cache_directory, find_dataset, load_dataset, locate, search_path
from tracrl.errors import TracrlError
from tracrl.tasks.table import get_task

BALL_RUN = get_task("BallRun")
CAR_RUN = get_task("CarRun")


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("DSRL_DATASET_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


def write_run(path: Path, reward: float = 1.0, size: int = 7, **metadata: str) -> Path:
    """Data with the sizes of BallRun and CarRun; the reward tells files apart."""
    arrays = {
        "observations": np.zeros((4, size)),
        "actions": np.zeros((4, 2)),
        "rewards": np.full(4, reward),
        "costs": np.zeros(4),
        "timeouts": np.array([False, True, False, True]),
    }
    write_hdf5(Episodes.from_arrays(arrays, metadata=metadata), path)
    return path


def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "named", tmp_path / "home/.dsrl/datasets", tmp_path / "xdg/tracrl/datasets"


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_directory() == tmp_path / "home/.cache/tracrl/datasets"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg/tracrl/datasets"


def test_the_search_path_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [place for place, _ in search_path()] == [
        "~/.dsrl/datasets",
        "tracrl's cache",
        "datasets/ of the clone",
        "bundled with tracrl",
    ]
    named, dsrl, cache = places(tmp_path, monkeypatch)
    assert [directory for _, directory in search_path()][:3] == [named, dsrl, cache]
    assert search_path()[-1][1].name == "bundled"


def test_beside_an_installed_package_datasets_is_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "tracrl"
    monkeypatch.setattr("tracrl.data.locate.resources.files", lambda _: package)
    (package.parent / "datasets").mkdir(parents=True)
    assert "datasets/ of the clone" not in dict(search_path())
    (package.parent / "pyproject.toml").touch()
    assert dict(search_path())["datasets/ of the clone"] == package.parent / "datasets"


def test_a_tilde_in_the_environment_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSRL_DATASET_DIR", "~/data")
    assert search_path()[0] == ("$DSRL_DATASET_DIR", tmp_path / "home/data")


def test_the_first_place_that_has_the_data_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, dsrl, cache = places(tmp_path, monkeypatch)
    for directory, place in ((cache, "tracrl's cache"), (dsrl, "~/.dsrl/datasets"), (named, "$DSRL_DATASET_DIR")):
        path = write_run(directory / CAR_RUN.dataset_file)
        assert find_dataset(CAR_RUN) == (path, place)
    assert find_dataset(get_task("AntRun")) is None


def test_dsrls_own_name_goes_before_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, *_ = places(tmp_path, monkeypatch)
    short = write_run(named / "CarRun.hdf5", reward=2)
    assert load_dataset("CarRun").rewards[0] == 2
    assert find_dataset(CAR_RUN) == (short, "$DSRL_DATASET_DIR")
    write_run(named / CAR_RUN.dataset_file, reward=3)
    assert load_dataset("CarRun").rewards[0] == 3


def test_ball_run_is_always_there() -> None:
    found = find_dataset(BALL_RUN)
    assert found is not None
    assert found[1] == "bundled with tracrl"
    assert load_dataset("BallRun").task == "BallRun"


def test_missing_data_are_said_with_the_command_that_gets_them(tmp_path: Path) -> None:
    with pytest.raises(TracrlError) as caught:
        load_dataset("AntRun")
    searched = ", ".join(str(directory) for _, directory in search_path())
    assert str(caught.value) == (
        f"No data for AntRun on this machine (searched {searched}): "
        "get DSRL's with `tracrl data fetch AntRun`, or make one with `tracrl collect AntRun`."
    )
    assert str(tmp_path / "home/.dsrl/datasets") in searched


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ballrun", "did you mean BallRun?"),
        ("BalRun", "did you mean BallRun"),
        ("PointGoal", "PointGoal2 or PointGoal1"),
        ("xyzzy", "`tracrl tasks` lists all 38"),
    ],
)
def test_an_unknown_task_is_answered_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(TracrlError, match=f"There is no task called '{name}': .*{hint}"):
        load_dataset(name)


@pytest.mark.parametrize("source", ["./none", "none.hdf5", "none.h5", Path("none")])
def test_a_path_is_never_taken_for_a_task(source: str | Path) -> None:
    with pytest.raises(TracrlError, match="There is no data file at none"):
        load_dataset(source)


def test_a_file_can_be_named_in_any_way(tmp_path: Path) -> None:
    path = write_run(tmp_path / "mine.hdf5", reward=5)
    path.rename(tmp_path / "mine")
    for source in ("mine", "./mine", tmp_path / "mine", str(tmp_path / "mine")):
        data = load_dataset(source)
        assert data.rewards[0] == 5
        assert data.task is None
    write_run(tmp_path / "home" / "mine.hdf5", reward=6)
    assert load_dataset("~/mine.hdf5").rewards[0] == 6


def test_a_tasks_name_goes_before_a_file_of_that_name(tmp_path: Path) -> None:
    write_run(tmp_path / "BallRun.hdf5", reward=5).rename(tmp_path / "BallRun")
    assert len(load_dataset("BallRun")) == 1_000
    assert load_dataset("./BallRun").rewards[0] == 5


def test_the_task_of_a_file_comes_from_the_caller_its_name_or_its_metadata(tmp_path: Path) -> None:
    own = write_run(tmp_path / "mine.hdf5")
    assert load_dataset(own, task="CarRun").task == "CarRun"
    assert load_dataset(write_run(tmp_path / "said.hdf5", task="CarRun")).task == "CarRun"
    assert load_dataset(write_run(tmp_path / CAR_RUN.dataset_file)).task == "CarRun"
    assert locate(tmp_path / CAR_RUN.dataset_file) == (tmp_path / CAR_RUN.dataset_file, CAR_RUN)
    assert load_dataset(write_run(tmp_path / "other.hdf5", task="MyRobot")).task == "MyRobot"
    with pytest.raises(TracrlError, match="did you mean CarRun"):
        load_dataset(own, task="CarRum")


@pytest.mark.parametrize("how", ["task", "metadata", "name"])
def test_data_of_other_sizes_do_not_belong_to_a_task(tmp_path: Path, how: str) -> None:
    name = CAR_RUN.dataset_file if how == "name" else "mine.hdf5"
    metadata = {"task": "CarRun"} if how == "metadata" else {}
    path = write_run(tmp_path / name, size=8, **metadata)
    with pytest.raises(TracrlError) as caught:
        load_dataset(path, task="CarRun" if how == "task" else None)
    assert str(caught.value) == (
        f"{path}: observations of size 8 and actions of size 2 do not belong to CarRun, whose sizes are 7 and 2."
    )


def test_actions_beyond_the_box_are_cut_in_dsrls_own_files_alone(tmp_path: Path) -> None:
    path = write_run(tmp_path / "mine.hdf5", task="CarRun")
    with h5py.File(path, "r+") as file:
        file["actions"][...] = 1.5
    with pytest.raises(TracrlError, match="'actions' leave the box"):
        load_dataset(path)
    assert load_dataset(path, clip_actions=True).actions.max() == 1
    assert load_dataset(path.rename(tmp_path / CAR_RUN.dataset_file)).actions.max() == 1


@pytest.mark.parametrize("how", ["task", "name of the task", "name of DSRL's file"])
def test_episodes_of_another_task_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """BallRun's and CarRun's sizes are the same."""
    name = {"task": "mine.hdf5", "name of the task": "CarRun.hdf5"}.get(how, CAR_RUN.dataset_file)
    path = write_run(tmp_path / name, task="BallRun")
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    with pytest.raises(TracrlError) as caught:
        load_dataset("CarRun" if how == "name of the task" else path, task="CarRun" if how == "task" else None)
    assert str(caught.value) == (
        f"{path} holds episodes of BallRun, not of CarRun: name the task BallRun, or a file of CarRun."
    )


def test_two_tasks_that_differ_are_refused() -> None:
    with pytest.raises(TracrlError, match="BallRun is a task, and its episodes are not of CarRun: name one task alone"):
        load_dataset("BallRun", task="CarRun")
    assert load_dataset("BallRun", task="BallRun").task == "BallRun"


def test_dsrls_file_of_another_task_is_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path / BALL_RUN.dataset_file)
    with pytest.raises(TracrlError, match="holds episodes of BallRun, not of CarRun: name the task BallRun"):
        load_dataset(path, task="CarRun")
    assert load_dataset(path, task="BallRun").task == "BallRun"


def test_a_task_of_ones_own_name_is_taken_for_the_one_named_and_said(tmp_path: Path) -> None:
    path = write_run(tmp_path / "mine.hdf5", task="SafetyCarRun-v0")
    with pytest.warns(UserWarning, match="mine.hdf5 calls its task 'SafetyCarRun-v0'; it is taken for CarRun."):
        assert load_dataset(path, task="CarRun").task == "CarRun"


def test_episodes_longer_than_the_task_are_said_when_they_are_loaded(tmp_path: Path) -> None:
    arrays = {
        "observations": np.zeros((101, 7)),
        "actions": np.zeros((101, 2)),
        "rewards": np.zeros(101),
        "costs": np.ones(101),
        "timeouts": np.arange(101) == 100,
    }
    write_hdf5(Episodes.from_arrays(arrays, metadata={"task": "BallRun"}), tmp_path / "mine.hdf5")
    with pytest.warns(UserWarning, match="an episode has 101 steps, where BallRun ends after 100"):
        load_dataset(tmp_path / "mine.hdf5")


def test_a_name_too_long_for_a_file_is_a_sentence() -> None:
    with pytest.raises(TracrlError, match=r"There is no data file at x+\.hdf5"):
        load_dataset("x" * 5000 + ".hdf5")
    with pytest.raises(TracrlError, match="There is no task called"):
        load_dataset("x" * 5000)


def test_without_a_home_the_bundled_data_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nowhere)
    assert load_dataset("BallRun").task == "BallRun"
    with pytest.raises(TracrlError, match=r"~/\.cache leads to a home directory that is not there: give a"):
        cache_directory()
