"""Does a clone of a careful behaviour do on new maps what it learned on the old ones?

    python -m benchmarks.cloning_gap PointGoal1 --maps 50 100 200 400

A careful teacher that has practised, and is never lost, plays as many episodes as there are maps to learn from, and
some more to test with. BC-Safe (fast preset, standardised) clones the first so many; shown are its
error on these, on the maps that it has not seen, how much there was to explain (the variance of the teacher's actions
there), and what it costs and returns in new episodes.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from tracrl.collect.behaviour import Behaviour
from tracrl.collect.practised import CAREFUL_FROM, HIGHEST, practised, reach_of
from tracrl.collect.rollout import Order, Rollout, to_box
from tracrl.data.episodes import Episodes
from tracrl.envs.environment import Environment, EnvSpec
from tracrl.evaluation.evaluate import evaluate
from tracrl.methods.bc import BCSafe
from tracrl.train.fit import fit

LIMIT = 20.0
TEST_MAPS = 20


def play(env: Environment, teacher: Behaviour, seed: int) -> Rollout:
    """An episode with a care of its own, and some noise."""
    generator = np.random.default_rng(seed)
    penalty = generator.uniform(CAREFUL_FROM, HIGHEST)
    return Order(0, seed, float(penalty), noise=float(generator.uniform(0, 0.5))).play(env, teacher)


def as_data(env: Environment, rollouts: list[Rollout]) -> Episodes:
    episodes = [
        {
            "observations": rollout.observations[:-1],
            "actions": to_box(rollout.actions, env.low, env.high),
            "rewards": rollout.rewards,
            "costs": rollout.costs,
        }
        for rollout in rollouts
    ]
    return Episodes.from_episodes(episodes, action_low=env.low, action_high=env.high)


def measure(task: str, maps: list[int], updates: int, evaluated: int) -> None:
    env, teacher = Environment(EnvSpec(task, reach=reach_of(task))), replace(practised(task), share_lost=0.0)
    rollouts = [play(env, teacher, seed) for seed in range(max(maps) + TEST_MAPS)]
    costs = np.array([rollout.costs.sum() for rollout in rollouts])
    returns = np.array([rollout.rewards.sum() for rollout in rollouts])
    print(f"{task}: {len(rollouts)} episodes, careful ones: cost {costs.mean():.1f}, return {returns.mean():.1f}")
    test = as_data(env, rollouts[max(maps) :])
    for count in sorted(maps):
        data = as_data(env, rollouts[:count])
        method = BCSafe(updates=updates)
        policy = fit(method, data, limits=[LIMIT], device="cpu", standardise="on", progress=False).policy
        seen, new = (np.square(policy[0].act(part.observations) - part.actions).mean() for part in (data, test))
        scores = evaluate(policy, task, episodes=evaluated, workers=1)
        print(
            f"  {count} maps: error {seen:.3f} on them, {new:.3f} on new ones (variance there "
            f"{test.actions.var(0).mean():.3f}); cost {scores.costs.mean():.1f} (median {np.median(scores.costs):.0f}, "
            f"within {LIMIT:g}: {np.mean(scores.costs <= LIMIT):.0%}), return {scores.returns.mean():.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--maps", nargs="+", type=int, default=[50, 100, 200, 400])
    parser.add_argument("--updates", type=int, default=5_000)
    parser.add_argument("--episodes", type=int, default=40, help="to evaluate each clone")
    options = parser.parse_args()
    for task in options.tasks:
        measure(task, options.maps, options.updates, options.episodes)


if __name__ == "__main__":
    main()
