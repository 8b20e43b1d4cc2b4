"""COptiDICE in compiled passes is what autograd and Adam make of its losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import make_small_data
from tests.methods.resuming import assert_goes_on_exactly
from tests.methods.test_transitions import three_episodes
from tracrl.data.episodes import Episodes
from tracrl.methods import prepared
from tracrl.methods.coptidice import COptiDICE, COptiDICELearner
from tracrl.methods.method import Compute, RunSpec
from tracrl.nets import blocks

RUNS = [RunSpec(2.0, 3), RunSpec(6.0, 2**63 - 1)]
SIZES: dict[str, Any] = {"batch_size": 300, "hidden": (16, 8), "lr": 1e-3, "scalar_lr": 1e-2}


def learner_of(
    method: COptiDICE, data: Episodes | None = None, *, threads: int = 1, bf16: bool = False
) -> COptiDICELearner:
    learner = method.learner(make_small_data() if data is None else data, RUNS, Compute(bf16=bf16))
    for network in (learner.nu, learner.chi, learner.actor.network):
        network.threads = threads
    return learner


def both_ways(
    monkeypatch: pytest.MonkeyPatch, method: COptiDICE, updates: int, **how: Any
) -> tuple[COptiDICELearner, COptiDICELearner, list[tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]]]:
    """A learner in compiled passes, one without, and the metrics of their updates, side by side."""
    compiled, plain = (learner_of(method, **how) for _ in range(2))
    found = [compiled.update() for _ in range(updates)]
    monkeypatch.setattr(prepared, "compiled_passes", lambda _: None)
    expected = [plain.update() for _ in range(updates)]
    assert compiled.prepared is not None
    assert plain.prepared is None
    return compiled, plain, list(zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({}, {}),
        ({}, {"threads": 2}),
        ({"batch_size": 128, "critics": 3}, {"threads": 2}),  # the policy's rows are too few for two threads
        ({"batch_size": 20, "hidden": (16,), "critics": 1}, {}),  # fewer than first states
        ({"epsilon": 0.0, "noise": 0.5, "alpha": 0.1}, {}),
        ({"gamma": 0.5, "reward_scale": 3.0}, {"data": three_episodes(final=False)}),
    ],
)
def test_updates_are_those_of_autograd(
    changes: dict[str, Any], how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROWS", 128)  # so that there are several blocks, the last of them smaller
    compiled, plain, metrics = both_ways(monkeypatch, COptiDICE(**{**SIZES, **changes}), 4, **how)
    for found, expected in metrics:
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            assert torch.allclose(found[name], values, rtol=1e-4, atol=1e-5), name
    for name, tensor in plain.state_dict().items():
        assert torch.allclose(compiled.state_dict()[name], tensor, rtol=1e-3, atol=3e-5), name


def test_gradients_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one update Adam's first moments are a tenth of them."""
    compiled, plain, _ = both_ways(monkeypatch, COptiDICE(**SIZES), 1)
    for name in ("value_adam", "scalar_adam", "actor_adam"):
        moments = zip(getattr(compiled, name).moments()[0], getattr(plain, name).moments()[0], strict=True)
        for found, expected in moments:
            assert (found - expected).norm() < 1e-4 * expected.norm(), name  # ε − kl is the rest of two near numbers


def test_products_in_bfloat16_stay_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep eight bits, and a unit near 0 may be above it in one of them alone."""
    compiled, plain, ((found, expected),) = both_ways(monkeypatch, COptiDICE(**SIZES), 1, bf16=True)
    for name, values in expected.items():
        assert torch.allclose(found[name], values, rtol=1e-2, atol=1e-3), name
    for name in ("value_adam", "actor_adam"):
        moments = zip(getattr(compiled, name).moments()[0], getattr(plain, name).moments()[0], strict=True)
        for moment, other in moments:
            assert (moment - other).norm() < 0.1 * other.norm(), name


def test_spreads_beyond_their_range_are_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """log σ is clamped: what is beyond has no slope, as autograd says."""
    learners = [learner_of(COptiDICE(**SIZES)) for _ in range(2)]
    for learner in learners:
        bias = learner.actor.network.layers[-1].bias.data
        bias[0, 0, 2], bias[0, 0, 3] = -30.0, 30.0
    learners[0].update()
    monkeypatch.setattr(prepared, "compiled_passes", lambda _: None)
    learners[1].update()
    found, expected = (learner.actor_adam.moments()[0][-1] for learner in learners)
    assert found[0, 0, 2:].tolist() == expected[0, 0, 2:].tolist() == [0.0, 0.0]
    assert (found[1, 0, 2:] != 0).all()


@pytest.mark.parametrize("bf16", [False, True])
def test_training_goes_on_from_its_tensors_exactly(bf16: bool) -> None:
    assert_goes_on_exactly(lambda: learner_of(COptiDICE(**SIZES), bf16=bf16))


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize(("network", "seen_in"), [("nu", "loss"), ("chi", "cost_bound"), ("actor", "actor_loss")])
def test_what_is_not_a_number_is_seen_in_the_losses(network: str, seen_in: str, bf16: bool) -> None:
    for which in range(6):
        learner = learner_of(COptiDICE(**SIZES), bf16=bf16)
        parameter = list(getattr(learner, network).parameters())[which].data[1]
        (parameter[-1] if parameter.dim() == 3 else parameter).fill_(np.nan)  # of the last member
        assert learner.update()[seen_in].isnan().tolist() == [False, True], which


def test_the_reference_form_is_autograds() -> None:
    learner = learner_of(COptiDICE(**SIZES, reference_quirks=True))
    learner.update()
    assert learner.prepared is None
