"""What the docs show of the benchmark follows from the raw scores in results/."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from tracrl.report.committed import read_committed, read_table
from tracrl.report.figures import PARTLY, SAFE, UNSAFE, scored_suites
from tracrl.tasks.table import all_tasks

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_results", ROOT / "tools" / "benchmark_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_show_what_the_scores_say(tool: ModuleType) -> None:
    for page in tool.PAGES:
        text = page.read_text(encoding="utf-8")
        assert "<!-- end of " in text
        assert tool.page_with_tables(text) == text, "write it anew: python tools/benchmark_results.py docs"


def test_the_pictures_show_what_the_scores_say(tool: ModuleType) -> None:
    found, *_ = tool.benchmark()
    for suite in scored_suites(found):
        with Image.open(tool.scatter_of(suite)) as picture:
            assert picture.text["numbers"] == tool.numbers_of(found, suite), (  # type: ignore[attr-defined]
                "draw it anew: python tools/benchmark_results.py docs"
            )
        assert f"(results/{tool.scatter_of(suite).name})" in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def test_the_pictures_keep_the_colours_that_say_who_is_safe(tool: ModuleType) -> None:
    found, *_ = tool.benchmark()
    for suite in scored_suites(found):
        rows = [row for row in found.rows if row.suite == suite]
        cells = [cell for row in rows for c in found.columns if (cell := found.cell(row, c, "final")) is not None]
        meant = {SAFE if cell.safe else PARTLY if cell.solved else UNSAFE for cell in cells}
        with Image.open(tool.scatter_of(suite)) as picture:
            there = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24) or []}
        assert {tuple(bytes.fromhex(colour[1:])) for colour in meant} <= there, suite


def test_other_data_are_compared_by_methods_that_they_have(tool: ModuleType) -> None:
    grid = tool.benchmark_tables(*tool.benchmark())["other-data"]
    for i, head in enumerate(grid.heads):
        assert sum(line.entries[i].text != "–" for line in grid.lines) >= 2, f"{head} is compared with nothing"


def test_every_run_has_its_episodes_and_says_where_its_data_came_from(tool: ModuleType) -> None:
    runs, data = (read_table(ROOT / "results", name) for name in ("runs", "data"))
    assert len({run["run"] for run in runs}) == len({tool.key_of(run) for run in runs}) == len(runs)
    assert all(row["made_by"] for row in data)
    committed = read_committed(ROOT / "results")  # refuses runs without their episodes, or on unknown data
    stacks: dict[str, int] = {}
    for result in (*committed.results, *committed.others):
        stacks[result.stack.identity] = stacks.get(result.stack.identity, 0) + 1
    assert set(stacks.values()) == {9}
    assert {result.stack.task for result in committed.results} <= set(all_tasks())
