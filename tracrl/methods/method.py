"""What every method has in common: settings that are facts, and a learner that trains a stack of runs."""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.nets import random
from tracrl.policies.base import Policy, PolicyMetadata
from tracrl.settings import Updates, check_settings, option_of
from tracrl.tasks.table import Task

Preset = Literal["full", "fast"]


@dataclass(frozen=True)
class RunSpec:
    """One run of a stack."""

    limit: float
    """κ, the cost an episode may have"""
    seed: int


@dataclass(frozen=True)
class DataSizes:
    """What a training's memory depends on, beside the method and the number of rows."""

    observation: int
    action: int
    steps: int
    """of a full episode"""


@dataclass(frozen=True)
class ActivationBudget:
    """How many numbers the hidden layers of one run may put out at once."""

    chunk: int
    """a larger batch is taken in chunks of about so many, whose gradients are added"""
    uncut: int
    """a batch that needs no more than this is never cut"""


@dataclass(frozen=True)
class Compute:
    """Where and how a learner computes. Whoever makes it decides: see :mod:`tracrl.train.stack`."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    bf16: bool = False
    """multiply in bfloat16 where a learner can; weights, scores and losses are float32"""
    activation_budget: ActivationBudget | None = None
    """None: no batch is cut"""


@dataclass(frozen=True)
class Method(ABC):
    """A method is its settings; :meth:`learner` turns them into something that trains.

    Settings are checked by their types, ranges included (:mod:`tracrl.settings`), however they are made.
    """

    name: ClassVar[str]
    """as on the command line"""
    title: ClassVar[str]
    """as in tables"""
    paper: ClassVar[str] = ""
    """where it was published"""
    optimises: ClassVar[str] = ""
    """what it optimises, in a line"""
    has_bf16: ClassVar[bool] = False
    """whether its matrix products can be in bfloat16"""
    bf16_by_itself: ClassVar[bool] = False
    """whether they are where nothing else is asked for, and the machine is faster at it: final scores were seen to stay
    as they are (docs/performance.md)"""
    depends_on_limit: ClassVar[bool] = True
    """False: one training serves every cost limit"""
    unit_free: ClassVar[bool] = False
    """True: it makes no difference to it in which units rewards and costs are"""
    clones: ClassVar[bool] = False
    """True: its policies are to act as the log does"""
    metrics: ClassVar[Sequence[str]] = ("loss",)
    """what a learner reports of each update; the first is called loss"""
    suites: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """what a suite's published settings change"""
    fast: ClassVar[Mapping[str, Any]] = {}
    """what the fast preset changes on top"""
    networks: ClassVar[int] = 25
    """weights of a run, its copies of them and Adam's moments, in networks of its hidden layers"""
    outputs_held: ClassVar[float] = 8.0
    """outputs of hidden layers that an update holds at its peak for each transition of a batch, in networks"""
    numbers_a_row: ClassVar[int] = 0
    """what each run keeps of its own for every logged row"""
    runs_apart_on_cpus: ClassVar[bool] = False
    """whether a stack is computed run by run there: where what one run holds is already more than a cache"""
    same_cost: ClassVar[Sequence[str]] = ("updates", "lr", "warmup", "alpha", "gamma")
    """settings that change what is learnt and not what an update costs"""
    scaled: ClassVar[Sequence[str]] = ()
    """settings, in updates, that keep their share of the training where ``updates`` alone is changed"""
    renamed: ClassVar[Mapping[str, str]] = {}
    """settings as earlier versions called them, and what they are called now"""

    updates: Updates = 100_000
    """gradient updates in all"""

    def __post_init__(self) -> None:
        check_settings(self, self.title)
        self.validate()

    def validate(self) -> None:  # noqa: B027 - few methods have any
        """What settings must be to each other, said with :meth:`require`."""

    @classmethod
    def preset(cls, suite: str = "Bullet", preset: Preset = "full", **changes: Any) -> Self:
        """The published settings for a suite (``full``), or those for people in a hurry (``fast``), with changes.

        Where ``updates`` is changed and none of the settings that depend on it (``scaled``), they change along.
        """
        for name in changes:
            if name in cls.renamed:
                raise TracrlError(f"{cls.title}: {option_of(name)} is called {option_of(cls.renamed[name])} now.")
            if name not in {f.name for f in fields(cls)}:
                raise TracrlError(f"{cls.title} has no setting called {name!r}.")
        published = {**cls.suites.get(suite, {}), **(cls.fast if preset == "fast" else {})}
        return cls(**{**published, **cls.scaled_along(suite, preset, changes), **changes})

    @classmethod
    def standardised(cls, task: Task | None, updates: int) -> bool:
        """Whether observations are standardised where nothing else is said.

        Those of own data (no ``task``) are. The benchmark's are not, as published; but where their columns are many and
        of many kinds, lidars among them, a training of less than half the published updates needs it
        (docs/benchmark.md).
        """
        if task is None:
            return True
        many_kinds = task.suite == "MetaDrive" or (task.suite == "SafetyGymnasium" and "Velocity" not in task.name)
        return many_kinds and 2 * updates < cls.preset(task.suite, "full").updates

    @classmethod
    def scaled_along(cls, suite: str, preset: Preset, changes: Mapping[str, Any]) -> dict[str, int]:
        """What a change of ``updates`` alone changes besides."""
        updates = changes.get("updates")
        if not isinstance(updates, int) or any(name in changes for name in cls.scaled):
            return {}
        before = cls.preset(suite, preset)
        share = updates / before.updates
        along = {name: round(share * getattr(before, name)) for name in cls.scaled}
        return {name: value for name, value in along.items() if value != getattr(before, name)}

    @classmethod
    def scaling_note(cls, updates: int, along: Mapping[str, int]) -> str:
        """What to tell a person about it."""
        changes = " and ".join(f"{option_of(name)} {value}" for name, value in along.items())
        return f"{cls.title}: {changes} go along with --updates {updates}, in proportion to the preset's."

    @property
    def phase_ends(self) -> tuple[int, ...]:
        """The updates after which another phase of the training begins."""
        return ()

    @abstractmethod
    def learner(self, data: Episodes, runs: Sequence[RunSpec], compute: Compute) -> Learner:
        """A stack of these runs, ready for its first update."""

    def numbers_held(self, sizes: DataSizes, budget: ActivationBudget | None = None) -> int:
        """Numbers (of four bytes) that one run in training holds at its peak on a CPU, beside the data.

        A rough sum, for plans; what it is held to is in tests/methods/test_memory.py.
        """
        hidden, batch_size = getattr(self, "hidden", (256, 256)), getattr(self, "batch_size", 512)
        layers = (sizes.observation + sizes.action, *hidden, sizes.action)
        weights = self.networks * sum(a * b for a, b in itertools.pairwise(layers))
        return int(1.25 * weights + self.outputs_held * batch_size * sum(hidden))

    def require(self, holds: bool, setting: str, expected: str) -> None:
        """A setting that does not fit another is one sentence."""
        if not holds:
            value = getattr(self, setting)
            raise TracrlError(f"{self.title}: {option_of(setting)} is {value!r}; expected {expected}.")


