"""TraC for every limit: labels at a drawn limit by hand, the same stacks, and behaviour that follows the limit."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import make_small_data
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods.method import Compute, RunSpec
from tracrl.methods.segments import LimitTable
from tracrl.methods.trac import BATCH_STREAM
from tracrl.methods.trac_any import TraCAny, TraCAnyLearner
from tracrl.nets import random
from tracrl.policies.any_limit import AnyLimitPolicy, AnyXPolicy, RemainingBudgetPolicy, told
from tracrl.policies.load import load_policy
from tracrl.policies.mlp import MLPPolicy
from tracrl.train.fit import fit

SMALL = TraCAny(updates=12, clone_updates=4, batch_size=8, hidden=(16, 16), warmup=4, lr=1e-3, bc_lr=1e-3)
SEEDS = [RunSpec(4.0, 3), RunSpec(4.0, 5)]


def learner(method: TraCAny = SMALL, *runs: RunSpec) -> TraCAnyLearner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few segments are safe at the lowest limit
        return method.learner(make_small_data(), runs or SEEDS, Compute())


def five_episodes() -> Episodes:
    """Of two steps each; returns 1, 2, 3, 4, 5 and costs 0, 2, 1, 6, 9."""
    returns, costs = np.array([1.0, 2, 3, 4, 5]), np.array([0.0, 2, 1, 6, 9])
    timeouts = np.tile([False, True], 5)
    return Episodes.from_arrays(
        {
            "observations": np.arange(10.0)[:, None],
            "actions": np.linspace(-0.5, 0.5, 10)[:, None],
            "rewards": np.repeat(returns, 2) / 2,
            "costs": np.repeat(costs, 2) / 2,
            "timeouts": timeouts,
        }
    )


def test_labels_at_a_drawn_limit_by_hand() -> None:
    """At limits 0, 1.5 and 6."""
    data = five_episodes()
    method = TraCAny(batch_size=64, hidden=(4,), label_limits=3, lowest=0, highest=80, delta=0.5, x=50, dropout=0)
    assert method.limit_range(data) == (0.0, 6.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stack = method.learner(data, [RunSpec(1.0, 0)], Compute())
    drawn = stack.table.draw(random.keys(torch.tensor([0]), torch.tensor(0), BATCH_STREAM), stack.classified)
    assert drawn.limit is not None
    # At 0 only the first is safe. At 1.5 the first and the third are, and the third is the better half. At 6 all but
    # the last are: 3 and 4 are desirable, 1 and 2 are left out. Weights: v̂ (1 − δ) + δ among the safe; unsafe 1.
    expected = {
        0.0: {0: (1.0, 0.5), 1: (0.0, 1.0), 2: (0.0, 1.0), 3: (0.0, 1.0), 4: (0.0, 1.0)},
        1.5: {2: (1.0, 1.0), 1: (0.0, 1.0), 3: (0.0, 1.0), 4: (0.0, 1.0)},
        6.0: {2: (1.0, 2 / 3 * 0.5 + 0.5), 3: (1.0, 1.0), 4: (0.0, 1.0)},
    }
    seen: dict[float, dict[int, tuple[float, float]]] = {limit: {} for limit in expected}
    for rows, limit, label, weight in zip(
        drawn.rows[0], drawn.limit[0].tolist(), drawn.desirable[0].tolist(), drawn.weight[0].tolist(), strict=True
    ):
        seen[limit][int(rows[0]) // 2] = (label, weight)
    for limit, labels in expected.items():
        assert seen[limit].keys() == labels.keys()
        for episode, (label, weight) in labels.items():
            assert seen[limit][episode] == (label, pytest.approx(weight)), (limit, episode)
    # The two sets take turns, so that each weighs what η says at every limit, however few are desirable there.
    assert drawn.desirable[0].tolist() == [1.0, 0.0] * 32
    assert (stack.lambda_d.tolist(), stack.lambda_u.tolist()) == ([1.0], [0.25])


def test_a_limits_labels_are_those_of_trac_at_that_limit() -> None:
    data = make_small_data()
    method = replace(SMALL, ratio=0.5, y=25.0)
    for parts in method.partitions(data, seed=3):
        alone = method.partition(data, RunSpec(parts.limit, 3))
        assert np.array_equal(parts.segments.first, alone.segments.first)
        assert (parts.desirable, parts.undesirable) == (alone.desirable, alone.undesirable)
    table = learner(method).table
    assert isinstance(table, LimitTable)
    assert table.limits == method.label_limits


def test_many_segments_make_do_with_fewer_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracrl.methods.trac_any.MOST_LABELS", 600)
    data = make_small_data()
    grid = SMALL.grid(data, segments=60)
    assert len(grid) == 10
    assert (grid[0], grid[-1]) == SMALL.limit_range(data)
    assert [told(limit, grid[0], grid[-1]) for limit in grid] == pytest.approx(np.linspace(-1, 1, 10))


def test_runs_of_a_stack_are_runs_alone() -> None:
    together = learner()
    for _ in range(8):
        together.update()
    for i, run in enumerate(SEEDS):
        alone = learner(SMALL, run)
        for _ in range(8):
            alone.update()
        for name, tensor in together.state_dict().items():
            assert torch.equal(tensor[i], alone.state_dict()[name][0]), name


@pytest.mark.parametrize("before", [2, 4, 7])
def test_training_goes_on_from_its_tensors_exactly(before: int) -> None:
    whole, half, resumed = learner(), learner(), learner()
    for _ in range(10):
        whole.update()
    for _ in range(before):
        half.update()
    resumed.restore({name: tensor.clone() for name, tensor in half.state_dict().items()}, half.step)
    for _ in range(10 - before):
        resumed.update()
    for name, tensor in resumed.state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name]), name


def test_cloning_and_the_reference_do_not_see_the_limit() -> None:
    stack = learner()
    weight = stack.network.layers[0].weight
    first = weight[:, -1].clone()
    for _ in range(SMALL.clone_updates):
        stack.update()
    assert torch.equal(weight[:, -1], first), "the input is 0: its weights have no gradient"
    cloned = stack.policy()
    stack.prepare()
    assert (weight[:, -1] == 0).all()
    assert stack.log_ref is not None
    reference = stack.policy()
    observations = make_small_data().observations[:7]
    assert np.array_equal(reference.over([2])[0].act(observations), reference.over([8])[0].act(observations))
    assert not np.array_equal(cloned.over([2])[0].act(observations), cloned.over([8])[0].act(observations))
    for _ in range(8):
        stack.update()
    trained = stack.policy()
    assert not np.array_equal(trained.over([2])[0].act(observations), trained.over([8])[0].act(observations))


def test_rounds_take_the_policy_of_the_one_before_as_reference() -> None:
    """12 updates, 4 of cloning: the second round begins at 8, and its first scores are 0 at every limit."""
    method = replace(SMALL, rounds=2, dropout=0.0)
    assert method.phase_ends == (4, 8)
    stack = learner(method)
    phases = []
    for _ in range(8):
        phases.append(stack.phase)
        stack.update()
    assert phases == ["cloning"] * 4 + ["classification"] * 4
    assert stack.phase == "classification 2"
    stack.prepare()
    drawn = stack.table.draw(stack.key(BATCH_STREAM), stack.classified)
    assert stack.scores(drawn).abs().max() < 1e-5
    alone, resumed = learner(method, SEEDS[1]), learner(method)
    resumed.restore({name: tensor.clone() for name, tensor in stack.state_dict().items()}, stack.step)
    for _ in range(4):
        stack.update()
        resumed.update()
    for _ in range(12):
        alone.update()
    for name, tensor in stack.state_dict().items():
        assert torch.equal(tensor[1], alone.state_dict()[name][0]), name
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_fewer_are_desirable_where_many_are_safe_and_the_best_weigh_more() -> None:
    data = five_episodes()
    method = TraCAny(label_limits=3, lowest=0, highest=80, delta=0.0, x=50, most=20, sharpness=2.0)
    # Of five episodes one may be desirable, also at the limit of 6, where four are safe.
    assert [parts.desirable for parts in method.partitions(data, seed=0)] == [1, 1, 1]
    usual = replace(method, most=100.0)
    parts = usual.partitions(data, seed=0)[2]
    # Desirable at 6 are those of return 4 (v̂ = 1) and 3 (v̂ = 2/3): w = v̂ exp(2 (v̂ − 1)).
    assert usual.weights(parts)[:2] == pytest.approx([1.0, 2 / 3 * np.exp(-2 / 3)])


TOLD_X = replace(SMALL, least_x=10.0)


def test_labels_with_a_drawn_x_by_hand() -> None:
    """At a limit of 6 the first four are safe, the best is 3, then 2: the better half with x 50, 3 alone with x 25 and
    below. The policy is told −1 for 50, 1 for 6.25, and a third of the way for each x between."""
    data = five_episodes()
    method = TraCAny(batch_size=256, hidden=(4,), label_limits=2, lowest=0, highest=80, least_x=6.25)
    assert method.shares == pytest.approx([50, 25, 12.5, 6.25])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stack = method.learner(data, [RunSpec(1.0, 0)], Compute())
    drawn = stack.table.draw(random.keys(torch.tensor([0]), torch.tensor(0), BATCH_STREAM), stack.classified)
    assert drawn.limit is not None
    assert drawn.x is not None
    seen: dict[tuple[float, float], set[int]] = {}
    places = zip(drawn.limit[0].tolist(), drawn.x[0].tolist(), drawn.desirable[0], drawn.rows[0, :, 0], strict=True)
    for limit, x, label, row in places:
        if label:
            seen.setdefault((limit, x), set()).add(int(row) // 2)
    assert seen == {
        **{(0.0, x): {0} for x in (50.0, 25.0, 12.5, 6.25)},
        (6.0, 50.0): {2, 3}, (6.0, 25.0): {3}, (6.0, 12.5): {3}, (6.0, 6.25): {3},
    }  # fmt: skip
    rows, limit = torch.tensor([[[6, 7], [2, 3]]]), torch.tensor([[6.0, 0.0]])
    shown = stack.seen(torch.zeros(1, 4, 1), rows, limit, torch.tensor([[50.0, 12.5]]))[0, :, 1:]
    expected = torch.tensor([[-1.0, 1.0], [-1, 1], [1 / 3, -1], [1 / 3, -1]])
    assert torch.allclose(shown, expected)


def test_x_told_is_a_stack_of_runs_and_goes_on_exactly() -> None:
    together, resumed = learner(TOLD_X), learner(TOLD_X)
    for step in range(10):
        if step == 6:
            resumed.restore({name: t.clone() for name, t in together.state_dict().items()}, together.step)
        together.update()
        if step >= 6:
            resumed.update()
    alone = learner(TOLD_X, SEEDS[1])
    for _ in range(10):
        alone.update()
    for name, tensor in together.state_dict().items():
        assert torch.equal(tensor[1], alone.state_dict()[name][0]), name
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_a_policy_at_an_x_is_one_for_every_limit(tmp_path: Path) -> None:
    stack = learner(TOLD_X)
    for _ in range(8):
        stack.update()
    policy = stack.policy()
    assert isinstance(policy, AnyXPolicy)
    observations = make_small_data().observations[:5]
    weight, bias = policy.tensors["weight0"][0], policy.tensors["bias0"][0]
    for x, bold in ((50.0, -1.0), (500**0.5, 0.0), (10.0, 1.0)):
        at = policy.at_x(x)
        assert type(at) is AnyLimitPolicy
        column = [bold, told(5.5, policy.lowest, policy.highest)]
        h = np.concatenate([observations, np.tile(np.array(column, np.float32), (5, 1))], 1)
        h = np.maximum(h @ weight + bias, 0)
        h = np.maximum(h @ policy.tensors["weight1"][0] + policy.tensors["bias1"][0], 0)
        by_hand = np.tanh(h @ policy.tensors["weight2"][0] + policy.tensors["bias2"][0])
        assert np.allclose(at[0].act(observations, limit=5.5), by_hand, atol=1e-5)
    # By itself it is the careful one; so it is once it was saved and loaded.
    careful = policy.at_x(50).act(observations, limit=5.5)
    assert np.allclose(policy.act(observations, limit=5.5), careful, atol=1e-6)
    assert not np.allclose(policy.at_x(10).act(observations, limit=5.5), careful, atol=1e-6)
    policy.save(tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path / "policy.safetensors")
    assert isinstance(loaded, AnyXPolicy)
    assert np.array_equal(
        loaded.at_x(20).over([2, 8]).act(observations), policy.at_x(20).over([2, 8]).act(observations)
    )
    for x in (5.0, 60.0, float("nan")):
        with pytest.raises(TracrlError, match="10 to 50 per cent"):
            policy.at_x(x)


def test_what_is_left_of_the_limit_is_told_in_each_step() -> None:
    """Episodes of two steps that cost the same each; limits from 0 to 6."""
    data = five_episodes()
    method = TraCAny(batch_size=4, hidden=(4,), label_limits=3, lowest=0, highest=80, told="remaining")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stack = method.learner(data, [RunSpec(1.0, 0)], Compute())
    rows = torch.tensor([[[6, 7], [2, 3]]])  # the episodes that cost 6 and 2
    seen = stack.seen(torch.zeros(1, 4, 1), rows, torch.tensor([[6.0, 1.5]]))[0, :, -1]
    assert seen.tolist() == pytest.approx([1.0, 2 * (3 / 6) ** 0.5 - 1, 0.0, 2 * (0.5 / 6) ** 0.5 - 1])
    policy = stack.policy()
    assert isinstance(policy, RemainingBudgetPolicy)
    at = policy.at([6.0])
    at.reset(0)
    at.observe(0.0, 3.0)
    told_left, observation = 2 * (3 / 6) ** 0.5 - 1, np.zeros(1)
    hidden = np.maximum(told_left * policy.tensors["weight0"][0, -1] + policy.tensors["bias0"][0, 0], 0)
    by_hand = np.tanh(hidden @ policy.tensors["weight1"][0] + policy.tensors["bias1"][0, 0])
    assert np.allclose(at.act(observation)[0], by_hand, atol=1e-6)
    at.observe(0.0, 100.0)  # nothing is left: as at the lowest limit
    assert np.allclose(at.act(observation), policy.at([0.0]).act(observation), atol=1e-6)
    with pytest.raises(TracrlError, match="--told"):
        replace(method, ratio=0.5)


def bold_and_careful(episodes: int = 120, steps: int = 10) -> Episodes:
    """An action from 0 to 1 earns itself and costs itself; an episode's drivers differ in how bold they are."""
    generator = np.random.default_rng(0)
    rows = episodes * steps
    bold = np.repeat(np.linspace(0, 1, episodes), steps)
    action = np.clip(bold + 0.05 * generator.normal(size=rows), 0, 1)
    timeouts = np.zeros(rows, bool)
    timeouts[steps - 1 :: steps] = True
    return Episodes.from_arrays(
        {
            "observations": generator.normal(size=(rows, 2)),
            "actions": action[:, None],
            "rewards": action,
            "costs": action,
            "timeouts": timeouts,
        }
    )


