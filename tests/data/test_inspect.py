"""What is said and drawn about a data set."""

from __future__ import annotations

import io
import json
import resource
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from matplotlib.axes import Axes
from rich.console import Console

from tests.data.made_up import dsrl_arrays, episodes_of
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import write_hdf5
from tracrl.data.inspect import check, coverage, default_limits, plot_scatter, print_summary, summarise
from tracrl.data.locate import load_dataset
from tracrl.errors import TracrlError
from tracrl.tasks.table import get_task


@pytest.fixture
def five() -> Episodes:
    """Returns 10, 30, 20, 50, 40 at costs 0, 4, 5, 6, 12."""
    steps = [[10, 0], [10, 20], [20], [25, 25, 0], [40, 0]]
    costs = [[0, 0], [4, 0], [5], [1, 2, 3], [0, 12]]
    return episodes_of(steps, costs, file="five.hdf5", made_by="hand")


def printed(summary: Any, width: int = 100) -> str:
    text = io.StringIO()
    print_summary(Console(file=text, width=width), summary)
    return text.getvalue()


def test_the_facts(five: Episodes) -> None:
    facts = summarise(five, [5])
    assert (facts.name, facts.task, facts.made_by) == ("five.hdf5", None, "hand")
    assert (facts.episodes, facts.transitions, facts.terminated) == (5, 10, 0)
    assert (facts.observation_size, facts.action_size) == (1, 1)
    assert (facts.lengths.low, facts.lengths.median, facts.lengths.high) == (1, 2, 3)
    assert (facts.returns.low, facts.returns.median, facts.returns.high) == (10, 30, 50)
    assert (facts.costs.low, facts.costs.median, facts.costs.high) == (0, 5, 12)
    assert facts.dsrl is None
    assert facts.fingerprint == five.fingerprint


def test_the_sets_at_a_limit(five: Episodes) -> None:
    at = summarise(five, [5], x=50, y=0).limits[0]  # safe: returns 30, 20, 10
    assert (at.limit, at.safe, at.unsafe, at.share_safe) == (5, 3, 2, 0.6)
    assert (at.desirable, at.undesirable, at.left_out) == (2, 2, 1)
    assert at.best_safe_return == 30
    assert at.best_safe_score is None
    assert at.note == ""
    at = summarise(five, [5], x=30, y=30).limits[0]
    assert (at.desirable, at.undesirable, at.left_out) == (1, 3, 1)


def test_limits_at_which_nothing_or_everything_is_safe(five: Episodes) -> None:
    dear = five.select([1, 2, 3, 4])
    none, all_ = summarise(dear, [1, 100]).limits
    assert (none.safe, none.desirable, none.undesirable, none.left_out) == (0, 0, 4, 0)
    assert (none.best_safe_return, none.share_safe) == (None, 0)
    assert none.note == "no episode is safe; the lowest cost is 4."
    assert (all_.safe, all_.desirable, all_.undesirable, all_.left_out) == (4, 2, 0, 2)
    assert all_.note == "every episode is safe, so nothing is undesirable; the highest cost is 12."
    text = printed(summarise(dear, [1, 100]))
    assert "Limit 1: no episode is safe; the lowest cost is 4." in text
    assert "Limit 100: every episode is safe" in text
    assert "none" in text
    assert summarise(dear, [100], x=50, y=50).limits[0].note == ""


def test_a_known_task_brings_its_limits_scores_and_dsrls_constants() -> None:
    task = get_task("BallRun")
    facts = summarise(load_dataset("BallRun"))
    assert [at.limit for at in facts.limits] == [10, 20, 40]
    assert [at.safe for at in facts.limits] == [200, 282, 486]
    best = facts.limits[0].best_safe_return
    assert best is not None
    assert facts.limits[0].best_safe_score == pytest.approx(
        (best - task.min_return) / (task.max_return - task.min_return)
    )
    assert facts.dsrl == {
        "episodes": 940,
        "longest": 100,
        "lowest_return": task.min_return,
        "highest_return": task.max_return,
        "highest_cost": 80,
    }


def test_default_limits_divide_the_data(five: Episodes) -> None:
    # Costs above 0: 4, 5, 6, 12, with quartiles 4.75, 5.5 and 7.5.
    assert default_limits(five) == (5, 6, 8)
    assert default_limits(five.select([0])) == (0,)


def test_default_limits_take_more_digits_where_few_do_not_divide() -> None:
    costs = [[21.2], [22.3], [23.4], [24.4]]  # one digit: 20, at which nothing is safe
    assert default_limits(episodes_of([[1]] * 4, costs)) == (22, 23, 24)
    same = episodes_of([[1]] * 3, [[7.25]] * 3)
    assert default_limits(same) == (7.25,)  # nothing divides these


