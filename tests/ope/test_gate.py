"""Decisions on estimates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracrl.errors import TracrlError
from tracrl.ope.estimates import ASSUMPTIONS, Estimates
from tracrl.ope.gate import choose, gate


def estimates(costs: list[float], errors: list[float], returns: list[float]) -> Estimates:
    count = len(costs)
    return Estimates(
        names=tuple(f"run{i}" for i in range(count)),
        limits=(20.0,) * count,
        seeds=tuple(range(count)),
        returns=np.array(returns),
        costs=np.array(costs),
        return_errors=np.full(count, 10.0),
        cost_errors=np.array(errors),
        ood_shares=np.full(count, 0.02),
        confidence=0.9,
        data={"fingerprint": "f", "episodes": 100, "rows": 1_000, "horizon": 10, "task": None},
        notes=("These 10 episodes were held out.",),
        opinions={"fqe": {"returns": [*returns], "costs": [*costs]}},
    )


THREE = estimates([5.0, 15.0, 30.0], [2.0, 8.0, 1.0], [100.0, 300.0, 500.0])


def test_the_gate_asks_for_the_upper_bound() -> None:
    passed, unsure, above = gate(THREE, 20, 0.9)
    assert [d.passed for d in (passed, unsure, above)] == [True, False, False]
    assert [d.status for d in (passed, unsure, above)] == [0, 3, 3]
    assert "standard error" in unsure.verdict
    assert "train for a lower limit" in above.verdict
    assert gate(THREE, 20, 0.6)[1].passed, "less confidence asks for less"


def test_opinions_that_are_far_apart_are_named() -> None:
    found = estimates([0.0, 0.0], [30.0, 30.0], [5.0, 9.0])
    found = replace(found, opinions={**found.opinions, "model": {"returns": [5.0, 9.0], "costs": [73.4, 1.0]}})
    apart, near = gate(found, limit=20)
    assert "(fitted Q evaluation says 0.0, the model of the dynamics 73.4)" in apart.verdict
    assert "says" not in near.verdict


def test_who_is_mostly_out_of_the_data_does_not_pass() -> None:
    found = estimates([1.0, 1.0], [0.1, 0.1], [5.0, 9.0])
    found.ood_shares[1] = 0.9
    assert found.shown(20, 0.9).tolist() == [True, False], "as reports and calibration ask"
    inside, outside = gate(found, limit=20)
    assert (inside.status, outside.status) == (0, 3)
    assert "Most of its steps are where the log has not been" in outside.verdict
    assert choose(found, limit=20).policy == 0, "although the other one returns more"


def test_nothing_is_said_without_confidence_and_assumptions() -> None:
    for decision in (*gate(THREE, 20), choose(THREE, 20), choose(THREE, 1)):
        assert "90%" in decision.verdict
        assert ASSUMPTIONS in str(decision)
        assert "held out" in str(decision)


def test_the_best_of_those_that_pass_is_chosen() -> None:
    assert choose(THREE, 20).policy == 0
    assert choose(THREE, 40).policy == 2
    assert "the best of 3 by these very estimates is flattered" in choose(THREE, 40).basis
    assert "flattered" not in choose(THREE.take([0]), 40).basis
    none = choose(THREE, 1)
    assert (none.policy, none.status) == (None, 3)
    assert "None of 3" in none.verdict


def test_bad_limits_and_confidences_are_a_sentence() -> None:
    for limit in (-1, float("nan"), float("inf")):
        with pytest.raises(TracrlError, match="--limit"):
            gate(THREE, limit)
    for confidence in (0.0, 1.0, 1.5, float("nan")):
        with pytest.raises(TracrlError, match="--confidence"):
            gate(THREE, 20, confidence)


def test_estimates_are_saved_and_loaded(tmp_path: Path) -> None:
    file = tmp_path / "estimates.json"
    THREE.save(file)
    again = Estimates.load(file)
    np.testing.assert_array_equal(again.cost_intervals, THREE.cost_intervals)
    assert (again.names, again.notes, again.data) == (THREE.names, THREE.notes, THREE.data)
    before, own, after = file.read_text().rsplit('"costs": [', 2)
    for edited in (f'{before}"costs": [1.0,{own}"costs": [{after}', f'{before}"costs": [{own}"costs": [1.0,{after}'):
        file.write_text(edited)
        with pytest.raises(TracrlError, match="holds no estimates"):
            Estimates.load(file)


def test_intervals_never_reach_below_no_cost() -> None:
    low, high = estimates([1.0], [5.0], [0.0]).cost_intervals[0]
    assert low == 0
    assert high == pytest.approx(1 + 1.645 * 5, abs=0.01)
