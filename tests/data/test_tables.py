"""Tables made by other libraries become the same episodes; what is odd about them is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.made_up import steps_of
from tracrl.data.columns import ColumnChoice
from tracrl.data.episodes import Episodes
from tracrl.data.sources import import_episodes
from tracrl.errors import TracrlError

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture
def frame() -> Any:
    """Three episodes of 4, 2 and 3 steps; the second one ended by itself."""
    return pd.DataFrame(steps_of((4, 2, 3), terminated=(False, True, False)))


def same(one: Episodes, other: Episodes) -> bool:
    return one.fingerprint == other.fingerprint


@pytest.fixture
def expected(frame: Any) -> Episodes:
    return Episodes.from_frame(frame)


def test_a_frame_is_its_episodes(frame: Any, expected: Episodes) -> None:
    assert expected.lengths.tolist() == [4, 2, 3]
    assert expected.terminated.tolist() == [False, True, False]
    np.testing.assert_array_equal(expected.observations, frame[["obs_0", "obs_1"]].to_numpy(np.float32))
    np.testing.assert_array_equal(expected.actions[:, 0], frame["act_0"].to_numpy(np.float32))
    np.testing.assert_allclose(expected.total_costs, frame.groupby("episode")["cost"].sum())


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "parquet", "feather", "arrow"])
def test_files_of_other_tools_give_the_same_episodes(kind: str, frame: Any, expected: Episodes, tmp_path: Path) -> None:
    path = tmp_path / f"log.{kind}"
    if kind in ("csv", "csv.gz"):
        frame.to_csv(path, index=False)
    elif kind == "tsv":
        frame.to_csv(path, index=False, sep="\t")
    elif kind == "parquet":
        frame.to_parquet(path, row_group_size=4)
    elif kind == "feather":
        frame.to_feather(path)
    else:
        polars = pytest.importorskip("polars")
        polars.from_pandas(frame).write_ipc(path)
    episodes, columns = import_episodes([path])
    assert same(episodes, expected)
    assert columns is not None
    assert columns.observations == ("obs_0", "obs_1")


def test_polars_and_lists_of_numbers(frame: Any, expected: Episodes) -> None:
    polars = pytest.importorskip("polars")
    assert same(Episodes.from_frame(polars.from_pandas(frame)), expected)
    nested = frame.drop(columns=["obs_0", "obs_1"])
    nested["observation"] = frame[["obs_0", "obs_1"]].to_numpy().tolist()
    assert same(Episodes.from_frame(nested), expected)


def test_there_and_back(expected: Episodes, tmp_path: Path) -> None:
    assert same(Episodes.from_frame(expected.to_frame()), expected)
    expected.save(tmp_path / "my.hdf5")
    assert same(import_episodes([tmp_path / "my.hdf5"])[0], expected)


def test_shuffled_rows_are_sorted_by_episode_and_step(frame: Any, expected: Episodes) -> None:
    with pytest.warns(UserWarning, match="sorted by episode and step"):
        shuffled = Episodes.from_frame(frame.sample(frac=1, random_state=0))
    assert sorted(shuffled.lengths.tolist()) == [2, 3, 4]
    assert sorted(shuffled.returns.tolist()) == pytest.approx(sorted(expected.returns.tolist()))
    first = np.argmax(shuffled.lengths == 4)
    rows = list(shuffled)[int(first)]
    np.testing.assert_array_equal(shuffled.observations[rows], expected.observations[:4])


@pytest.mark.parametrize(
    ("change", "choice", "message"),
    [
        (lambda f: f.sample(frac=1, random_state=0).drop(columns="step"), {}, r"episode \d comes back in row \d+"),
        (lambda f: pd.concat([f, f.iloc[[0]]]), {}, r"step 0 of episode 0 stands there twice \(1 such rows"),
        (lambda f: f.drop(columns="cost"), {}, "no column is called cost or like it: say which with --cost"),
        (
            lambda f: f.drop(columns="cost").assign(cost_speed=0.0, cost_crash=0.0),
            {},
            r"several costs \(cost_speed, cost_crash\): one cost is supported: add them up, or choose",
        ),
        (lambda f: f.assign(obs_1="warm"), {}, "'obs_1' holds .*string.*'warm'.*expected numbers"),
        (
            lambda f: f.assign(obs_1=[None, *range(8)]),
            {},
            "'obs_1' is empty in 1 of the first 9 rows, first in row 0",
        ),
        (lambda f: f, {"cost": "harm"}, "--cost is 'harm', but there is no such column"),
        (lambda f: f, {"observations": ["temp*"]}, r"--observations 'temp\*' matches no column"),
        (lambda f: f, {"reward": "cost", "cost": "cost"}, "'cost' is chosen for two things"),
        (lambda f: f.assign(terminated=1), {}, "row 0 .* ends an episode, but the next row has the same episode"),
        (
            lambda f: f.drop(columns=["episode", "step", "terminated", "truncated"]),
            {},
            "nothing says where an episode ends",
        ),
        (lambda f: f.assign(reward=float("inf")), {}, "infinity"),
        (lambda f: f.assign(cost=-1.0), {}, "'costs' is negative in row 0"),
        (lambda f: f.iloc[:0], {}, "there are no rows"),
        (lambda f: f.assign(act_0=50.0), {}, "action column 0 is 50 in every row"),
    ],
)
def test_what_is_wrong_is_named(change: Any, choice: dict[str, Any], message: str, frame: Any) -> None:
    with pytest.raises(TracrlError, match=message):
        Episodes.from_frame(change(frame), **choice)


def test_gaps_and_unknown_ends_are_said(frame: Any) -> None:
    with pytest.warns(UserWarning, match="steps are missing in 1 places, first after step 0 of episode 0"):
        Episodes.from_frame(frame.drop(index=1))
    with pytest.warns(UserWarning, match="taken as cut by time"):
        episodes = Episodes.from_frame(frame.drop(columns=["terminated", "truncated"]))
    assert not episodes.terminated.any()


def test_ids_of_any_type_and_times_as_steps(frame: Any, expected: Episodes) -> None:
    renamed = frame.assign(
        episode=frame["episode"].map({0: "monday", 1: "tuesday", 2: "wednesday"}),
        step=pd.to_datetime("2026-01-01") + pd.to_timedelta(frame["step"], unit="min"),
    )
    assert same(Episodes.from_frame(renamed), expected)


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"])
def test_times_as_text_order_the_steps(form: str, frame: Any, expected: Episodes) -> None:
    times = pd.to_datetime("2026-01-01") + pd.to_timedelta(frame["step"], unit="D")
    as_text = frame.assign(step=times.dt.strftime(form))
    assert same(Episodes.from_frame(as_text), expected)
    with pytest.warns(UserWarning, match="sorted by episode and step"):
        Episodes.from_frame(as_text.iloc[::-1])


def test_clocks_are_not_exact_and_are_shown_as_such(frame: Any, recwarn: pytest.WarningsRecorder) -> None:
    minutes = frame["step"] + np.where(frame["step"] % 2, 0.05, 0)
    times = frame.assign(step=pd.to_datetime("2026-01-01") + pd.to_timedelta(minutes, unit="min"))
    Episodes.from_frame(times)
    assert not [str(warning.message) for warning in recwarn if "missing" in str(warning.message)]
    with pytest.warns(UserWarning, match="missing in 1 places, first after step 2026-01-01 00:00:00 of episode 0"):
        Episodes.from_frame(times.drop(index=1))
    with pytest.raises(TracrlError, match="step 2026-01-01 00:00:00 of episode 0 stands there twice"):
        Episodes.from_frame(pd.concat([times, times.iloc[[0]]]))


def test_text_that_is_no_time(frame: Any, expected: Episodes) -> None:
    odd = frame.assign(step=frame["step"].map("{}. Januar".format))
    with pytest.warns(UserWarning, match="'step' holds neither numbers nor times .* in the order of the table"):
        assert same(Episodes.from_frame(odd), expected)
    with pytest.raises(TracrlError, match=r"'step' holds text \(for example '0. Januar'\); expected numbers, or times"):
        Episodes.from_frame(odd, step="step")


@pytest.mark.parametrize(("delimiter", "decimal"), [(";", ","), (";", "."), ("\t", "."), ("\t", ","), (",", ".")])
def test_separators_of_spreadsheets(
    delimiter: str, decimal: str, frame: Any, expected: Episodes, tmp_path: Path
) -> None:
    for name in ("log.csv", "log.csv.gz"):
        frame.to_csv(tmp_path / name, index=False, sep=delimiter, decimal=decimal)
        assert same(import_episodes([tmp_path / name])[0], expected)


def test_numbers_that_begin_as_whole_ones(frame: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of a column of a CSV file is not that of its first rows."""
    monkeypatch.setattr("tracrl.data.arrow.BLOCK", 1 << 10)
    lengths = (10,) * 40
    log = pd.DataFrame(steps_of(lengths, terminated=(False,) * 40)).round(3)
    log["cost"] = ["0"] * 399 + ["0.5"]
    log["reward"] = ["1"] * 399 + ["1e-3"]
    log["note"] = ["7"] * 399 + ["late"]  # which is not read
    log.to_csv(tmp_path / "log.csv", index=False)
    episodes, _ = import_episodes([tmp_path / "log.csv"])
    assert episodes.costs[-1] == 0.5
    assert episodes.rewards[-1] == np.float32(1e-3)


