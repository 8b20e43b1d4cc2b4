"""Fitted Q evaluation against exact values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from tests.ope.chain import STEPS, chain_log, chain_policy, exact
from tracrl.data.episodes import Episodes
from tracrl.ope.acting import actions_of
from tracrl.ope.fitting import fit
from tracrl.ope.fqe import FQE, FittedQ
from tracrl.ope.log import Log

RIGHT, LEFT, HALFWAY = [True] * 5, [False] * 5, [True, True, True, False, False]
SMALL = FQE(updates=500, batch_size=256, hidden=(32, 32), lr=5e-3)


def fitted(data: Episodes, ways: list[list[bool]], settings: FQE = SMALL, replicas: int = 1) -> np.ndarray:
    """(replicas, policies, 2): mean over the first states."""
    log = Log.of(data, torch.device("cpu"))
    learner = FittedQ(settings, log, actions_of(chain_policy(ways), log.observations), replicas)
    fit(learner)
    return learner.values().mean(2).numpy()


def test_values_of_a_chain_are_the_exact_ones() -> None:
    ways = [RIGHT, LEFT, HALFWAY]
    estimates = fitted(chain_log(1_500), ways)[0]
    truth = np.array([exact(way) for way in ways])
    # Returns lie between 0 and 8, costs between 0 and 2: these are some 5 % of either.
    np.testing.assert_allclose(estimates[:, 0], truth[:, 0], atol=0.5)
    np.testing.assert_allclose(estimates[:, 1], truth[:, 1], atol=0.15)


def test_costs_near_nothing_are_not_lifted() -> None:
    (estimate,) = fitted(chain_log(600), [LEFT])[0]
    assert exact(LEFT)[1] < 0.01
    assert estimate[1] < 0.04


def test_a_policy_in_a_stack_is_estimated_as_alone() -> None:
    short = replace(SMALL, updates=30)
    data = chain_log(50)
    together, alone = fitted(data, [LEFT, RIGHT], short, replicas=2), fitted(data, [RIGHT], short, replicas=2)
    np.testing.assert_allclose(together[:, 1], alone[:, 0], rtol=1e-4, atol=1e-4)


def test_what_held_out_episodes_brought_is_foretold_whoever_acted() -> None:
    """Logged by one that goes either way; the value functions are those of two who do not."""
    data = chain_log(1_500)
    log = Log.of(data, torch.device("cpu"))
    held_out, rest = np.arange(300), np.arange(300, 1_500)
    actions = actions_of(chain_policy([LEFT, HALFWAY]), log.observations)
    learner = FittedQ(SMALL, log, actions, replicas=2, among=rest)
    assert all((rows[:count] >= log.first[300]).all() for rows, count in zip(learner.rows, learner.counts, strict=True))
    before = learner.foretold(held_out)[0]
    fit(learner)
    told, brought = learner.foretold(held_out)
    np.testing.assert_allclose(brought, np.stack([data.returns, data.total_costs], axis=1)[:300], rtol=1e-5)
    assert told.shape == (2, 2, 300, 2)
    off = told.numpy() - brought.numpy()
    np.testing.assert_allclose(off[..., 0].mean(-1), 0, atol=0.4)
    np.testing.assert_allclose(off[..., 1].mean(-1), 0, atol=0.15)
    # What chance brings in a step nobody foretells: the rest of what differs from episode to episode is.
    untold = (before.numpy() - brought.numpy()).std(2)
    assert (off.std(2) < 0.75 * untold).all()


def test_what_ends_the_log_of_an_episode_decides_what_comes_after() -> None:
    following = np.tile(np.eye(4), (10, 1))
    arrays = {
        **{key: np.ones(40) for key in ("rewards", "costs")},
        "actions": np.zeros((40, 1)),
        "observations": np.roll(following, 1, axis=0),
        "next_observations": following,
    }

    def log_of(end: str, rows: list[int]) -> Log:
        return Log.of(Episodes.from_arrays({**arrays, end: np.isin(np.arange(40), rows)}), torch.device("cpu"))

    in_pairs = list(range(1, 40, 2))
    for end in ("terminals", "timeouts"):
        log = log_of(end, in_pairs)
        assert log.horizon == 2
        assert list(log.goes_on[:3]) == [True, False, True]
    cut = log_of("timeouts", [1, *range(5, 40, 4), 39])
    assert cut.horizon == 4
    assert list(cut.goes_on[:6]) == [True, True, True, True, True, False], "cut off at step 2 of 4, it goes on"
    assert int(cut.following[1]) == 40, "from the final observation"
    assert not log_of("terminals", [1, *range(5, 40, 4), 39]).goes_on[1], "ended by itself"
    del arrays["next_observations"]
    unknown = log_of("timeouts", [1, *range(5, 40, 4), 39])
    assert list(unknown.usable[:2]) == [1, 4], "what followed is not known: that row is left out"


def test_values_travel_through_the_whole_horizon() -> None:
    for horizon in (STEPS, 300):
        first, last = FQE(updates=2_000).taus(horizon)
        done = np.arange(2_000) / 2_000
        assert np.isclose((first ** (1 - done) * last**done).sum(), min(3 * horizon, 0.39 * 2_000), rtol=0.02)
