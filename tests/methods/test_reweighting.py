"""COptiDICE in compiled passes is what autograd and Adam make of its losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.methods.both_ways import assert_gradients_agree, assert_updates_agree, both_ways, learner_of
from tests.methods.resuming import assert_goes_on_exactly
from tests.methods.test_transitions import three_episodes
from tracrl.methods import prepared
from tracrl.methods.coptidice import COptiDICE
from tracrl.nets import blocks

SIZES: dict[str, Any] = {"batch_size": 300, "hidden": (16, 8), "lr": 1e-3, "scalar_lr": 1e-2}


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
    assert_updates_agree(monkeypatch, COptiDICE(**{**SIZES, **changes}), 4, **how)


def test_gradients_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, plain, _ = both_ways(monkeypatch, COptiDICE(**SIZES), 1)
    # ε − kl is the rest of two near numbers.
    assert_gradients_agree(compiled, plain, ("value_adam", "scalar_adam", "actor_adam"), 1e-4)


def test_products_in_bfloat16_stay_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep eight bits, and a unit near 0 may be above it in one of them alone."""
    compiled, plain, ((found, expected),) = both_ways(monkeypatch, COptiDICE(**SIZES), 1, bf16=True)
    for name, values in expected.items():
        assert torch.allclose(found[name], values, rtol=1e-2, atol=1e-3), name
    assert_gradients_agree(compiled, plain, ("value_adam", "actor_adam"), 0.1)


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
