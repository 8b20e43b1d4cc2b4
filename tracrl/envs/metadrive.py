"""The nine MetaDrive tasks with DSRL's settings (metadrive-simulator 0.2.6.0)."""

from __future__ import annotations

import atexit
import functools
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tracrl.envs.adapter import SafeEnv
from tracrl.envs.mending import register_without_init, stand_ins
from tracrl.envs.metadrive_speed import speed_up
from tracrl.envs.quiet import quiet
from tracrl.errors import TracrlError
from tracrl.tasks.table import Task

if TYPE_CHECKING:
    from tracrl.envs.topdown import RoadPainter

# The road of a task: the seed of its map and its blocks (Straight, Curve, X and T crossing, Ramp, rOundabout).
ROADS = {"easy": (0, "SCS"), "medium": (100, "XST"), "hard": (200, "TRO")}
DENSITIES = {"sparse": 0.1, "mean": 0.15, "dense": 0.2}
LASERS = 240  # the last numbers of an observation: distances, 1 is none within reach


class MetaDriveEnv(SafeEnv):
    """A road of MetaDrive with its traffic. A process can run one at a time."""

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        super().__init__(task, render_mode)
        self._closed = True  # nothing to close yet
        self._painter: RoadPainter | None = None
        with quiet():
            part = import_parts()
            if part("metadrive.engine.engine_utils").engine_initialized():
                raise TracrlError(
                    f"{task.name}: this process runs a MetaDrive task already; close that one first, or use "
                    "make_vec_env, which gives each its own process."
                )
            self._simulator = part("metadrive.envs.safe_metadrive_env").SafeMetaDriveEnv(settings(task.name))
            self._simulator.lazy_init()
            self._generator = part("metadrive.utils.random_utils").get_np_random
        self._closed = False

    @property
    def vehicle(self) -> Any:
        """The car that is driven, as MetaDrive has it."""
        return self._simulator.vehicle

    def _begin(self, seed: int) -> NDArray[Any]:
        seed_traffic(self._simulator, self._generator(seed))
        return self._simulator.reset()

    def _advance(self, action: NDArray[np.float64]) -> tuple[NDArray[Any], float, float, bool]:
        observation, reward, _, info = self._simulator.step(action)
        # DSRL's cost: that of the simulator (1 for a crash or leaving the road), km/h above 10, and nearness.
        nearest = float(np.min(observation[-LASERS:]))
        cost = info["cost"] + max(0.0, 0.01 * (info["velocity"] - 10.0)) + 0.01 * max(0.0, 0.1 - nearest) ** 2
        over = info["arrive_dest"] or info["crash"] or info["out_of_road"]
        return observation, reward, cost, bool(over)

    def _picture(self) -> NDArray[np.uint8]:
        if self._painter is None:  # a task has one map
            from tracrl.envs.topdown import RoadPainter

            self._painter = RoadPainter(self._simulator.current_map)
        agent = self.vehicle
        cars = self._simulator.engine.traffic_manager.vehicles
        return self._painter.paint(agent, [car for car in cars if car is not agent])

    def _shut(self) -> None:
        self._simulator.close()


def settings(name: str) -> dict[str, Any]:
    """DSRL's settings of a task, and one of ours."""
    road = next(road for road in ROADS if name.startswith(road))
    start_seed, blocks = ROADS[road]
    return {
        "start_seed": start_seed,
        "environment_num": 1,
        "map": 3,
        "map_config": {"type": "block_sequence", "config": blocks},
        "traffic_density": DENSITIES[name.removeprefix(road)],
        "traffic_mode": "hybrid",
        "random_traffic": True,
        "accident_prob": 0.0,
        "crash_vehicle_penalty": 0.0,
        "horizon": 1000,
        # Mend of metadrive-simulator 0.2.6.0: by default the cars of an episode are parked and driven again in
        # the next, with the last state of their wheels, which shows after some ten steps.
        "force_destroy": True,
    }


def seed_traffic(simulator: Any, generator: np.random.RandomState) -> None:
    """Mend of metadrive-simulator 0.2.6.0: random traffic ignores every seed. (A reset seeds the rest.)"""
    simulator.engine.traffic_manager.np_random = generator


@functools.cache
def import_parts() -> Any:
    """Import what is needed of the package, mended; returns the function that gives a module of it.

    Mend of metadrive-simulator 0.2.6.0: the ``__init__`` of the package and of its environments import all
    there is, among it generated code that today's protobuf refuses and half a second of plotting.
    """
    for package in ("metadrive", "metadrive.envs"):
        register_without_init(package)
    with stand_ins({"gym": gym_over_gymnasium(), "gym.spaces": gymnasium.spaces, "seaborn": colours()}):
        importlib.import_module("metadrive.envs.safe_metadrive_env")
    old_numpy_names()
    speed_up(importlib.import_module)
    # Mend of panda3d 1.10.16: an engine that is still open when the interpreter ends crashes it.
    atexit.register(importlib.import_module("metadrive.engine.engine_utils").close_engine)
    return importlib.import_module


def gym_over_gymnasium() -> ModuleType:
    """Mend of metadrive-simulator 0.2.6.0: it imports the old gym, of which it uses three names."""
    gym = ModuleType("gym")
    gym.__dict__.update(Env=gymnasium.Env, Space=gymnasium.Space, spaces=gymnasium.spaces)
    return gym


def colours() -> ModuleType:
    """Mend of metadrive-simulator 0.2.6.0: it imports seaborn, and with it pandas, for the colours of cars."""
    colour_blind = bytes.fromhex("0173b2 de8f05 029e73 d55e00 cc78bc ca9161 fbafe4 949494 ece133 56b4e9")
    seaborn = ModuleType("seaborn")
    seaborn.__dict__["color_palette"] = lambda _: [
        tuple(part / 255 for part in colour_blind[at : at + 3]) for at in range(0, len(colour_blind), 3)
    ]
    return seaborn


def old_numpy_names() -> None:
    """Mend of metadrive-simulator 0.2.6.0 for NumPy >= 1.24, which has no ``np.float`` and ``np.int``.

    DSRL's fork has float32 and int64 in their places.
    """
    numpy = ModuleType("numpy")
    numpy.__dict__.update(vars(np), float=np.float32, int=np.int64)
    for module in ("metadrive.utils.math_utils", "metadrive.utils.config"):
        importlib.import_module(module).__dict__["np"] = numpy
