"""One episode of an evaluation. It is played in simulator processes, which need nothing else of this package."""

from __future__ import annotations

from dataclasses import dataclass

from tracrl.envs.environment import Environment
from tracrl.envs.play import Actor, actor_seed_of, play

Outcome = tuple[float, float, int]
"""return, cost, steps"""


@dataclass(frozen=True)
class EvaluationEpisode:
    """The episode of a seed, for the policy at a place of the stack."""

    actor: int
    seed: int

    def play(self, env: Environment, policy: Actor) -> Outcome:
        total_reward, total_cost, steps = 0.0, 0.0, 0
        for step in play(env, policy, self.seed, actor_seed_of(self.seed)):
            total_reward += step.reward
            total_cost += step.cost
            steps += 1
        return total_reward, total_cost, steps
