"""CPQ in prepared calls is what autograd and Adam make of its losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.methods.both_ways import assert_gradients_agree, assert_updates_agree, both_ways, learner_of
from tests.methods.resuming import assert_goes_on_exactly
from tests.methods.test_cpq import timid_data
from tests.methods.test_transitions import three_episodes
from tracrl.methods import prepared
from tracrl.methods.cpq import CPQ, CPQLearner
from tracrl.nets import blocks

SIZES: dict[str, Any] = {
    "batch_size": 300,
    "hidden": (16, 8),
    "vae_hidden": (24, 16),
    "ood_actions": 4,
    "actor_lr": 1e-3,
    "alpha_lr": 1e-2,
    "tau": 0.1,
}
ADAMS = "vae_adam", "critic_adam", "actor_adam"


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({}, {}),
        ({}, {"threads": 2}),
        ({"batch_size": 100, "critics": 3}, {"threads": 2}),  # too few rows for two threads, not too few candidates
        ({"batch_size": 20, "hidden": (16,), "vae_hidden": (8,), "critics": 1, "ood_actions": 1}, {}),
        ({"ood_cost": 0.0}, {"threads": 2}),  # Q_c is above 0 for some of the actions, and then lacks nothing
        ({"gamma": 0.5, "reward_scale": 3.0}, {"data": three_episodes()}),
        ({"gamma": 0.5, "beta": 2.0}, {"data": three_episodes(final=False)}),
        ({"batch_size": 64, "vae_lr": 1e-2}, {"data": timid_data(), "updates": 40}),  # more are ood than are looked at
    ],
)
def test_updates_are_those_of_autograd(
    changes: dict[str, Any], how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROWS", 128)  # so that one thread has several blocks, the last of them smaller
    assert_updates_agree(monkeypatch, CPQ(**{**SIZES, **changes}), **{"updates": 4, **how})


@pytest.mark.parametrize(
    ("batch", "threads", "rows", "limits"),
    [
        (257, 3, 40, (2.0, 6.0)),  # several blocks for each thread, none of the same size as the last
        (129, 5, 16, (2.0, 6.0)),
        (7, 3, 3, (2.0, 6.0)),  # fewer rows than a thread would take
        (100, 3, 24, (-5.0, 0.0)),  # of the first run nothing is safe, in no update
    ],
)
def test_rows_may_be_shared_out_in_any_way(
    batch: int, threads: int, rows: int, limits: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROWS", rows)
    monkeypatch.setattr(blocks, "FEWEST_ROWS", 2)
    monkeypatch.setattr(CPQLearner, "__init__", with_thresholds(limits))
    method = CPQ(**{**SIZES, "batch_size": batch, "critics": 3, "ood_actions": 3})
    assert_updates_agree(monkeypatch, method, updates=3, threads=threads)


def with_thresholds(limits: tuple[float, float]) -> Any:
    """A learner's beginning, after which these are the values of Q_c up to which an action is safe."""
    begin = CPQLearner.__init__

    def init(self: CPQLearner, *given: Any) -> None:
        begin(self, *given)
        self.threshold[:] = torch.tensor(limits)

    return init


def test_gradients_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected, _ = both_ways(monkeypatch, CPQ(**SIZES), 1)
    assert_gradients_agree(found, expected, ADAMS, 1e-5)


def test_products_in_bfloat16_stay_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep eight bits, and a unit near 0 may be above it in one of them alone, or a candidate be one more of the
    few that are out of distribution."""
    found, expected, ((metrics, others),) = both_ways(monkeypatch, CPQ(**SIZES), 1, bf16=True, threads=2)
    for name, values in others.items():
        assert torch.allclose(metrics[name], values, rtol=1e-2, atol=5e-3), name
    assert_gradients_agree(found, expected, ("vae_adam", "actor_adam"), 0.1)
    assert_gradients_agree(found, expected, ("critic_adam",), 0.3)


def test_where_everything_is_unsafe_the_policy_learns_as_by_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    learners = [learner_of(CPQ(**SIZES)) for _ in range(2)]
    for learner in learners:
        learner.threshold[:] = torch.tensor([-10.0, 0.0])  # of the other run's actions some are safe
    shares = learners[0].update()["safe_share"]
    assert shares[0] == 0
    assert 0 < shares[1] < 1
    monkeypatch.setattr(prepared, "compiled_passes", lambda _: None)
    learners[1].update()
    assert_gradients_agree(*learners, ADAMS, 1e-5)


@pytest.mark.parametrize(("network", "adam"), [("actor.network", "actor_adam"), ("vae.encoder", "vae_adam")])
def test_spreads_beyond_their_range_are_not_moved(network: str, adam: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """log σ is clamped: what is beyond has no slope, as autograd says."""
    learners = [learner_of(CPQ(**SIZES)) for _ in range(2)]
    for learner in learners:
        bias = learner.get_submodule(network).layers[-1].bias.data
        bias[0, 0, -2], bias[0, 0, -1] = -30.0, 30.0
    learners[0].update()
    monkeypatch.setattr(prepared, "compiled_passes", lambda _: None)
    learners[1].update()
    which = [name for name, _ in learners[0].get_submodule(network).named_parameters()].index("layers.2.bias")
    found, expected = (getattr(learner, adam).moments()[0][which] for learner in learners)
    assert found[0, 0, -2:].tolist() == expected[0, 0, -2:].tolist() == [0.0, 0.0]
    assert (found[1, 0, -2:] != 0).all()


@pytest.mark.parametrize("bf16", [False, True])
def test_training_goes_on_from_its_tensors_exactly(bf16: bool) -> None:
    assert_goes_on_exactly(lambda: learner_of(CPQ(**SIZES), bf16=bf16, threads=2))


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize(
    ("network", "seen_in"),
    [
        ("actor", "actor_loss"),
        ("vae.encoder", "vae_loss"),
        ("vae.decoder", "vae_loss"),
        ("critics.of_reward", "actor_loss"),
        ("critics.of_cost", "cost_value"),
        ("target.of_reward", "loss"),
        ("target.of_cost", "loss"),
    ],
)
def test_what_is_not_a_number_is_seen_in_the_losses(network: str, seen_in: str, bf16: bool) -> None:
    for which in range(6):
        learner = learner_of(CPQ(**SIZES), bf16=bf16)
        parameter = list(learner.get_submodule(network).parameters())[which].data[1]
        (parameter[-1] if parameter.dim() == 3 else parameter).fill_(np.nan)  # of the last member
        assert learner.update()[seen_in].isnan().tolist() == [False, True], which
        for _ in range(2):
            learner.update()
        assert all(tensor[0].isfinite().all() for tensor in learner.parameters()), "the other run goes on"


def test_the_reference_form_is_autograds() -> None:
    learner = learner_of(CPQ(**SIZES, reference_quirks=True))
    learner.update()
    assert learner.prepared is None
