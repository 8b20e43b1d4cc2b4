"""The three simulators: what each is made of, whether it is there, and how to install it.

Their own declared pins exclude each other and today's Python, so the packages themselves are installed
without their dependencies, beside versions that were tried together. Nothing here imports a simulator.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tracrl.errors import TracrlError
from tracrl.tasks.table import Task, get_task


@dataclass(frozen=True)
class Simulator:
    """The facts of one simulator."""

    name: str
    suite: str
    """The suite in the table of tasks."""
    modules: tuple[str, ...]
    """All of these must be found for the simulator to count as installed."""
    dependencies: tuple[str, ...]
    packages: tuple[str, ...]
    """Installed without their declared dependencies."""


# DSRL recorded with mujoco 2.3.3: with it all 21 tasks are bit for bit DSRL's. It has no wheel for later
# Pythons. 3.1.6 differs in rounding, which grows over an episode, and has no wheel for 3.13. 3.3.7 also starts
# some episodes of Car and Ant otherwise.
DSRL_MUJOCO = "2.3.3"
if sys.version_info < (3, 12):
    MUJOCO = DSRL_MUJOCO
else:
    MUJOCO = "3.1.6" if sys.version_info < (3, 13) else "3.3.7"

SIMULATORS = {
    simulator.name: simulator
    for simulator in (
        Simulator(
            name="bullet",
            suite="Bullet",
            modules=("bullet_safety_gym", "pybullet"),
            dependencies=("pybullet==3.2.7",),
            packages=("bullet_safety_gym==1.4.0",),
        ),
        Simulator(
            name="safety-gymnasium",
            suite="SafetyGymnasium",
            modules=("safety_gymnasium", "mujoco"),
            dependencies=(f"mujoco=={MUJOCO}", "xmltodict>=0.13", "PyYAML>=6", "imageio>=2.34", "packaging>=23"),
            packages=("safety-gymnasium==1.0.0",),
        ),
        Simulator(
            name="metadrive",
            suite="MetaDrive",
            modules=("metadrive", "panda3d"),
            dependencies=(
                "panda3d==1.10.16",
                "panda3d-gltf==1.3.0",
                "pygame==2.6.1",
                "tqdm>=4.60",
            ),
            packages=("metadrive-simulator==0.2.6.0",),
        ),
    )
}


def simulator_of(task: str | Task) -> Simulator:
    """The simulator that runs ``task``."""
    suite = (get_task(task) if isinstance(task, str) else task).suite
    return next(simulator for simulator in SIMULATORS.values() if simulator.suite == suite)


def installed(name: str) -> bool:
    """Whether the simulator's modules can be found; imports none of them."""
    return all(importlib.util.find_spec(module) is not None for module in _get(name).modules)


def require(task: str | Task) -> None:
    """Raise a `TracrlError` that names the command to type if the simulator of ``task`` is missing."""
    task = get_task(task) if isinstance(task, str) else task
    name = simulator_of(task).name
    if not installed(name):
        raise TracrlError(
            f"{task.name}: the simulator {name} is not installed; install it with: tracrl sims install {name}"
        )


def install(names: Iterable[str], say: Callable[[str], None] = print) -> None:
    """Install the named simulators ("all" for the three) with pip into the running interpreter.

    What is already there in the right version is left alone, so repeating it does nothing.
    """
    wanted = list(dict.fromkeys(names))
    for simulator in [_get(name) for name in (SIMULATORS if "all" in wanted else wanted)]:
        dependencies = [pin for pin in simulator.dependencies if not _satisfied(pin)]
        packages = [pin for pin in simulator.packages if not _satisfied(pin)]
        if not dependencies and not packages:
            say(f"{simulator.name}: already installed ({', '.join(simulator.packages)})")
            continue
        if sys.version_info >= (3, 12) and any(pin.startswith("pybullet") for pin in dependencies):
            say(
                f"{simulator.name}: pybullet has no wheel for Python 3.12 or later; pip builds it, "
                "which takes about 10 minutes and needs a C++ compiler"
            )
        if MUJOCO != DSRL_MUJOCO and any(pin.startswith("mujoco") for pin in dependencies):
            say(
                f"{simulator.name}: mujoco {DSRL_MUJOCO}, with which DSRL recorded, has no wheel for this Python; "
                f"with {MUJOCO} episodes are not DSRL's to the last bit"
            )
        if dependencies:
            say(f"{simulator.name}: installing {', '.join(dependencies)}")
            _pip(simulator.name, dependencies)
        if packages:
            say(f"{simulator.name}: installing {', '.join(packages)} without its own pins")
            _pip(simulator.name, ["--no-deps", *packages])
        importlib.invalidate_caches()
        say(f"{simulator.name}: done")


def _get(name: str) -> Simulator:
    if name not in SIMULATORS:
        raise TracrlError(f"There is no simulator called {name!r}: choose from {', '.join(SIMULATORS)} or all.")
    return SIMULATORS[name]


def _satisfied(requirement: str) -> bool:
    """Whether a requirement is met. Only a pin with == is compared; with >= the presence is enough, pip
    having chosen the version when it was installed."""
    name, _, version = requirement.partition("==")
    try:
        found = importlib.metadata.version(name.partition(">=")[0])
    except importlib.metadata.PackageNotFoundError:
        return False
    return not version or found == version


def _pip(name: str, arguments: list[str]) -> None:
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "no message")
        raise TracrlError(f"pip could not install the simulator {name} ({' '.join(arguments)}): {reason}")