def test_ids_of_several_types(frame: Any, expected: Episodes, tmp_path: Path) -> None:
    frame[frame["episode"] < 2].to_csv(tmp_path / "a.csv", index=False)
    frame[frame["episode"] == 2].assign(episode="last").to_csv(tmp_path / "b.csv", index=False)
    assert import_episodes([tmp_path])[0].lengths.tolist() == [4, 2, 3]
    assert same(Episodes.from_frame(frame.assign(episode=frame["episode"].astype("category"))), expected)


def test_a_folder_of_files_whose_ids_begin_anew(frame: Any, expected: Episodes, tmp_path: Path) -> None:
    for day, number in enumerate((0, 1, 2)):
        frame[frame["episode"] == number].assign(episode=0).to_csv(tmp_path / f"day{day}.csv", index=False)
    with pytest.warns(UserWarning, match="each file's are taken as episodes of their own"):
        episodes, _ = import_episodes([tmp_path])
    assert same(episodes, expected)


def test_a_folder_of_parts_of_one_table(frame: Any, expected: Episodes, tmp_path: Path) -> None:
    frame.iloc[:3].to_parquet(tmp_path / "part-0.parquet")
    frame.iloc[3:].to_parquet(tmp_path / "part-1.parquet")
    assert same(import_episodes([tmp_path])[0], expected)


