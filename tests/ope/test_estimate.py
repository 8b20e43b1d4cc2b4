"""Estimates against the truth of a small continuous problem: a point is pushed along a line and costs beyond 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracrl
from tracrl.cli import main
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import write_hdf5
from tracrl.data.holdout import split
from tracrl.errors import TracrlError
from tracrl.ope.estimate import Effort, at_most, estimate, opinions
from tracrl.ope.fqe import FQE
from tracrl.ope.log import Log
from tracrl.ope.model import Dynamics, LearnedModel
from tracrl.ope.support import ood_shares
from tracrl.ope.weighing import Opinions
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.mlp import MLPPolicy

STEPS = 15
EFFORT = Effort(
    FQE(updates=400, batch_size=128, hidden=(32, 32), lr=5e-3),
    Dynamics(updates=400, batch_size=256, hidden=(32, 32), lr=1e-2, starts=50),
    replicas=2,
    members=2,
)
GOALS = (-0.5, 0.0, 0.6, 1.0, 1.4, 2.0)


def play(goals: np.ndarray, noise: float, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """One episode for each goal: a = tanh(2 (goal − x)) and noise."""
    x = 0.1 * generator.normal(size=len(goals))
    seen: dict[str, list[np.ndarray]] = {"observations": [], "actions": [], "rewards": [], "costs": []}
    for _ in range(STEPS):
        action = np.clip(np.tanh(2 * (goals - x)) + noise * generator.normal(size=len(goals)), -1, 1)
        values = (x[:, None], action[:, None], x + 0.1 * action, (x > 1).astype(float))
        for key, value in zip(seen, values, strict=True):
            seen[key].append(value)
        x = x + 0.3 * action + 0.02 * generator.normal(size=len(goals))
    arrays = {key: np.stack(values, axis=1) for key, values in seen.items()}
    return {**arrays, "final": x[:, None]}


def line_log(episodes: int = 300, seed: int = 0, noise: float = 0.4) -> Episodes:
    generator = np.random.default_rng(seed)
    played = play(generator.uniform(-1, 2.2, episodes), noise, generator)
    timeouts = np.tile(np.arange(STEPS) == STEPS - 1, episodes)
    flat = {key: played[key].reshape(episodes * STEPS, *played[key].shape[2:]) for key in list(played)[:4]}
    return Episodes.from_arrays({**flat, "timeouts": timeouts, "final_observations": played["final"]})


def line_policy(goals: tuple[float, ...] = GOALS) -> MLPPolicy:
    count = len(goals)
    metadata = PolicyMetadata("bc-all", (3.0,) * count, tuple(range(count)), (-1.0,), (1.0,))
    bias = 2 * np.array(goals, np.float32)[:, None, None]
    return MLPPolicy(metadata, {"weight0": np.full((count, 1, 1), -2, np.float32), "bias0": bias})


def truth(goals: tuple[float, ...] = GOALS) -> np.ndarray:
    """(policies, 2): mean return and cost of 500 episodes."""
    generator = np.random.default_rng(1)
    played = [play(np.full(500, goal), 0.0, generator) for goal in goals]
    return np.array([[one["rewards"].sum(1).mean(), one["costs"].sum(1).mean()] for one in played])


@pytest.fixture(scope="module")
def estimates() -> tracrl.Estimates:
    return estimate(line_policy(), line_log(), effort=EFFORT, device="cpu")


def test_intervals_hold_the_truth(estimates: tracrl.Estimates) -> None:
    returns, costs = truth().T
    assert np.abs(estimates.returns - returns).mean() < 0.05 * np.ptp(line_log().returns)
    assert np.abs(estimates.costs - costs).mean() < 0.8
    assert (np.argsort(np.argsort(estimates.costs))[2:] == np.arange(2, 6)).all(), "ranked as they truly are"
    low, high = estimates.cost_intervals.T
    assert np.mean((low - 0.1 <= costs) & (costs <= high + 0.1)) >= 4 / 6


def test_gate_and_choice_agree_with_the_truth(estimates: tracrl.Estimates) -> None:
    passed = np.array([decision.passed for decision in tracrl.gate(estimates, 3.0)])
    assert not passed[truth()[:, 1] > 3.0].any()
    assert passed[:3].all()
    chosen = tracrl.choose(estimates, 3.0)
    assert chosen.policy == 2 + int(passed[3])


def test_the_same_seed_gives_the_same_estimates() -> None:
    short = Effort(FQE(updates=5, hidden=(8,)), Dynamics(updates=5, hidden=(8,)), replicas=1, members=1)
    first, second = (estimate(line_policy(), line_log(20), effort=short, device="cpu") for _ in range(2))
    np.testing.assert_array_equal(first.costs, second.costs)


@pytest.mark.parametrize(("offset", "unit"), [(101_325.0, 2_000.0), (0.0, 1e-6)])
def test_units_of_the_log_make_no_difference(offset: float, unit: float) -> None:
    """Pascal or millionths: a policy that standardises is asked in its own units."""
    short = Effort(FQE(updates=50, hidden=(8,)), Dynamics(updates=50, hidden=(8,)), replicas=1, members=1)
    data, policy = line_log(50), line_policy()
    other = replace(data, observations=(data.observations.astype(np.float64) * unit + offset).astype(np.float32))
    assert data.final_observations is not None
    last = data.final_observations.astype(np.float64) * unit + offset
    other = replace(other, final_observations=last.astype(np.float32))
    theirs = replace(policy.metadata, observation_mean=(offset,), observation_scale=(unit,))
    first = estimate(policy, data, effort=short, device="cpu")
    second = estimate(policy.in_units(theirs), other, effort=short, device="cpu")
    np.testing.assert_allclose(second.costs, first.costs, atol=0.1)
    np.testing.assert_allclose(second.returns, first.returns, atol=0.1)


def test_policies_far_from_the_log_are_told_apart(estimates: tracrl.Estimates) -> None:
    assert (estimates.ood_shares < 0.15).all()
    log = Log.of(line_log(), torch.device("cpu"))
    logged = torch.cat([log.states[: len(log.step)], log.actions], -1)
    away, strange = logged.clone(), logged.clone()
    away[:, 0] += 10
    strange[:, 1] = torch.where(log.states[: len(log.step), 0] > 0, -5.0, 5.0)
    shares = ood_shares(torch.stack([logged, away, strange]), log)
    assert shares[0] < 0.05
    assert (shares[1:] > 0.95).all()


def test_held_out_episodes_are_whole_and_follow_from_the_seed() -> None:
    data = line_log(50)
    rest, held = split(data, 0.2, seed=3)
    assert (len(rest), len(held)) == (40, 10)
    assert split(data, 0.2, seed=3)[1].fingerprint == held.fingerprint != split(data, 0.2, seed=4)[1].fingerprint
    both = np.sort(np.concatenate([rest.returns, held.returns]))
    np.testing.assert_array_equal(both, np.sort(data.returns))


def test_estimates_say_which_episodes_they_use() -> None:
    short = Effort(FQE(updates=2, hidden=(8,)), Dynamics(updates=2, hidden=(8,)), replicas=1, members=1)
    data = line_log(20)
    rest, held = split(data, 0.5)

    def note(trained_on: list[str], holdout: float = 0.0) -> str:
        found = estimate(line_policy(), data, effort=short, device="cpu", trained_on=trained_on, holdout=holdout)
        assert found.data["episodes"] == (10 if holdout else 20)
        return found.notes[0]

    assert "not known" in note([])
    assert "these very episodes" in note([data.fingerprint])
    assert "held out" in note([rest.fingerprint], 0.5)
    assert "these very episodes" in note([data.fingerprint], 0.5)
    assert "these very episodes" in note([held.fingerprint], 0.5)
    assert "other data" in note(["another"])


def test_value_functions_of_two_cores_see_whole_episodes_up_to_a_number_of_rows() -> None:
    data, some = line_log(20), np.arange(3, 20)
    part = at_most(data, some, 5 * STEPS + 3, seed=1)
    assert len(set(part)) == 5
    assert np.isin(part, some).all()
    np.testing.assert_array_equal(at_most(data, some, data.rows, seed=1), some)
    assert len(at_most(data, some, 1, seed=1)) == 1


def test_policies_with_a_memory_or_at_random_are_estimated_and_it_is_said_how(tmp_path: Path) -> None:
    data = line_log(20)
    short = Effort(FQE(updates=2, hidden=(8,)), Dynamics(updates=2, hidden=(8,), starts=3), replicas=1, members=1)
    methods = {
        "cdt": tracrl.CDT(updates=1, batch_size=4, width=16, layers=1, heads=2),
        "caps": tracrl.CAPS(updates=1, batch_size=4, hidden=(8,)),
        "bcq-lag": tracrl.BCQLag(updates=1, batch_size=4),
    }
    policies = {name: tracrl.fit(method, data, limits=[3]).policy for name, method in methods.items()}
    found = estimate(policies, data, effort=short, device="cpu")
    assert np.isfinite(found.costs).all()
    assert any("cdt, caps is estimated by the model alone" in note for note in found.notes)
    assert any("mean over 4 draws" in note for note in found.notes)
    found.save(tmp_path / "estimates.json")
    assert "NaN" not in (tmp_path / "estimates.json").read_text()


@pytest.mark.parametrize("nothing", [float("nan"), float("inf")])
def test_a_member_that_runs_away_spoils_neither_the_others_nor_the_file(
    nothing: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = line_log(30)
    short = Effort(FQE(updates=2, hidden=(8,)), Dynamics(updates=20, hidden=(8,), starts=3), replicas=1, members=2)
    caps = tracrl.fit(tracrl.CAPS(updates=1, batch_size=4, hidden=(8,)), data, limits=[3]).policy
    advance = LearnedModel.advance

    def runs_away(self: LearnedModel, *given: Any) -> Any:
        now, brought, ends = advance(self, *given)
        brought[-1] = nothing
        return now, brought, ends

    monkeypatch.setattr(LearnedModel, "advance", runs_away)
    found = estimate({"caps": caps, "bc-all": line_policy()}, data, effort=short, device="cpu")
    assert np.isfinite([found.costs, found.cost_errors, found.returns, found.return_errors]).all()
    found.save(tmp_path / "estimates.json")
    np.testing.assert_array_equal(tracrl.Estimates.load(tmp_path / "estimates.json").costs, found.costs)
    assert (found.costs[1:] > 0).any()


def test_policies_of_which_nobody_says_a_number_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    short = Effort(FQE(updates=2, hidden=(8,)), Dynamics(updates=2, hidden=(8,), starts=3), replicas=1, members=1)

    def broken(*given: Any, **how: Any) -> Opinions:
        found = opinions(*given, **how)
        for said in (found.fitted, found.played):
            said[:, 2] = np.nan
        return found

    monkeypatch.setattr("tracrl.ope.estimate.opinions", broken)
    stacks = {"a": line_policy()[[0, 1]], "b": line_policy()[[2, 3]], "c": line_policy()[[4, 5]]}
    with pytest.raises(TracrlError, match=r"Nothing can be estimated of b: for 1 of 6 policies neither"):
        estimate(stacks, line_log(20), effort=short, device="cpu")
    found = estimate(stacks, line_log(20), effort=short, device="cpu", candidates=True)
    assert (found.costs[2], found.returns[2]) == (np.inf, -np.inf)
    assert not found.shown(1e9, 0.5)[2]
    assert np.isfinite(np.delete(found.costs, 2)).all()
    assert any("Nothing could be estimated of 1 of 6 candidates" in note for note in found.notes)


def test_bad_input_is_a_sentence() -> None:
    data = line_log(5)
    metadata = PolicyMetadata("bc-all", (3.0,), (0,), (-1.0,), (1.0,))
    wide = MLPPolicy(metadata, {"weight0": np.zeros((1, 2, 1), np.float32), "bias0": np.zeros((1, 1, 1), np.float32)})
    with pytest.raises(TracrlError, match="observations of size 2"):
        estimate(wide, data)
    with pytest.raises(TracrlError, match="at least one"):
        estimate({}, data)
    for share in (-0.1, 1.0, 0.01, float("nan")):
        with pytest.raises(TracrlError, match="--holdout"):
            estimate(line_policy(), data, holdout=share)
    with pytest.raises(TracrlError, match="--confidence"):
        estimate(line_policy(), data, confidence=90)
    with pytest.raises(TracrlError, match="--seed"):
        estimate(line_policy(), data, seed=-1)


def test_commands_estimate_gate_and_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "tracrl.ope.estimate.CPU",
        replace(
            EFFORT,
            fqe=replace(EFFORT.fqe, updates=150),
            dynamics=replace(EFFORT.dynamics, updates=200),
            replicas=1,
            members=1,
        ),
    )
    data, run, file = tmp_path / "log.hdf5", tmp_path / "policy.safetensors", tmp_path / "estimates.json"
    write_hdf5(line_log(100), data)
    line_policy((-0.5, 2.0)).save(run)
    usual = [str(run), "--data", str(data), "--device", "cpu"]
    assert main(["estimate", *usual, "--out", str(file)]) == 0
    assert len(tracrl.Estimates.load(file)) == 2
    assert main(["gate", *usual, "--limit", "3", "--policy", "0"]) == 0
    assert main(["choose", *usual, "--limit", "0"]) == 3
    said = capsys.readouterr().out
    assert "Passed" in said
    assert "None of 2" in said
    assert "90%" in said
    for bad, word in ((["--limit", "-3"], "--limit"), (["--limit", "3", "--policy", "2"], "holds 2 policies")):
        assert main(["gate", *usual, *bad]) == 1
        assert word in capsys.readouterr().err


def test_where_little_is_foretold_it_is_said() -> None:
    """Steps that are chance alone: nothing of what held-out episodes cost is foretold."""
    generator = np.random.default_rng(0)
    rows = 60 * STEPS
    arrays = {
        "observations": generator.normal(size=(rows, 1)),
        "actions": generator.uniform(-1, 1, (rows, 1)),
        "rewards": generator.normal(size=rows),
        "costs": (generator.random(rows) < 0.5).astype(float),
        "timeouts": np.arange(rows) % STEPS == STEPS - 1,
    }
    short = replace(EFFORT, fqe=replace(EFFORT.fqe, updates=5), dynamics=replace(EFFORT.dynamics, updates=20))
    found = estimate(line_policy((0.0,)), Episodes.from_arrays(arrays), effort=short, device="cpu")
    assert any("That is little" in note for note in found.notes)


def test_where_much_is_foretold_nothing_is_said(estimates: tracrl.Estimates) -> None:
    assert not any("That is little" in note for note in estimates.notes)


def test_the_fewer_policies_there_are_the_more_each_is_worth() -> None:
    spare = replace(EFFORT, updates_in_all=6_000)
    assert [spare.for_so_many(count).fqe.updates for count in (1, 8, 100)] == [1_200, 750, 400]
    assert EFFORT.for_so_many(1) == EFFORT
