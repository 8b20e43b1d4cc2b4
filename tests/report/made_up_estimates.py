"""Estimates for a made-up run directory, as `tracrl estimate --save` keeps them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracrl.ope.estimates import Estimates
from tracrl.policies.load import load_policy


def write_estimates(run: Path) -> Estimates:
    """Costs of half the limit, the first policy dear and out of the data."""
    policy = load_policy(run)
    limits, count = np.array(policy.metadata.limits), len(policy)
    costs, shares = limits / 2, np.full(count, 0.01)
    costs[0], shares[0] = 3 * limits[0], 0.4
    estimates = Estimates(
        (str(run),) * count, policy.metadata.limits, policy.metadata.seeds, np.full(count, 300.0), costs,
        np.full(count, 20.0), limits / 10, shares, 0.9, {"fingerprint": "f1", "episodes": 100, "horizon": 250},
        ("These 100 episodes were held out: the policies were not trained on them.",), policies=policy.fingerprints(),
    )  # fmt: skip
    estimates.save(run / "estimates.json")
    return estimates
