"""The model of the dynamics: what it sees, and what it is judged by."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from tests.ope.test_estimate import line_log, line_policy
from tracrl.data.episodes import Episodes
from tracrl.ope import playing
from tracrl.ope.acting import Actor, actions_of
from tracrl.ope.fitting import fit
from tracrl.ope.log import Log
from tracrl.ope.model import Dynamics, LearnedModel
from tracrl.ope.playing import play, retrace
from tracrl.ope.weighing import brought_back
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.mlp import MLPPolicy

CPU = torch.device("cpu")


def late_log(episodes: int = 120, steps: int = 12) -> Episodes:
    """A point that moves by the action before the last: what is observed does not tell where it goes."""
    generator = np.random.default_rng(0)
    actions = generator.uniform(-1, 1, (episodes, steps)) + generator.uniform(-0.5, 0.5, (episodes, 1))
    actions = actions.clip(-1, 1)
    moves = np.concatenate([np.zeros((episodes, 1)), actions[:, :-1]], axis=1)
    after = np.cumsum(moves, axis=1)
    x = after - moves
    return Episodes.from_arrays(
        {
            "observations": x.reshape(-1, 1),
            "actions": actions.reshape(-1, 1),
            "rewards": after.reshape(-1),
            "costs": (after > 1).astype(float).reshape(-1),
            "timeouts": np.tile(np.arange(steps) == steps - 1, episodes),
            "final_observations": after[:, -1:],
        }
    )


def blind(policies: int = 1) -> MLPPolicy:
    """Does the same wherever it is: logged actions are then played again as they are."""
    metadata = PolicyMetadata("bc-all", (3.0,) * policies, tuple(range(policies)), (-1.0,), (1.0,))
    return MLPPolicy(metadata, {key: np.zeros((policies, 1, 1), np.float32) for key in ("weight0", "bias0")})


def skill(past: int) -> np.ndarray:
    settings = Dynamics(updates=250, batch_size=256, hidden=(64, 64), lr=5e-3, past=past)
    model = LearnedModel(settings, Log.of(late_log(), CPU), members=1)
    fit(model)
    retraced, logged = retrace(model, [blind()])
    return brought_back(retraced.mean(0), logged)[0]


def test_the_past_tells_what_an_observation_does_not() -> None:
    assert (skill(past=1) > 0.7).all()
    assert (skill(past=0) < 0.5).all()


def test_members_differ_in_how_much_they_see_of_what_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log.of(late_log(), CPU)
    model = LearnedModel(Dynamics(hidden=(8,)), log, members=6)
    assert model.kinds == 4
    before = 2 * torch.tensor([3, 2, 1, 0, 3, 2])  # a change and an action for each step
    assert torch.equal(model.seen.sum((1, 2)).long(), before)
    visited = play(model, [blind(3)]).visited
    assert visited.shape == (4, 3, 10 * log.horizon, 2), "a member of each kind, ten episodes of each policy"
    monkeypatch.setattr(playing, "ASKED", 7)
    some = play(model, [blind(3)]).visited
    assert some.shape == (4, 3, 7, 2), "of long episodes some steps, or they would fill the memory"
    assert all((step == visited[3, 2]).all(1).any() for step in some[3, 2])
    start = torch.cat([log.states[log.first], torch.zeros(len(log.first), 1)], -1)
    assert all((start == row).all(1).any() for row in visited[3, 2, :10])
    assert LearnedModel(Dynamics(hidden=(8,)), log, members=2).kinds == 2


def test_the_model_is_judged_by_episodes_that_it_was_not_fitted_to() -> None:
    log = Log.of(line_log(100), CPU)
    model = LearnedModel(Dynamics(hidden=(8,)), log, members=3)
    assert len(model.held_out) == 30
    assert not set(model.held_out) & set(model.fitted)
    episode = np.searchsorted(log.first.numpy(), model.rows.numpy(), side="right") - 1
    assert not np.isin(episode, model.held_out).any()
    few = LearnedModel(Dynamics(hidden=(8,)), Log.of(line_log(6), CPU), members=1)
    assert len(few.held_out) == len(few.fitted) == 6, "of a few none can be spared"


def tipping_log(episodes: int = 120, steps: int = 25) -> Episodes:
    """A pole that falls unless it is held: an action that is off by little, played again blindly, lets it fall."""
    generator = np.random.default_rng(0)
    aims = generator.uniform(-0.3, 0.3, episodes)
    x, rows = aims + 0.1 * generator.normal(size=episodes), []
    for _ in range(steps):
        action = np.clip(np.tanh(-2 * x) + aims + 0.1 * generator.normal(size=episodes), -1, 1)
        rows.append((x, action, x, (x > 0.2).astype(float)))
        x = np.clip(1.5 * x + 0.7 * action, -2, 2)
    columns = [np.stack(column, axis=1) for column in zip(*rows, strict=True)]
    keys = ("observations", "actions", "rewards", "costs")
    arrays = {key: column.reshape(-1, 1) for key, column in zip(keys, columns, strict=True)}
    return Episodes.from_arrays(
        {
            **{key: arrays[key] if key in keys[:2] else arrays[key][:, 0] for key in keys},
            "timeouts": np.tile(np.arange(steps) == steps - 1, episodes),
            "final_observations": x[:, None],
        }
    )


def test_with_an_eye_on_where_they_go_episodes_come_back_that_do_not_blindly() -> None:
    model = LearnedModel(Dynamics(updates=300, hidden=(32, 32), lr=5e-3), Log.of(tipping_log(), CPU), members=2)
    fit(model)

    def steers(by: float) -> MLPPolicy:
        weights = {"weight0": np.full((1, 1, 1), by, np.float32), "bias0": np.zeros((1, 1, 1), np.float32)}
        return MLPPolicy(blind().metadata, weights)

    retraced, logged = retrace(model, [steers(-2), blind(), steers(2)])
    looking, blindly, tipping = brought_back(retraced.mean(0), logged)[:, 0]
    assert looking > 0.9
    assert blindly < 0.5
    assert tipping == blindly, "one who tips it over says nothing of the model"
    data = tipping_log()
    np.testing.assert_allclose(logged[:, 1], data.total_costs[model.held_out])


def test_a_replay_that_runs_away_is_not_taken_for_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one episode, for one of two members or for both; a cost of 0 would be a good guess there."""
    model = LearnedModel(Dynamics(hidden=(8,)), Log.of(line_log(30), CPU), members=2)
    logged = retrace(model, [line_policy()])[1]

    def replay(lost: list[int], *given: object) -> np.ndarray:
        told = np.tile(logged, (2, 1 if given[1] is None else len(line_policy()), 1, 1))
        if given[1] is None:
            return told + 5.0
        told[lost, :, 0] = np.nan
        return told

    for lost, kept in (([1], 5.0), ([0, 1], 5.0), ([], 0.0)):
        monkeypatch.setattr(playing, "_again", partial(replay, lost))
        np.testing.assert_allclose(retrace(model, [line_policy()])[0] - logged, kept, atol=1e-9)


def test_policies_act_on_tensors_as_they_do() -> None:
    policy = line_policy((0.0, 1.4))
    observations = np.random.default_rng(0).normal(size=(50, 1)).astype(np.float32)
    acted = policy.act(observations)
    np.testing.assert_allclose(actions_of(policy, torch.from_numpy(observations))[0], acted, atol=1e-6)
    plain = Actor(policy, CPU, seed=0)
    plain.layers = None  # as any other kind acts, by NumPy
    both = torch.from_numpy(observations).expand(2, -1, -1)
    np.testing.assert_allclose(plain.act(both), acted, atol=1e-6)
