"""The examples of docs/own-method.md, as a user runs them: nothing here but the page's own code."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from tests.test_cli import refused, tracrl
from tracrl.errors import TracrlError
from tracrl.methods import registry
from tracrl.methods.registry import get_method, known_method

PAGE = Path(__file__).parents[2] / "docs" / "own-method.md"
MY_FILE, FOURIER = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
QUICK = ["--limits", 20, "--episodes", 1, "--evaluations", 1, "--device", "cpu"]


def test_the_examples_are_short() -> None:
    assert max(len(code.splitlines()) for code in (MY_FILE, FOURIER)) <= 60


def test_a_method_in_a_file_is_studied_evaluated_and_reported(tmp_path: Path) -> None:
    (tmp_path / "my_file.py").write_text(MY_FILE)
    study = ["study", "main", "--tasks", "BallRun", "--methods", "my_file:BCTop", "--seeds", 0, "--limits", 20]
    few = ["--episodes", 1, "--evaluations", 1, "--set", "updates=10", "hidden=[8]", "share=0.5"]
    studied = tracrl(*study, *few, "--device", "cpu", "--out", "runs", cwd=tmp_path)
    assert studied.returncode == 0, studied.stdout + studied.stderr
    (run,) = (tmp_path / "runs").glob("BallRun-bc-top-*")
    config = json.loads((run / "config.json").read_text())
    assert config["method_metadata"] == {"title": "BC-Top", "depends_on_limit": True, "phase_ends": []}
    # What is finished needs the file no longer: nothing that a run directory names is imported.
    (tmp_path / "my_file.py").write_text("raise SystemExit('imported')")
    evaluated = tracrl("evaluate", run, "--episodes", 1, cwd=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    reported = tracrl("report", "runs", "--out", "report", cwd=tmp_path)
    assert reported.returncode == 0, reported.stderr
    assert any("BC-Top" in file.read_text() for file in (tmp_path / "report").rglob("*.md"))


def test_a_method_with_a_network_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "fourier.py").write_text(FOURIER)
    options = [*QUICK, "--updates", 20, "--features", 8, "--seeds", 0, 1, "--out", "run"]
    trained = tracrl("train", "fourier:Fourier", "BallRun", *options, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "--method my_file:Mine" in refused(tracrl("evaluate", "run", "--episodes", 1, cwd=tmp_path))
    evaluated = tracrl("evaluate", "run", "--episodes", 1, "--method", "fourier:Fourier", cwd=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_own", {})
    return tmp_path


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "there is neither a file .* nor an installed module"),
        ("import nowhere_at_all", "needs the module 'nowhere_at_all'"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("x = 1", "has no 'BCTop'"),
        ("BCTop = 1", "is no method"),
        (MY_FILE.replace('"bc-top"', '"trac"'), "is called 'trac' like TraC"),
        (MY_FILE.replace('"bc-top"', '"../up"'), "is called '../up': expected"),
        (MY_FILE.replace("@dataclass(frozen=True)\n", ""), "is no dataclass"),
        (MY_FILE.replace("    def chosen", "    def picked"), "lacks chosen"),
    ],
)
def test_what_is_no_method_is_a_sentence(here: Path, code: str | None, words: str) -> None:
    name = f"module_{abs(hash(words)):x}"
    if code is not None:
        (here / f"{name}.py").write_text(code)
    with pytest.raises(TracrlError, match=words):
        get_method(f"{name}:BCTop")


def test_a_file_is_found_whatever_is_called_like_it(here: Path) -> None:
    (here / "random.py").write_text(MY_FILE)
    assert get_method("random:BCTop").title == "BC-Top"
    assert get_method("bc-top") is known_method("bc-top")
    (here / "folder").mkdir()
    (here / "folder" / "other.py").write_text("from beside import BCTop")
    (here / "folder" / "beside.py").write_text(MY_FILE.replace("bc-top", "bc-other"))
    assert get_method("folder/other.py:BCTop").name == "bc-other"


def test_names_in_files_are_not_imported(here: Path) -> None:
    (here / "trap.py").write_text("raise SystemExit('imported')")
    assert known_method("trap:BCTop") is None
    assert registry.metadata_of({"method": "trap:BCTop", "settings": {}}).title == "trap:BCTop"


def test_an_installed_package_announces_its_methods(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "announced.py").write_text(MY_FILE)
    info = here / "announced-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: announced\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tracrl.methods]\nbc-top = announced:BCTop\n")
    monkeypatch.syspath_prepend(str(here))
    importlib.invalidate_caches()
    assert get_method("bc-top").title == "BC-Top"
