"""What acts: a stack of trained policies in plain NumPy, saved as one safetensors file.

Acting needs neither torch nor a GPU, so a policy can be deployed, or sent to many simulator processes, as it is.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tracrl.errors import TracrlError
from tracrl.files import replacing

Floats = NDArray[np.float32]
_HEADER = "tracrl"
_KINDS: dict[str, type[Policy]] = {}


@dataclass(frozen=True)
class PolicyFacts:
    """What a policy knows about itself."""

    method: str
    limits: tuple[float, ...]
    """the cost limit that each policy of the stack was trained for"""
    seeds: tuple[int, ...]
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    task: str | None = None


class Policy(ABC):
    """A stack of policies. ``policy[i]`` is one of them, ``policy[[0, 2]]`` a smaller stack.

    The tensors of a policy all have the stack as their first dimension.
    """

    kind: ClassVar[str]

    def __init__(self, facts: PolicyFacts, tensors: Mapping[str, Floats], single: bool = False):
        self.facts = facts
        self.tensors = dict(tensors)
        self.single = single
        self._low = np.asarray(facts.action_low, np.float32)
        self._half: Floats = (np.asarray(facts.action_high, np.float32) - self._low) / np.float32(2)

    def __init_subclass__(cls) -> None:
        _KINDS[cls.kind] = cls

    def __len__(self) -> int:
        return len(self.facts.seeds)

    def __getitem__(self, index: int | Sequence[int]) -> Self:
        """One policy (an integer), or a smaller stack (a list)."""
        single = isinstance(index, int | np.integer)
        picked = [int(index)] if single else [int(i) for i in index]  # type: ignore[arg-type, union-attr]
        for i in picked:
            if not -len(self) <= i < len(self):
                raise IndexError(f"this stack has {len(self)} policies, so there is none at {i}")
        facts = replace(
            self.facts,
            limits=tuple(self.facts.limits[i] for i in picked),
            seeds=tuple(self.facts.seeds[i] for i in picked),
        )
        return self._remade(facts, {key: tensor[picked] for key, tensor in self.tensors.items()}, single)

    def at(self, limits: Sequence[float]) -> Self:
        """The same policies, one for each of these limits, for methods whose training does not depend on the limit."""
        if len(limits) != len(self):
            raise TracrlError(f"There are {len(limits)} limits for {len(self)} policies; expected one for each.")
        facts = replace(self.facts, limits=tuple(float(limit) for limit in limits))
        return self._remade(facts, self.tensors, self.single)

    def with_tensors(self, tensors: Mapping[str, Floats]) -> Self:
        """Other weights in the same places."""
        return self._remade(self.facts, tensors, self.single)

    def joined_with(self, others: Sequence[Self]) -> Self:
        """One stack of this one and the others, in this order."""
        stacks = [self, *others]
        facts = replace(
            self.facts,
            limits=tuple(limit for stack in stacks for limit in stack.facts.limits),
            seeds=tuple(seed for stack in stacks for seed in stack.facts.seeds),
        )
        return self._remade(
            facts, {key: np.concatenate([s.tensors[key] for s in stacks]) for key in self.tensors}, False
        )

    def act(self, observation: ArrayLike) -> Floats:
        """The action in the task's own units.

        One policy: (size,) → (action size,), or (n, size) → (n, action size).
        A stack: every policy's answer, with the stack as the first dimension.
        """
        given = np.asarray(observation, np.float32)
        if given.ndim not in (1, 2) or given.shape[-1] != self.observation_size:
            raise TracrlError(
                f"The observation has shape {given.shape}; expected ({self.observation_size},) "
                f"or (n, {self.observation_size})."
            )
        action: Floats = (self.act_scaled(np.atleast_2d(given)) + 1) * self._half + self._low
        if given.ndim == 1:
            action = action[:, 0]
        return action[0] if self.single else action

    @property
    @abstractmethod
    def observation_size(self) -> int: ...

    @abstractmethod
    def act_scaled(self, observations: Floats) -> Floats:
        """(n, size) → (stack, n, action size), in [−1, 1]."""

    def reset(self, seed: int) -> None:  # noqa: B027 (most policies have no memory)
        """An episode begins; policies that draw random numbers draw them from this seed."""

    def observe(self, reward: float, cost: float) -> None:  # noqa: B027
        """What the last action brought, for policies that keep account."""

    def settings(self) -> dict[str, Any]:
        """What a kind's constructor takes beside facts and tensors."""
        return {}

    def _remade(self, facts: PolicyFacts, tensors: Mapping[str, Floats], single: bool) -> Self:
        return type(self)(facts, tensors, single, **self.settings())

    def save(self, path: str | Path) -> None:
        """Write the stack as one file."""
        header = {"kind": self.kind, "facts": asdict(self.facts), "settings": self.settings()}
        contiguous = {key: np.ascontiguousarray(tensor) for key, tensor in self.tensors.items()}
        with replacing(Path(path)) as aside:
            aside.write_bytes(save(contiguous, metadata={_HEADER: json.dumps(header)}))