def test_reward_and_cost_grow_with_the_limit() -> None:
    """A policy that is told to be careful is, and a bolder one where it may be; each limit is kept."""
    method = TraCAny(
        updates=800, clone_updates=200, batch_size=32, bc_lr=3e-3, lr=1e-3, warmup=50, dropout=0, hidden=(32, 32)
    )
    limits = [2.0, 4.0, 6.0, 8.0]
    policy = fit(method, bold_and_careful(), limits=limits, seeds=[0, 1], device="cpu").policy
    observations = np.random.default_rng(1).normal(size=(200, 2))
    spent = 10 * policy.act(observations).mean(axis=(1, 2)).reshape(4, 2)
    assert (np.diff(spent, axis=0) > 0.5).all(), spent
    assert (spent <= np.array(limits)[:, None] + 0.2).all(), spent
    assert (spent[-1] >= 0.4 * limits[-1]).all(), spent


def test_what_is_to_be_calibrated_trains_longer_by_the_fast_preset_alone() -> None:
    """Policies of several x share its updates."""
    usual = TraCAny.preset("Bullet", "fast")
    fast = TraCAny.preset("Bullet", "fast", **TraCAny.to_calibrate("Bullet", "fast"))
    assert (fast.least_x, fast.eta) == (6, 1)
    for name in ("updates", "clone_updates", "warmup"):
        assert getattr(fast, name) == 3 * getattr(usual, name)
    full = TraCAny.preset("MetaDrive", **TraCAny.to_calibrate("MetaDrive", "full"))
    assert full == TraCAny.preset("MetaDrive", least_x=6.0, eta=1.0)


