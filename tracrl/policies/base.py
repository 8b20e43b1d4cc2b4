"""What acts: a stack of trained policies in plain NumPy, saved as one safetensors file.

Acting needs neither torch nor a GPU, so a policy can be deployed, or sent to many simulator processes, as it is.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracrl import own_code
from tracrl.errors import TracrlError
from tracrl.tensor_files import save_tensors

Floats = NDArray[np.float32]
KINDS: dict[str, type[Policy]] = {}
"""By name; a kind is known once its class is defined."""
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class PolicyMetadata:
    """What a policy knows about itself."""

    method: str
    limits: tuple[float, ...]
    """the cost limit that each policy of the stack was trained for"""
    seeds: tuple[int, ...]
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    task: str | None = None
    observation_mean: tuple[float, ...] = ()
    observation_scale: tuple[float, ...] = ()
    """the network sees (observation - mean) / scale; empty: it sees observations as they are"""
    reward_unit: float = 1.0
    cost_unit: float = 1.0
    """what the network was told of rewards and costs is in these units; limits above are as they were given"""

    def __post_init__(self) -> None:
        for name in ("limits", "seeds", "action_low", "action_high"):
            values = getattr(self, name)
            kinds = int if name == "seeds" else int | float
            if not isinstance(values, tuple) or not values:
                raise TracrlError(f"its {name} are {values!r:.80}, where one or more were expected")
            if not all(isinstance(v, kinds) and not isinstance(v, bool) and abs(v) < _LARGEST for v in values):
                raise TracrlError(f"its {name} are {values!r:.80}, where finite numbers were expected")
        for one, other in (("limits", "seeds"), ("action_low", "action_high")):
            if len(getattr(self, one)) != len(getattr(self, other)):
                raise TracrlError(f"it has {len(getattr(self, one))} {one} and {len(getattr(self, other))} {other}")
        mean, scale = self.observation_mean, self.observation_scale
        units = (*mean, *scale, self.reward_unit, self.cost_unit)
        if len(mean) != len(scale) or not all(isinstance(v, int | float) and abs(v) < math.inf for v in units):
            raise TracrlError(f"it standardises with {len(mean)} means and {len(scale)} scales, or not with numbers")
        if min((*scale, self.reward_unit, self.cost_unit)) <= 0:
            raise TracrlError("it standardises with a scale that is not above 0")
        if not all(low <= high for low, high in zip(self.action_low, self.action_high, strict=True)):
            raise TracrlError("the low end of its action box is above the high end")
        if not isinstance(self.method, str) or not isinstance(self.task, str | None):
            raise TracrlError(f"its method is {self.method!r:.80} and its task {self.task!r:.80}, expected names")


class Policy(ABC):
    """A stack of policies. ``policy[i]`` is one of them, ``policy[[0, 2]]`` a smaller stack.

    The tensors of a policy all have the stack as their first dimension. A subclass that can be saved has a ``kind`` of
    its own, and can be loaded wherever its module has been imported.
    """

    kind: ClassVar[str]
    """the name in the file"""

    def __init__(self, metadata: PolicyMetadata, tensors: Mapping[str, Floats], single: bool = False):
        self.metadata = metadata
        self.tensors = dict(tensors)
        self.single = single
        self._low = np.asarray(metadata.action_low, np.float32)
        self._mean = np.array(metadata.observation_mean, np.float64)
        self._scale = np.array(metadata.observation_scale, np.float64)
        self._half: Floats = (np.asarray(metadata.action_high, np.float32) - self._low) / np.float32(2)

    def __init_subclass__(cls) -> None:
        if "kind" not in vars(cls):
            return
        known = KINDS.get(cls.kind)
        if known is not None and known.__module__.startswith("tracrl.") and known.__module__ != cls.__module__:
            raise TracrlError(f"{cls.__name__} has the kind {cls.kind!r} of {known.__name__}: choose another name.")
        KINDS[cls.kind] = cls

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Simulator processes find a class of one's own by its file."""
        path = own_code.file_of(type(self))
        if path is None:
            return super().__reduce_ex__(protocol)
        return own_code.remade, (str(path), type(self).__name__, self.__dict__)

    def __repr__(self) -> str:
        about = self.metadata
        limits, seeds = (", ".join(f"{v:g}" for v in dict.fromkeys(values)) for values in (about.limits, about.seeds))
        count = "" if self.single else f"{len(self)} {'policy' if len(self) == 1 else 'policies'}, "
        units = ", standardises" if about.observation_mean else ""
        asks = ", needs reset and observe" if type(self).observe is not Policy.observe else ""
        return (
            f"<{type(self).__name__} of {about.method}{f' for {about.task}' if about.task else ''}: {count}limit "
            f"{limits:.60}, seed {seeds:.40}; observations of {self.observation_size}, actions of "
            f"{len(about.action_low)} in [{min(about.action_low):g}, {max(about.action_high):g}]{units}{asks}>"
        )

    def __len__(self) -> int:
        return len(self.metadata.seeds)

    def __getitem__(self, index: int | Sequence[int]) -> Self:
        """One policy (an integer), or a smaller stack (a list)."""
        single = isinstance(index, int | np.integer)
        picked = [int(index)] if single else [int(i) for i in index]  # type: ignore[arg-type, union-attr]
        for i in picked:
            if not -len(self) <= i < len(self):
                raise IndexError(f"this stack has {len(self)} policies, so there is none at {i}")
        metadata = replace(
            self.metadata,
            limits=tuple(self.metadata.limits[i] for i in picked),
            seeds=tuple(self.metadata.seeds[i] for i in picked),
        )
        return self._remade(metadata, {key: tensor[picked] for key, tensor in self.tensors.items()}, single)

    def at(self, limits: Sequence[float]) -> Self:
        """The same policies, one for each of these limits, for methods whose training does not depend on the limit."""
        if len(limits) != len(self):
            raise TracrlError(f"There are {len(limits)} limits for {len(self)} policies; expected one for each.")
        metadata = replace(self.metadata, limits=tuple(float(limit) for limit in limits))
        return self._remade(metadata, self.tensors, self.single)

    def networks(self) -> list[int]:
        """The place of each different network in the stack: where training does not depend on the limit, a seed's
        policies for several limits are one."""
        kept: list[int] = []
        for i, seed in enumerate(self.metadata.seeds):
            known = [j for j in kept if self.metadata.seeds[j] == seed]
            if not any(all(np.array_equal(t[i], t[j]) for t in self.tensors.values()) for j in known):
                kept.append(i)
        return kept

    def over(self, limits: Sequence[float]) -> Self:
        """Every network of the stack at each of these limits, seeds fastest."""
        which = self.networks()
        return self[which * len(limits)].at([limit for limit in limits for _ in which])

    def in_units(self, metadata: PolicyMetadata) -> Self:
        """The same policies, which say this of themselves."""
        return self._remade(metadata, self.tensors, self.single)

    def with_tensors(self, tensors: Mapping[str, Floats]) -> Self:
        """Other weights in the same places."""
        return self._remade(self.metadata, tensors, self.single)

    def joined_with(self, others: Sequence[Self]) -> Self:
        """One stack of this one and the others, in this order."""
        stacks = [self, *others]
        metadata = replace(
            self.metadata,
            limits=tuple(limit for stack in stacks for limit in stack.metadata.limits),
            seeds=tuple(seed for stack in stacks for seed in stack.metadata.seeds),
        )
        return self._remade(
            metadata, {key: np.concatenate([s.tensors[key] for s in stacks]) for key in self.tensors}, False
        )

    def act(self, observation: ArrayLike) -> Floats:
        """The action in the task's own units.

        One policy: (size,) → (action size,), or (n, size) → (n, action size).
        A stack: every policy's answer, with the stack as the first dimension.
        """
        given = np.asarray(observation, np.float64)
        if given.ndim not in (1, 2) or given.shape[-1] != self.observation_size:
            raise TracrlError(
                f"The observation has shape {given.shape}; expected ({self.observation_size},) "
                f"or (n, {self.observation_size})."
            )
        if not np.isfinite(given).all():
            column = int(np.argmin(np.isfinite(np.atleast_2d(given)).all(axis=0)))
            raise TracrlError(f"The observation has NaN or infinity in column {column}: no action can follow from it.")
        seen = self.seen(np.atleast_2d(given))
        if not np.isfinite(seen).all():
            column = int(np.argmin(np.isfinite(seen).all(axis=0)))
            largest = np.abs(np.atleast_2d(given)[:, column]).max()
            raise TracrlError(f"The observation is {largest:g} in column {column}, more than float32 can hold.")
        action: Floats = (self.act_scaled(seen) + 1) * self._half + self._low
        if given.ndim == 1:
            action = action[:, 0]
        return action[0] if self.single else action

    def seen(self, observations: ArrayLike) -> Floats:
        """As the network sees them: what :meth:`act_scaled` takes."""
        observations = np.asarray(observations, np.float64)
        if self.metadata.observation_mean:
            observations = (observations - self._mean) / self._scale
        with np.errstate(over="ignore"):
            return observations.astype(np.float32)

    @property
    @abstractmethod
    def observation_size(self) -> int: ...

    @abstractmethod
    def act_scaled(self, observations: Floats) -> Floats:
        """(n, size) → (stack, n, action size), in [−1, 1]."""

    def reset(self, seed: int) -> None:  # noqa: B027 (most policies have no memory)
        """An episode begins: call it before the first :meth:`act` of each.

        Policies with a memory (CDT, CAPS) forget the last episode; those that draw random numbers (BCQ-Lag, BEAR-Lag)
        draw them from this seed. For the others it does nothing, so a loop may call it for every kind.
        """

    def observe(self, reward: float, cost: float) -> None:
        """What the last action brought: call it after each step of an episode.

        CDT and CAPS keep account of what is left of the cost limit, and CDT of the return: without it they act as if
        nothing had been spent. For the others it does nothing.
        """
        if not (np.isfinite(reward).all() and np.isfinite(cost).all()):
            raise TracrlError(f"The step's reward is {reward} and its cost {cost}; expected finite numbers.")

    def fingerprints(self) -> tuple[str, ...]:
        """Of each policy of the stack: a hash of all that its actions follow from."""
        found = []
        for i in range(len(self)):
            one = self[i]
            what = [getattr(self, "kind", type(self).__name__), asdict(one.metadata), one.settings()]
            digest = hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=16)
            for name in sorted(one.tensors):
                digest.update(f"{name} {one.tensors[name].shape}".encode())
                digest.update(np.ascontiguousarray(one.tensors[name]).data)
            found.append(digest.hexdigest())
        return tuple(found)

    def settings(self) -> dict[str, Any]:
        """What a kind's constructor takes beside metadata and tensors."""
        return {}

    def tensor_names(self) -> set[str] | None:
        """The tensors that it acts with, all of them float32; None for a kind that may have any."""
        return None

    def _remade(self, metadata: PolicyMetadata, tensors: Mapping[str, Floats], single: bool) -> Self:
        return type(self)(metadata, tensors, single, **self.settings())

    def save(self, path: str | Path) -> None:
        """Write the stack as one file."""
        if KINDS.get(getattr(self, "kind", "")) is not type(self):
            raise TracrlError(f'{type(self).__name__} cannot be saved: give it a kind of its own, kind = "...".')
        header = {"kind": self.kind, "metadata": asdict(self.metadata), "settings": self.settings()}
        contiguous = {key: np.ascontiguousarray(tensor) for key, tensor in self.tensors.items()}
        save_tensors(Path(path), contiguous, header, "numpy")


def require(holds: bool, setting: str, value: object) -> None:
    """What a kind's settings are checked with, as they may come from a file."""
    if not holds:
        raise TracrlError(f"its {setting} is {value!r:.80}, which no {setting} can be")
