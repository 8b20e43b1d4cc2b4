"""A stack of runs as a study plans it: limits × seeds of one method on one task's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from tracrl.envs.environment import EnvSpec
from tracrl.errors import TracrlError
from tracrl.methods.method import Method, RunSpec
from tracrl.methods.registry import current_settings, known_method
from tracrl.study.known_data import KnownDataSet
from tracrl.study.settings import changed
from tracrl.tasks.table import all_tasks
from tracrl.train.directory import describe
from tracrl.train.finished import training_identity


@dataclass(frozen=True)
class StackSpec:
    """One stack of runs: what is trained, on what, and how it is scored."""

    task: str
    """the task, or what data of one's own are called"""
    method: Method
    limits: tuple[float, ...]
    seeds: tuple[int, ...]
    data: KnownDataSet | None
    """None where the data are not on this machine: the stack can be listed, but has no identity yet"""
    episodes: int = 20
    evaluations: int = 10
    variant: str = ""
    """what sets it apart within its study, for people: "η 0.5" """
    directory: str = ""
    """where its runs were begun, if that is not the directory that they would get now"""
    env: EnvSpec | None = None
    """where its policies are played, if that is not the task's simulator"""
    precision: str = "auto"
    """of matrix products, as --precision has it"""

    @property
    def environment(self) -> EnvSpec | None:
        """Where its policies are played; None: nowhere."""
        return self.env or (EnvSpec(self.task) if self.task in all_tasks() else None)

    @property
    def config(self) -> dict[str, Any]:
        """What the run directory's config.json will say."""
        if self.data is None:
            raise TracrlError(f"{self.title} has no data on this machine: tracrl data fetch {self.task}.")
        own_units = self.method.standardised(all_tasks().get(self.data.task or ""), self.method.updates)
        return describe(self.method, self.data, self.trained, self.limits, self.seeds, own_units)

    @cached_property
    def identity(self) -> str:
        """Of what determines the result; the run directory's own. Asked for at every look at a study's stacks."""
        return str(self.config["identity"])

    @cached_property
    def training(self) -> str:
        """Of what its runs have in common with those of other stacks: method, settings and data."""
        config = self.config
        return training_identity(config["method"], config["settings"], config["data"])

    @property
    def name(self) -> str:
        """The run directory's name: the same that ``tracrl train`` would choose."""
        return self.directory or f"{self.task}-{self.method.name}-{self.identity}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.method.title} on {self.task}" + (f", {self.variant}" if self.variant else "")

    @property
    def runs(self) -> list[RunSpec]:
        """Runs that are scored."""
        return [RunSpec(float(limit), int(seed)) for limit in self.limits for seed in self.seeds]

    @property
    def trained(self) -> list[RunSpec]:
        """Runs that are trained: fewer where one training serves every limit."""
        limits = self.limits if self.method.depends_on_limit else self.limits[:1]
        return [RunSpec(float(limit), int(seed)) for limit in limits for seed in self.seeds]

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "method": self.method.name,
            "settings": asdict(self.method),
            "limits": list(self.limits),
            "seeds": list(self.seeds),
            "data": None if self.data is None else asdict(self.data),
            "episodes": self.episodes,
            "evaluations": self.evaluations,
            "variant": self.variant,
            "directory": self.directory,
            "env": None if self.env is None else self.env.to_dict(),
            "precision": self.precision,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> StackSpec:
        try:
            kind = known_method(value["method"])
            if kind is None:  # a file never says what is imported
                raise TracrlError(f"{value['method']!r} is not a method that this process was told to import.")
            return cls(
                task=value["task"],
                method=changed(kind(), current_settings(kind, value["settings"])),
                limits=tuple(map(float, value["limits"])),
                seeds=tuple(map(int, value["seeds"])),
                data=None if value["data"] is None else KnownDataSet(**value["data"]),
                episodes=int(value["episodes"]),
                evaluations=int(value["evaluations"]),
                variant=str(value["variant"]),
                directory=str(value.get("directory", "")),
                env=None if value.get("env") is None else EnvSpec(**value["env"]),
                precision=str(value.get("precision", "auto")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TracrlError(f"This stack was not written by tracrl, or was edited ({error!r}).") from error
