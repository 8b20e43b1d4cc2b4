"""The limits that are proposed divide the data, and are numbers that people would say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.data.made_up import episodes_of
from tracrl.data.limits import default_limits
from tracrl.data.locate import load_dataset
from tracrl.data.partition import is_safe

RANDOM = np.random.default_rng(0)
POISSON = RANDOM.poisson(30, 400)


def proposed(costs: Sequence[float] | Any) -> tuple[float, ...]:
    return default_limits(episodes_of([[1]] * len(costs), [[float(cost)] for cost in costs]))


@pytest.mark.parametrize(
    ("costs", "limits"),
    [
        ([0] * 50 + [*range(190, 200)] * 5, (100, 195)),  # a median of 0: between the two heaps, and inside the second
        ([0] * 50 + [200] * 50, (100,)),
        ([0, 4, 5, 6, 12], (2, 4, 10)),
        ([21.2, 22.3, 23.4, 24.4], (22, 23, 24)),
        ([0] * 99 + [190], (100,)),
        ([0] * 50 + [1] * 50, (0.5,)),
        ([7.25] * 3, (7.25,)),  # nothing divides these
        ([0] * 3, (0,)),
        (POISSON, (26, 30, 35)),
        (1000 * POISSON, (26_000, 30_000, 35_000)),  # 0 or 1000 a step
        (POISSON / 1000, (0.026, 0.03, 0.035)),
    ],
)
def test_limits(costs: Any, limits: tuple[float, ...]) -> None:
    assert proposed(costs) == limits


@pytest.mark.parametrize("spread", [RANDOM.exponential(50, 300), RANDOM.uniform(1e-6, 2e-6, 300), 1000.0 + POISSON])
def test_about_a_quarter_a_half_and_three_quarters_are_safe(spread: Any) -> None:
    shares = [is_safe(spread, limit).mean() for limit in proposed(spread)]
    assert shares == pytest.approx([0.25, 0.5, 0.75], abs=0.08)


def test_a_known_task_has_its_own() -> None:
    assert default_limits(load_dataset("BallRun")) == (10, 20, 40)
