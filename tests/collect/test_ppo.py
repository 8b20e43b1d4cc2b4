from __future__ import annotations

import numpy as np
import torch

from tracrl.collect.behaviour import penalty_features
from tracrl.collect.normalise import RunningMoments
from tracrl.collect.ppo import PPO, PPOSettings
from tracrl.collect.rollout import Order, Rollout
from tracrl.envs.environment import Environment, EnvSpec


def episodes(count: int, reward: float = 1.0, cost: float = 1.0) -> tuple[list[Rollout], list[float]]:
    generator = np.random.default_rng(0)
    made = []
    for _ in range(count):
        actions = generator.normal(size=(10, 2)).astype(np.float32)
        made.append(
            Rollout(
                generator.normal(size=(11, 3)).astype(np.float32),
                actions,
                (reward * actions[:, 0]).astype(np.float32),
                (cost * (actions[:, 0] > 0)).astype(np.float32),
                False,
            )
        )
    return made, [float(p) for p in np.linspace(0, 1, count)]


def test_moments_in_parts_are_those_of_the_whole() -> None:
    rows = np.random.default_rng(0).normal([1, 1e4], [0.1, 30], size=(1000, 2))
    moments = RunningMoments(2)
    for part in np.split(rows, [10, 11, 400]):
        moments.update(part)
    np.testing.assert_allclose(moments.mean, rows.mean(0))
    np.testing.assert_allclose(moments.variance, rows.var(0))


def test_a_number_that_never_changes_is_left_out() -> None:
    moments = RunningMoments(2)
    moments.update(np.array([[1.0, 7.0], [2.0, 7.0]]))
    np.testing.assert_allclose(moments.scale(), [2, 0])


def test_the_copy_for_the_simulators_acts_as_the_network_does() -> None:
    ppo = PPO(3, 2, PPOSettings(), seed=0)
    generator = np.random.default_rng(0)
    ppo.seen.update(generator.normal(3, 2, size=(50, 3)))
    with torch.no_grad():
        for parameter in ppo.parameters:
            parameter.add_(torch.from_numpy(generator.normal(0, 0.1, parameter.shape)))
    rollouts, _ = episodes(1)
    inputs, _ = ppo._inputs(rollouts, [0.3], np.array([10]))
    with torch.no_grad():
        expected = ppo.actor(inputs).tanh().numpy()
    decide, _ = ppo.behaviour().at(0.3)
    found = [decide(observation) for observation in rollouts[0].observations[:-1]]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_units_of_reward_and_cost_do_not_matter() -> None:
    policies = []
    for reward, cost in ((1.0, 1.0), (1e-3, 1.0), (500.0, 1e2)):
        ppo = PPO(3, 2, PPOSettings(epochs=2), seed=0)
        for turn in range(3):
            ppo.update(*episodes(8, reward, cost), 1.0, np.random.default_rng(turn))
        policies.append(ppo.behaviour())
    for other in policies[1:]:
        for (weight, bias), (other_weight, other_bias) in zip(policies[0].layers, other.layers, strict=True):
            np.testing.assert_allclose(other_weight, weight, atol=2e-4)
            np.testing.assert_allclose(other_bias, bias, atol=2e-4)


def test_a_policy_looks_ahead_for_half_of_the_longest_episode() -> None:
    settings = PPOSettings()
    assert settings.discount(1000) == 1 - 1 / 500
    assert settings.discount(100) == settings.discount(0) == 0.99, "but not for less than 100 steps"


def test_the_price_of_a_cost_grows_by_factors() -> None:
    share = PPOSettings().cost_share([0.0, 1e-12, 0.3, 0.6, 0.9, 1.0])
    odds = share / (1 - share)
    np.testing.assert_allclose(odds[[0, 1, 5]], [0, 0.003, 24])
    np.testing.assert_allclose(odds[3] / odds[2], odds[4] / odds[3])
    assert 9 < odds[4] < 10


def test_the_first_costs_weigh_no_more_than_those_that_are_tolerated() -> None:
    rewards, costs = np.array([1.0, -1.0]), np.array([1.0, -1.0])
    gains, totals = np.stack([rewards, costs], 1), np.array([[100.0, 1.0]])
    half = np.array([0.5, 0.5])
    eager, patient = (PPO(3, 2, PPOSettings(), seed=0, tolerated=tolerated) for tolerated in (0.0, 200.0))
    # At equal shares one unit of cost against one of return: 1 / 1 against 1 / 100, then 1 / 200 against 1 / 100.
    assert eager._scalarise(gains, totals, half)[0] < -0.9
    assert patient._scalarise(gains, totals, half)[0] > 0.4
    costly = np.array([[100.0, 1000.0]])
    np.testing.assert_array_equal(eager._scalarise(gains, costly, half), patient._scalarise(gains, costly, half))


def test_the_critics_new_units_change_no_prediction() -> None:
    ppo = PPO(3, 2, PPOSettings(), seed=0)
    inputs = torch.randn(20, 3 + len(penalty_features(np.zeros(1, np.float32))[0]))
    ppo._rescale_critic(np.random.default_rng(0).normal([5, 1], [2, 1], (100, 2)))
    with torch.no_grad():
        before = ppo._values(ppo.critic(inputs).numpy())
        ppo._rescale_critic(np.random.default_rng(0).normal([500, 1], [90, 1], (100, 2)))
        after = ppo._values(ppo.critic(inputs).numpy())
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-3)


def test_learning_goes_on_from_its_state_bit_for_bit() -> None:
    def turns(ppo: PPO, numbers: range) -> None:
        for turn in numbers:
            ppo.update(*episodes(6), 1.0, np.random.default_rng(turn))

    straight, first = (PPO(3, 2, PPOSettings(epochs=2), seed=0) for _ in range(2))
    turns(straight, range(4))
    turns(first, range(2))
    second = PPO(3, 2, PPOSettings(epochs=2), seed=9)
    second.restore({name: tensor.clone() for name, tensor in first.state().items()})
    turns(second, range(2, 4))
    expected, found = straight.state(), second.state()
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name


def test_an_episode_is_determined_by_its_order() -> None:
    behaviour = PPO(3, 1, PPOSettings(), seed=0).behaviour()
    env = Environment(EnvSpec("tiny_envs:Road"))
    order = Order(0, seed=5, penalty=0.2, change_at=4, later_penalty=0.9, noise=1.2, random=0.3)
    first = order.play(env, behaviour)
    Order(0, seed=6, penalty=0.2).play(env, behaviour)
    again = order.play(env, behaviour)
    np.testing.assert_array_equal(again.observations, first.observations)
    np.testing.assert_array_equal(again.actions, first.actions)
    assert first.observations.shape == (21, 3)
    assert len(first) == 20


def test_the_penalty_changes_at_its_step_and_not_before() -> None:
    ppo = PPO(3, 1, PPOSettings(), seed=0)
    with torch.no_grad():
        ppo.actor[-1].weight.mul_(100)  # so that a change of the penalty is heard
    env = Environment(EnvSpec("tiny_envs:Road"))
    steady = Order(0, 5, 0.1, noise=0).play(env, ppo.behaviour())
    changed = Order(0, 5, 0.1, change_at=6, later_penalty=0.9, noise=0).play(env, ppo.behaviour())
    later = Order(0, 5, 0.9, noise=0).play(env, ppo.behaviour())
    np.testing.assert_array_equal(changed.actions[:6], steady.actions[:6])
    np.testing.assert_allclose(changed.actions[6:], later.actions[6:], atol=1e-6)
    assert (changed.actions[6:] != steady.actions[6:]).all()
