"""What a study consists of: a list of stacks, each with an identity from its contents.

A stack is limits × seeds of one method on one task's data. The paper's studies are named here with their tasks and
values; everything in them can be chosen otherwise.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, cast

from tracrl.data.episodes import Episodes
from tracrl.envs.simulators import SIMULATORS, installed, simulator_of
from tracrl.errors import TracrlError
from tracrl.methods.method import Method, Preset, RunSpec
from tracrl.methods.registry import METHODS, get_method
from tracrl.study.data_facts import DataFacts, KnownData
from tracrl.tasks.table import all_tasks, get_task
from tracrl.train.directory import describe

PAPER_SEEDS = (0, 10, 20)
PAPER_ORDER = ("bc-all", "bc-safe", "cdt", "bcq-lag", "bear-lag", "cpq", "coptidice", "trac")
"""the columns of the paper's tables"""
ONE_OF_EACH = ("AntCircle", "CarPush1", "mediummean")
BULLET = tuple(task.name for task in all_tasks().values() if task.suite == "Bullet")


@dataclass(frozen=True)
class Study:
    """One of the paper's studies."""

    about: str
    tasks: tuple[str, ...]
    setting: str | None = None
    """the setting of TraC that is varied; None: every method as it is"""
    values: tuple[Any, ...] = ()
    """its values; the preset's own is always among them"""


STUDIES: dict[str, Study] = {
    "main": Study("Every method on every task: the main table", tuple(all_tasks())),
    # The paper's text gives no values for x, y and α, only figures; these span the range around its settings.
    "x": Study("x %: share of the safe that is desirable", ("AntCircle", "mediummean"), "x", (25.0, 50.0, 75.0, 100.0)),
    "y": Study("y %: share of the safe that is undesirable", ("AntCircle", "mediummean"), "y", (0.0, 25.0, 50.0, 75.0)),
    "sides": Study("One of the two sets alone, or both", ONE_OF_EACH, "sides", ("both", "desirable", "undesirable")),
    "delta": Study("δ: the lowest weight of a segment", ONE_OF_EACH, "delta", (0.0, 0.4, 0.7, 1.0)),
    "eta": Study("η: weight of the undesirable set", ONE_OF_EACH, "eta", (0.25, 0.5, 1.0, 2.0)),
    "alpha": Study("α: the score's temperature", ONE_OF_EACH, "alpha", (0.05, 0.1, 0.2, 0.4)),
    "no-pretraining": Study("The reference without cloning", BULLET, "clone_updates", (0,)),
    "uniform-reference": Study("A constant in place of the reference", BULLET, "reference", ("cloned", "uniform")),
}  # fmt: skip