class Learner(nn.Module, ABC):
    """A stack of runs in training.

    Every persistent tensor has the runs as its first dimension, so that a stack can be cut, joined and compared with
    single runs. Random numbers are functions of (seed, step): see :mod:`tracrl.nets.random`.
    """

    compiled: ClassVar[Sequence[str]] = ()
    """what a GPU runs in compiled form: methods of the learner, or of one of its attributes ("table.draw")"""

    seeds: Tensor
    clock: Tensor

    def __init__(self, method: Method, data: Episodes, runs: Sequence[RunSpec], compute: Compute):
        super().__init__()
        self.runs = tuple(runs)
        self.compute = compute
        self.metadata = PolicyMetadata(
            method=method.name,
            limits=tuple(run.limit for run in runs),
            seeds=tuple(run.seed for run in runs),
            action_low=tuple(map(float, data.action_low)),
            action_high=tuple(map(float, data.action_high)),
            task=data.task,
        )
        self.step = 0
        device = compute.device
        self.register_buffer("seeds", torch.tensor([r.seed for r in runs], device=device), persistent=False)
        # The step again, where kernels can read it.
        self.register_buffer("clock", torch.zeros((), dtype=torch.int64, device=device), persistent=False)

    @property
    def phase(self) -> str:
        """What the next update does, in a word."""
        return "training"

    def update(self) -> dict[str, Tensor]:
        """One update of every run; metrics are (R,)."""
        self.prepare()
        metrics = self.learn_in_precision()
        self.step += 1
        self.clock += 1
        return metrics

    def prepare(self) -> None:
        """What must happen once before the next update, such as at the start of a phase."""

    @abstractmethod
    def learn(self) -> dict[str, Tensor]:
        """The update itself: work on tensors alone, the same in every step of a phase, so that a GPU can record it."""

    def learn_in_precision(self) -> dict[str, Tensor]:
        """:meth:`learn` with products in bfloat16 where that was asked for; losses and weights stay in float32."""
        with self.autocast():
            return self.learn()

    def compile_parts(self) -> None:
        """Replace what a compiler makes faster on a GPU by its compiled form."""
        for name in self.compiled:
            *path, part = name.split(".")
            owner = functools.reduce(getattr, path, self)
            setattr(owner, part, torch.compile(getattr(owner, part), dynamic=False))

    def autocast(self) -> torch.autocast:
        """Around the networks: products in bfloat16 where that was asked for; scores and losses stay in float32."""
        # No cache: weights move within an update, and rounded copies of them would be old ones.
        return torch.autocast(self.compute.device.type, torch.bfloat16, enabled=self.compute.bf16, cache_enabled=False)

    @abstractmethod
    def policy(self) -> Policy:
        """What has been learnt so far, as something that acts."""

    def key(self, stream: int) -> Tensor:
        """(R,) keys for this step's random numbers of one purpose."""
        if self.clock.device.type == "cpu":
            return random.keys_by_hand([run.seed for run in self.runs], int(self.clock), stream)
        return random.keys(self.seeds, self.clock, stream)

    def noise(self, stream: int, *shape: int) -> Tensor:
        """(R, *shape) standard normal numbers of this step for one purpose."""
        return random.normal(self.key(stream), math.prod(shape)).view(-1, *shape)

    def restore(self, state: Mapping[str, Tensor], step: int) -> None:
        """Continue from a checkpoint's tensors."""
        self.load_state_dict(dict(state))
        self.step = step
        self.clock.fill_(step)
