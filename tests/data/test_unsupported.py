"""What no method here can learn from is refused in plain words, however it comes in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest

from tests.data.made_up import dsrl_arrays, steps_of
from tracrl.data.check_file import check
from tracrl.data.episodes import Episodes
from tracrl.data.sources import import_episodes
from tracrl.errors import TracrlError

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
ROWS = 60


def arrays(**changes: Any) -> dict[str, Any]:
    return {**dsrl_arrays(lengths=(20, 20, 20)), **changes}


def said_of(folder: Path, changed: dict[str, Any]) -> str:
    """The same sentence from an HDF5 file that is checked, and from an archive that is imported."""
    with h5py.File(folder / "mine.hdf5", "w") as file:
        for key, array in changed.items():
            file[key] = array
    np.savez(folder / "mine.npz", **changed)
    said = []
    for ask, name in ((check, "mine.hdf5"), (import_episodes, "mine.hdf5"), (import_episodes, "mine.npz")):
        with pytest.raises(TracrlError) as caught:
            ask(folder / name if ask is check else [folder / name])  # type: ignore[operator]
        said.append(str(caught.value).removeprefix(f"{folder / name}: "))
    assert len(set(said)) == 1, said
    return said[0]


def frame(**changes: Any) -> Any:
    return pd.DataFrame({**steps_of((20, 20, 20), (False,) * 3), **changes})


def classes(count: int, first: int = 0) -> Any:
    return first + np.arange(ROWS) % count


@pytest.mark.parametrize(("count", "first"), [(2, 0), (4, 0), (3, 1), (6, 0)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_classes(tmp_path: Path, count: int, first: int, dtype: Any) -> None:
    last = first + count - 1
    expected = (
        f"column 1 of 'actions' holds only the whole numbers {first} to {last}, which look like classes: discrete "
        "actions are not supported; expected amounts. If they are amounts, and anything between may be done as well, "
        f"say so by giving the box: --action-low {first} --action-high {last}."
    )
    actions = dsrl_arrays(lengths=(20, 20, 20))["actions"]
    actions[:, 1] = classes(count, first)
    for changed in (actions, np.round(actions).astype(dtype)):
        found = said_of(tmp_path, arrays(actions=changed))
        assert found == expected
    with pytest.raises(TracrlError, match="look like classes: discrete actions are not supported"):
        Episodes.from_frame(frame(act_0=classes(count, first).astype(dtype)))


def test_whoever_gives_the_box_says_that_they_are_amounts() -> None:
    told = arrays(actions=classes(4)[:, None])
    assert len(Episodes.from_arrays(told, action_low=0, action_high=3)) == 3
    assert len(Episodes.from_frame(frame(act_0=classes(4)), action_low=0, action_high=3)) == 3


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(ROWS),
        np.where(np.arange(ROWS) % 2, 1.0, -1.0),  # all or nothing, both ways
        10.0 * (np.arange(ROWS) % 11),  # per cent in steps of ten
        np.arange(ROWS) % 2 * 0.5,
        np.arange(ROWS, dtype=float) % 50,
    ],
)
def test_amounts_that_are_whole_numbers_are_no_classes(values: Any) -> None:
    scaled = values if np.abs(values).max() <= 1 else values / np.abs(values).max() * 2 - 1
    Episodes.from_arrays(arrays(actions=scaled[:, None]))
    if np.ptp(values):
        Episodes.from_frame(frame(act_0=values))


def test_few_rows_say_nothing() -> None:
    few = dsrl_arrays(lengths=(4, 3, 5))
    Episodes.from_arrays({**few, "actions": (np.arange(12) % 2)[:, None]})


@pytest.mark.parametrize("dtype", [np.int8, bool, np.float64])
def test_one_hot(tmp_path: Path, dtype: Any) -> None:
    one_hot = np.eye(3, dtype=dtype)[classes(3)]
    assert said_of(tmp_path, arrays(actions=one_hot)) == (
        "'actions' has a single 1 among 3 columns in every row, which looks like one-hot classes: discrete actions are "
        "not supported; expected amounts: log what was set (a speed, the opening of a valve) in place of the class."
    )
    with pytest.raises(TracrlError, match="one-hot classes: discrete actions are not supported"):
        Episodes.from_frame(frame().drop(columns="act_0").assign(**{f"act_{i}": one_hot[:, i] for i in range(3)}))


NO_IMAGES = "images are not supported: give a vector a step, such as a trained encoder's features of them"


def test_images(tmp_path: Path) -> None:
    shape = (ROWS, 8, 8, 3)
    pictures = {"next_observations": np.zeros(shape, np.uint8), "observations": np.zeros(shape, np.uint8)}
    assert said_of(tmp_path, arrays(**pictures)) == (
        f"'observations' has shape (60, 8, 8, 3), more than one axis a step: {NO_IMAGES}; expected (rows, size)."
    )
    flat = {key: array.reshape(ROWS, -1) for key, array in pictures.items()}
    assert said_of(tmp_path, arrays(**flat)) == (
        f"'observations': 192 single bytes (uint8) a step look like images, and {NO_IMAGES}; if they are "
        "measurements, store them as float32."
    )
    few = {key: array[:, :3] for key, array in flat.items()}
    assert Episodes.from_arrays(arrays(**few)).observation_size == 3


def table(**columns: Any) -> Any:
    plain = {key: pa.array(value) for key, value in steps_of((20, 20, 20), (False,) * 3).items() if key[:3] != "obs"}
    return pa.table({**plain, **columns})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"obs": pa.array([[[0.0] * 4] * 4] * ROWS)}, "'obs' holds list<.*, more than a row of numbers a step"),
        ({"obs": pa.array([b"\x89PNG"] * ROWS)}, "'obs' holds binary, more than a row of numbers a step"),
        ({"obs": pa.array([{"bytes": b"", "path": ""}] * ROWS)}, "'obs' holds struct<.*, more than a row of numbers"),
        ({"obs": pa.array([[7] * 64] * ROWS, pa.list_(pa.uint8()))}, "'obs': 64 single bytes"),
        (
            {f"obs_{i}": pa.array([7] * ROWS, pa.uint8()) for i in range(64)},
            "'obs_0' and what follows it: 64 single bytes",
        ),
    ],
)
def test_images_in_tables(tmp_path: Path, columns: Any, message: str) -> None:
    pa.parquet.write_table(table(**columns), tmp_path / "log.parquet")
    with pytest.raises(TracrlError, match=f"log.parquet: .*{message}.*{re.escape(NO_IMAGES)}"):
        import_episodes([tmp_path / "log.parquet"])


def test_several_costs(tmp_path: Path) -> None:
    two = np.ones((ROWS, 2))
    assert said_of(tmp_path, arrays(costs=two)) == (
        "'costs' has shape (60, 2), so several costs a step: one cost is supported: add them, or choose one; expected "
        "(rows,) or (rows, 1)."
    )
    named = arrays(cost_speed=two[:, 0], cost_crash=two[:, 1])
    del named["costs"]
    assert said_of(tmp_path, named) == (
        "the array 'costs' is missing, but there are cost_crash, cost_speed: one cost is supported: add them up into "
        "'costs', or choose one."
    )


def test_several_costs_in_tables() -> None:
    with pytest.raises(TracrlError, match=r"'cost' holds lists of 2 numbers; one a step is supported .* add them, or"):
        Episodes.from_frame(frame(cost=[[0.0, 1.0]] * ROWS))
    several = frame(cost_crash=1.0, cost_speed=2.0).drop(columns="cost")
    with pytest.raises(TracrlError, match="one cost is supported: add them up, or choose: say which with --cost"):
        Episodes.from_frame(several)
    with pytest.raises(TracrlError, match=r"one cost is supported, not \['cost_crash', 'cost_speed'\]: add"):
        Episodes.from_frame(several, cost=["cost_crash", "cost_speed"])
    assert Episodes.from_frame(several, cost="cost_speed").costs.max() == 2
    with pytest.warns(UserWarning, match="'cost' is taken as the cost, and cost_crash not: one cost is supported"):
        Episodes.from_frame(frame(cost_crash=1.0))


class Sees(gymnasium.Env[Any, Any]):
    """An environment that shows what it is told to."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, space: gymnasium.Space[Any], costs: int = 1):
        self.observation_space, self.costs = space, costs

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {"cost": np.zeros(self.costs)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.observation_space.sample(), 0.0, False, self.steps == 3, {"cost": np.ones(self.costs)}


BOX = gymnasium.spaces.Box


@pytest.mark.parametrize(
    ("space", "costs", "message"),
    [
        (BOX(0, 255, (8, 8, 3), np.uint8), 1, r"its observations have shape \(8, 8, 3\), .*images are not supported"),
        (BOX(0, 255, (8, 8), np.uint8), 1, r"its observations have shape \(8, 8\), .*images are not supported"),
        (BOX(0, 255, (64,), np.uint8), 1, "its observations: 64 single bytes"),
        (
            gymnasium.spaces.Dict({"speed": BOX(-1, 1, (2,)), "camera": BOX(0, 255, (8, 8), np.uint8)}),
            1,
            r"its observations\['camera'\] have shape \(8, 8\)",
        ),
        (BOX(-1, 1, (2,)), 2, r"infos\['cost'\] holds 2 costs a step; one cost is supported: add them, or choose one"),
    ],
)
def test_minari(
    space: gymnasium.Space[Any], costs: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(Sees(space, costs), record_infos=True)
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(1, np.float32))
    env.create_dataset("sees/test-v0")
    with pytest.raises(TracrlError, match=message):
        import_episodes(["minari:sees/test-v0"])
