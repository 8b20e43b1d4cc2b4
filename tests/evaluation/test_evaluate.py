from __future__ import annotations

import itertools

import numpy as np
import pytest

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
