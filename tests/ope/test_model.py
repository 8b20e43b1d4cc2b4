"""The model of the dynamics: what it sees, what it is judged by, and what it weighs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.ope.test_estimate import line_log, line_policy
from tracrl.data.episodes import Episodes
from tracrl.ope.acting import Actor, actions_of
from tracrl.ope.fitting import fit
from tracrl.ope.log import Log
from tracrl.ope.model import Dynamics, LearnedModel
from tracrl.ope.playing import Replays, replay, retrace
from tracrl.ope.weighing import Opinions, middle_half
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


def skill(past: int) -> np.ndarray:
    settings = Dynamics(updates=250, batch_size=256, hidden=(64, 64), lr=5e-3, past=past)
    model = LearnedModel(settings, Log.of(late_log(), CPU), members=1)
    fit(model)
    return replay(model).skill


def test_the_past_tells_what_an_observation_does_not() -> None:
    assert (skill(past=1) > 0.7).all()
    assert (skill(past=0) < 0.5).all()


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
    metadata = PolicyMetadata("bc-all", (3.0,) * 2, (0, 1), (-1.0,), (1.0,))
    weights = np.array([-2.0, 0.0], np.float32)[:, None, None]  # one that holds the pole, one that does not look
    policy = MLPPolicy(metadata, {"weight0": weights, "bias0": np.zeros((2, 1, 1), np.float32)})
    blindly = replay(model)
    looking, not_looking = np.swapaxes(retrace(model, [policy]), 0, 1)
    np.testing.assert_allclose(not_looking, blindly.replayed, atol=1e-3)
    assert Replays(looking, blindly.logged).skill[0] > 0.9
    assert blindly.skill[0] < 0.5


def test_policies_act_on_tensors_as_they_do() -> None:
    policy = line_policy((0.0, 1.4))
    observations = np.random.default_rng(0).normal(size=(50, 1)).astype(np.float32)
    acted = policy.act(observations)
    np.testing.assert_allclose(actions_of(policy, torch.from_numpy(observations))[0], acted, atol=1e-6)
    plain = Actor(policy, CPU, seed=0)
    plain.layers = None  # as any other kind acts, by NumPy
    both = torch.from_numpy(observations).expand(2, -1, -1)
    np.testing.assert_allclose(plain.act(both), acted, atol=1e-6)


def opinions(replayed: list[float], fitted: list[float], played: list[float], ood: float = 0.0) -> Opinions:
    """Costs alone; the logged episodes cost 0, 10 and 20."""
    logged = np.array([[0.0, 0.0], [0.0, 10.0], [0.0, 20.0]])
    back = np.stack([np.zeros(3), np.array(replayed)], axis=1)[None]

    def as_opinion(costs: list[float]) -> np.ndarray:
        return np.stack([np.zeros(len(costs)), np.array(costs)], axis=1)[None]

    shares = np.full(len(fitted), ood)
    return Opinions(
        as_opinion(fitted), as_opinion(played), Replays(back, logged), shares, np.array([1.0, 50.0]), most_cost=100.0
    )


def test_the_model_weighs_what_it_brings_back() -> None:
    good, bad = opinions([0.0, 10.0, 20.0], [30.0], [20.0]), opinions([20.0, 10.0, 0.0], [30.0], [20.0])
    assert good.weighed()[0][0, 1] == 20.0
    assert bad.weighed()[0][0, 1] == 30.0
    assert good.weighed()[1][0, 1] > 2, "another opinion is a doubt, however good the model"
    assert bad.weighed()[1][0, 1] == 10, "a single value function is not certain of itself where the model is worthless"
    two = replace(bad, fitted=np.concatenate([bad.fitted, bad.fitted + 2]))
    assert two.weighed()[1][0, 1] == pytest.approx(2**0.5), "two tell by how far they are apart"
    alone = opinions([20.0, 10.0, 0.0], [float("nan")], [20.0])
    assert alone.weighed()[0][0, 1] == 20.0


def test_a_few_members_that_go_astray_count_for_nothing() -> None:
    votes = np.array([3.0, 0.0, 1.0, 100.0])
    assert middle_half(votes, np.full(4, 0.25)) == 2.0
    # Half a vote at 0 and half a vote at 8: a quarter of either lies in the middle.
    assert middle_half(np.array([8.0, 0.0]), np.array([0.5, 0.5])) == 4.0
    assert middle_half(np.array([8.0, 0.0]), np.array([1.0, 0.0])) == 8.0


def test_errors_of_episodes_partly_cancel_and_those_of_all_do_not() -> None:
    logged = np.zeros((4, 2))
    apart, together = np.array([[1.0, 2.0], [-1.0, -2.0]] * 2), np.array([[1.0, 2.0]] * 4)
    at = np.zeros((1, 2))
    np.testing.assert_allclose(Replays(apart[None], logged).variances(at), [[0.5, 2.0]])
    np.testing.assert_allclose(Replays(together[None], logged).variances(at), [[1.0, 4.0]])


def test_what_the_model_cannot_tell_from_nothing_is_nothing() -> None:
    mean, error = opinions([0.6, 10.0, 20.0], [5.0, 5.0], [0.5, 0.8]).weighed()
    assert mean[0, 1] == 0
    assert error[0, 1] > 0.5, "the error holds what was left out"
    assert mean[1, 1] > 0.7


def test_steps_out_of_the_data_may_bring_anything() -> None:
    near, far = (opinions([0.0, 10.0, 20.0], [20.0], [20.0], ood).weighed()[1][0, 1] for ood in (0.0, 0.5))
    assert far > near + 20


def test_of_a_few_replays_those_alone_that_are_near_tell_the_error() -> None:
    """Half of 30 logged episodes cost nothing and are foretold so; the others are off by 50 in either direction."""
    logged = np.stack([np.arange(30.0), np.repeat([0.0, 150.0], 15)], axis=1)
    off = np.stack([np.zeros(30), np.repeat([0.0, 50.0], 15) * np.tile([1, -1], 15)], axis=1)
    replays = Replays((logged + off)[None], logged)
    variances = replays.variances(np.array([[0.0, 0.0], [0.0, 150.0]]))
    assert variances[0, 1] < 1e-9
    # All 15 are equally near, eight above and seven below.
    assert variances[1, 1] == pytest.approx((50 / 15) ** 2 + (50.0**2 - (50 / 15) ** 2) / 2)


def test_at_a_cost_of_nothing_far_replays_lend_it_little_of_their_errors() -> None:
    """Off by half of what is foretold: at 0 all neighbours lie above it."""
    foretold = np.stack([np.zeros(60), np.arange(60.0)], axis=1)
    nothing, middle = Replays(foretold[None], foretold / 2).variances(np.array([[0.0, 0.0], [0.0, 30.0]]))[:, 1]
    flat = np.arange(20.0) / 2
    assert nothing < (flat.mean() ** 2 + flat.var() / 2) / 2
    assert middle == pytest.approx(15.0**2, rel=0.05)


def test_of_spread_and_replays_the_larger_is_the_error() -> None:
    """What members disagree on is a part of what they were off by before: it does not count twice."""
    exact = opinions([0.0, 10.0, 20.0], [10.0], [10.0])
    apart = np.stack([exact.played[0] - [0.0, 3.0], exact.played[0] + [0.0, 3.0]])
    assert replace(exact, played=apart).weighed()[1][0, 1] == pytest.approx(18**0.5)
    off = opinions([-6.0, 4.0, 14.0], [10.0], [10.0])
    weight = off.replays.skill[1]
    assert replace(off, played=apart).weighed()[1][0, 1] == pytest.approx((weight * 6.0**2) ** 0.5)
