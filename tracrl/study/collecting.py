"""A data set that a study makes first: where a task has none, collecting it is a job like any other."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tracrl.data.hdf5 import is_file
from tracrl.data.locate import cache_directory, expanded
from tracrl.errors import TracrlError

STEPS = 1_000_000
EPISODES = 1_000
SECONDS_BETWEEN_REPORTS = 1.0


@dataclass(frozen=True)
class CollectionSpec:
    """One data set: whose, how much of it, and where it will lie."""

    task: str
    file: str
    """where the study, and every other command, finds it again"""
    steps: int = STEPS
    episodes: int = EPISODES

    @classmethod
    def of(cls, task: str, steps: int | None, episodes: int | None) -> CollectionSpec:
        return cls(task, str(data_place() / f"{task}.hdf5"), steps or STEPS, episodes or EPISODES)

    @property
    def name(self) -> str:
        return f"{self.task}-data"

    @property
    def title(self) -> str:
        """For people."""
        return f"Collecting {self.task}"

    @property
    def parts(self) -> Path:
        """What a stopped collection goes on from."""
        return Path(f"{self.file}.part")

    @property
    def claim(self) -> Path:
        return self.parts / "claim.json"

    @property
    def started(self) -> bool:
        return any(self.parts.glob("*.safetensors"))

    @property
    def done(self) -> bool:
        return is_file(Path(self.file))

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> CollectionSpec:
        try:
            return cls(str(value["task"]), str(value["file"]), int(value["steps"]), int(value["episodes"]))
        except (KeyError, TypeError, ValueError) as error:
            raise TracrlError(f"This collection was not written by tracrl, or was edited ({error!r}).") from error

    def kind(self) -> dict[str, Any]:
        """What its cost depends on."""
        return {"task": self.task, "method": "collect", "steps": self.steps, "episodes": self.episodes}


def data_place() -> Path:
    """Where collected data go: the first place that is searched for data and that is ours to write to."""
    if directory := os.environ.get("DSRL_DATASET_DIR"):
        return expanded(directory).absolute()
    return cache_directory().absolute()


def collect_data(spec: CollectionSpec, report: Report) -> None:
    """Collect it to the end, from wherever it is."""
    from tracrl.collect.run import collect

    if spec.done:  # somebody else has been here since it was planned
        return
    collect(
        spec.task,
        steps=spec.steps,
        episodes=spec.episodes,
        out=spec.file,
        workers=report.cores,
        resume=True,
        compact=True,
        progress=report,
    )


class Report:
    """Tells a collection's progress to a file, and measures."""

    def __init__(self, progress: Path, measured: Path, spec: CollectionSpec, cores: int):
        self.progress, self.measured, self.spec, self.cores = progress, measured, spec, cores
        self.now: dict[str, Any] = {"step": 0, "updates": spec.steps, "phase": "starting"}
        self._first: int | None = None
        """the step that this process began at"""
        self._began, self._said = time.monotonic(), 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        from tracrl.study.measured import Measurement, peak_memory
        from tracrl.study.store import write_quickly

        if error[0] is None and not self._first:  # only what was collected in one go tells the whole
            seconds = self.cores * (time.monotonic() - self._began)
            rate = seconds / self.spec.steps
            write_quickly(self.measured, asdict(Measurement(self.spec.kind(), rate, None, peak_memory(self.cores))))

    def learning(self, step: int, steps: int, front: object) -> None:
        if self._first is None:
            self._first = step
            if step:
                print(f"Going on after step {step} of {steps}.", flush=True)
        self._tell({"step": min(step, steps), "updates": steps, "phase": "learning"})

    def recording(self, done: int, candidates: int, coverage: object) -> None:
        if self._first is None:
            self._first = done
        self._tell({"step": done, "updates": max(candidates, 1), "phase": "recording"})

    def _tell(self, now: dict[str, Any]) -> None:
        from tracrl.study.store import write_quickly

        if time.monotonic() - self._said > SECONDS_BETWEEN_REPORTS:
            self._said = time.monotonic()
            write_quickly(self.progress, now)
