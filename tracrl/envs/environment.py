"""Any environment to act in: one of the tasks, or anybody's own Gymnasium environment that reports a cost."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
import math
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import tracrl
from tracrl.envs.make import make_env
from tracrl.envs.simulators import SIMULATORS, simulator_of
from tracrl.errors import TracrlError
from tracrl.tasks.table import all_tasks, get_task

Floats = NDArray[np.float32]

LONGEST = 10_000
"""An environment without a time limit may run so many steps before it is asked for one."""


@dataclass(frozen=True)
class EnvSpec:
    """Which environment: a task's name, a Gymnasium id, ``module:Class`` / ``module:EnvId``, or what makes one."""

    name: str
    cost_key: str = "cost"
    """the key of ``info`` that holds a step's cost"""
    max_steps: int | None = None
    """cut episodes after so many steps; None: the environment's own limit"""
    factory: Callable[[], gymnasium.Env[Any, Any]] | None = field(default=None, repr=False)
    """makes the environment, in place of its name"""
    reach: tuple[float, ...] | None = None
    """act in the middle of the action box alone: a share of it for each number of an action"""

    @classmethod
    def of(cls, named: str | EnvSpec | Callable[[], gymnasium.Env[Any, Any]]) -> EnvSpec:
        """A task by its bare name, everything else by what a name with ``:`` or ``-v0`` says; a callable makes it."""
        if not isinstance(named, str | EnvSpec):
            return cls._of_factory(named)
        spec = named if isinstance(named, EnvSpec) else cls(named)
        if not spec.name:
            raise TracrlError("No environment is named; expected a task such as BallRun, or an environment.")
        if spec.max_steps is not None and spec.max_steps < 1:
            raise TracrlError(f"--max-steps is {spec.max_steps}; expected at least 1.")
        known = spec.is_task or spec.factory is not None
        if not known and ":" not in spec.name and not re.search(r"-v\d+$", spec.name):
            get_task(spec.name)  # raises, and names the tasks that look like it
        return spec

    @classmethod
    def _of_factory(cls, factory: Callable[[], gymnasium.Env[Any, Any]]) -> EnvSpec:
        if isinstance(factory, gymnasium.Env) or not callable(factory):
            raise TracrlError(
                f"The environment is {factory!r}; expected a name, or a function or class that makes one: "
                "simulator processes make their own."
            )
        called = getattr(factory, "func", factory)  # what a functools.partial calls
        name = getattr(called, "__qualname__", type(called).__qualname__)
        return cls(f"{getattr(called, '__module__', None) or '__main__'}:{name}", factory=factory)

    def to_dict(self) -> dict[str, Any]:
        """All but the factory, as plain values."""
        values = {"name": self.name, "cost_key": self.cost_key, "max_steps": self.max_steps}
        return values if self.reach is None else {**values, "reach": list(self.reach)}

    @property
    def is_task(self) -> bool:
        return self.factory is None and self.name in all_tasks()

    @property
    def task(self) -> str | None:
        """The task's name; None for any other environment."""
        return self.name if self.is_task else None


@dataclass(frozen=True)
class EnvInfo:
    """What the parent process needs to know about an environment that it never makes itself."""

    observation_size: int
    action_low: Floats
    action_high: Floats
    max_steps: int | None
    versions: dict[str, str]

    @property
    def action_size(self) -> int:
        return len(self.action_low)


