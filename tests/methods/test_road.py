"""On the road of :mod:`tests.methods.road` the safe methods end safe, and cloning everything does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.methods.road import BEST_SAFE_RETURN, log_of_drivers, play
from tracrl.methods.bc import BCAll, BCSafe
from tracrl.methods.bcq_lag import BCQLag
from tracrl.methods.bear_lag import BEARLag
from tracrl.methods.caps import CAPS
from tracrl.methods.carl import CARL
from tracrl.methods.cdt import CDT
from tracrl.methods.coptidice import COptiDICE
from tracrl.methods.cpq import CPQ
from tracrl.methods.method import Method
from tracrl.methods.trac import TraC
from tracrl.train.fit import fit

LIMIT = 2.0
NETS: dict[str, Any] = {"hidden": (32, 32)}
CRITICS: dict[str, Any] = {**NETS, "batch_size": 64, "gamma": 0.9, "tau": 0.05, "reward_scale": 1.0}
RATES: dict[str, Any] = {"actor_lr": 1e-3, "critic_lr": 3e-3, "vae_lr": 3e-3, "vae_hidden": (32, 32)}
GPT: dict[str, Any] = {"width": 32, "layers": 1, "heads": 2, "context": 4, "dropout": 0.0, "max_grad_norm": 1.0}
SAFE_METHODS: list[Method] = [
    BCSafe(updates=400, batch_size=64, lr=3e-3, **NETS),
    TraC(updates=500, clone_updates=200, batch_size=24, bc_lr=3e-3, lr=1e-3, warmup=20, dropout=0, y=50, **NETS),
    # At three times the rate a seed in eight ends unsafe.
    CDT(updates=700, batch_size=32, lr=1e-3, warmup=20, largest_cost=15.0, **GPT),
    BCQLag(updates=800, critics=1, beta=0.1, **CRITICS, **RATES),
    BEARLag(updates=500, critics=1, mmd_sigma=1.0, mmd_samples=5, candidates=6, **CRITICS, **RATES),
    CPQ(updates=500, ood_actions=4, **CRITICS, **RATES),
    COptiDICE(updates=500, lr=3e-3, scalar_lr=1e-2, batch_size=128, gamma=0.9, reward_scale=1, noise=0, **NETS),
    CAPS(updates=400, lr=3e-3, **CRITICS),
    CARL(updates=800, lr=3e-3, **CRITICS),
]


@pytest.mark.parametrize("method", SAFE_METHODS, ids=lambda method: method.name)
def test_safe_methods_end_safe_and_drive(method: Method) -> None:
    returns, costs = play(fit(method, log_of_drivers(), limits=[LIMIT], seeds=[0, 1], device="cpu").policy)
    assert (costs <= LIMIT).all(), costs
    assert (returns >= 0.7 * BEST_SAFE_RETURN).all(), returns


def test_cloning_everything_is_unsafe() -> None:
    method = BCAll(updates=400, batch_size=64, lr=3e-3, **NETS)
    _, costs = play(fit(method, log_of_drivers(), limits=[LIMIT], device="cpu").policy)
    assert (costs > 4 * LIMIT).all()
