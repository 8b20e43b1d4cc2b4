"""The NumPy policies of the baselines against the torch networks they were made from."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import make_small_data
from tracrl.data.units import Units
from tracrl.errors import TracrlError
from tracrl.methods.bcq_lag import BCQLag
from tracrl.methods.bear_lag import BEARLag
from tracrl.methods.caps import CAPS
from tracrl.methods.cdt import CDT, SequenceBatch
from tracrl.methods.coptidice import COptiDICE
from tracrl.methods.cpq import CPQ
from tracrl.methods.lagrangian import best_candidate
from tracrl.methods.method import Compute, Method, RunSpec
from tracrl.methods.registry import METHODS
from tracrl.methods.transitions import discounted_threshold
from tracrl.nets.critics import soft_maximum, soft_minimum
from tracrl.nets.vae import central
from tracrl.policies.base import Policy
from tracrl.policies.load import load_policy
from tracrl.policies.switching import SwitchingPolicy, switch
from tracrl.tensor_files import load_tensors, save_tensors

RUNS = [RunSpec(2.0, 0), RunSpec(6.0, 1)]
OBSERVATIONS = np.random.default_rng(5).normal(size=(4, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "method", [CPQ(hidden=(8, 8), vae_hidden=(8,), batch_size=8), COptiDICE(hidden=(8, 8), batch_size=8)]
)
def test_mean_of_the_squashed_gaussian(method: CPQ | COptiDICE) -> None:
    learner = method.learner(make_small_data(), RUNS, Compute())
    learner.update()
    with torch.no_grad():
        mean, _ = learner.actor(torch.from_numpy(OBSERVATIONS).expand(2, -1, -1))
    assert np.allclose(learner.policy().act(OBSERVATIONS), torch.tanh(mean).numpy(), atol=1e-6)


@pytest.mark.parametrize("method", [BCQLag, BEARLag])
def test_choice_among_candidates(method: type[BCQLag] | type[BEARLag]) -> None:
    settings = method(hidden=(8, 8), vae_hidden=(8,), batch_size=8, candidates=5, critics=2)
    learner = settings.learner(make_small_data(), RUNS, Compute())
    for _ in range(3):
        learner.update()
    learner.pid.multiplier.copy_(torch.tensor([0.3, 2.0]))
    policy = learner.policy()
    policy.reset(11)
    acted = policy.act(OBSERVATIONS)

    states = torch.from_numpy(OBSERVATIONS).repeat_interleave(5, 0).expand(2, -1, -1)
    width = 4 if method is BCQLag else 2
    noise = torch.from_numpy(np.random.default_rng(11).standard_normal((1, 20, width), np.float32)).expand(2, -1, -1)
    with torch.no_grad():
        if isinstance(learner.method, BCQLag):
            decoded = learner.vae.decode(states, central(noise))
            candidates = learner.perturb(learner.actor, states, decoded[:, :, None])[:, :, 0]  # type: ignore[operator]
        else:
            candidates = learner.actor.sample(states, noise)  # type: ignore[operator]
        q = soft_minimum(learner.critics.reward(states, candidates), 0.75).view(2, 4, 5)
        qc = soft_maximum(learner.critics.cost(states, candidates), 0.75).view(2, 4, 5)
    scores = q - learner.pid.multiplier[:, None, None] * qc
    expected = candidates.view(2, 4, 5, 2).take_along_dim(scores.argmax(-1)[..., None, None], 2)[:, :, 0]
    assert np.allclose(acted, expected.numpy(), atol=1e-5)
    assert torch.equal(
        best_candidate(q, qc, learner.pid.multiplier)[0], q.gather(-1, scores.argmax(-1)[..., None])[..., 0]
    )


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        (BCQLag, {"candidates": 0}),
        (BCQLag, {"candidates": 10**12}),
        (BCQLag, {"phi": "much"}),
        (BEARLag, {"pessimism": 2}),
        (BEARLag, {"candidates": None}),
        (CDT, {"heads": 3}),
        (CDT, {"heads": 0}),
        (CDT, {"context": -1}),
        (CDT, {"targets": []}),
        (CDT, {"targets": [[1.0]]}),
        (CDT, {"targets": "none"}),
        (CDT, {"targets": [[1.0, None]]}),
        (CDT, {"reward_scale": float("nan")}),
        (CAPS, {"heads": 3}),
        (CAPS, {"heads": 0}),
        (CAPS, {"steps": 1.5}),
        (CAPS, {"steps": 10**12}),
        (CAPS, {"gamma": 1.0}),
        (CAPS, {"gamma": None}),
    ],
)
def test_settings_in_a_file_that_no_policy_can_have(
    method: type[Method], changes: dict[str, Any], tmp_path: Path
) -> None:
    sizes: dict[str, Any] = {"hidden": (8, 8), "vae_hidden": (8,)}
    if method is CDT:
        sizes = {"width": 8, "layers": 1, "heads": 2}
    elif method is CAPS:
        sizes = {"hidden": (8, 8)}
    path = tmp_path / "policy.safetensors"
    method(batch_size=2, **sizes).learner(make_small_data(), RUNS, Compute()).policy().save(path)  # type: ignore[call-arg]
    load_policy(path)
    header, tensors = load_tensors(path, "numpy")
    header["settings"] |= changes
    save_tensors(path, tensors, header, "numpy")
    with pytest.raises(TracrlError, match=r"policy.safetensors is not a policy written by tracrl"):
        load_policy(path)


def test_transformer_step_by_step() -> None:
    """What the policy does along an episode is what the network predicts from the episode's sub-sequences."""
    context = 3
    method = CDT(batch_size=4, context=context, width=8, layers=2, heads=2, warmup=1, lr=1e-2)
    learner = method.learner(make_small_data(), [RunSpec(0.0, 0), RunSpec(0.0, 1)], Compute())
    for _ in range(3):
        learner.update()
    policy = learner.policy().at([2.0, 5.0])
    policy.reset(0)
    rewards, costs = [0.5, -1.0, 2.0, 0.3], [0.0, 1.0, 0.5, 0.0]
    asked = torch.tensor([policy.target_return(limit) for limit in (2.0, 5.0)])
    actions: list[np.ndarray] = []
    for t, observation in enumerate(OBSERVATIONS):
        begin = max(0, t - context + 1)
        spent = [(sum(rewards[:i]), sum(costs[:i])) for i in range(begin, t + 1)]
        done = [*actions[begin:], np.zeros((2, 2), np.float32)]
        shape = (2, 1, t + 1 - begin)
        batch = SequenceBatch(
            returns_to_go=0.1 * (asked[:, None] - torch.tensor([r for r, _ in spent])).view(shape),
            costs_to_go=(torch.tensor([[2.0], [5.0]]) - torch.tensor([c for _, c in spent])).view(shape),
            observations=torch.from_numpy(OBSERVATIONS[begin : t + 1]).expand(*shape, -1),
            actions=torch.from_numpy(np.stack(done, 1)).view(*shape, 2),
            costs=torch.zeros(shape),
            steps=torch.arange(begin, t + 1).expand(shape),
            valid=torch.ones(shape),
        )
        with torch.no_grad():
            mean, _, _ = learner.model(batch)
        actions.append(policy.act(observation))
        assert np.allclose(actions[-1], mean[:, 0, -1].clamp(-1, 1).numpy(), atol=1e-5), t
        policy.observe(rewards[t], costs[t])


