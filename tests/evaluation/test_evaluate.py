from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny_envs

from tracrl.envs.environment import Environment, EnvSpec
from tracrl.errors import TracrlError
from tracrl.evaluation.episode import EvaluationEpisode
from tracrl.evaluation.evaluate import Evaluator, episode_seeds, evaluate
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.mlp import MLPPolicy
from tracrl.processes import Processes


def random_stack(policies: int, observation: int, action: int) -> MLPPolicy:
    generator = np.random.default_rng(0)
    facts = PolicyMetadata("trac", (10.0,) * policies, tuple(range(policies)), (-1.0,) * action, (1.0,) * action)
    sizes = (observation, 16, action)
    tensors = {}
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        tensors[f"weight{i}"] = generator.normal(size=(policies, a, b)).astype(np.float32)
        tensors[f"bias{i}"] = generator.normal(size=(policies, 1, b)).astype(np.float32)
    return MLPPolicy(facts, tensors)


def test_scores_do_not_depend_on_the_number_of_processes() -> None:
    policy = random_stack(3, 8, 2)
    one = evaluate(policy, "CarCircle", episodes=7, seed=5, workers=1)
    three = evaluate(policy, "CarCircle", episodes=7, seed=5, workers=3)
    assert np.array_equal(one.returns, three.returns)
    assert np.array_equal(one.costs, three.costs)
    assert one.returns.shape == (3, 7)
    assert len(np.unique(one.returns)) > 15, "policies and episodes differ"


def test_the_processes_play_what_we_play_here() -> None:
    policy = random_stack(2, 7, 2)
    scores = evaluate(policy, "BallRun", episodes=2, seed=1, workers=1)
    env = Environment(EnvSpec("BallRun"))
    for run in range(2):
        for episode, seed in enumerate(episode_seeds(1, 2)):
            ours = EvaluationEpisode(run, seed).play(env, policy[run])
            assert ours == (scores.returns[run, episode], scores.costs[run, episode], scores.lengths[run, episode])
    env.close()


def test_another_seed_gives_other_episodes_and_a_longer_evaluation_begins_alike() -> None:
    assert episode_seeds(0, 5) == episode_seeds(0, 20)[:5]
    assert not set(episode_seeds(0, 20)) & set(episode_seeds(1, 20))


def test_a_pool_serves_many_evaluations_and_tells_its_progress() -> None:
    told: list[tuple[int, int]] = []
    with Evaluator("BallRun", episodes=6, workers=1) as evaluator:
        first = evaluator.evaluate(random_stack(1, 7, 2), progress=lambda *p: told.append(p))
        second = evaluator.evaluate(random_stack(1, 7, 2))
    assert np.array_equal(first.returns, second.returns)
    assert told == [(done, 6) for done in range(1, 7)]


def test_a_process_that_dies_is_said() -> None:
    class Broken(MLPPolicy):
        kind = "broken for a test"

        def __reduce__(self) -> tuple[object, ...]:
            return (exit, (3,))

    policy = random_stack(1, 7, 2)
    with pytest.raises(TracrlError, match="A simulator process of BallRun died"):
        evaluate(Broken(policy.metadata, policy.tensors), "BallRun", episodes=1, workers=1)


def test_a_policy_of_another_task_is_said() -> None:
    with pytest.raises(TracrlError, match="observations of size 8, but BallRun has 7"):
        evaluate(random_stack(1, 8, 2), "BallRun")


def test_no_episodes_is_said() -> None:
    with pytest.raises(TracrlError, match="--episodes is 0"):
        evaluate(random_stack(1, 7, 2), "BallRun", episodes=0)


def test_without_processes_nothing_is_scored() -> None:
    with pytest.raises(TracrlError, match="--workers is -1; expected at least 1"):
        evaluate(random_stack(1, 7, 2), "BallRun", episodes=1, workers=-1)
    with pytest.raises(TracrlError, match="No simulator process of BallRun is running"):
        list(Processes("tracrl.envs.worker", "BallRun").share_out([1], lambda _, job: job))