def test_a_smaller_x_is_bolder() -> None:
    """Told a smaller x, the policy spends more of the same limit; it grows with the limit too."""
    method = TraCAny(
        updates=800,
        clone_updates=200,
        batch_size=32,
        bc_lr=3e-3,
        lr=1e-3,
        warmup=50,
        dropout=0,
        hidden=(32, 32),
        least_x=5,
    )
    limits = [3.0, 6.0]
    policy = fit(method, bold_and_careful(), limits=limits, seeds=[0], device="cpu").policy
    assert isinstance(policy, AnyXPolicy)
    observations = np.random.default_rng(1).normal(size=(200, 2))
    spent = [10 * policy.at_x(x).over(limits).act(observations).mean(axis=(1, 2)) for x in (50, 15, 5)]
    assert (np.diff(spent, axis=0) > 0.2).all(), spent
    assert (np.diff(spent, axis=1) > 0.5).all(), spent
    assert (spent[-1] <= np.array(limits) + 0.3).all(), spent


def policy_of(stack: TraCAnyLearner | None = None) -> AnyLimitPolicy:
    stack = stack or learner()
    while stack.step < 8:
        stack.update()
    policy = stack.policy()
    assert isinstance(policy, AnyLimitPolicy)
    return policy


def test_a_policy_at_a_limit_is_an_ordinary_one(tmp_path: Path) -> None:
    policy = policy_of()
    observations = make_small_data().observations[:5]
    for limit in (2, 5.5, 9.0):
        plain = policy.at(limit)
        assert type(plain) is MLPPolicy
        assert plain.metadata.limits == (limit, limit)
        expected = policy.at([limit, limit]).act(observations)
        assert np.array_equal(plain.act(observations), expected)
        assert np.array_equal(policy.act(observations, limit=limit), expected)
        assert np.allclose(policy[0].act(observations[0], limit=limit), expected[0, 0], atol=1e-6)
        assert np.allclose(policy[0].at(limit).act(observations[0]), expected[0, 0], atol=1e-6)
    # Told by hand: the limit as one input more.
    weight, bias = policy.tensors["weight0"][0], policy.tensors["bias0"][0]
    x = np.concatenate([observations, np.full((5, 1), told(5.5, policy.lowest, policy.highest), np.float32)], 1)
    x = np.maximum(x @ weight + bias, 0)
    x = np.maximum(x @ policy.tensors["weight1"][0] + policy.tensors["bias1"][0], 0)
    by_hand = np.tanh(x @ policy.tensors["weight2"][0] + policy.tensors["bias2"][0])
    assert np.allclose(policy[0].act(observations, limit=5.5), by_hand, atol=1e-5)
    policy.save(tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path / "policy.safetensors")
    assert isinstance(loaded, AnyLimitPolicy)
    assert loaded.limit_range == policy.limit_range
    assert np.array_equal(loaded.act(observations, limit=5.5), policy.act(observations, limit=5.5))
    plain = policy.at(5.5)
    plain.save(tmp_path / "plain.safetensors")
    assert np.array_equal(load_policy(tmp_path / "plain.safetensors").act(observations), plain.act(observations))


