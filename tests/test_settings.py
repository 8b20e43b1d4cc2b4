"""Every setting is checked by its type and its range, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from tracrl.errors import TracrlError
from tracrl.settings import (
    Discount,
    Dropout,
    Hidden,
    LearningRate,
    Range,
    Seed,
    Updates,
    check_limits,
    check_seeds,
    check_settings,
    checked,
    expectation,
)


@dataclass(frozen=True)
class Some:
    lr: LearningRate = 0.1
    hidden: Hidden = (8, 8)
    sides: Literal["both", "one"] = "both"
    quirks: bool = False
    steps: int | None = None

    def __post_init__(self) -> None:
        check_settings(self, "Some")


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (-1, LearningRate, "expected a number from 0 to 1"),
        (1.5, LearningRate, "--it is 1.5"),
        (float("nan"), LearningRate, "--it is nan"),
        (float("inf"), float, "expected a finite number"),
        (1.5, Discount, "expected a discount above 0 and below 1"),
        (10**30, Updates, "expected a whole number from 1 to 1 000 000 000"),
        (1.0, Updates, "--it is 1.0"),
        (True, Updates, "--it is True"),
        ("3", Updates, "--it is '3'"),
        (0.9999, Dropout, "expected a rate from 0 to 0.99"),
        ((), Hidden, "expected 1 to 16 values, each a whole number from 1 to 16 384"),
        ((0,), Hidden, r"--it is \(0,\)"),
        ((1,) * 100, Hidden, "expected 1 to 16 values"),
        (256, Hidden, "--it is 256"),
        (2**63, Seed, r"expected a whole number from 0 to 2\*\*63 - 1"),
        ("neither", Literal["both", "one"], "expected both or one"),
        (1, bool, "expected true or false"),
        ("x", int | None, "expected a whole number"),
        (10**400, float, "expected a finite number"),
    ],
)
def test_what_does_not_fit_is_a_sentence(value: Any, kind: Any, words: str) -> None:
    with pytest.raises(TracrlError, match=words):
        checked("--it", value, kind)


def test_what_means_the_same_is_made_the_same() -> None:
    settings = Some(lr=1, hidden=[np.int64(4)])  # type: ignore[arg-type]
    assert settings == Some(lr=1.0, hidden=(4,))
    assert type(settings.lr) is float
    assert type(settings.hidden[0]) is int
    assert type(Some(steps=np.int64(3)).steps) is int  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"sides": "none"}, {"lr": -1}, {"quirks": "yes"}, {"steps": 1.5}])
def test_settings_made_in_python_are_checked(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(TracrlError, match=f"Some: --{name} is"):
        Some(**changes)


def test_ranges_in_words() -> None:
    assert expectation(Annotated[int, Range(1)]) == "a whole number of at least 1"
    assert expectation(Annotated[float, Range(0, 1, below=True)]) == "a number from 0 to below 1"
    assert expectation(int | None) == "a whole number or nothing"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((), "At least one limit"),
        ((10, 10), "names a value twice: 10 10"),
        ((10.0, 10.0000001), "differ by less than the six digits that logs and tables print"),
        ((-1,), "must be numbers of 0 or more"),
        ((float("nan"),), "must be numbers of 0 or more"),
        ((float("inf"),), "must be numbers of 0 or more"),
        (("ten",), "must be numbers of 0 or more"),
    ],
)
def test_limits(limits: tuple[Any, ...], words: str) -> None:
    with pytest.raises(TracrlError, match=words):
        check_limits(limits)


@pytest.mark.parametrize(
    ("seeds", "words"), [((), "At least one seed"), ((0, 0), "twice"), ((-1,), "--seeds is -1"), ((2**63,), "2")]
)
def test_seeds(seeds: tuple[Any, ...], words: str) -> None:
    with pytest.raises(TracrlError, match=words):
        check_seeds(seeds)


def test_limits_and_seeds_are_plain_numbers() -> None:
    assert check_limits(np.array([10, 20.5]).tolist()) == (10.0, 20.5)
    assert check_seeds(list(np.array([3, 0]))) == (3, 0)
