"""The 21 SafetyGymnasium tasks (safety-gymnasium 1.0.0, whose episodes are those of DSRL's 0.4.0)."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import inspect
import itertools
import math
import os
import re
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracrl.envs.adapter import SafeEnv
from tracrl.envs.mending import register_without_init
from tracrl.envs.navigation import Observed, speed_up
from tracrl.envs.quiet import quiet
from tracrl.errors import TracrlError
from tracrl.tasks.table import Task

WIDTH, HEIGHT = 480, 360  # of a picture


class SafetyGymnasiumEnv(SafeEnv):
    """A navigation task (Point or Car) or a velocity task of SafetyGymnasium."""

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        super().__init__(task, render_mode)
        self._viewer: Any = None
        with quiet():
            make = make_velocity if task.name.endswith("Velocity") else make_navigation
            self._simulator = make(task.name)

    @property
    def parts(self) -> dict[str, slice]:
        """Of a navigation task: where in an observation each sensor's numbers are."""
        sizes = {name: math.prod(box.shape) for name, box in self._simulator.task.obs_info.obs_space_dict.items()}
        ends = itertools.accumulate(sizes.values())
        return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    def _begin(self, seed: int) -> NDArray[Any]:
        observation, _ = self._simulator.reset(seed=seed)
        return observation

    def _advance(self, action: NDArray[np.float64]) -> tuple[NDArray[Any], float, float, bool]:
        observation, reward, cost, terminated, _, _ = self._simulator.step(action)
        return observation, reward, cost, bool(terminated)

    def _picture(self) -> NDArray[np.uint8]:
        # A navigation task has a new model in every episode, a velocity task is the holder of its only one.
        world = getattr(self._simulator, "task", self._simulator)
        if self._viewer is None:
            self._viewer = make_viewer(world.model, world.data)
            # Also at the interpreter's end, where the viewer's own clean-up comes too late for OpenGL.
            self._close_viewer = weakref.finalize(self, self._viewer.close)
        self._viewer.model, self._viewer.data = world.model, world.data
        camera = world.model.camera("fixedfar" if world is not self._simulator else "track").id
        return np.asarray(self._viewer.render("rgb_array", camera_id=camera), dtype=np.uint8)

    def _shut(self) -> None:
        if self._viewer is not None:
            self._close_viewer()
        self._simulator.close()


def make_navigation(name: str) -> Any:
    """The simulator of a navigation task, such as PointGoal1."""
    builder = import_part("safety_gymnasium.builder")
    agent = re.findall("[A-Z][a-z]+", name)[0]
    simulator = builder.Builder(f"Safety{name}-v0", {"agent_name": agent})
    observed = simulator.task.obs_info
    observed.obs_space_dict = Observed(OrderedDict(observed.obs_space_dict.spaces))  # a plain one would be sorted
    build_first_world(simulator)
    return simulator


def make_velocity(name: str) -> Any:
    """The simulator of a velocity task, such as HopperVelocity."""
    snake = re.sub("(?<!^)([A-Z])", r"_\1", name).lower()
    module = import_part(f"safety_gymnasium.tasks.safe_velocity.safety_{snake}_v1")
    return getattr(module, f"Safety{name}Env")()


@functools.cache
def import_part(name: str) -> Any:
    """A module of the package, with the mends that its import needs.

    Mend of safety-gymnasium 1.0.0 for gymnasium >= 1.0: its ``__init__`` imports what is gone there
    (``gymnasium.wrappers.compatibility``), and a package that is not needed (gymnasium_robotics).
    """
    register_without_init("safety_gymnasium")
    with array_defaults():
        module = importlib.import_module(name)
        if name == "safety_gymnasium.builder":
            import_part("safety_gymnasium.world").yaml = AssetsReader
            import_part("safety_gymnasium.utils.random_generator").RandomGenerator.sample_layout = sample_layout
            unpack_joint_ids()
            speed_up(import_part)
    return module


@contextmanager
def array_defaults() -> Iterator[None]:
    """Mend of safety-gymnasium 1.0.0 for Python >= 3.11, which refuses arrays as defaults of a dataclass.

    While its modules are imported, such a default becomes a factory that returns the same array.
    """
    original = dataclasses.dataclass

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        if cls is None:
            return functools.partial(dataclass, **options)
        for name in inspect.get_annotations(cls):
            value = cls.__dict__.get(name)
            if isinstance(value, np.ndarray):
                setattr(cls, name, dataclasses.field(default_factory=functools.partial(np.asarray, value)))
        return original(cls, **options)

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = original