def test_transformer_keeps_account_of_what_is_left() -> None:
    learner = CDT(batch_size=2, context=2, width=8, layers=1, heads=2).learner(
        make_small_data(), [RunSpec(0.0, 0)], Compute()
    )
    policy = learner.policy()[[0, 0]].at([3.0, 8.0])
    policy.reset(0)
    policy.observe(2.0, 1.0)
    assert policy._cost_to_go[:, 0].tolist() == [2.0, 7.0]
    targets = [policy.target_return(3.0), policy.target_return(8.0)]
    assert policy._return_to_go[:, 0].tolist() == pytest.approx([0.1 * (target - 2.0) for target in targets])
    policy.act(OBSERVATIONS)
    with pytest.raises(TracrlError, match="call reset"):
        policy.act(OBSERVATIONS[:2])


def test_the_head_by_hand() -> None:
    value = np.array([[[5.0, 3.0, 1.0]]], np.float32)
    cost = np.array([[[9.0, 4.0, 2.0]]], np.float32)
    for threshold, head in ((10.0, 0), (9.0, 0), (8.9, 1), (4.0, 1), (2.5, 2), (1.9, 2)):
        assert switch(value, cost, np.array([[threshold]], np.float32)).tolist() == [[head]], threshold
    # None is within the threshold: the least cost counts, and not the last head.
    assert switch(value, cost[..., ::-1], np.array([[1.0]], np.float32)).tolist() == [[0]]
    # Two episodes at a time, each with what it has left.
    both = switch(value.repeat(2, 1), cost.repeat(2, 1), np.array([[9.5, 4.5]], np.float32))
    assert both.tolist() == [[0, 1]]


def switching(limits: tuple[float, ...], heads: int = 2) -> SwitchingPolicy:
    method = CAPS(batch_size=8, hidden=(8, 8), gamma=0.9, heads=heads, lr=1e-2)
    learner = method.learner(make_small_data(), [RunSpec(0.0, 3)], Compute())
    for _ in range(5):
        learner.update()
    policy = learner.policy()[[0] * len(limits)].at(limits)
    assert isinstance(policy, SwitchingPolicy)
    policy.reset(0)
    return policy


def test_switching_keeps_account_of_what_is_left() -> None:
    policy = switching((3.0, 8.0))
    assert policy.steps == 12
    assert policy.threshold()[:, 0].tolist() == pytest.approx([discounted_threshold(k, 0.9, 12) for k in (3.0, 8.0)])
    policy.observe(5.0, 1.0)
    policy.observe(5.0, 0.5)
    left = [discounted_threshold(k, 0.9, 10) for k in (1.5, 6.5)]
    assert policy.threshold()[:, 0].tolist() == pytest.approx(left)
    policy.observe(0.0, 4.0)  # more than was left
    assert policy.threshold()[0, 0] == 0
    for _ in range(20):  # longer than an episode should be: the last step's threshold is what is left
        policy.observe(0.0, 0.0)
    assert policy.threshold()[1, 0] == pytest.approx(2.5)
    policy.reset(0)
    assert policy.threshold()[0, 0] == pytest.approx(discounted_threshold(3.0, 0.9, 12))


