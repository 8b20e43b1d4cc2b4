"""What a stack makes of units: learners see standardised data, policies take raw observations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.methods.road import log_of_drivers
from tests.methods.test_stacks import METHODS as BASELINES
from tracrl.data.episodes import Episodes
from tracrl.data.units import Units
from tracrl.errors import TracrlError
from tracrl.methods.bc import BCAll, BCSafe
from tracrl.methods.method import Method, RunSpec
from tracrl.methods.trac import TraC
from tracrl.policies.base import Policy
from tracrl.policies.load import load_policy
from tracrl.train.stack import Stack

CPU = torch.device("cpu")
TRAC = TraC(batch_size=4, hidden=(8, 8), updates=20, clone_updates=4, warmup=1, lr=1e-3)
CLONES = [BCAll(batch_size=8, hidden=(8, 8)), BCSafe(batch_size=8, hidden=(8, 8))]


def trained(method: Method, data: Episodes, limits: tuple[float, ...]) -> Policy:
    """A stack of two after a few updates, in the data's own units."""
    units = Units.of(data, observations_alone=method.unit_free)
    with Stack(method, data, [RunSpec(limit, 0) for limit in limits], CPU, threads=1, units=units) as stack:
        stack.update(8)
        return stack.policy()


def in_other_units(data: Episodes, factor: float) -> Episodes:
    """The same log where everything is counted in other units; a power of two, so that nothing is rounded."""
    assert data.final_observations is not None
    return replace(
        data,
        observations=data.observations * np.float32(factor),
        final_observations=data.final_observations * np.float32(factor),
        rewards=data.rewards * np.float32(factor),
        costs=data.costs * np.float32(factor),
    )


@pytest.mark.parametrize("method", [TRAC, *CLONES, *BASELINES], ids=lambda method: method.name)
@pytest.mark.parametrize("factor", [2.0**10, 2.0**-20])
def test_no_method_cares_about_units(method: Method, factor: float) -> None:
    data = log_of_drivers(20)
    plain = trained(method, data, (3.0, 5.0))
    other = trained(method, in_other_units(data, factor), (3.0 * factor, 5.0 * factor))
    assert other.metadata.limits == (3.0 * factor, 5.0 * factor)
    states = data.observations[:7].astype(np.float64)
    for policy in (plain, other):
        policy.reset(0)
    first = plain.act(states)
    np.testing.assert_allclose(other.act(states * factor), first, atol=1e-6)
    plain.observe(1.5, 1.0)
    other.observe(1.5 * factor, 1.0 * factor)
    np.testing.assert_allclose(other.act(states * factor), plain.act(states), atol=1e-6)
    assert first.std() > 0


def test_policy_and_learner_agree_on_raw_observations() -> None:
    data = log_of_drivers(20)
    data = replace(data, observations=(350 + 10 * data.observations).astype(np.float32))
    units = Units.of(data)
    with Stack(TRAC, data, [RunSpec(3.0, 0), RunSpec(5.0, 10)], CPU, threads=1, units=units) as stack:
        stack.update(8)
        policy = stack.policy()
        seen = torch.from_numpy(units.observations(data.observations[:50]))
        for learner in stack.learners:  # the policy is the trained network, whose dropout is off when it acts
            learner.frozen.load_state_dict(learner.network.state_dict())
        learnt = torch.cat([part.frozen(seen.expand(len(part.runs), -1, -1)) for part in stack.learners])
    np.testing.assert_allclose(policy.act(data.observations[:50]), learnt.detach().numpy(), atol=1e-5)


def test_a_saved_policy_keeps_its_units(tmp_path: Path) -> None:
    policy = trained(TRAC, log_of_drivers(20), (3.0, 5.0))
    policy.save(tmp_path / "policy.safetensors")
    again = load_policy(tmp_path / "policy.safetensors")
    assert again.metadata == policy.metadata
    assert len(again.metadata.observation_mean) == 2
    np.testing.assert_array_equal(again.act(np.array([0.3, 0.4])), policy.act(np.array([0.3, 0.4])))


def test_an_observation_that_is_no_number_is_refused() -> None:
    policy = trained(TRAC, log_of_drivers(20), (3.0,))
    with pytest.raises(TracrlError, match="NaN or infinity in column 1"):
        policy.act([0.0, np.nan])