def unpack_joint_ids() -> None:
    """Mend of safety-gymnasium 1.0.0 for NumPy 2, where mujoco's ``jnt`` refuses an array of one number."""
    agent = import_part("safety_gymnasium.bases.base_agent").BaseAgent
    original = agent._init_jnt_sensors

    def init_jnt_sensors(self: Any) -> None:
        model = self.engine.model
        self.engine.model = JointsByArray(model)
        try:
            original(self)
        finally:
            self.engine.model = model

    agent._init_jnt_sensors = init_jnt_sensors


class JointsByArray:
    """A mujoco model whose joints may be asked for by an array of one number."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def jnt(self, index: Any) -> Any:
        return self._model.jnt(int(np.asarray(index).item()))


def build_first_world(simulator: Any) -> None:
    """Mend of safety-gymnasium 1.0.0: the first world is computed forward once, all later ones twice.

    The solver then starts from another guess, and the first episode differs in the last bits from the same
    seed's later. So the first world is never played.
    """
    simulator.reset(seed=0)


def sample_layout(generator: Any) -> bool:
    """Mend of safety-gymnasium 1.0.0, whose rejection sampling takes 0.2 to 0.4 s a reset of a Button task.

    The same draws and the same distances, one by one as plain numbers instead of arrays of two.
    """
    layout: dict[str, NDArray[np.float64]] = {}
    taken: list[tuple[float, float, float]] = []
    margin = generator.placements_margin
    for name, (placements, keepout) in generator.placements.items():
        for _ in range(100):
            spot = generator.draw_placement(placements, keepout)
            x, y = spot.tolist()
            for other_x, other_y, other_keepout in taken:
                dx, dy = x - other_x, y - other_y
                if math.sqrt(dx * dx + dy * dy) < other_keepout + margin + keepout:
                    break
            else:
                break
        else:
            return False
        layout[name] = spot
        taken.append((x, y, keepout))
    generator.layout = layout
    return True


class AssetsReader:
    """Mend of safety-gymnasium 1.0.0, which reads 24 MB of stars for the sky at every reset of a navigation task.

    It stands for the module ``yaml`` where the world is built: the list of assets is parsed once, and the sky
    is a small gradient without a file.
    """

    FullLoader = None

    @staticmethod
    def load(file: Any, Loader: Any) -> dict[str, Any]:
        assets = copy.deepcopy(read_assets(file.name))
        assets["textures"]["skybox"] = {
            "@type": "skybox",
            "@builtin": "gradient",
            "@rgb1": "0.6 0.7 0.8",
            "@rgb2": "0.2 0.3 0.4",
            "@width": "64",
            "@height": "64",
        }
        return assets


@functools.cache
def read_assets(path: str) -> dict[str, Any]:
    text = Path(path).read_text(encoding="utf-8")
    return importlib.import_module("yaml").safe_load(text)


def make_viewer(model: Any, data: Any) -> Any:
    """A viewer that needs no screen; ``MUJOCO_GL`` chooses its library (egl, osmesa or glfw)."""
    from gymnasium.envs.mujoco.mujoco_rendering import OffScreenViewer

    model.vis.global_.offwidth, model.vis.global_.offheight = WIDTH, HEIGHT
    chosen = os.environ.get("MUJOCO_GL")
    # Without a choice the viewer would try glfw first, which needs a screen.
    for library in [chosen] if chosen else ["egl", "osmesa", "glfw"]:
        try:
            os.environ["MUJOCO_GL"] = library
            with quiet():
                viewer = OffScreenViewer(model, data, WIDTH, HEIGHT)
        except Exception:  # whatever the library raises: it is not there or finds no device
            continue
        finally:
            if chosen is None:
                del os.environ["MUJOCO_GL"]
        # All kinds of obstacles are shown; mujoco hides three by default.
        whole(viewer.vopt.geomgroup)[:] = 1
        return viewer
    raise TracrlError(
        "SafetyGymnasium finds no OpenGL that works without a screen; install the system's libegl1 or "
        "libosmesa6, or set MUJOCO_GL to egl, osmesa or glfw."
    )


def whole(array: NDArray[Any]) -> NDArray[Any]:
    """Mend of mujoco 2.3.3 for NumPy 2: a small array of its structures shows its first number everywhere.

    It was compiled for NumPy 1, where the size of a number, and so the stride, is kept elsewhere. The large
    arrays of the model and the state have explicit strides and are right.
    """
    return np.lib.stride_tricks.as_strided(array, strides=(array.itemsize,))
