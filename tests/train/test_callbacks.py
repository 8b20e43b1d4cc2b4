"""What whoever calls fit is told, and what is shown of it."""

from __future__ import annotations

import os
import pty
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import make_small_data
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.evaluation.evaluate import Evaluator
from tracrl.methods.trac import TraC
from tracrl.train.callbacks import Event
from tracrl.train.fit import fit
from tracrl.train.progress import Silence, chosen_progress

SMALL = TraC(updates=8, clone_updates=4, batch_size=4, hidden=(8, 8), warmup=0)
LIMITS, SEEDS = [3.0, 4.0], [0, 1]


def test_each_log_and_the_end_are_told(small_data: Episodes) -> None:
    told: list[Event] = []
    more: list[str] = []
    run = fit(
        SMALL, small_data, limits=LIMITS, seeds=SEEDS, callbacks=[told.append, lambda event: more.append(event.kind)]
    )
    assert [event.step for event in told] == [1, 2, 3, 4, 5, 6, 7, 8, 8]
    assert more == [event.kind for event in told] == ["log"] * 8 + ["end"]
    assert [event.phase for event in told[3:5]] == ["cloning", "classification"]
    logged = told[4]
    assert (logged.updates, logged.directory, logged.warnings) == (8, None, ())
    assert [(row["limit"], row["seed"]) for row in logged.rows] == [(3.0, 0), (3.0, 1), (4.0, 0), (4.0, 1)]
    assert [row["loss"] for row in logged.rows] == [row["loss"] for row in run.history if row["step"] == 5]
    assert told[-1].rows == ()  # nothing was evaluated
    assert told[-1].warnings == run.warnings


def test_a_callback_that_fails_ends_the_run_and_loses_nothing(small_data: Episodes, tmp_path: Path) -> None:
    def careless(event: Event) -> None:
        if event.step == 3:
            raise KeyError("colour")

    whole = fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "whole")
    with pytest.raises(TracrlError) as caught:
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", callbacks=careless)
    assert str(caught.value).endswith(
        f"careless failed at update 3 of 8 (KeyError: 'colour'); the training is kept in {tmp_path / 'run'}: mend it, "
        "and go on with resume=True."
    )
    assert isinstance(caught.value.__cause__, KeyError)
    steps: list[int] = []
    run = fit(
        SMALL,
        small_data,
        limits=LIMITS,
        out=tmp_path / "run",
        resume=True,
        callbacks=lambda event: steps.append(event.step),
    )
    assert steps == [4, 5, 6, 7, 8, 8]
    assert all(np.array_equal(run.policy.tensors[k], whole.policy.tensors[k]) for k in whole.policy.tensors)
    with pytest.raises(TracrlError, match="nothing was kept: mend it, and give out= to keep"):
        fit(SMALL, small_data, limits=LIMITS, callbacks=careless)


def test_a_callback_that_fails_at_the_end(small_data: Episodes, tmp_path: Path) -> None:
    def late(event: Event) -> None:
        assert event.kind != "end"

    with pytest.raises(TracrlError, match=r"late failed at update 8 of 8 .*; the training itself is finished, in"):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", callbacks=late)
    assert (tmp_path / "run" / "policy.safetensors").exists()


def test_what_is_no_callback(small_data: Episodes, tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match="callbacks holds 'print'; expected functions that take one event each"):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", callbacks=["print"])  # type: ignore[list-item]
    assert not (tmp_path / "run").exists()


def test_evaluations_are_told(small_data: Episodes) -> None:
    told: list[Event] = []
    evaluator = Evaluator("tiny_envs:Field", episodes=2, workers=1)
    run = fit(SMALL, small_data, limits=LIMITS, evaluator=evaluator, evaluations=2, callbacks=told.append)
    assert [(event.kind, event.step) for event in told if event.kind != "log"] == [
        ("evaluation", 4),
        ("evaluation", 8),
        ("end", 8),
    ]
    assert run.scores is not None
    assert [row["cost"] for row in told[-1].rows] == run.scores.means()["cost"]
    assert [row["limit"] for row in told[-1].rows] == LIMITS


def test_what_is_chosen_to_show() -> None:
    assert isinstance(chosen_progress(True), Silence)  # pytest reads what is printed: no terminal
    for silent in (False, None):
        assert isinstance(chosen_progress(silent), Silence)
    own = Silence()
    assert chosen_progress(own) is own


def test_a_bar_in_a_terminal_and_nothing_elsewhere(
    small_data: Episodes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fit(SMALL, small_data, limits=LIMITS)
    assert capfd.readouterr() == ("", "")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as screen:
        monkeypatch.setattr(sys, "stdout", screen)

        def seen_until(marker: str) -> str:
            screen.write(marker)
            screen.flush()
            seen = b""
            while not seen.endswith(marker.encode()):
                seen += os.read(shown, 65_536)
            return seen.decode()

        fit(SMALL, small_data, limits=LIMITS)
        assert "8/8" in seen_until("first")
        fit(SMALL, small_data, limits=LIMITS, progress=False)
        assert seen_until("second") == "second"
    os.close(shown)


def test_the_run_in_a_line(small_data: Episodes, tmp_path: Path) -> None:
    run = fit(SMALL, small_data, limits=LIMITS, seeds=SEEDS, out=tmp_path / "run")
    assert repr(run) == (
        "<Run: MLPPolicy of trac: 4 policies, limit 3, 4, seed 0, 1; observations of 3, actions of 2 in [-1, 1], "
        f"standardises; 8 steps logged; not evaluated; in {tmp_path / 'run'}>"
    )
    evaluator = Evaluator("tiny_envs:Field", episodes=2, workers=1)
    scored = fit(SMALL, make_small_data(), limits=LIMITS, evaluator=evaluator, evaluations=1)
    assert scored.scores is not None
    safe = sum(scored.scores.safe_at().values())
    assert repr(scored).endswith(f"8 steps logged; safe at {safe} of 2 limits>")


def test_a_run_that_looks_dead_says_so(small_data: Episodes) -> None:
    run = fit(SMALL, small_data, limits=[4.0])
    first, second = repr(replace(run, warnings=("The policy gives one action.", "And more."))).splitlines()
    assert first == repr(run)[:-1]
    assert second == " WARNING: The policy gives one action.>"