@pytest.mark.parametrize("heads", [2, 3])
def test_switching_acts_by_the_networks(heads: int) -> None:
    method = CAPS(batch_size=8, hidden=(8, 8), gamma=0.9, heads=heads, lr=1e-2)
    learner = method.learner(make_small_data(), RUNS, Compute())
    for _ in range(5):
        learner.update()
    states = torch.from_numpy(OBSERVATIONS).expand(2, -1, -1)
    with torch.no_grad():
        actions = learner.actor(states).unflatten(-1, (heads, 2))
        each = [actions[:, :, h] for h in range(heads)]
        value = torch.stack([learner.critics.reward(states, a).amin(1) for a in each], -1)
        cost = torch.stack([learner.critics.cost(states, a).amax(1) for a in each], -1)
    limits = [float(12 * cost.median()), float(cost.min()) / 10]  # some heads are within it, and none
    policy = learner.policy().at(limits)
    policy.reset(0)
    chosen = torch.from_numpy(switch(value.numpy(), cost.numpy(), policy.threshold()))
    expected = actions.take_along_dim(chosen[..., None, None], 2)[:, :, 0]
    assert np.allclose(policy.act(OBSERVATIONS), expected.numpy(), atol=1e-5)
    # A second look changes nothing: only what is observed does.
    assert np.array_equal(policy.act(OBSERVATIONS), policy.act(OBSERVATIONS))


def test_switching_with_several_episodes_at_a_time() -> None:
    """As a model of the dynamics plays it: each episode has costs of its own."""
    together = switching((6.0,))[0]
    alone = [switching((6.0,))[0] for _ in OBSERVATIONS]
    costs = np.array([0.0, 3.0, 5.9, 6.5], np.float32)
    together.observe(np.zeros(4), costs)  # type: ignore[arg-type]
    for policy, cost in zip(alone, costs, strict=True):
        policy.observe(0.0, float(cost))
    expected = [policy.act(o) for policy, o in zip(alone, OBSERVATIONS, strict=True)]
    assert np.allclose(together.act(OBSERVATIONS), expected, atol=1e-6)
    with pytest.raises(TracrlError, match="call reset first"):
        together.act(OBSERVATIONS[:2])


def policy_of(kind: str) -> Policy:
    """A stack of two of each kind that there is, with units as own data have."""
    sizes = {"cdt": {"width": 8, "layers": 1, "heads": 1}}.get(kind, {"hidden": (8, 8)})
    method = METHODS[kind](**sizes, batch_size=4)
    data = make_small_data()
    units = Units.of(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = method.learner(data, RUNS, Compute()).policy()
    about = replace(policy.metadata, observation_mean=units.mean, observation_scale=units.scale)
    return policy.in_units(about)


@pytest.mark.parametrize("kind", METHODS)
def test_no_kind_acts_on_what_is_no_number(kind: str) -> None:
    policy = policy_of(kind)
    for one in (policy, policy[0]):
        one.reset(0)
        assert np.isfinite(one.act(OBSERVATIONS[0])).all()
        for column, value in ((0, np.nan), (1, np.inf), (2, -np.inf)):
            bad = OBSERVATIONS.copy()
            bad[2, column] = value
            for given in (bad, bad[2]):
                with pytest.raises(TracrlError, match=f"The observation has NaN or infinity in column {column}: no"):
                    one.act(given)
        with pytest.raises(TracrlError, match=r"The observation is 1e\+300 in column 1, more than float32 can hold"):
            one.act([0.0, -1e300, 0.0])
        one.reset(0)
        assert np.isfinite(one.act(OBSERVATIONS[0])).all()


@pytest.mark.parametrize("kind", METHODS)
def test_every_kind_takes_reset_and_observe(kind: str) -> None:
    policy = policy_of(kind)
    policy.reset(3)
    first = policy.act(OBSERVATIONS[0])
    policy.observe(1.0, 0.5)
    policy.act(OBSERVATIONS[1])
    policy.reset(3)
    assert np.array_equal(policy.act(OBSERVATIONS[0]), first)
    for reward, cost in ((np.nan, 0.0), (0.0, np.inf)):
        with pytest.raises(TracrlError, match=f"The step's reward is {reward} and its cost {cost}; expected finite"):
            policy.observe(reward, cost)


@pytest.mark.parametrize("kind", METHODS)
def test_a_policy_in_a_line(kind: str) -> None:
    policy = policy_of(kind)
    keeps_account = kind in ("cdt", "caps")
    expected = f"of {kind}: 2 policies, limit 2, 6, seed 0, 1; observations of 3, actions of 2 in [-1, 1], standardises"
    assert expected + (", needs reset and observe>" if keeps_account else ">") in repr(policy)
    assert f"of {kind}: limit 6, seed 1; observations of 3" in repr(policy[1])