Layers = Sequence[tuple[Floats, Floats]]
"""(weight, bias) of each: (R, in, out) and (R, 1, out)"""


def relu(x: Floats) -> Floats:
    return np.maximum(x, 0)


def forward(layers: Layers, x: Floats, hidden: Callable[[Floats], Floats] = relu) -> Floats:
    """(R, n, in) → (R, n, out) through layers, with ``hidden`` between them."""
    for weight, bias in layers[:-1]:
        x = hidden(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def named_layers(networks: Mapping[str, Sequence[tuple[Any, Any]]]) -> dict[str, Floats]:
    """The (weight, bias) tensors of trained networks, copied, under names that :func:`layers_of` finds again."""
    return {
        f"{network}{name}{i}": np.array(tensor.cpu().numpy(), np.float32)
        for network, layers in networks.items()
        for i, pair in enumerate(layers)
        for name, tensor in zip(("weight", "bias"), pair, strict=True)
    }


def layers_of(tensors: Mapping[str, Floats], network: str = "") -> Layers:
    """The layers of one network by its name."""
    count = sum(key.startswith(f"{network}weight") for key in tensors)
    return [(tensors[f"{network}weight{i}"], tensors[f"{network}bias{i}"]) for i in range(count)]


class MLPPolicy(Policy):
    """ReLU layers and a tanh at the end: tensors ``weight<i>`` (R, in, out) and ``bias<i>`` (R, 1, out)."""

    kind = "mlp"

    def __init__(self, facts: PolicyFacts, tensors: Mapping[str, Floats], single: bool = False):
        super().__init__(facts, tensors, single)
        self._layers = layers_of(self.tensors)

    @classmethod
    def from_layers(cls, facts: PolicyFacts, layers: Sequence[tuple[Any, Any]]) -> Self:
        """From the (weight, bias) tensors of a trained network, which are copied."""
        return cls(facts, named_layers({"": layers}))

    @property
    def observation_size(self) -> int:
        return int(self._layers[0][0].shape[1])

    def act_scaled(self, observations: Floats) -> Floats:
        return np.tanh(forward(self._layers, observations[None]))


def load_policy(path: str | Path) -> Policy:
    """The stack of policies that :meth:`Policy.save` wrote. Loading runs no code from the file."""
    import tracrl.candidate_policy
    import tracrl.transformer_policy  # noqa: F401 (a kind is known once its module is)

    path = Path(path)
    if path.is_dir():
        path = path / "policy.safetensors"
    try:
        with safe_open(path, "np") as file:
            header = json.loads((file.metadata() or {})[_HEADER])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        stored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in dict(header["facts"]).items()}
        facts = PolicyFacts(**stored)
        kind = _KINDS[header["kind"]]
        return kind(facts, tensors, **header["settings"])
    except FileNotFoundError as error:
        raise TracrlError(
            f"There is no policy at {path}; a finished run directory holds a policy.safetensors."
        ) from error
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise TracrlError(f"{path} is not a policy written by tracrl, or it was cut off ({error}).") from error
