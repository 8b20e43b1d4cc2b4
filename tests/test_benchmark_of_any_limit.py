"""The tables of one policy for every limit by hand; the benchmark itself is run by hand."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.any_limit_choices import reweigh, tried
from benchmarks.any_limit_setup import POOLS, TOLD_X, VARIANTS, file_of, limits_of, parts_of, unseen_of
from benchmarks.any_limit_tables import Chosen, chosen_cell, errors, estimated_cell, gain, in_hindsight, judged, told_x
from benchmarks.opinions import keep_opinions, kept_opinions
from tracrl.errors import TracrlError
from tracrl.files import write_json
from tracrl.methods.trac_any import TraCAny
from tracrl.ope.estimates import Estimates
from tracrl.ope.weighing import Opinions
from tracrl.policies.any_limit import AnyLimitPolicy
from tracrl.policies.base import PolicyMetadata


def chosen(reward: float, cost: float) -> Chosen:
    return Chosen(limit=10, inner=12, x=25, shown=True, reward=reward, cost=cost)


def test_a_gain_counts_tasks_alike_and_every_policy() -> None:
    one, other = [chosen(0.5, 0.0), chosen(0.7, 1.0)], [chosen(0.2, 1.1)]
    assert chosen_cell(one) == "0.600 / 0.50"
    assert chosen_cell([*one, *other]) == "0.467 / 0.70 (2)"
    # The mean of 0.6 and 0.2, whatever the number of policies, is a quarter more than 0.32.
    assert gain([one, other], 0.32) == "0.400 (+25.0%), 2 of 3 safe"


def test_what_calibration_trains_is_a_variant_that_was_measured() -> None:
    assert TraCAny.to_calibrate("Bullet", "fast") in [VARIANTS[name] for name in TOLD_X]
    for changes in list(VARIANTS.values())[1:]:
        TraCAny.preset("Bullet", "fast", **changes)


def test_a_pool_holds_the_candidates_of_its_trainings(tmp_path: Path) -> None:
    options = argparse.Namespace(out=tmp_path, inner=None)
    metadata = PolicyMetadata("trac-any", (10.0, 10.0), (0, 10), (-1.0,), (1.0,))
    for number, part in enumerate(parts_of("pool, eta 1")):
        layers = {"weight0": np.full((2, 2, 1), number, np.float32), "bias0": np.zeros((2, 1, 1), np.float32)}
        policy = AnyLimitPolicy(metadata, layers, lowest=0.0, highest=64.0)
        policy.save(file_of(options, "BallRun", part, ".safetensors"))
    found = tried("BallRun", "pool, eta 1", options)
    assert list(found.x) == [50, 25, 12.5]
    assert list(found.stacks) == ["trac-any, x 50", "trac-any, x 25", "trac-any, x 12.5"]
    assert [stack.tensors["weight0"].max() for stack in found.stacks.values()] == [0, 1, 2]
    for pool in POOLS.values():
        assert [TraCAny.preset("Bullet", "fast", **VARIANTS[part]).x for part in pool.values()] == list(pool)


def test_every_suite_is_played_at_its_own_limits_and_others() -> None:
    assert (limits_of("BallRun"), unseen_of("BallRun")) == ((10, 20, 40), (5, 15, 30, 60))
    assert (limits_of("PointCircle1"), unseen_of("PointCircle1")) == ((20, 40, 80), (10, 30, 60, 120))


def test_opinions_that_were_kept_are_weighed_again(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    logged = generator.uniform(0, 40, (30, 2))
    found = Opinions(
        fitted=generator.uniform(0, 40, (1, 3, 2)),
        played=generator.uniform(0, 40, (2, 3, 2)),
        foretold=logged + generator.normal(size=(1, 3, 30, 2)),
        retraced=logged + generator.normal(size=(2, 3, 30, 2)),
        logged=logged,
        ood_shares=np.full((1, 3), 0.25),
        ood_in_log=np.zeros(3),
        anything=np.array([50.0, 60.0]),
        most_cost=100.0,
    )
    options = argparse.Namespace(out=tmp_path)
    opinions, file = (file_of(options, "BallRun", "any", end) for end in (".opinions.npz", ".estimates.json"))
    keep_opinions(found, opinions)
    values, errors = found.weighed()
    again = kept_opinions(opinions).weighed()
    np.testing.assert_allclose(again, (values, errors), rtol=1e-4)
    shape = {"names": ("a",) * 3, "limits": (10.0, 20.0, 40.0), "seeds": (0,) * 3, "confidence": 0.9}
    numbers = {key: np.ones(3) for key in ("returns", "costs", "return_errors", "cost_errors", "ood_shares")}
    data = {"episodes": 30, "horizon": 100, "fingerprint": "f"}
    Estimates(**shape, **numbers, data=data).save(file)
    assert "weighed again" in reweigh("BallRun", "any", options)
    after = Estimates.load(file)
    np.testing.assert_allclose(after.costs, values[:, 1], rtol=1e-4)
    np.testing.assert_allclose(after.return_errors, errors[:, 0], rtol=1e-4)
    np.testing.assert_allclose(after.ood_shares, 0.25)
    keep_opinions(replace(found, ood_shares=found.ood_shares[0]), opinions)  # as earlier versions kept them
    with pytest.raises(TracrlError, match=r"of one kind of members.*estimate anew"):
        reweigh("BallRun", "any", options)
    np.savez(opinions, fitted=found.fitted)
    with pytest.raises(TracrlError, match=r"lacks played, foretold.*estimate anew"):
        reweigh("BallRun", "any", options)


def test_hindsight_takes_each_seeds_best_within_each_limit(tmp_path: Path) -> None:
    """Seed 10 has something for limits 20 and 40, seed 20 for 40 alone: three of nine have nothing."""
    options = argparse.Namespace(out=tmp_path)
    played = {
        "x 50, inner limit 10, seed 0": {"rewards": [0.3, 0.5], "costs": [5, 15]},
        "x 25, inner limit 20, seed 0": {"rewards": [0.6, 0.6], "costs": [20, 21]},
        "x 50, inner limit 10, seed 10": {"rewards": [0.2], "costs": [12]},
        "x 50, inner limit 10, seed 20": {"rewards": [0.1], "costs": [40]},
    }
    write_json(file_of(options, "BallRun", "any x told", ".judged.json"), played)
    reward, without = in_hindsight(options, "BallRun", "any x told")
    assert without == 3
    assert np.isclose(reward, (0.4 + 0.4 + 0.6 + 0.2 + 0.2 + 0.1) / 6)


@pytest.mark.parametrize(("name", "mark"), [("trac-any, x 50", "x 50, inner limit 10"), ("trac-any", "inner limit 10")])
def test_estimates_are_compared_with_what_was_played(tmp_path: Path, name: str, mark: str) -> None:
    """Of seeds 0 and 10 at one inner limit: 2 too low and 6 too high."""
    options = argparse.Namespace(out=tmp_path)
    played = {f"{mark}, seed 10": {"costs": [8, 12]}, f"{mark}, seed 0": {"costs": [4, 4]}}
    write_json(file_of(options, "BallRun", "any", ".judged.json"), played)
    numbers = {key: np.ones(3) for key in ("returns", "return_errors", "ood_shares")}
    Estimates(
        names=(name,) * 3,
        limits=(10.0, 10.0, 20.0),
        seeds=(0, 10, 0),
        costs=np.array([10.0, 8.0, 99.0]),
        cost_errors=np.array([1.0, 3.0, 99.0]),
        confidence=0.9,
        data={"episodes": 30, "horizon": 100, "fingerprint": "f"},
        **numbers,
    ).save(file_of(options, "BallRun", "any", ".estimates.json"))
    said = errors(options, "BallRun", "any")
    assert said == "2 policies, off by 4.0 on average (+2.0 in the mean, -2.0 to +6.0); their standard errors are 2.0"


def test_what_the_log_chose_is_told_without_the_policies(tmp_path: Path) -> None:
    """One seed, two x: 12.5 earns more and is within a limit of 20 and 40 alone."""
    options = argparse.Namespace(out=tmp_path)
    estimates = Estimates(
        names=("trac-any, x 50", "trac-any, x 12.5"),
        limits=(10.0, 10.0),
        seeds=(0, 0),
        returns=np.array([100.0, 200.0]),
        costs=np.array([4.0, 15.0]),
        return_errors=np.ones(2),
        cost_errors=np.ones(2),
        ood_shares=np.zeros(2),
        confidence=0.9,
        data={"episodes": 30, "horizon": 100, "fingerprint": "f"},
    )
    estimates.save(file_of(options, "BallRun", "any x told", ".estimates.json"))
    assert told_x(estimates) == [50, 12.5]
    known = {"x 50, inner limit 10, seed 0": {"rewards": [0.3], "costs": [5]}}
    file = file_of(options, "BallRun", "any x told", ".judged.json")
    write_json(file, known)
    assert judged(options, "BallRun", "any x told", 0.7) == [], "one of them was not played"
    write_json(file, known | {"x 12.5, inner limit 10, seed 0": {"rewards": [0.5], "costs": [16]}})
    found = judged(options, "BallRun", "any x told", 0.7)
    assert [(one.x, one.reward, one.cost) for one in found] == [(50, 0.3, 0.5), (12.5, 0.5, 0.8), (12.5, 0.5, 0.4)]
    assert estimated_cell("BallRun", estimates, 0.7).endswith("/ 0.51 (3 of 3)")
