"""A training that is dead says so, with its likely cause."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import make_small_data
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods.bc import BCAll
from tracrl.methods.trac import TraC
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.mlp import MLPPolicy
from tracrl.train.fit import fit
from tracrl.train.health import Health

SMALL = TraC(updates=12, clone_updates=6, warmup=2, batch_size=4, hidden=(8,))


def policy_of(data: Episodes, weight: float, bias: float) -> MLPPolicy:
    """tanh(weight · first column + bias) for every action, of two policies."""
    metadata = PolicyMetadata(
        "trac", (1.0, 2.0), (0, 0), tuple(map(float, data.action_low)), tuple(map(float, data.action_high))
    )
    weights = np.zeros((2, data.observation_size, data.action_size), np.float32)
    weights[:, 0] = weight
    return MLPPolicy(metadata, {"weight0": weights, "bias0": np.full((2, 1, data.action_size), bias, np.float32)})


@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        (0.0, 0.3, "All 2 policies give the same action in every state: train longer"),
        (0.0, 9.0, "All 2 policies give the same action in every state"),
        (1e4, 0.0, "All 2 policies give almost only actions at the ends of their box"),
    ],
)
def test_dead_policies_are_named(weight: float, bias: float, message: str) -> None:
    data = make_small_data()
    with pytest.warns(UserWarning, match=message):
        assert Health(data, SMALL).examine(policy_of(data, weight, bias), []) != []
    with pytest.raises(TracrlError, match=message):
        Health(data, SMALL, strict=True).examine(policy_of(data, weight, bias), [])


def test_a_policy_that_follows_the_states_is_alive() -> None:
    data = make_small_data()
    assert Health(data, SMALL).examine(policy_of(data, 0.5, 0.1), []) == []


def test_a_clone_no_better_than_the_mean_action() -> None:
    data = make_small_data()
    with pytest.warns(UserWarning, match="no nearer to the log than its mean action"):
        Health(data, BCAll()).examine(policy_of(data, -0.05, 0.0), [])


def test_units_are_named_as_the_cause() -> None:
    data = make_small_data()
    pascal = replace(data, observations=data.observations * 2_000 + 100_000)
    with pytest.warns(UserWarning, match=r"column \d of the observations is of size 1e\+05.*--standardise on"):
        Health(pascal, SMALL).examine(policy_of(pascal, 0.0, 0.3), [])


def test_scores_that_stay_at_zero() -> None:
    data = make_small_data()
    rows = [{"step": 5_000, "phase": "classification", "limit": "1", "seed": 0, "score": 1e-6}]
    with pytest.warns(UserWarning, match="has not left its reference"):
        Health(data, TraC()).examine(policy_of(data, 0.5, 0.1), [*rows, {**rows[0], "step": 40_000}])


def test_the_run_directory_keeps_the_warnings(tmp_path: Path) -> None:
    data = make_small_data()
    huge = replace(data, observations=data.observations * 0 + 5_000, metadata={})
    with pytest.warns(UserWarning, match="the same action in every state"):
        run = fit(SMALL, huge, limits=[4], out=tmp_path / "run", standardise="off")
    assert run.warnings == tuple(json.loads((tmp_path / "run" / "warnings.json").read_text()))
    assert fit(SMALL, huge, limits=[4], out=tmp_path / "run", resume=True, standardise="off").warnings == run.warnings
    with pytest.raises(TracrlError, match="the same action in every state"):
        fit(SMALL, huge, limits=[4], out=tmp_path / "other", standardise="off", strict=True)


def test_what_looks_dead_is_said_along_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tracrl.train.loop.ENOUGH", 4)
    data = make_small_data()
    huge = replace(data, observations=data.observations * 0 + 5_000, metadata={})
    with pytest.warns(UserWarning, match="the same action in every state") as caught:
        fit(SMALL, huge, limits=[4], standardise="off")
    said = [str(warning.message).split(":")[0] for warning in caught if "same action" in str(warning.message)]
    assert said == ["TraC, after 4 of 12 updates", "TraC, after 8 of 12 updates", "TraC"]


def test_own_data_are_standardised_and_the_tasks_are_not(tmp_path: Path) -> None:
    data = make_small_data()
    own = fit(SMALL, replace(data, metadata={}), limits=[4])
    assert len(own.policy.metadata.observation_mean) == data.observation_size
    plain = fit(SMALL, replace(data, metadata={}), limits=[4], standardise="off")
    assert plain.policy.metadata.observation_mean == ()
    with pytest.raises(TracrlError, match="--standardise is 'yes'; expected auto, on or off"):
        fit(SMALL, data, limits=[4], standardise="yes")  # type: ignore[arg-type]