@dataclass(frozen=True)
class StackSpec:
    """One stack of runs: what is trained, on what, and how it is scored."""

    task: str
    method: Method
    limits: tuple[float, ...]
    seeds: tuple[int, ...]
    data: DataFacts | None
    """None where the data are not on this machine: the stack can be listed, but has no identity yet"""
    episodes: int = 20
    evaluations: int = 10
    variant: str = ""
    """what sets it apart within its study, for people: "η 0.5" """

    @property
    def config(self) -> dict[str, Any]:
        """What the run directory's config.json will say."""
        if self.data is None:
            raise TracrlError(f"{self.title} has no data on this machine: tracrl data fetch {self.task}.")
        # DataFacts has all of Episodes that is looked at here.
        return describe(self.method, cast(Episodes, self.data), self.trained, self.limits, self.seeds)

    @cached_property
    def identity(self) -> str:
        """Of what determines the result; the run directory's own. Asked for at every look at a study's stacks."""
        return str(self.config["identity"])

    @property
    def name(self) -> str:
        """The run directory's name: the same that ``tracrl train`` would choose."""
        return f"{self.task}-{self.method.name}-{self.identity}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.method.title} on {self.task}" + (f", {self.variant}" if self.variant else "")

    @property
    def runs(self) -> int:
        """Runs that are scored."""
        return len(self.limits) * len(self.seeds)

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
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> StackSpec:
        try:
            kind = get_method(value["method"])
            return cls(
                task=value["task"],
                method=changed(kind(), value["settings"]),
                limits=tuple(map(float, value["limits"])),
                seeds=tuple(map(int, value["seeds"])),
                data=None if value["data"] is None else DataFacts(**value["data"]),
                episodes=int(value["episodes"]),
                evaluations=int(value["evaluations"]),
                variant=str(value["variant"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TracrlError(f"This stack was not written by tracrl, or was edited ({error!r}).") from error


@dataclass(frozen=True)
class Missing:
    """What has to be got before a plan can start."""

    data: tuple[str, ...]
    simulators: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.data or self.simulators)

    @property
    def commands(self) -> list[str]:
        """What to type."""
        return ([f"tracrl data fetch {' '.join(self.data)}"] if self.data else []) + [
            f"tracrl sims install {name}" for name in self.simulators
        ]

    @property
    def sentence(self) -> str:
        parts = []
        if self.data:
            names = ", ".join(self.data) if len(self.data) <= 5 else f"{len(self.data)} tasks"
            parts.append(f"the data of {names}")
        if self.simulators:
            parts.append(f"the simulator{'s' if len(self.simulators) > 1 else ''} {', '.join(self.simulators)}")
        return f"Nothing was started, because {' and '.join(parts)} are missing: {'; '.join(self.commands)}."


@dataclass(frozen=True)
class Plan:
    """A study with everything chosen."""

    study: str
    stacks: tuple[StackSpec, ...]

    @property
    def identity(self) -> str:
        """From the contents: the same stacks, scored the same way, are the same plan in whatever order."""
        parts = sorted(f"{s.identity} {s.episodes} {s.evaluations}" for s in self.stacks)
        return hashlib.blake2b("\n".join([self.study, *parts]).encode(), digest_size=4).hexdigest()

    @property
    def name(self) -> str:
        return f"{self.study}-{self.identity}"

    @property
    def missing(self) -> Missing:
        tasks = dict.fromkeys(stack.task for stack in self.stacks)
        without = {stack.task for stack in self.stacks if stack.data is None}
        wanted = {simulator_of(task).name for task in tasks}
        return Missing(
            tuple(task for task in tasks if task in without),
            tuple(name for name in SIMULATORS if name in wanted and not installed(name)),
        )

    def to_dict(self) -> dict[str, Any]:
        return {"study": self.study, "stacks": [stack.to_dict() for stack in self.stacks]}


def make_plan(
    study: str,
    *,
    suite: str | None = None,
    tasks: Sequence[str] = (),
    methods: Sequence[str] = (),
    limits: Sequence[float] = (),
    seeds: Sequence[int] = PAPER_SEEDS,
    preset: Preset = "full",
    settings: Sequence[str] = (),
    episodes: int = 20,
    evaluations: int = 10,
    known: KnownData | None = None,
) -> Plan:
    """The plan of a named study; ``settings`` are changes such as ``updates=500`` or ``trac.batch_size=32``."""
    chosen = get_study(study)
    known = known or KnownData()
    kinds = _kinds(study, chosen, methods)
    changes = parse_settings(settings, kinds)
    for option, number in (("--episodes", episodes), ("--evaluations", evaluations)):
        if number < 1:
            raise TracrlError(f"{option} is {number}; expected at least 1.")
    stacks = []
    for name in _tasks(chosen, suite, tasks):
        task = get_task(name)
        data = known.facts(task)
        for kind in kinds:
            method = changed(kind.preset(task.suite, preset), changes.get(kind.name, {}))
            for variant, varied in _variants(chosen, method):
                stacks.append(
                    StackSpec(
                        task=name,
                        method=varied,
                        limits=_checked_limits(limits or task.limits),
                        seeds=_checked_seeds(seeds),
                        data=data,
                        episodes=episodes,
                        evaluations=evaluations,
                        variant=variant,
                    )
                )
    return Plan(study, tuple(stacks))


def get_study(name: str) -> Study:
    """The study called ``name``; an unknown name is answered with the nearest known one."""
    if name in STUDIES:
        return STUDIES[name]
    near = difflib.get_close_matches(name.lower(), STUDIES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(STUDIES)}."
    raise TracrlError(f"There is no study called {name!r}: {hint}")


def changed(method: Method, changes: Mapping[str, Any]) -> Method:
    """The method with other settings, whose kinds are checked."""
    expected = typing.get_type_hints(type(method))
    checked = {}
    for name, value in changes.items():
        if name not in {f.name for f in fields(method)}:
            raise TracrlError(f"{method.title} has no setting called {name!r}.")
        checked[name] = _as_kind(f"{method.name}.{name}", value, expected[name])
    return replace(method, **checked)


def parse_settings(given: Iterable[str], kinds: Sequence[type[Method]]) -> dict[str, dict[str, Any]]:
    """``name=value`` for every method that has the setting, ``method.name=value`` for one; by method."""
    result: dict[str, dict[str, Any]] = {}
    for words in given:
        left, equals, text = words.partition("=")
        if not equals or not left:
            raise TracrlError(f"--set {words!r}: expected name=value or method.name=value, such as updates=500.")
        owner, _, name = left.rpartition(".")
        name = name.replace("-", "_")
        if owner and get_method(owner) not in kinds:
            raise TracrlError(f"--set {words!r}: {get_method(owner).title} is not part of this study.")
        having = [k for k in kinds if name in {f.name for f in fields(k)} and owner in ("", k.name)]
        if not having:
            who = get_method(owner).title if owner else "None of the methods of this study"
            raise TracrlError(f"--set {words!r}: {who} has {'no' if owner else 'a'} setting called {name!r}.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        for kind in having:
            result.setdefault(kind.name, {})[name] = value
    return result


def in_paper_order(names: Iterable[str]) -> list[str]:
    """Methods in the order of the paper's columns, others behind."""
    place = {name: i for i, name in enumerate(PAPER_ORDER)}
    return sorted(names, key=lambda name: place.get(name, len(place)))


def _kinds(study: str, chosen: Study, methods: Sequence[str]) -> list[type[Method]]:
    if chosen.setting is not None:
        if any(name != "trac" for name in methods):
            raise TracrlError(f"The study {study} varies a setting of TraC: leave --methods out, or say trac.")
        return [get_method("trac")]
    if not methods or "all" in methods:
        return [METHODS[name] for name in in_paper_order(METHODS)]
    return [get_method(name) for name in dict.fromkeys(methods)]


def _tasks(chosen: Study, suite: str | None, tasks: Sequence[str]) -> list[str]:
    if tasks and suite is not None:
        raise TracrlError("--suite and --tasks exclude each other: say one of them.")
    if tasks:
        return list(dict.fromkeys(get_task(name).name for name in tasks))
    if suite in (None, "all"):
        return list(chosen.tasks)
    if suite not in SIMULATORS:
        raise TracrlError(f"--suite is {suite!r}; expected {', '.join(SIMULATORS)} or all.")
    names = [name for name in chosen.tasks if simulator_of(name).name == suite]
    if not names:
        raise TracrlError(f"This study has no task in {suite}: name some with --tasks (tracrl tasks lists them).")
    return names


def _variants(chosen: Study, method: Method) -> list[tuple[str, Method]]:
    """The method with each value of the varied setting, the preset's own among them."""
    if chosen.setting is None:
        return [("", method)]
    own = getattr(method, chosen.setting)
    values = list(chosen.values) if own in chosen.values else [own, *chosen.values]
    if all(isinstance(value, int | float) for value in values):
        values.sort()
    if chosen.setting in ("x", "y"):
        # The two shares are of the same safe segments: together at most all of them.
        other = getattr(method, "y" if chosen.setting == "x" else "x")
        values = [value for value in values if value + other <= 100]
    symbol = SYMBOLS.get(chosen.setting, chosen.setting)
    return [(f"{symbol} {shown(value)}", replace(method, **{chosen.setting: value})) for value in values]


SYMBOLS = {
    "x": "x %",
    "y": "y %",
    "delta": "δ",
    "eta": "η",
    "alpha": "α",
    "clone_updates": "cloning updates",
    "sides": "sets",
}
"""settings as the paper writes them"""


def shown(value: Any) -> str:
    """A setting's value for people."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _checked_limits(limits: Sequence[float]) -> tuple[float, ...]:
    if len(set(limits)) != len(limits):
        raise TracrlError(f"--limits names a value twice: {' '.join(f'{v:g}' for v in limits)}.")
    if any(not 0 <= limit < float("inf") for limit in limits):
        raise TracrlError("--limits must be numbers of 0 or more: they are bounds on an episode's cost.")
    return tuple(map(float, limits))


def _checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    if not seeds or len(set(seeds)) != len(seeds):
        raise TracrlError("--seeds must name at least one seed and none twice.")
    return tuple(map(int, seeds))


def _as_kind(where: str, value: Any, kind: Any) -> Any:
    """``value`` as what a setting takes; settings come from JSON, whose lists are our tuples."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        if value in typing.get_args(kind):
            return value
        raise TracrlError(f"{where} is {value!r}; expected {' or '.join(map(repr, typing.get_args(kind)))}.")
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise TracrlError(f"{where} is {value!r}; expected a list such as [256, 256].")
        return tuple(_as_kind(where, item, typing.get_args(kind)[0]) for item in value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= sys.float_info.max:
            raise TracrlError(f"{where} is {value!r}; expected a finite number.")
        return float(value)
    if kind in (int, float, str, bool) and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise TracrlError(f"{where} is {value!r}; expected {_KINDS[kind]}.")
    return value


_KINDS = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}