def test_every_network_at_every_limit() -> None:
    policy = policy_of().over([2.0, 6.0, 9.0])
    assert policy.metadata.limits == (2, 2, 6, 6, 9, 9)
    assert policy.metadata.seeds == (3, 5, 3, 5, 3, 5)
    assert policy.networks() == [0, 1]
    assert policy.at(4).metadata.seeds == (3, 5)


@pytest.mark.parametrize(("limit", "said"), [(-3.0, "below those"), (float("nan"), "expected a cost")])
def test_limits_that_it_cannot_keep_to(limit: float, said: str) -> None:
    policy = policy_of()
    for asked in (lambda: policy.at(limit), lambda: policy.at([limit] * 2), lambda: policy.act(np.zeros(3), limit)):
        with pytest.raises(TracrlError, match=said):
            asked()


def test_a_limit_above_the_range_is_kept_and_said() -> None:
    policy = policy_of()
    highest = policy.limit_range[1]
    with pytest.warns(UserWarning, match=f"it acts as at {highest:g}"):
        far = policy.at(10 * highest)
    observations = make_small_data().observations[:5]
    assert np.array_equal(far.act(observations), policy.at(highest).act(observations))


def test_a_limit_below_the_range_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = bold_and_careful()
    method = replace(SMALL, lowest=20.0)
    with pytest.raises(TracrlError, match="A limit of 1 is below those that this policy was trained for"):
        fit(method, data, limits=[4, 1], out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lowest": 60.0, "highest": 40.0}, "below --highest"),
        ({"label_limits": 1}, "label-limits"),
        ({"least_x": 60.0}, "--least-x"),
        ({"least_x": 5.0, "told": "remaining"}, "--least-x"),
        ({"updates": 9, "clone_updates": 8, "warmup": 1, "rounds": 2}, "--rounds"),
    ],
)
def test_settings_that_make_no_range(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TracrlError, match=said):
        TraCAny(**changes)


