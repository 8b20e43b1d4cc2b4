"""The eight BulletSafetyGym tasks (bullet_safety_gym 1.4.0 on pybullet 3.2.7)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tracrl.envs.adapter import SafeEnv
from tracrl.envs.quiet import quiet
from tracrl.tasks.table import Task

with quiet():
    import bullet_safety_gym  # noqa: F401  (registers the tasks)
    import pybullet
    from bullet_safety_gym.envs.builder import EnvironmentBuilder


class BulletEnv(SafeEnv):
    """A BulletSafetyGym task. An episode is the one that a fresh simulator plays after ``np.random.seed``."""

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        super().__init__(task, render_mode)
        builder = EnvironmentBuilder if render_mode else BlindBuilder
        with quiet(), global_numpy_seed(0):
            self._simulator = builder(**gymnasium.spec(f"Safety{task.name}-v0").kwargs)
        remember_functions(self._simulator.bc)

    def _begin(self, seed: int) -> NDArray[Any]:
        with global_numpy_seed(seed):
            rebuild(self._simulator)
            # Again, because building draws numbers too, and a user of the original seeds before the reset.
            np.random.seed(seed)  # noqa: NPY002
            # The simulator's own reset, less the saving of a state that is never restored.
            self._simulator.iteration = 0
            self._simulator.task.specific_reset()
            self._simulator.bc.stepSimulation()
        return self._simulator.get_observation()

    def _advance(self, action: NDArray[np.float64]) -> tuple[NDArray[Any], float, float, bool]:
        observation, reward, terminated, _, info = self._simulator.step(action)
        return observation, reward, info["cost"], bool(terminated)

    def _picture(self) -> NDArray[np.uint8]:
        with without_glow(self._simulator):
            return np.asarray(self._simulator.render(mode="rgb_array"), dtype=np.uint8)

    def _shut(self) -> None:
        self._simulator.close()


@contextmanager
def global_numpy_seed(seed: int) -> Iterator[None]:
    """Mend of bullet_safety_gym 1.4.0: ``reset(seed=...)`` is ignored, NumPy's global generator drawn from.

    It is seeded inside and left as it was found.
    """
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def remember_functions(client: Any) -> None:
    """Mend of pybullet 3.2.7: its client makes a function anew at each call, some fifty times a step."""
    for name, function in vars(pybullet).items():
        if inspect.isbuiltin(function) and name not in vars(client) and name != "disconnect":  # which does more
            setattr(client, name, functools.partial(function, physicsClientId=client._client))


@contextmanager
def without_glow(simulator: EnvironmentBuilder) -> Iterator[None]:
    """Mend of pybullet 3.2.7: its renderer without a screen knows no transparency.

    So the ball around the agent, invisible or half red, would hide the agent; it waits below the ground.
    """
    client, glow = simulator.bc, simulator.agent.violation_body_id
    place = client.getBasePositionAndOrientation(glow)
    client.resetBasePositionAndOrientation(glow, (0, 0, -1000), (0, 0, 0, 1))
    try:
        yield
    finally:
        client.resetBasePositionAndOrientation(glow, *place)


def rebuild(simulator: EnvironmentBuilder) -> None:
    """Mend of pybullet 3.2.7: restoring a state keeps the motors' last commands and the last contact points.

    So an episode would depend on the one before it. An empty world, built as the simulator builds its first
    one, does not; without the visual shapes that takes 3 to 12 ms.
    """
    client = simulator.bc
    client.resetSimulation()
    client.setPhysicsEngineParameter(
        fixedTimeStep=simulator.dt,
        numSubSteps=simulator.frame_skip,
        numSolverIterations=simulator.number_solver_iterations,
        deterministicOverlappingPairs=1,
    )
    client.setGravity(0, 0, -9.81)
    client.setDefaultContactERP(0.9)
    simulator._setup_simulation()


class BlindBuilder(EnvironmentBuilder):  # type: ignore[misc]
    """Mend of bullet_safety_gym 1.4.0: it reads meshes nobody sees, 0.1 s for a Car, 0.3 s for a Drone."""

    def _setup_client_and_physics(self, graphics: bool = False) -> Any:
        client = super()._setup_client_and_physics(graphics)
        load = client.loadURDF

        def load_without_visual_shapes(*arguments: Any, flags: int = 0, **options: Any) -> Any:
            return load(*arguments, flags=flags | pybullet.URDF_IGNORE_VISUAL_SHAPES, **options)

        client.loadURDF = load_without_visual_shapes
        return client