def test_a_file_per_episode_without_any_ids(frame: Any, expected: Episodes, tmp_path: Path) -> None:
    plain = frame.drop(columns=["step", "terminated", "truncated"])
    for number in (0, 1, 2):
        plain[plain["episode"] == number].drop(columns="episode").to_csv(tmp_path / f"{number}.csv", index=False)
    with pytest.warns(UserWarning, match="each file is taken as one episode"):
        episodes, _ = import_episodes([tmp_path])
    assert episodes.lengths.tolist() == expected.lengths.tolist()


def test_the_action_box_of_real_units_is_the_logged_range(frame: Any) -> None:
    with pytest.warns(UserWarning, match=r"the action box is the range of the logged actions"):
        episodes = Episodes.from_frame(frame.assign(act_0=np.linspace(10, 90, 9)))
    assert (episodes.action_low[0], episodes.action_high[0]) == (10, 90)
    told = Episodes.from_frame(frame.assign(act_0=np.linspace(10, 90, 9)), action_low=0, action_high=100)
    assert (told.action_low[0], told.action_high[0]) == (0, 100)


def test_columns_are_guessed_in_the_order_of_their_numbers() -> None:
    names = ["Episode", "obs_10", "obs_2", "obs_1", "a0", "Reward", "COST", "done"]
    columns = ColumnChoice().among(names, "here")
    assert columns.observations == ("obs_1", "obs_2", "obs_10")
    assert columns.actions == ("a0",)
    assert (columns.episode, columns.reward, columns.cost) == ("Episode", "Reward", "COST")
    assert "obs_1, obs_2, obs_10" in str(columns)


@pytest.mark.parametrize("damage", [b"", b"PAR1 nothing here PAR1", b"\x00" * 100])
def test_damaged_tables_are_said_with_their_name(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(damage)
    with pytest.raises(TracrlError, match=re.escape(str(path))):
        import_episodes([path])


def test_other_kinds_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "notes.docx").write_bytes(b"?")
    with pytest.raises(TracrlError, match=r"of no kind that can be imported; expected \.csv"):
        import_episodes([tmp_path / "notes.docx"])
    with pytest.raises(TracrlError, match="There is no file or folder at"):
        import_episodes([tmp_path / "none.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(TracrlError, match="holds no tables"):
        import_episodes([tmp_path / "empty"])


def test_npz_under_dsrl_names_and_never_pickles(expected: Episodes, tmp_path: Path) -> None:
    ends = np.zeros(9, bool)
    ends[[3, 8]] = True
    terminals = np.zeros(9, bool)
    terminals[5] = True
    arrays = {"observations": expected.observations, "actions": expected.actions, "rewards": expected.rewards}
    np.savez(tmp_path / "log.npz", **arrays, costs=expected.costs, terminals=terminals, timeouts=ends)
    assert same(import_episodes([tmp_path / "log.npz"])[0], expected)
    np.savez(tmp_path / "bad.npz", observations=np.array([object()], object), allow_pickle=True)
    with pytest.raises(TracrlError, match="cannot be read as a NumPy archive of plain arrays"):
        import_episodes([tmp_path / "bad.npz"])


def test_single_episodes_as_arrays(expected: Episodes) -> None:
    parts = [
        {
            "observations": expected.observations[rows],
            "actions": expected.actions[rows],
            "rewards": expected.rewards[rows],
            "costs": expected.costs[rows],
            "terminated": ended,
        }
        for rows, ended in zip(expected, expected.terminated, strict=True)
    ]
    assert same(Episodes.from_episodes(parts), expected)
    with pytest.raises(TracrlError, match="Episode 1 has no 'costs'"):
        Episodes.from_episodes([parts[0], {k: v for k, v in parts[1].items() if k != "costs"}])
    with pytest.raises(TracrlError, match="There are no episodes"):
        Episodes.from_episodes([])
