"""One value function for all that a network is told, against exact values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.ope.chain import chain_log, chain_policy, exact
from tests.ope.test_fqe import HALFWAY, LEFT, RIGHT, SMALL
from tests.ope.test_inner_limits import policy
from tracrl.ope.acting import actions_of
from tracrl.ope.families import Families, FamilyQ, families
from tracrl.ope.fitting import fit
from tracrl.ope.log import Log
from tracrl.policies.any_limit import AnyXPolicy
from tracrl.policies.base import Policy

WAYS = [RIGHT, LEFT, HALFWAY]
CHAIN = Families(np.array([[0, 1, 2]]), np.array([[[1.2, 0.0], [-1.2, 0.0], [0.0, 1.4]]], np.float32))


def test_members_of_a_family_are_told_apart() -> None:
    log = Log.of(chain_log(1_500), torch.device("cpu"))
    settings = replace(SMALL, updates=600, batch_size=512)
    learner = FamilyQ(settings, log, actions_of(chain_policy(WAYS), log.observations), CHAIN)
    fit(learner)
    estimates, truth = learner.values().mean(2).numpy()[0], np.array([exact(way) for way in WAYS])
    # Returns lie between 0 and 8, costs between 0 and 2: these are some 10 % of either.
    np.testing.assert_allclose(estimates[:, 0], truth[:, 0], atol=0.8)
    np.testing.assert_allclose(estimates[:, 1], truth[:, 1], atol=0.25)
    told, brought = learner.foretold(np.arange(40))
    assert told.shape == (1, 3, 40, 2)
    assert brought.shape == (40, 2)
    assert abs(float((told - brought)[..., 1].mean())) < 0.2


def test_networks_that_are_told_different_things_are_families() -> None:
    """Two seeds at three limits, with two x: what they are told lies in a plane, and differs between limits as it does
    between what the network sees of them."""
    plain = policy()
    row = np.full((2, 1, 1), 0.25, np.float32)
    tensors = {**plain.tensors, "weight0": np.insert(plain.tensors["weight0"], [1], row, axis=1)}
    wide = {name: np.concatenate([t, t[..., ::-1] * 2], -1) if name == "weight0" else t for name, t in tensors.items()}
    wide["weight0"][:, 1, 1] = -1
    wide["bias0"] = np.ones((2, 1, 2), np.float32)
    wide["weight1"] = np.stack([np.full((2, 1), 0.1), np.full((2, 1), 0.2)]).astype(np.float32)
    told_x = AnyXPolicy(plain.metadata, wide, lowest=0.0, highest=64.0, largest_x=50.0, least_x=6.25)
    stacks = [told_x.at_x(x).over([4, 16, 36]) for x in (50, 12.5)]
    found = families(stacks)
    assert found is not None
    seeds = np.array([seed for stack in stacks for seed in stack.metadata.seeds])
    assert [set(seeds[members]) for members in found.members] == [{0}, {10}]
    assert found.members.shape == (2, 6)
    np.testing.assert_allclose(found.told.mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(found.told.std(1), 1, rtol=1e-4)
    limits = np.array([limit for stack in stacks for limit in stack.metadata.limits])[found.members[0]]
    of_x = found.told[0][limits == 4][0] - found.told[0][limits == 4][1]
    np.testing.assert_allclose(of_x, found.told[0][limits == 36][0] - found.told[0][limits == 36][1], atol=1e-3)


@pytest.mark.parametrize("stack", [chain_policy(WAYS), policy()])
def test_others_are_none(stack: Policy) -> None:
    """Policies that are told nothing, and some that are told the same."""
    assert families([stack]) is None
