"""Columns that are a direction together: found in a log, and kept in the model of the dynamics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.ope.test_model import blind
from tracrl.data.episodes import Episodes
from tracrl.ope import directions
from tracrl.ope.directions import Directions
from tracrl.ope.fitting import fit
from tracrl.ope.log import Log
from tracrl.ope.model import FEW, Dynamics, LearnedModel, usual_size
from tracrl.ope.playing import retrace
from tracrl.ope.weighing import brought_back
from tracrl.policies.mlp import MLPPolicy

CPU = torch.device("cpu")


def quaternion(yaw: np.ndarray, roll: np.ndarray) -> np.ndarray:
    """(…, 4) as simulators write it: x, y, z, w, and w is never negative."""
    yaw, roll = (yaw + np.pi) % (2 * np.pi) / 2 - np.pi / 2, roll / 2
    parts = [np.sin(roll) * np.cos(yaw), np.sin(roll) * np.sin(yaw), np.cos(roll) * np.sin(yaw)]
    return np.stack([*parts, np.cos(roll) * np.cos(yaw)], axis=-1)


def largest_not_negative(given: np.ndarray) -> np.ndarray:
    """The same orientations, as other simulators write them."""
    largest = np.take_along_axis(given, np.abs(given).argmax(axis=-1)[..., None], -1)
    return np.where(largest < 0, -given, given)


def turning_log(episodes: int = 100, steps: int = 60, largest: bool = False) -> Episodes:
    """Something that turns as fast as it is told to, each episode in its own way; a step costs where it looks back."""
    generator = np.random.default_rng(0)
    speed = generator.uniform(-1, 1, (episodes, 1)) + 0.1 * generator.normal(size=(episodes, steps))
    actions = speed.clip(-1, 1)
    turned = 0.4 * np.cumsum(actions, axis=1)
    start = generator.uniform(-1, 1, (episodes, 1))
    roll = np.broadcast_to(generator.uniform(-0.3, 0.3, (episodes, 1)), (episodes, steps + 1))
    yaw = start + np.concatenate([np.zeros((episodes, 1)), turned], axis=1)
    observed = largest_not_negative(quaternion(yaw, roll)) if largest else quaternion(yaw, roll)
    return Episodes.from_arrays(
        {
            "observations": observed[:, :-1].reshape(-1, 4),
            "actions": actions.reshape(-1, 1),
            "rewards": np.cos(yaw[:, 1:]).reshape(-1),
            "costs": (np.cos(yaw[:, 1:]) < -0.5).astype(float).reshape(-1),
            "timeouts": np.tile(np.arange(steps) == steps - 1, episodes),
            "final_observations": observed[:, -1],
        }
    )


def columns(rows: np.ndarray) -> list[tuple[int, int]]:
    found = directions._found(torch.from_numpy(rows))
    return [(one.columns.start, one.columns.stop) for one in found]


def test_columns_that_make_up_for_one_another_are_found() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.uniform(-9, 9, (2, 500))
    angles = np.stack([np.sin(a), np.cos(a), 0.5 * np.sin(b), 0.5 * np.cos(b)], axis=1)
    gravity = 9.8 + 0.005 * generator.normal(size=(500, 1))
    noise = 0.005 * generator.normal(size=(500, 2))
    assert columns(angles) == [(0, 2), (2, 4)], "two angles are no quaternion"
    assert columns(np.concatenate([noise, gravity, quaternion(a, 0.2 * b)], axis=1)) == [(3, 7)]
    assert columns(np.concatenate([noise, gravity], axis=1)) == [], "one that hardly varies makes up for nothing"
    assert columns(np.ones((500, 3))) == []
    assert columns(np.eye(4)[generator.integers(4, size=500)]) == [], "one of four kinds is no direction"


@pytest.mark.parametrize("largest", [False, True])
def test_a_quaternion_whose_signs_all_turn_has_hardly_changed(largest: bool) -> None:
    log = Log.of(turning_log(largest=largest), CPU)
    found = Directions(log)
    plain = (log.states[log.following] - log.states[: len(log.step)]) * log.std
    change = found.change(log.states[: len(log.step)], log.states[log.following]) * log.std
    assert plain.abs().max() > 1.5
    assert change.abs().max() < 0.25
    states = found.kept(log.states[: len(log.step)] + change / log.std)
    same = (states - log.states[log.following]).abs().amax(1) < 1e-3
    assert same.float().mean() > 0.98, "up to a few at the very border"


def test_states_between_directions_become_one_of_them() -> None:
    log = Log.of(turning_log(), CPU)
    between = (torch.tensor([[0.0, 0.1, 0.4, 0.2], [0.1, 0.0, 0.4, -0.2]]) - log.mean) / log.std
    kept = Directions(log).kept(between) * log.std + log.mean
    torch.testing.assert_close(kept.norm(dim=1), torch.ones(2))
    assert (kept[:, 3] > 0).all()
    assert kept[1, 2] < 0, "all signs turn together"


def skill() -> np.ndarray:
    settings = Dynamics(updates=300, batch_size=128, hidden=(64, 64), lr=5e-3, past=0)
    model = LearnedModel(settings, Log.of(turning_log(), CPU), members=1)
    fit(model)
    one = blind()
    policy = MLPPolicy(one.metadata, {**one.tensors, "weight0": np.zeros((1, 4, 1), np.float32)})
    retraced, logged = retrace(model, [policy])
    return brought_back(retraced.mean(0), logged)[0]


def test_a_model_that_keeps_directions_brings_back_what_turns_around(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = skill()
    monkeypatch.setattr(directions, "WIDTHS", ())
    left = skill()
    assert (kept > 0.8).all(), kept
    assert ((1 - kept) < 0.5 * (1 - left)).all(), (kept, left)


def test_a_few_crashes_do_not_make_what_is_usual_look_like_nothing() -> None:
    change = torch.randn(5_000, 2, generator=torch.Generator().manual_seed(0))
    crashed = change.clone()
    crashed[:5, 0] = 500.0
    assert crashed.std(0)[0] > 10
    torch.testing.assert_close(usual_size(crashed), torch.ones(2), atol=0.05, rtol=0)
    seldom = torch.zeros(5_000, 1)
    seldom[:5] = 1.0
    assert 0 < usual_size(seldom) < 1 / FEW, "a column that seldom changes does"
