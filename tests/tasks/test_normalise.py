from __future__ import annotations

import pytest

from tracrl.tasks.normalise import normalised_cost, normalised_reward
from tracrl.tasks.table import get_task


def test_normalised_reward_by_hand() -> None:
    ball = get_task("BallRun")  # returns of DSRL's data: 26.34 to 1327.45
    middle = (26.339754104614258 + 1327.445556640625) / 2
    assert normalised_reward(ball, [26.339754104614258, 1327.445556640625, middle]) == pytest.approx([0, 1, 0.5])


def test_normalised_cost_by_hand() -> None:
    assert normalised_cost([5, 20], 10) == pytest.approx([0.5, 2])
    assert normalised_cost([0, 3], 0) == pytest.approx([1, 4])  # ε = 1 only for a limit of 0
