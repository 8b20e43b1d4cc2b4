"""Inner limits by hand: the budget is used where the log shows that it may be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tracrl.errors import TracrlError
from tracrl.ope.acting import Actor
from tracrl.ope.estimates import Estimates
from tracrl.ope.inner_limits import calibrate, candidates, inner_limits
from tracrl.policies.any_limit import AnyLimitPolicy, AnyXPolicy
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.load import load_policy


def policy() -> AnyLimitPolicy:
    """Of seeds 0 and 10, for limits from 0 to 64; the action is a tenth of what it is told of the limit."""
    layers = {
        "weight0": np.tile(np.array([[0.0], [1.0]], np.float32), (2, 1, 1)),
        "bias0": np.ones((2, 1, 1), np.float32),
        "weight1": np.full((2, 1, 1), 0.1, np.float32),
        "bias1": np.full((2, 1, 1), -0.1, np.float32),
    }
    metadata = PolicyMetadata("trac-any", (10.0, 10.0), (0, 10), (-1.0,), (1.0,))
    return AnyLimitPolicy(metadata, layers, lowest=0.0, highest=64.0)


def estimated(stack: AnyLimitPolicy, cost_per_limit: tuple[float, float], error: float = 1.0) -> Estimates:
    """A seed's cost is this share of the inner limit, its return the inner limit itself."""
    limits = np.array(stack.metadata.limits)
    share = np.array([cost_per_limit[0 if seed == 0 else 1] for seed in stack.metadata.seeds])
    count = len(stack)
    return Estimates(
        names=("trac-any",) * count,
        limits=stack.metadata.limits,
        seeds=stack.metadata.seeds,
        returns=limits,
        costs=share * limits,
        return_errors=np.full(count, 0.1),
        cost_errors=np.full(count, error),
        ood_shares=np.zeros(count),
        confidence=0.9,
        data={},
        notes=("One note.",),
    )


def test_a_candidate_that_is_mostly_out_of_the_data_is_not_shown() -> None:
    tried = candidates(policy(), [20])
    estimates = estimated(tried.stacks["trac-any"], (0.5, 2.0))
    estimates.ood_shares[[limit == 36 for limit in estimates.limits]] = 0.9
    assert [c.inner for c in calibrate(tried, estimates, [20], confidence=0.9).choices] == [25, 9]


def test_candidates_are_the_wanted_limits_and_a_spread_over_the_range() -> None:
    assert inner_limits(policy(), [10, 20]) == [0, 1, 4, 9, 10, 16, 20, 25, 36, 49, 64]
    (stack,) = candidates(policy(), [20]).stacks.values()
    assert stack.metadata.limits[:4] == (0, 0, 1, 1)
    assert len(stack) == 20
    assert inner_limits(policy().in_units(replace(policy().metadata, cost_unit=0.5)), [0.1, 40])[-2:] == [32, 40]


def test_the_inner_limit_is_the_best_whose_bound_is_within_the_limit(tmp_path: Path) -> None:
    """Seed 0 spends half of what it is told, so that 36 costs 18 and at most 19.3 with 90 % confidence; seed 10 spends
    twice as much: 9 costs 18. At confidence 99 % the bounds are 20.3, and the next lower ones are taken."""
    given = policy()
    tried = candidates(given, [20])
    estimates = estimated(tried.stacks["trac-any"], (0.5, 2.0))
    found = calibrate(tried, estimates, [20], confidence=0.9)
    assert [(c.limit, c.seed, c.inner, c.shown) for c in found.choices] == [(20, 0, 36, True), (20, 10, 9, True)]
    assert [c.cost_bound for c in found.choices] == pytest.approx([19.28, 19.28], abs=0.01)
    assert [c.inner for c in calibrate(tried, estimates, [20], confidence=0.99).choices] == [25, 4]
    # The policies act at the inner limits and say what they are wanted for.
    assert found.policy.metadata.limits == (20, 20)
    assert found.policy.act(np.zeros(1))[0] == pytest.approx(given.at(36).act(np.zeros(1))[0])
    assert found.policy.act(np.zeros(1))[1] == pytest.approx(given.at(9).act(np.zeros(1))[1])
    found.policy.save(tmp_path / "calibrated.safetensors")
    assert load_policy(tmp_path / "calibrated.safetensors").metadata.limits == (20, 20)
    assert json.loads(json.dumps(found.to_dict()))["choices"][0]["inner"] == 36