class Environment:
    """An environment with flat float32 observations, actions cut to its box, and a checked cost for each step."""

    def __init__(
        self, spec: EnvSpec, *, env: gymnasium.Env[Any, Any] | None = None, render_mode: str | None = None
    ) -> None:
        """``env`` is one that was made already, in place of the one that the ``spec`` names."""
        self.spec = spec
        self.env = env if env is not None else _make(spec, render_mode)
        self.low, self.high = _within(_action_box(spec.name, self.env.action_space), spec.reach)
        self._dtype = self.env.action_space.dtype
        self._shape = self.env.action_space.shape
        size = _observation_size(spec.name, self.env.observation_space)
        self.info = EnvInfo(size, self.low, self.high, self._time_limit(), _versions(spec))
        self.steps = 0

    def reset(self, seed: int) -> Floats:
        observation, _ = self.env.reset(seed=seed)
        self.steps = 0
        return self._flat(observation)

    def step(self, action: Floats) -> tuple[Floats, float, float, bool, bool]:
        """Act in the environment's own units: observation, reward, cost, terminated, truncated."""
        command = np.minimum(np.maximum(action, self.low), self.high)
        if not math.isfinite(command.sum()) and not np.isfinite(command).all():
            raise TracrlError(
                f"{self.spec.name}: the action of step {self.steps + 1} is {np.asarray(action).tolist()}; "
                "expected finite numbers."
            )
        observation, reward, terminated, truncated, info = self.env.step(
            command.reshape(self._shape).astype(self._dtype, copy=False)
        )
        self.steps += 1
        cost = self._cost(info)
        reward = float(reward)
        if not math.isfinite(reward):
            raise TracrlError(
                f"{self.spec.name}: the reward of step {self.steps} is {reward}; expected a finite number."
            )
        limit = self.info.max_steps
        if self.steps >= (limit or LONGEST) and not terminated and not truncated:
            if limit is None:
                raise TracrlError(
                    f"{self.spec.name}: an episode ran {LONGEST:,} steps without an end; "
                    "say after how many steps it is cut, with --max-steps."
                )
            truncated = True
        return self._flat(observation), reward, cost, bool(terminated), bool(truncated)

    def close(self) -> None:
        self.env.close()

    def _time_limit(self) -> int | None:
        of_task = get_task(self.spec.name).max_steps if self.spec.is_task else None
        known = of_task or getattr(self.env.spec, "max_episode_steps", None)
        return min((limit for limit in (known, self.spec.max_steps) if limit is not None), default=None)

    def _flat(self, observation: Any) -> Floats:
        flat = np.asarray(observation, np.float32).reshape(-1)
        if len(flat) != self.info.observation_size:
            raise TracrlError(
                f"{self.spec.name}: the observation after step {self.steps} has {len(flat)} numbers, but the "
                f"observation space says {self.info.observation_size}."
            )
        # A sum is infinite or NaN if any number is, and costs a tenth of isfinite().all().
        if not math.isfinite(flat.sum()) and not np.isfinite(flat).all():
            where = int(np.argmin(np.isfinite(flat)))
            raise TracrlError(
                f"{self.spec.name}: the observation after step {self.steps} holds {flat[where]} at index {where}; "
                "expected finite numbers: mend the environment, or end the episode before that happens."
            )
        return flat

    def _cost(self, info: dict[str, Any]) -> float:
        try:
            cost = float(info[self.spec.cost_key])
        except KeyError:
            found = ", ".join(repr(key) for key in info) or "nothing"
            raise TracrlError(
                f"{self.spec.name}: info has no {self.spec.cost_key!r} after step {self.steps} (it holds {found}); "
                "put each step's cost there, or name the key that holds it with --cost-key."
            ) from None
        except (TypeError, ValueError):
            value = info[self.spec.cost_key]
            raise TracrlError(
                f"{self.spec.name}: info[{self.spec.cost_key!r}] is {value!r} after step {self.steps}; "
                "expected a number."
            ) from None
        if not 0 <= cost < np.inf:
            raise TracrlError(
                f"{self.spec.name}: info[{self.spec.cost_key!r}] is {cost} after step {self.steps}; "
                "a cost must be finite and 0 or more."
            )
        return cost