def test_final_episodes_are_not_those_that_choose_the_best_policy() -> None:
    assert not set(episode_seeds(0, 100)) & set(episode_seeds(0, 100, on_the_way=True))
    policy = random_stack(1, 3, 2)
    with Evaluator("tiny_envs:Field", episodes=3, workers=1) as evaluator:
        final, on_the_way = evaluator.evaluate(policy), evaluator.evaluate(policy, on_the_way=True)
    assert not np.isin(final.returns, on_the_way.returns).any()
    assert final.protocol is not None
    assert on_the_way.protocol is not None
    assert final.protocol.differences(on_the_way.protocol) == ["on the way False and True"]


def test_any_environment_by_name_class_or_function() -> None:
    policy = random_stack(2, 3, 2)
    named = evaluate(policy, "tiny_envs:Field", episodes=3, workers=1)
    assert named.task is None
    assert named.lengths.tolist() == [[10] * 3] * 2
    assert np.isnan(named.rewards).all()
    assert "normalised_reward" not in named.means()
    for env in (tiny_envs.Field, lambda: tiny_envs.Field(None)):
        assert np.array_equal(evaluate(policy, env, episodes=3, workers=1).returns, named.returns)

    class Local(tiny_envs.Field):
        """Can be imported by nobody."""

    assert np.array_equal(evaluate(policy, Local, episodes=3, workers=1).returns, named.returns)


def test_another_key_of_the_cost_and_another_end() -> None:
    spec = EnvSpec("tiny_envs:Field", cost_key="price", max_steps=4)
    scores = evaluate(random_stack(1, 3, 2), spec, episodes=2, workers=1)
    assert scores.costs.tolist() == [[8.0, 8.0]]
    assert scores.protocol is not None
    assert (scores.protocol.env, scores.protocol.cost_key, scores.protocol.max_steps) == ("tiny_envs:Field", "price", 4)


def test_scores_say_how_they_were_played() -> None:
    protocol = evaluate(random_stack(1, 7, 2), "BallRun", episodes=2, seed=3, workers=1).protocol
    assert protocol is not None
    assert (protocol.env, protocol.episodes, protocol.seed, protocol.on_the_way) == ("BallRun", 2, 3, False)
    assert {"tracrl", "python", "pybullet", "numpy", "gymnasium"} <= protocol.versions.keys()


@pytest.mark.parametrize(
    ("env", "low", "high", "words"),
    [
        ("tiny_envs:Road", (0.0, 0.0), (4.0, 4.0), "The policy's actions have size 2, but tiny_envs:Road takes 1"),
        ("tiny_envs:Field", (-2.0, -1.0), (2.0, 1.0), "beyond the action box of tiny_envs:Field"),
        ("tiny_envs:Raod", (-1.0, -1.0), (1.0, 1.0), "did you mean tiny_envs:Road"),
        (3, (-1.0, -1.0), (1.0, 1.0), "The environment is 3; expected a name, or a function or class that makes one"),
    ],
)
def test_an_environment_that_does_not_fit_is_said(
    env: Any, low: tuple[float, ...], high: tuple[float, ...], words: str
) -> None:
    policy = random_stack(1, 3, 2)
    metadata = replace(policy.metadata, action_low=low, action_high=high)
    with pytest.raises(TracrlError, match=words):
        evaluate(MLPPolicy(metadata, policy.tensors), env, workers=1)


def test_a_narrower_action_box_is_noted() -> None:
    policy = random_stack(1, 3, 2)
    metadata = replace(policy.metadata, action_low=(-0.5, -0.5), action_high=(0.5, 0.5))
    with pytest.warns(UserWarning, match="are its data in the same units"):
        evaluate(MLPPolicy(metadata, policy.tensors), "tiny_envs:Field", episodes=1, workers=1)


@pytest.mark.filterwarnings("error")
def test_data_of_the_very_task_may_use_a_part_of_its_box() -> None:
    policy = random_stack(1, 7, 2)
    metadata = replace(policy.metadata, action_low=(-0.5, -0.5), action_high=(0.5, 0.5), task="BallRun")
    evaluate(MLPPolicy(metadata, policy.tensors), "BallRun", episodes=1, workers=1)


@pytest.mark.parametrize(("option", "value"), [("episodes", 10**14), ("seed", -1)])
def test_absurd_numbers_are_said(option: str, value: int) -> None:
    with pytest.raises(TracrlError, match=f"--{option} is {value}; expected"):
        evaluate(random_stack(1, 7, 2), "BallRun", **{option: value})  # type: ignore[arg-type]
