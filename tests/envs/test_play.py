from __future__ import annotations

import numpy as np
from tiny_envs import Field, Road

from tracrl.envs.environment import Environment, EnvSpec
from tracrl.envs.play import actor_seed_of, play


class Draws:
    """Acts at random, from a generator of its seed, and keeps account."""

    def reset(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.told: list[tuple[float, float]] = []
        self.drawn: list[float] = []

    def act(self, observation: np.ndarray) -> np.ndarray:
        self.drawn.append(self.generator.normal())
        return np.tanh(np.full(2, self.drawn[-1]))

    def observe(self, reward: float, cost: float) -> None:
        self.told.append((reward, cost))


def test_an_episode_ends_with_its_last_step_and_the_actor_is_told_all_of_it() -> None:
    actor = Draws()
    steps = list(play(Environment(EnvSpec.of(Field)), actor, 3, 4))
    assert [step.truncated for step in steps] == [False] * 9 + [True]
    assert actor.told == [(step.reward, step.cost) for step in steps]
    assert steps[0].observation.dtype == np.float32


def test_policies_that_draw_do_not_draw_the_environments_own_numbers() -> None:
    """Seeded alike, the actor would draw what the environment draws, number for number."""
    for seed in (0, 1, 2**32 - 1):
        actor = Draws()
        seen = [step.observation for step in play(Environment(EnvSpec.of(Field)), actor, seed, actor_seed_of(seed))]
        environment = np.random.default_rng(seed).normal(size=40)
        np.testing.assert_allclose(seen[0], environment[3:6], rtol=1e-6)  # the first three begin the episode
        assert not np.isclose(environment[:, None], np.array(actor.drawn)).any()


def test_actions_are_cut_to_the_box_in_the_environments_own_units() -> None:
    env = Environment(EnvSpec.of(Road))
    env.reset(0)
    _, reward, _, _, _ = env.step(np.array([99.0], np.float32))
    assert 3.5 <= reward <= 4.5, "the box of a Road ends at 4"