def _make(spec: EnvSpec, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    if spec.is_task:
        return make_env(spec.name, render_mode)
    options = {} if render_mode is None else {"render_mode": render_mode}
    if spec.factory is not None:
        return _called(spec.factory, spec.name, options)
    return _named(spec.name, options)


def _named(name: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """A Gymnasium id, with the module that registers it before a colon, or a class in that module."""
    module_name, _, wanted = name.rpartition(":")
    if module_name:
        module = _import(module_name, name)
        maker = getattr(module, wanted, None)
        if callable(maker):
            return _called(maker, name, options)
        if wanted not in gymnasium.registry:
            offered = [key for key, value in vars(module).items() if _is_environment(value)]
            near = difflib.get_close_matches(wanted, [*offered, *gymnasium.registry], n=1, cutoff=0.6)
            hint = f"did you mean {module_name}:{near[0]}?" if near else "expected a class or an id that it registers."
            raise TracrlError(f"The module {module_name} has no class {wanted} and registers no such id: {hint}")
    try:
        # The checker warns about what we check ourselves; its passive wrapper costs time at each step.
        return gymnasium.make(wanted, disable_env_checker=True, **options)
    except gymnasium.error.UnregisteredEnv as error:
        raise TracrlError(
            f"Gymnasium knows no environment {wanted!r}: {str(error).rstrip('.')}; if a module registers it, name the "
            f"module too, as in my_module:{wanted}."
        ) from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise TracrlError(f"{name} needs a package that is not installed: {error}") from error


def _called(maker: Callable[..., Any], name: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        inspect.signature(maker).bind(**options)
    except TypeError as error:
        if options:
            raise TracrlError(f"{name} draws no pictures: it takes no {' and no '.join(options)} ({error}).") from error
        raise TracrlError(
            f"{name} cannot be made without arguments ({error}): "
            "name a function that needs none and makes the environment."
        ) from error
    except ValueError:  # a class written in C, whose signature is not known
        pass
    made = maker(**options)
    if not isinstance(made, gymnasium.Env):
        raise TracrlError(f"{name} makes a {type(made).__name__}; expected a gymnasium.Env.")
    return made


def _import(module_name: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise TracrlError(f"{name}: importing {module_name} failed, it needs the module {error.name}.") from error
        raise TracrlError(
            f"{name}: there is no module {error.name}; install its package, or start in the directory that holds it."
        ) from error
    except ValueError as error:
        raise TracrlError(f"{name} does not name an environment; expected module:Class or module:EnvId.") from error


def _is_environment(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, gymnasium.Env)


def _action_box(name: str, space: gymnasium.Space[Any]) -> tuple[Floats, Floats]:
    if not isinstance(space, gymnasium.spaces.Box):
        raise TracrlError(
            f"{name}: the action space is {space}; only continuous actions, a gymnasium.spaces.Box, are supported."
        )
    low, high = (np.asarray(end, np.float32).reshape(-1) for end in (space.low, space.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise TracrlError(
            f"{name}: the action box runs from {low.tolist()} to {high.tolist()}; every end must be finite and every "
            "low end below its high end: give the environment bounds that it really uses."
        )
    return low, high


def _within(box: tuple[Floats, Floats], reach: tuple[float, ...] | None) -> tuple[Floats, Floats]:
    low, high = box
    if reach is None:
        return box
    middle, half = (low + high) / np.float32(2), (high - low) / np.float32(2) * np.array(reach, np.float32)
    return middle - half, middle + half


def _observation_size(name: str, space: gymnasium.Space[Any]) -> int:
    if not isinstance(space, gymnasium.spaces.Box):
        raise TracrlError(
            f"{name}: the observation space is {space}; expected a gymnasium.spaces.Box: wrap the environment, for one "
            "in gymnasium.wrappers.FlattenObservation."
        )
    return int(np.prod(space.shape))


def _versions(spec: EnvSpec) -> dict[str, str]:
    """The versions of everything that shapes an episode."""
    names = ["numpy", "gymnasium"]
    if spec.is_task:
        simulator = SIMULATORS[simulator_of(spec.name).name]
        names += [re.split("[=>]", pin)[0] for pin in (*simulator.packages, *simulator.dependencies[:1])]
    found = {"tracrl": tracrl.__version__, "python": platform.python_version()}
    if not spec.is_task and ":" in spec.name:
        top = spec.name.partition(":")[0].partition(".")[0]
        if version := getattr(sys.modules.get(top), "__version__", None):
            found[top] = str(version)
        names += importlib.metadata.packages_distributions().get(top, [])[:1]
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
