from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from typing import Any

import pytest

from tracrl.envs import simulators
from tracrl.envs.make import make_env, make_vec_env
from tracrl.errors import TracrlError
from tracrl.tasks.table import SUITES, all_tasks


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> Any:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(importlib.metadata, "version", absent)


class Pip:
    """Stands for pip: keeps the commands, answers with one exit status."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: int = 0, stderr: str = "") -> None:
        self.commands: list[list[str]] = []

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            self.commands.append(command)
            return subprocess.CompletedProcess(command, status, "", stderr)

        monkeypatch.setattr(subprocess, "run", run)


def test_each_suite_has_one_simulator() -> None:
    assert sorted(simulator.suite for simulator in simulators.SIMULATORS.values()) == sorted(SUITES)
    assert {simulators.simulator_of(task).name for task in all_tasks()} == set(simulators.SIMULATORS)


def test_importing_the_tasks_imports_neither_torch_nor_a_simulator() -> None:
    code = (
        "import sys, tracrl, tracrl.envs.make, tracrl.envs.simulators\n"
        "from tracrl.envs.simulators import SIMULATORS, installed\n"
        "[installed(name) for name in SIMULATORS]\n"
        "heavy = {'torch', 'pybullet', 'bullet_safety_gym', 'mujoco', 'safety_gymnasium', 'metadrive'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("task", "name"), [("BallRun", "bullet"), ("PointGoal1", "safety-gymnasium"), ("easymean", "metadrive")]
)
def test_a_missing_simulator_is_answered_with_the_command_that_installs_it(task: str, name: str) -> None:
    assert not simulators.installed(name)
    message = f"simulator {name} is not installed; install it with: tracrl sims install {name}"
    with pytest.raises(TracrlError, match=message):
        make_env(task)
    with pytest.raises(TracrlError, match=message):
        make_vec_env(task, 2)


@pytest.mark.usefixtures("nothing_installed")
def test_install_runs_pip_for_the_dependencies_and_then_for_the_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pip, said = Pip(monkeypatch), []
    simulators.install(["bullet"], say=said.append)
    assert [command[0] for command in pip.commands] == [sys.executable] * 2
    dependencies, packages = pip.commands
    assert "pybullet==3.2.7" in dependencies
    assert "--no-deps" not in dependencies
    assert packages[-2:] == ["--no-deps", "bullet_safety_gym==1.4.0"]
    assert "bullet: installing pybullet==3.2.7" in said
    assert said[-1] == "bullet: done"


@pytest.mark.usefixtures("nothing_installed")
def test_install_all_means_the_three(monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(monkeypatch)
    simulators.install(["all"], say=lambda _: None)
    assert len(pip.commands) == 6


def test_repeating_an_installation_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = [pin for sim in simulators.SIMULATORS.values() for pin in sim.dependencies + sim.packages]
    versions = {pin.split("==")[0]: pin.split("==")[1] for pin in pins if "==" in pin}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: versions.get(name, "1"))
    pip, said = Pip(monkeypatch), []
    simulators.install(["all"], say=said.append)
    assert pip.commands == []
    assert len([line for line in said if "already installed" in line]) == 3


def test_another_version_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.0.1")
    pip = Pip(monkeypatch)
    simulators.install(["bullet"], say=lambda _: None)
    assert [command[-1] for command in pip.commands] == ["pybullet==3.2.7", "bullet_safety_gym==1.4.0"]


@pytest.mark.usefixtures("nothing_installed")
def test_a_failing_pip_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    Pip(monkeypatch, status=1, stderr="Looking\nERROR: No matching distribution found for pybullet\nmore\n")
    with pytest.raises(TracrlError, match="could not install the simulator bullet") as caught:
        simulators.install(["bullet"], say=lambda _: None)
    assert "No matching distribution" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("nothing_installed")
def test_where_pybullet_has_no_wheel_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Pip(monkeypatch)
    for version, told in (((3, 11, 7), False), ((3, 12, 1), True)):
        said: list[str] = []
        monkeypatch.setattr(sys, "version_info", version)
        simulators.install(["bullet"], say=said.append)
        assert any("C++ compiler" in line for line in said) is told


@pytest.mark.usefixtures("nothing_installed")
def test_where_mujoco_is_not_that_of_dsrl_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Pip(monkeypatch)
    for version, told in (("2.3.3", False), ("3.1.6", True)):
        said: list[str] = []
        monkeypatch.setattr(simulators, "MUJOCO", version)
        simulators.install(["safety-gymnasium"], say=said.append)
        assert any("not DSRL's to the last bit" in line for line in said) is told


def test_an_unknown_simulator_is_named() -> None:
    with pytest.raises(TracrlError, match="no simulator called 'mujoco': choose from bullet"):
        simulators.install(["mujoco"])
