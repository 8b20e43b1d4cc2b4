"""A run of two policies, and estimates of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tracrl
from tests.conftest import make_small_data
from tracrl.ope.estimates import Estimates
from tracrl.policies.base import Policy


def untrained_run(out: Path) -> Path:
    """A finished run of two policies that are as good as untrained, and say so."""
    method = tracrl.BCAll(updates=3, batch_size=8, hidden=(8,))
    with pytest.warns(match="BC-All"):
        tracrl.fit(method, make_small_data(), limits=[2, 6], out=out)
    (out / "warnings.json").write_text('["All 2 policies give the same action in every state: train longer."]')
    return out


def made_up_estimates(policy: Policy, name: str = "run") -> Estimates:
    """As a log would give them: the first cheap and sure, the second dear and out of the data."""
    metadata = policy.metadata
    assert len(policy) == 2
    return Estimates(
        (name, name), metadata.limits, metadata.seeds, np.array([5.0, 7.0]), np.array([1.0, 9.0]), np.array([1.0, 1.0]),
        np.array([0.2, 0.3]), np.array([0.01, 0.5]), 0.9, {"fingerprint": "f1", "episodes": 60, "horizon": 12},
        ("These are made up.",), policies=policy.fingerprints(),
    )  # fmt: skip