def test_costs_that_leave_no_range_are_said() -> None:
    data = five_episodes()
    same = Episodes.from_arrays(
        {
            "observations": data.observations,
            "actions": data.actions,
            "rewards": data.rewards,
            "costs": np.repeat([0.0, 0, 0, 0, 4.0], 2),
            "timeouts": np.tile([False, True], 5),
        }
    )
    with pytest.raises(TracrlError, match="leaves no range of limits to learn"):
        TraCAny().limit_range(same)


def test_products_in_bfloat16_and_chunks_train_too() -> None:
    data = make_small_data()
    stack = SMALL.learner(data, SEEDS, Compute(bf16=True))
    for _ in range(8):
        metrics = stack.update()
    assert set(metrics) == set(SMALL.metrics)
    assert all(torch.isfinite(values).all() for values in metrics.values())


def test_standardised_observations_are_the_policys_own(tmp_path: Path) -> None:
    data = bold_and_careful()
    run = fit(SMALL, data, limits=[2, 8], seeds=[0, 1], device="cpu", standardise="on", out=tmp_path / "run")
    policy = run.policy
    assert isinstance(policy, AnyLimitPolicy)
    assert len(policy.metadata.observation_mean) == 2
    assert policy.at(5).metadata.observation_mean == policy.metadata.observation_mean
    assert policy.metadata.limits == (2, 2, 8, 8)
    again = fit(
        SMALL, data, limits=[2, 8], seeds=[0, 1], device="cpu", standardise="on", out=tmp_path / "run", resume=True
    )
    assert np.array_equal(again.policy.act(data.observations[:3]), policy.act(data.observations[:3]))
