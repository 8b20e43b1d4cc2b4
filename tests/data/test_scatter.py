"""The picture of a data set."""

from __future__ import annotations

import resource
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from tests.data.made_up import episodes_of
from tracrl.data.episodes import Episodes
from tracrl.data.locate import load_dataset
from tracrl.data.scatter import plot_scatter
from tracrl.errors import TracrlError


def size_of(png: Path) -> tuple[int, int]:
    content = png.read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def test_the_scatter_has_one_panel_per_limit(five: Episodes, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limits": [float("nan")]}, "--limits must be numbers of 0 or more"),
        ({"limits": [-3.0]}, "--limits must be numbers of 0 or more"),
        ({"x": -5.0}, "--x is -5.0; expected a number from 0 to 100"),
        ({"y": 101.0}, "--y is 101.0; expected a number from 0 to 100"),
        ({"limits": range(1, 90)}, "There are 89 limits, and a picture has room for 64"),
    ],
)
def test_what_cannot_be_drawn(five: Episodes, tmp_path: Path, options: Any, said: str) -> None:
    with pytest.raises(TracrlError, match=said):
        plot_scatter(five, tmp_path / "five.png", **options)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("odd", ["costs $5 and $6", r"$\frac{$", "[red]", "{x}", "größer ✓"])
def test_names_are_not_taken_for_mathematics(five: Episodes, tmp_path: Path, odd: str) -> None:
    plot_scatter(replace(five, metadata={"file": odd, "task": odd}), tmp_path / "odd.png", [5])
    assert size_of(tmp_path / "odd.png")[0] > 0