def test_coverage_is_the_share_of_occupied_cells() -> None:
    corners = episodes_of([[0], [0], [10], [10]], [[0], [10], [0], [10]])
    assert coverage(corners) == 4 / 100
    assert coverage(corners, cells=2) == 1
    diagonal = episodes_of([[value] for value in range(11)], [[value] for value in range(11)])
    assert coverage(diagonal) == 10 / 100
    line = episodes_of([[value] for value in range(11)], [[0]] * 11)
    assert coverage(line) == 1  # no spread of costs, so ten cells in all
    assert coverage(line.select([0])) == 1


def test_as_plain_values(five: Episodes) -> None:
    facts = summarise(five, [5], name="mine")
    plain = json.loads(json.dumps(facts.to_dict()))
    assert plain["name"] == "mine"
    assert plain["limits"][0]["safe"] == 3
    assert plain["returns"] == {"low": 10, "median": 30, "high": 50}


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables(width: int) -> None:
    text = printed(summarise(load_dataset("BallRun"), y=25), width=width)
    lines = [line.split() for line in text.splitlines()]
    assert "BallRun.hdf5, task BallRun" in text
    assert "1,000 episodes, 100,000 transitions (DSRL's data: 940 episodes)" in text
    assert "Covers 52% of the cost-return plane" in text
    assert ["return", "-443.3", "594.4", "1611.7", "26.3", "1327.4"] in lines
    assert ["10", "200", "(20%)", "800", "455.2", "0.33", "100", "850", "50"] in lines
    assert "bottom 25 %" in text
    assert "…" not in text  # nothing cut off
    assert max(len(line) for line in text.splitlines()) <= width


def test_names_are_not_taken_for_markup(five: Episodes) -> None:
    odd = replace(five, metadata={"file": "[red]five[/red].hdf5", "made_by": "[/nonsense]"})
    text = printed(summarise(odd, [5]))
    assert "[red]five[/red].hdf5" in text
    assert "[/nonsense]" in text


def size_of(png: Path) -> tuple[int, int]:
    content = png.read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def test_the_scatter_has_a_panel_a_limit(five: Episodes, tmp_path: Path) -> None:
    for count, limits in enumerate([[5], [5, 6], [5, 6, 8]], start=1):
        plot_scatter(five, tmp_path / f"{count}.png", limits)
    widths = [size_of(tmp_path / f"{count}.png")[0] for count in (1, 2, 3)]
    assert widths[0] < widths[1] < widths[2]
    plot_scatter(five, tmp_path / "many.png", [0, 1, 2, 4, 5, 6])
    assert size_of(tmp_path / "many.png")[1] > 1.5 * size_of(tmp_path / "3.png")[1]  # a second row
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.png", "2.png", "3.png", "many.png"]


def test_the_scatter_shows_every_episode_in_its_set(
    five: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, list[tuple[float, float]]]] = []
    lines: list[float] = []
    scatter, axvline = Axes.scatter, Axes.axvline

    def watch(self: Axes, x: Any, y: Any, **options: Any) -> Any:
        if options["label"] == "left out":
            drawn.append({})
        drawn[-1][options["label"]] = list(zip(x.tolist(), y.tolist(), strict=True))
        return scatter(self, x, y, **options)

    monkeypatch.setattr(Axes, "scatter", watch)
    monkeypatch.setattr(Axes, "axvline", lambda self, x, **rest: (lines.append(x), axvline(self, x, **rest))[1])
    plot_scatter(five, tmp_path / "five.png", [5, 100, 0], x=30, y=40)
    assert lines == [5, 100, 0]
    assert drawn[0] == {
        "desirable": [(4, 30)],
        "left out": [(5, 20)],
        "undesirable": [(0, 10), (6, 50), (12, 40)],
    }
    assert len(drawn[1]["desirable"]) == 2  # 30 % of five, rounded
    assert drawn[2]["desirable"] == [(0, 10)]
    assert len(drawn[2]["undesirable"]) == 4


def test_the_scatter_names_the_data_and_its_axes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("matplotlib").rcParams, "svg.fonttype", "none")  # text stays text
    plot_scatter(load_dataset("BallRun"), tmp_path / "ball.svg", y=50)
    text = (tmp_path / "ball.svg").read_text()
    for said in (
        "BallRun.hdf5, task BallRun: 1000 episodes",
        "limit 10: 200 safe, 800 unsafe",
        "limit 40: 486 safe, 514 unsafe",
        "cost per episode (sum of costs)",
        "return per episode (sum of rewards)",
        "normalised return",
        "desirable (top 50 % of the safe)",
        "undesirable (unsafe, and bottom 50 % of the safe)",
        "left out",
        "cost limit",
    ):
        assert said in text


