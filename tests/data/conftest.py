"""What the tests of data share."""

from __future__ import annotations

import pytest

from tests.data.made_up import episodes_of
from tracrl.data.episodes import Episodes


@pytest.fixture
def five() -> Episodes:
    """Returns 10, 30, 20, 50, 40 at costs 0, 4, 5, 6, 12."""
    steps = [[10, 0], [10, 20], [20], [25, 25, 0], [40, 0]]
    costs = [[0, 0], [4, 0], [5], [1, 2, 3], [0, 12]]
    return episodes_of(steps, costs, file="five.hdf5", made_by="hand")
