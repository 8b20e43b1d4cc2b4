"""The processes of a study: how a worker is started, and how it says that it has ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from tracrl.methods.registry import how_to_import
from tracrl.processes import limited_to, python_command
from tracrl.study.collecting import CollectionSpec
from tracrl.study.store import Assignment, Job, Outcome, Store


@dataclass(frozen=True)
class Outside:
    """What a worker is told to import: a file never says it."""

    method: str | None = None
    env: str | None = None

    @classmethod
    def of(cls, job: Job) -> Outside:
        if isinstance(job, CollectionSpec):
            return cls()
        return cls(how_to_import(type(job.method)), None if job.env is None else job.env.name)

    @property
    def options(self) -> list[str]:
        given = {"--method": self.method, "--env": self.env}
        return [word for option, name in given.items() if name is not None for word in (option, name)]


def start_worker(
    assignment: Assignment,
    store: Store,
    *,
    device: str,
    cores: tuple[int, ...],
    outside: Outside | None = None,
    gpu: int | None = None,
    patience: float = 0.0,
    checkpoint_seconds: float = 60.0,
    calibrate: bool = False,
) -> subprocess.Popen[str]:
    """A process at work on one stack, on these cores, in a session of its own: Ctrl-C is for us alone."""
    environment = limited_to(len(cores))
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = _visible(gpu, os.environ)
    command = python_command("tracrl.study.worker", str(assignment.path), "--out", str(store.path))
    command += ["--device", device, "--cores", str(len(cores)), "--patience", str(patience)]
    command += ["--checkpoint-seconds", str(checkpoint_seconds), "--parent", str(os.getpid())]
    command += outside.options if outside is not None else []
    process = subprocess.Popen(
        command + (["--calibrate"] if calibrate else []),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    )
    with contextlib.suppress(OSError):  # gone already, or not allowed: then it shares all cores
        os.sched_setaffinity(process.pid, cores)
    return process


def outcome_of(process: subprocess.Popen[str]) -> Outcome:
    """How a process that has ended says it ended, or what its end says."""
    assert process.stdout is not None
    with process.stdout as said:
        lines = said.read().splitlines()
    if lines:
        with contextlib.suppress(ValueError, TypeError):
            return Outcome(**json.loads(lines[-1]))
    code = process.returncode
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (out of memory, if nobody did it on purpose)" if -code == signal.SIGKILL else ""
        return Outcome("failed", f"Its process was killed by {name}{hint}.", final=False)
    return Outcome("failed", f"Its process ended with status {code} and said nothing.", final=False)


def _visible(gpu: int, environment: Mapping[str, str]) -> str:
    """The name of our n-th GPU where only some of the machine's are ours."""
    given = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return given[gpu] if gpu < len(given) else str(gpu)
