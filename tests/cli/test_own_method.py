"""A method from someone's own file, and what is done with its runs where that file is not at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MINE = """
from dataclasses import dataclass
from typing import ClassVar

from tracrl.methods.bc import BCAll
from tracrl.policies.mlp import MLPPolicy


@dataclass(frozen=True)
class Mine(BCAll):
    name: ClassVar[str] = "mine"
    title: ClassVar[str] = "My own"


class MinePolicy(MLPPolicy):
    kind = "mine"
"""


def run(code: str, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)


def tracrl(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run("import sys; sys.path.pop(0); from tracrl.cli import main; sys.exit(main())", *words, cwd=cwd)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``mine.py`` and ``run``, which it trained."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(MINE)
    small = ["--updates", 2, "--hidden", 8, "--limits", 20, "--episodes", 1, "--evaluations", 1, "--out", "run"]
    result = tracrl("train", "mine:Mine", "BallRun", *small, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "My own on BallRun: final policy" in result.stdout
    return folder


def test_a_run_of_a_method_that_is_not_at_hand_is_evaluated_and_shown(trained: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (trained / "run").iterdir() if path.is_file()}
    result = tracrl("evaluate", trained / "run", "--episodes", 1, "--workers", 1, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert all(path.read_bytes() == content for path, content in before.items())
    saved = tracrl("evaluate", trained / "run", "--episodes", 1, "--workers", 1, "--save", cwd=tmp_path)
    assert saved.returncode == 0, saved.stderr
    assert "My own on BallRun: final policy" in saved.stdout


def test_policies_of_a_kind_of_their_own_need_the_method(trained: Path, tmp_path: Path) -> None:
    code = (
        "import mine, tracrl; policy = tracrl.load_policy('run')\n"
        "mine.MinePolicy(policy.metadata, policy.tensors, **policy.settings()).save('own.safetensors')"
    )
    assert run(code, cwd=trained).returncode == 0
    policy = trained / "own.safetensors"
    alone = tracrl("evaluate", policy, "--episodes", 1, "--workers", 1, cwd=tmp_path)
    assert alone.returncode == 1
    assert "--method" in alone.stderr
    words = ["evaluate", policy, "--method", trained / "mine.py:Mine", "--episodes", 1, "--workers", 1]
    told = tracrl(*words, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