def test_x_is_chosen_beside_the_inner_limit() -> None:
    """With a bolder x it costs and returns twice as much, x 25 returning 3 more on top."""
    plain = policy()
    row = np.full((2, 1, 1), 0.25, np.float32)
    tensors = {**plain.tensors, "weight0": np.insert(plain.tensors["weight0"], [1], row, axis=1)}
    told_x = AnyXPolicy(plain.metadata, tensors, lowest=0.0, highest=64.0, largest_x=50.0, least_x=6.25)
    tried = candidates(told_x, [20])
    assert list(tried.stacks) == ["trac-any, x 50", "trac-any, x 25", "trac-any, x 12.5", "trac-any, x 6.25"]
    odd = AnyXPolicy(plain.metadata, tensors, lowest=0.0, highest=64.0, largest_x=49.994, least_x=6.2549)
    assert candidates(odd, [20]).x == [49.994, 25.0, 12.5, 6.2549]  # rounded, and within its range
    inner = inner_limits(plain, [20])
    joined = estimated(plain.over(inner * 4), (0.5, 0.5))
    each = 2 * len(inner)
    factor, more = np.repeat([1.0, 2, 2, 2], each), np.repeat([0.0, 3, 0, 0], each)
    estimates = replace(joined, costs=joined.costs * factor, returns=joined.returns * factor + more)
    found = calibrate(tried, estimates, [20], confidence=0.9)
    # 16 costs 16 with the bolder x, 36 costs 18 with the careful one: returns 35 and 36.
    assert [(c.inner, c.x) for c in found.choices] == [(36, 50), (36, 50)]
    dearer = replace(estimates, costs=estimates.costs + np.repeat([3.0, 0, 0, 0], each))
    found = calibrate(tried, dearer, [20], confidence=0.9)
    assert [(c.inner, c.x) for c in found.choices] == [(16, 25), (16, 25)]
    assert found.policy.act(np.zeros(1))[0] == pytest.approx(told_x.at_x(25).at(16).act(np.zeros(1))[0])
    none = calibrate(tried, replace(estimates, cost_errors=np.full(len(estimates), 99.0)), [20])
    # Nothing is shown. At the limit itself, 20, the careful one costs 10; no more does x 25 at 9, which returns 21, but
    # that is bolder.
    assert [(c.inner, c.x, c.shown) for c in none.choices] == [(20, 50, False)] * 2
    # Where even the careful one is estimated above the limit, of those that are no bolder it is the least costly.
    dear = calibrate(tried, replace(estimates, costs=estimates.costs + np.repeat([80.0, 90, 60, 70], each)), [20])
    assert [(c.inner, c.x, c.shown) for c in dear.choices] == [(0, 50, False)] * 2
    assert "x" in [column.header for column in none.table().columns]


def test_candidates_that_nothing_is_known_of_are_not_chosen_and_where_all_are_that_is_said() -> None:
    tried = candidates(policy(), [20])
    estimates = estimated(tried.stacks["trac-any"], (0.5, 2.0), error=50.0)
    above = np.array(estimates.limits) > 1
    estimates.costs[above], estimates.returns[above] = np.inf, -np.inf
    assert [c.inner for c in calibrate(tried, estimates, [20]).choices] == [1, 1]
    estimates.costs[:] = np.inf
    with pytest.raises(TracrlError, match="Nothing can be estimated of what seed 0 does at a limit of 20"):
        calibrate(tried, estimates, [20])


def test_where_nothing_is_shown_the_limit_itself_is_acted_at_and_that_is_said() -> None:
    tried = candidates(policy(), [10])
    found = calibrate(tried, estimated(tried.stacks["trac-any"], (0.5, 0.5), error=50.0), [10])
    assert [(c.inner, c.shown) for c in found.choices] == [(10, False), (10, False)]
    assert any("NO" in str(cell) for column in found.table().columns for cell in column.cells)


def test_on_the_word_of_estimates_that_show_nothing_nobody_acts_bolder() -> None:
    """The higher the inner limit, the lower cost and bound: an estimate that is worth nothing."""
    tried = candidates(policy(), [10])
    odd = estimated(tried.stacks["trac-any"], (0.0, 0.0), error=50.0)
    odd = replace(odd, costs=9.0 - np.array(odd.limits) / 10, cost_errors=60.0 - np.array(odd.limits) / 2)
    found = calibrate(tried, odd, [10])
    assert [(c.inner, c.shown) for c in found.choices] == [(10, False)] * 2
    above = calibrate(tried, replace(odd, costs=odd.costs + 20), [10])
    assert [(c.inner, c.shown) for c in above.choices] == [(10, False)] * 2


def test_estimators_see_it_act_at_its_limits() -> None:
    stack = policy().over([4, 16])
    actor = Actor(stack, torch.device("cpu"), 0)
    assert actor.layers is not None, "as fast as an ordinary MLP"
    asked = torch.zeros(len(stack), 3, 1)
    assert np.allclose(actor.act(asked).numpy(), stack.act_scaled(np.zeros((3, 1), np.float32)), atol=1e-6)
