"""The tables of docs/benchmark.md follow from the raw scores in results/."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_results", ROOT / "tools" / "benchmark_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_what_the_scores_say(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    assert tool.page_with_tables(page) == page, "write it anew: python tools/benchmark_results.py table --into ..."


def test_every_run_has_its_episodes_and_says_where_its_data_came_from(tool: ModuleType) -> None:
    runs, scores, data = (tool.read(name) for name in ("runs", "scores", "data"))
    assert len({run["run"] for run in runs}) == len({tool.key_of(run) for run in runs}) == len(runs)
    played: dict[str, int] = {}
    for row in scores:
        played[row["run"]] = played.get(row["run"], 0) + 1
    assert played == {run["run"]: int(run["episodes"]) for run in runs}
    described = {row["fingerprint"] for row in data}
    assert all(run["fingerprint"] in described for run in runs if run["data"] != "repository")
    assert all(count == 9 for *_, count in tool.stacks().values())
