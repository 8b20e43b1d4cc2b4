from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch

from tests.methods.test_transitions import three_episodes
from tracrl.data.episodes import Episodes
from tracrl.methods.coptidice import COptiDICE, COptiDICELearner, bound_weights, divergence, weight
from tracrl.methods.method import Compute, RunSpec

CPU = torch.device("cpu")


def test_weight_maximises_its_objective() -> None:
    """((f')⁻¹(x))₊ is where w x − f(w) is largest."""
    grid = torch.linspace(0, 6, 60_001, dtype=torch.float64)
    for x in (-3.0, -0.5, 0.0, 0.7, 4.0):
        best = grid[(grid * x - divergence(grid)).argmax()]
        assert weight(torch.tensor(x)).item() == pytest.approx(best.item(), abs=2e-4)
    assert divergence(torch.tensor([0.0, 1.0, 3.0])).tolist() == pytest.approx([1.0, 0.0, 2.0])


def test_bound_weights_by_hand() -> None:
    ell = torch.tensor([[0.0, math.log(3.0)], [5.0, 5.0]])
    weights, kl = bound_weights(ell, torch.tensor([1.0, 1.0]))
    assert weights[0].tolist() == pytest.approx([0.5, 1.5])
    assert weights[1].tolist() == pytest.approx([1.0, 1.0])
    assert kl.tolist() == pytest.approx([(0.5 * math.log(0.5) + 1.5 * math.log(1.5)) / 2, 0.0], abs=1e-6)
    flatter, _ = bound_weights(ell, torch.tensor([2.0, 1.0]))
    assert 0.5 < flatter[0, 0] < 1


def small_learner(data: Episodes) -> COptiDICELearner:
    return COptiDICE(gamma=0.5, batch_size=64, hidden=(4,), reward_scale=1.0).learner(
        data, [RunSpec(3.0, 0)], Compute()
    )


def test_advantages_by_hand() -> None:
    """e = r − λ c + γ ν(s') − ν(s), and the same of the cost; the flow goes on, or ends by itself or by time."""
    learner = small_learner(three_episodes())
    batch = learner.transitions.at(torch.tensor([[0, 2, 1, 4]]))  # goes on, goes on, ended by itself, ended by time
    now, following = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[10.0, -6.0, 100.0, 100.0]])
    e = learner.advantage(batch, now, following, torch.tensor([0.25]))
    assert e[0].tolist() == [0 - 0.25 + 5 - 1, 2 - 0.25 - 3 - 2, 1 - 0.25 - 3, 4 - 0.25 - 4]
    costs = learner.cost_advantage(batch, now, following)
    assert costs[0].tolist() == [1 + 5 - 1, 1 - 3 - 2, 1 - 3, 1 - 4]


def test_the_flow_leaves_every_state_without_final_observations_too() -> None:
    """What followed a time-out is not asked for: a state that is entered there has its way out in the batch."""
    learner = small_learner(three_episodes(final=False))
    batch = learner.transitions.draw(learner.key(0), 500)
    assert set(batch.observations[batch.done == 1].flatten().tolist()) == {1, 4, 5}
    assert batch.first.mean().item() == pytest.approx(learner.first_share, abs=0.1)


def gamble(chance: float = 1.0) -> Episodes:
    """One state, one step: the risky action brings 1 and costs 1 on average, the careful one brings and costs nothing.

    The risky action's cost comes with a chance, and is larger for it.
    """
    risky = np.arange(400) % 2 == 1
    unlucky = risky & (np.arange(400) % 20 < 20 * chance)
    return Episodes.from_arrays(
        {
            "observations": np.ones((400, 1)),
            "actions": np.where(risky, 0.8, -0.8)[:, None],
            "rewards": risky.astype(float),
            "costs": unlucky / chance,
            "terminals": np.ones(400, bool),
        }
    )


@functools.cache
def solve(
    limit: float, epsilon: float = 0.0, chance: float = 1.0, quirks: bool = False
) -> tuple[COptiDICELearner, float, float]:
    """λ and the weighted cost E[w c] after training on the gamble."""
    method = COptiDICE(
        gamma=0.5,
        alpha=0.5,
        epsilon=epsilon,
        lr=2e-2,
        scalar_lr=2e-2,
        batch_size=128,
        hidden=(16,),
        reward_scale=1.0,
        noise=0.0,
        reference_quirks=quirks,
    )
    learner = method.learner(gamble(chance), [RunSpec(limit, 0)], Compute())
    for _ in range(350):
        learner.update()
    later = [learner.update() for _ in range(50)]
    multiplier, bound = (float(np.mean([m[name].item() for m in later])) for name in ("multiplier", "cost_bound"))
    return learner, multiplier, bound


def test_constraint_binds_at_the_known_optimum() -> None:
    """With γ = ½ the flow of one step is 1 − γ = ½: half of 0.3 may be risky, and λ makes that the best reweighting.

    w₁ = 2 · ½ · 0.3 = 0.3 and w₀ = 0.7; α f'(w) = e, and e₁ − e₀ = r₁ − r₀ − λ, so λ = 1 − α (log 0.3 − log 0.7).
    """
    learner, multiplier, cost = solve(limit=0.3)
    assert learner.threshold.item() == pytest.approx(0.15)
    assert cost == pytest.approx(0.15, abs=0.02)
    assert multiplier == pytest.approx(1 - 0.5 * (math.log(0.3) - math.log(0.7)), abs=0.1)


def test_the_policy_follows_the_weights() -> None:
    """Its action is the weighted mean: 0.3 · 0.8 − 0.7 · 0.8."""
    learner, _, _ = solve(limit=0.3)
    assert learner.policy()[0].act(np.ones(1, np.float32))[0] == pytest.approx(-0.32, abs=0.08)


def test_a_loose_limit_needs_no_multiplier() -> None:
    _, multiplier, cost = solve(limit=1.5)
    assert multiplier < 0.1
    assert cost == pytest.approx(0.5 / (1 + math.exp(-2)), abs=0.04)  # log w₁ − log w₀ = r₁ / α = 2, w₁ + w₀ = 1


def test_the_upper_bound_is_on_the_safe_side() -> None:
    """Where the cost is a matter of luck, the data may have been lucky: the bound asks for a larger multiplier."""
    assert solve(limit=0.3, epsilon=0.1, chance=0.5)[1] > solve(limit=0.3, chance=0.5)[1] + 0.1


def test_reference_form_hardly_binds() -> None:
    """Its threshold is 1 / (1 − γ) times as large."""
    learner, multiplier, _ = solve(limit=0.6, quirks=True)
    assert learner.threshold.item() == pytest.approx(0.6)
    assert multiplier < 0.2
    assert solve(limit=0.6)[1] > 0.5