def test_data_of_one_point_can_be_drawn(tmp_path: Path) -> None:
    plot_scatter(episodes_of([[1]], [[0]]), tmp_path / "one.png")
    assert size_of(tmp_path / "one.png")[0] > 0


def test_a_picture_of_unknown_kind(five: Episodes, tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match=r"five.bmp cannot be drawn: the name must end in .png, .svg or .pdf"):
        plot_scatter(five, tmp_path / "five.bmp")


def test_a_picture_that_cannot_be_written_leaves_the_old_one(five: Episodes, tmp_path: Path) -> None:
    path = tmp_path / "five.png"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(TracrlError, match=r"five.png cannot be written \(File too large\)"):
            plot_scatter(five, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["five.png"]


def checked(tmp_path: Path, changes: dict[str, Any], **options: Any) -> list[str]:
    arrays = {**dsrl_arrays(lengths=(4, 3, 5)), **changes}
    path = tmp_path / "mine.hdf5"
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            if array is not None:
                file.create_dataset(key, data=array)
    return [finding.removeprefix(f"{path}: ") for finding in check(path, **options)]


def test_sound_data_give_no_findings(tmp_path: Path) -> None:
    assert checked(tmp_path, {}) == []
    assert check("BallRun") == []


def test_findings(tmp_path: Path) -> None:
    arrays = dsrl_arrays(lengths=(4, 3, 5))
    following = arrays["next_observations"].copy()
    following[0] += 1
    assert checked(tmp_path, {"next_observations": following}) == [
        "in 1 rows 'next_observations' differs from the observation of the next row; "
        "the next row's observation is used."
    ]
    assert checked(tmp_path, {"terminals": np.arange(12) == 3}) == [
        "the last 5 rows belong to an episode without an end and are left out."
    ]
    assert checked(tmp_path, {"infos": np.zeros(12), "velocity": np.zeros((12, 2))}) == ["not used: infos, velocity."]
    assert checked(tmp_path, {"terminals": arrays["terminals"] | arrays["timeouts"]}) == [
        "1 rows have both 'terminals' and 'timeouts' and count as terminated."
    ]
    # A column beside a flat array: both are read row by row.
    column = (arrays["terminals"] | arrays["timeouts"])[:, None]
    for changes in ({"terminals": column}, {"terminals": column[:, 0], "timeouts": arrays["timeouts"][:, None]}):
        assert checked(tmp_path, changes) == ["1 rows have both 'terminals' and 'timeouts' and count as terminated."]
    assert checked(tmp_path, {"next_observations": None}) == [
        "there are neither 'next_observations' nor 'final_observations', so BCQ-Lag, BEAR-Lag and CPQ leave out "
        "the last step of each episode that time ended."
    ]
    assert checked(tmp_path, {"costs": np.zeros(12)}) == [
        "no step costs anything, so every episode is safe at every limit."
    ]
    actions = arrays["actions"].copy()
    actions[5] = 1.5
    assert checked(tmp_path, {"actions": actions}, clip_actions=True) == [
        "1 rows of 'actions' leave the box by up to 0.5 and are cut to it."
    ]


def test_several_findings_come_together(tmp_path: Path) -> None:
    found = checked(tmp_path, {"terminals": np.arange(12) == 3, "costs": np.zeros(12), "infos": np.zeros(12)})
    assert len(found) == 3


def test_findings_about_the_task(tmp_path: Path) -> None:
    arrays = {
        "observations": np.zeros((101, 7)),
        "actions": np.zeros((101, 2)),
        "rewards": np.zeros(101),
        "costs": np.ones(101),
        "timeouts": np.arange(101) == 100,
        "final_observations": np.zeros((1, 7)),
    }
    for task, finding in (
        ("BallRun", "an episode has 101 steps, where BallRun ends after 100."),
        ("MyRobot", "its task 'MyRobot' is not one of the 38, so there are no normalised scores."),
    ):
        path = tmp_path / f"{task}.hdf5"
        write_hdf5(Episodes.from_arrays(arrays, metadata={"task": task}), path)
        assert check(path) == [f"{path}: {finding}"]


def test_what_is_an_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match="'costs' is negative in row 0"):
        checked(tmp_path, {"costs": np.full(12, -1.0)})
    with pytest.raises(TracrlError, match="do not belong to BallRun"):
        checked(tmp_path, {}, task="BallRun")
