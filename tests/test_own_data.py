"""The reactor of docs/own-data.md, smaller: in whatever units its log is, the policy earns as much and stays safe."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tracrl.data.sources import import_episodes
from tracrl.methods.trac import TraC
from tracrl.policies.base import Policy
from tracrl.train.fit import fit

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from reactor import Reactor, Units, log

MINUTES, LIMIT = 60, 3.0
SMALL = TraC(
    updates=1_500, clone_updates=500, warmup=50, batch_size=16, bc_lr=2e-3, lr=3e-4, hidden=(32, 32), dropout=0.0
)


def played(policy: Policy, units: Units) -> tuple[float, float]:
    """Mean return and cost of ten episodes."""
    env = Reactor(units, MINUTES)
    totals = np.zeros((10, 2))
    for seed in range(len(totals)):
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            observation, reward, _, over, info = env.step(policy.act(observation))
            totals[seed] += reward, info["cost"]
    return float(totals[:, 0].mean()), float(totals[:, 1].mean())


def trained(units: Units, folder: Path) -> Policy:
    log(folder / "log.csv", 200, units, MINUTES)
    episodes, _ = import_episodes([folder / "log.csv"])
    return fit(SMALL, episodes, limits=[LIMIT], device="cpu").policy[0]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, float]:
    return played(trained("plain", tmp_path_factory.mktemp("plain")), "plain")


@pytest.mark.filterwarnings("ignore:.*no column says how episodes end")
@pytest.mark.parametrize("units", ["clutter", "si", "micro"])
def test_units_make_no_difference(units: Units, plain: tuple[float, float], tmp_path: Path) -> None:
    earned, cost = played(trained(units, tmp_path), units)
    assert plain[1] <= LIMIT
    assert cost <= LIMIT
    assert earned == pytest.approx(plain[0], rel=0.05)
