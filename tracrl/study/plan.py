"""What a study consists of: a list of stacks."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from tracrl.envs.environment import EnvSpec
from tracrl.envs.simulators import SIMULATORS, installed, simulator_of
from tracrl.errors import TracrlError
from tracrl.methods.method import Method, Preset
from tracrl.methods.registry import get_method
from tracrl.settings import Episodes, Evaluations, Range, check_limits, check_seeds, checked
from tracrl.study.collecting import CollectionSpec
from tracrl.study.known_data import KnownData, KnownDataSet
from tracrl.study.settings import changed, parse_settings
from tracrl.study.stack import StackSpec
from tracrl.study.studies import PAPER_ORDER, PAPER_SEEDS, SYMBOLS, Study, get_study, shown
from tracrl.tasks.table import all_tasks, get_task
from tracrl.train.directory import data_label


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
        fetch = f"tracrl data fetch {' '.join(self.data)}"
        return ([fetch] if self.data else []) + [f"tracrl sims install {name}" for name in self.simulators]

    @property
    def sentence(self) -> str:
        parts = []
        if self.data:
            names = ", ".join(self.data) if len(self.data) <= 5 else f"{len(self.data)} tasks"
            parts.append(f"the data of {names}")
        if self.simulators:
            parts.append(f"the simulator{'s' if len(self.simulators) > 1 else ''} {', '.join(self.simulators)}")
        collect = " With --collect, data that are missing are made first." if self.data else ""
        return f"Nothing was started, because {' and '.join(parts)} are missing: {'; '.join(self.commands)}.{collect}"


@dataclass(frozen=True)
class Plan:
    """A study with everything chosen."""

    study: str
    stacks: tuple[StackSpec, ...]
    finished: int = 0
    """runs that are finished already and are part of no stack here"""
    collections: tuple[CollectionSpec, ...] = ()
    """data sets that are made first"""

    @property
    def identity(self) -> str:
        """From the contents: the same stacks, scored the same way, are the same plan in whatever order."""
        parts = sorted(f"{_identity(s)} {s.episodes} {s.evaluations}" for s in self.stacks)
        return hashlib.blake2b("\n".join([self.study, *parts]).encode(), digest_size=4).hexdigest()

    @property
    def name(self) -> str:
        return f"{self.study}-{self.identity}"

    @property
    def missing(self) -> Missing:
        tasks = dict.fromkeys(stack.task for stack in self.stacks)
        made = {collection.task for collection in self.collections}
        without = {stack.task for stack in self.stacks if stack.data is None} - made
        played = {stack.environment.task for stack in self.stacks if stack.environment is not None} - {None}
        wanted = {simulator_of(str(task)).name for task in played | made}
        return Missing(
            tuple(task for task in tasks if task in without),
            tuple(name for name in SIMULATORS if name in wanted and not installed(name)),
        )

    def to_dict(self) -> dict[str, Any]:
        collections = [asdict(collection) for collection in self.collections]
        return {"study": self.study, "stacks": [stack.to_dict() for stack in self.stacks], "collections": collections}


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
    data: Path | None = None,
    env: EnvSpec | None = None,
    collect: bool = False,
    collect_steps: int | None = None,
    collect_episodes: int | None = None,
    precision: str = "auto",
    known: KnownData | None = None,
) -> Plan:
    """The plan of a named study; ``settings`` are changes such as ``updates=500`` or ``trac.batch_size=32``.

    ``data`` is a file of one's own in place of the tasks' data, played in ``env``, or nowhere. With ``collect``, data
    of tasks that have none are collected first.
    """
    chosen = get_study(study)
    known = known or KnownData()
    kinds = _kinds(study, chosen, methods)
    changes = parse_settings(settings, kinds)
    checked("--episodes", episodes, Episodes)
    checked("--evaluations", evaluations, Evaluations)
    for option, value in (("--collect-steps", collect_steps), ("--collect-episodes", collect_episodes)):
        if value is not None and not collect:
            raise TracrlError(f"{option} says how much to collect: add --collect.")
        checked(option, 1 if value is None else value, Annotated[int, Range(1, 10**12)])
    stacks = []
    collections = []
    notes: dict[str, None] = {}
    if data is None and env is not None:
        raise TracrlError("--env is where policies of your own data are played: add --data my.hdf5.")
    if data is not None:
        subjects = [_own_data(known.data_file(data), env, suite, tasks, limits)]
    else:
        named = [get_task(name) for name in _tasks(chosen, suite, tasks)]
        subjects = [_Subject(task.name, task.suite, task.limits, known.data_set(task)) for task in named]
    for subject in subjects:
        if subject.data is None and collect:
            collections.append(CollectionSpec.of(subject.name, collect_steps, collect_episodes))
        for kind in kinds:
            mine = changes.get(kind.name, {})
            along = kind.scaled_along(subject.suite, preset, mine)
            if along:
                notes[kind.scaling_note(mine["updates"], along)] = None
            method = changed(kind.preset(subject.suite, preset), {**along, **mine})
            for variant, varied in _variants(chosen, method):
                stacks.append(
                    StackSpec(
                        task=subject.name,
                        method=varied,
                        limits=check_limits(limits or subject.limits),
                        seeds=check_seeds(seeds),
                        data=subject.data,
                        episodes=episodes,
                        evaluations=evaluations,
                        variant=variant,
                        env=subject.env,
                        precision=precision,
                    )
                )
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return Plan(study, tuple(stacks), collections=tuple(collections))


@dataclass(frozen=True)
class _Subject:
    """What a study's methods are trained on: a task's data, or one's own."""

    name: str
    suite: str
    """whose presets are used"""
    limits: tuple[float, ...]
    data: KnownDataSet | None
    env: EnvSpec | None = None


def _own_data(
    data: KnownDataSet, env: EnvSpec | None, suite: str | None, tasks: Sequence[str], limits: Sequence[float]
) -> _Subject:
    if tasks or suite is not None:
        raise TracrlError("--data is a file in place of the tasks' data: leave out --tasks and --suite.")
    env = None if env is None else EnvSpec.of(env)
    if (task := all_tasks().get(data.task or "")) is not None:
        if env is not None and env.name != task.name:
            raise TracrlError(
                f"{data.file} holds episodes of {task.name}, which has its own simulator: leave out --env {env.name}."
            )
        return _Subject(task.name, task.suite, task.limits, data, env)
    if not limits:
        raise TracrlError("Say which cost an episode may have: for example --limits 25 (tracrl data inspect helps).")
    # No task's settings are meant for them; Bullet's are what training takes for data of no known task, too.
    return _Subject(data_label(data.task, data.metadata), "Bullet", tuple(limits), data, env)


def _identity(stack: StackSpec) -> str:
    """Before its data are there a stack has none of its own."""
    return stack.identity if stack.data is not None else json.dumps(stack.to_dict(), sort_keys=True)


def _kinds(study: str, chosen: Study, methods: Sequence[str]) -> list[type[Method]]:
    if chosen.setting is not None:
        if any(name != "trac" for name in methods):
            raise TracrlError(f"The study {study} varies a setting of TraC: leave --methods out, or say trac.")
        return [get_method("trac")]
    names = [name for given in methods or ("all",) for name in (PAPER_ORDER if given == "all" else (given,))]
    return [get_method(name) for name in dict.fromkeys(names)]


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
