"""How each kind of policy becomes a graph. A new kind is a subclass of :class:`Exporter` with its ``kind``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tracrl.deploy.graph import Graph
from tracrl.errors import TracrlError
from tracrl.nets.ranges import LATENT_RANGE, LOG_STD_RANGE
from tracrl.policies.any_limit import AnyLimitPolicy, AnyXPolicy, LimitRangePolicy, RemainingBudgetPolicy
from tracrl.policies.base import Floats, Policy
from tracrl.policies.layers import layers_of

EXPORTERS: dict[str, type[Exporter]] = {}
"""By the kind of policy"""
BATCH = "batch"


class Exporter(ABC):
    """One policy of a stack as a graph: ``observation`` (batch, size) → ``action`` (batch, action size)."""

    kind: ClassVar[str]
    more: ClassVar[str] = ""
    """the name of an input beside the observation"""
    ties: ClassVar[float] = 0.0
    """the share of states where another action may come out: where two candidates are equally good to the last digit"""

    def __init__(self, policy: Policy):
        self.policy = policy
        self.tensors = {key: tensor[0] for key, tensor in policy.tensors.items()}
        self.refused: list[str] = []
        """of the graph's values, those that are true (batch, 1) where no action may follow"""

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            EXPORTERS[cls.kind] = cls

    @abstractmethod
    def scaled_action(self, graph: Graph, seen: str) -> str:
        """(batch, action size) in [−1, 1] from observations as the network sees them; may add inputs of its own."""

    def ask(self, states: Floats, generator: np.random.Generator) -> tuple[Floats, Mapping[str, Floats]]:
        """What the policy does in these states, and what the graph's own inputs must be for it to do the same."""
        return self.policy.act(states), {}

    def how_to_call(self) -> str:
        """Said of the input beside the observation."""
        return ""

    def about(self) -> dict[str, Any]:
        """Metadata of this kind."""
        return {"limit": self.policy.metadata.limits[0]}


def exporter_of(policy: Policy) -> Exporter:
    """The exporter of a single policy, or the reason why there is none."""
    kind = getattr(policy, "kind", type(policy).__name__)
    if kind in EXPORTERS:
        return EXPORTERS[kind](policy)
    if type(policy).observe is not Policy.observe:
        raise TracrlError(
            f"A policy of {policy.metadata.method} keeps account of what the steps of its episode brought, so its "
            "action is no function of the observation and it cannot be exported: deploy policy.safetensors itself "
            "(tracrl.load_policy needs NumPy alone, no torch)."
        )
    raise TracrlError(
        f"Policies of the kind {kind!r:.80} cannot be exported: there are exporters for {', '.join(EXPORTERS)}. "
        "One of your own is a subclass of tracrl.deploy.kinds.Exporter."
    )


class MLPExporter(Exporter):
    """ReLU layers and a tanh."""

    kind = "mlp"

    def scaled_action(self, graph: Graph, seen: str) -> str:
        return graph.node("Tanh", graph.layers(layers_of(self.tensors), seen))


class LimitRangeExporter(Exporter):
    """An MLP whose last input is told a limit, or what is left of it: (batch, 1), of each state's episode."""

    policy: LimitRangePolicy

    def scaled_action(self, graph: Graph, seen: str) -> str:
        def number(value: float) -> str:
            return graph.constant(value, np.float64)

        given = graph.cast(graph.input(self.more, (BATCH, 1)), np.float64)
        lowest, highest = self.policy.limit_range
        self.refused.append(graph.node("Not", graph.node("GreaterOrEqual", given, number(self.least()))))
        share = graph.node("Div", graph.node("Sub", given, number(lowest)), number(highest - lowest))
        root = graph.node("Sqrt", graph.node("Clip", share, number(0.0), number(1.0)))
        told = graph.node("Sub", graph.node("Mul", root, number(2.0)), number(1.0))
        joint = graph.node("Concat", seen, graph.cast(told, np.float32), axis=1)
        return graph.node("Tanh", graph.layers(layers_of(self.tensors), joint))

    @abstractmethod
    def least(self) -> float:
        """What lies below has no action."""

    @abstractmethod
    def act(self, states: Floats, told: float) -> Floats:
        """The policy's own answer."""

    def ask(self, states: Floats, generator: np.random.Generator) -> tuple[Floats, Mapping[str, Floats]]:
        lowest, highest = self.policy.limit_range
        parts = np.array_split(states, 8)
        limits = np.linspace(lowest, highest, len(parts)).astype(np.float32)
        asked = limits.astype(np.float64).clip(lowest, highest)  # a float32 may lie below the lowest
        actions = [self.act(part, float(limit)) for part, limit in zip(parts, asked, strict=True)]
        return np.concatenate(actions), {self.more: np.repeat(limits, [len(part) for part in parts])[:, None]}

    def about(self) -> dict[str, Any]:
        return {"limit_range": list(self.policy.limit_range)}


class AnyLimitExporter(LimitRangeExporter):
    """It is told the limit itself."""

    kind, more = "any-limit-mlp", "cost_limit"
    policy: AnyLimitPolicy

    def least(self) -> float:
        """A limit that is lower than any of the training was not learnt; what float32 does to the lowest may pass."""
        lowest = self.policy.limit_range[0]
        return lowest - 1e-6 * abs(lowest)

    def act(self, states: Floats, told: float) -> Floats:
        return self.policy.act(states, limit=told)

    def how_to_call(self) -> str:
        lowest, highest = self.policy.limit_range
        return (
            f"cost_limit (batch, 1): what an episode may cost, from {lowest:g} to {highest:g}; below that the action "
            "is not a number, above it is that of the highest"
        )


class AnyXExporter(AnyLimitExporter):
    """As it acts by itself, at the largest x; ``policy.at_x(25)`` is exported with that x."""

    kind = "any-limit-any-x-mlp"

    def __init__(self, policy: AnyXPolicy):
        super().__init__(policy.at_x(policy.largest_x))


class RemainingBudgetExporter(LimitRangeExporter):
    """It is told what is left of the limit, of which the caller keeps account."""

    kind, more = "remaining-budget-mlp", "budget_left"
    policy: RemainingBudgetPolicy

    def least(self) -> float:
        return -np.inf

    def act(self, states: Floats, told: float) -> Floats:
        self.policy.reset(0)
        self.policy.observe(0.0, self.policy.metadata.limits[0] - told)
        return self.policy.act(states)

    def how_to_call(self) -> str:
        return (
            "budget_left (batch, 1): the limit less what the episode has cost so far, which the caller counts; limits "
            f"from {self.policy.limit_range[0]:g} to {self.policy.limit_range[1]:g} were learnt"
        )


class CandidateExporter(Exporter):
    """Candidates from noise that the caller draws, the best of them by the critics: the graph itself is no lottery."""

    more, ties = "noise", 0.01

    @abstractmethod
    def noise_size(self) -> int: ...

    @abstractmethod
    def propose(self, graph: Graph, states: str, noise: str) -> str:
        """(rows, action size)"""

    @property
    def candidates(self) -> int:
        return int(self.policy.settings()["candidates"])

    def scaled_action(self, graph: Graph, seen: str) -> str:
        count, size = self.candidates, self.policy.observation_size
        noise = graph.input(self.more, (BATCH, count, self.noise_size()))
        batch = graph.node("Slice", graph.node("Shape", seen), graph.shape(0), graph.shape(1))
        spread = graph.node("Concat", batch, graph.shape(count, size), axis=0)
        states = graph.node("Expand", graph.node("Unsqueeze", seen, graph.shape(1)), spread)
        states = graph.node("Reshape", states, graph.shape(-1, size))
        actions = self.propose(graph, states, graph.node("Reshape", noise, graph.shape(-1, self.noise_size())))
        joint = graph.node("Unsqueeze", graph.node("Concat", states, actions, axis=-1), graph.shape(0))
        value = self._mixed(graph, self._values(graph, "critic", joint))
        cost = self._mixed(graph, graph.node("Neg", self._values(graph, "cost_critic", joint)))
        # The cost is −mixed, so that what is subtracted from the value is added here.
        scores = graph.node("Add", value, graph.node("Mul", graph.constant(self.tensors["multiplier"]), cost))
        best = graph.node("ArgMax", graph.node("Reshape", scores, graph.shape(-1, count)), axis=1, keepdims=1)
        width = len(self.policy.metadata.action_low)
        return graph.node("GatherND", graph.node("Reshape", actions, graph.shape(-1, count, width)), best, batch_dims=1)

    def _values(self, graph: Graph, network: str, joint: str) -> str:
        """(critics, rows)"""
        return graph.node("Squeeze", graph.layers(layers_of(self.tensors, network), joint), graph.shape(-1))

    def _mixed(self, graph: Graph, values: str) -> str:
        """(critics, rows) → (rows,): the lower of two groups of critics weighs more"""
        critics = len(layers_of(self.tensors, "critic")[0][0])
        groups = graph.node("Reshape", values, graph.shape(2, critics // 2, -1))
        groups = graph.node("ReduceMin", groups, axes=[1], keepdims=0)
        low = graph.node("ReduceMin", groups, axes=[0], keepdims=0)
        high = graph.node("ReduceMax", groups, axes=[0], keepdims=0)
        share = float(self.policy.settings()["pessimism"])
        low = graph.node("Mul", low, graph.constant(share))
        return graph.node("Add", low, graph.node("Mul", high, graph.constant(1 - share)))

    def ask(self, states: Floats, generator: np.random.Generator) -> tuple[Floats, Mapping[str, Floats]]:
        seed = int(generator.integers(2**31))
        self.policy.reset(seed)
        actions = self.policy.act(states)
        shape = (len(states), self.candidates, self.noise_size())
        drawn: NDArray[Any] = np.random.default_rng(seed).standard_normal(shape, np.float32)
        return actions, {self.more: drawn}

    def how_to_call(self) -> str:
        return (
            f"noise (batch, {self.candidates}, {self.noise_size()}): standard normal random numbers, drawn anew for "
            "each step"
        )


class GaussianCandidatesExporter(CandidateExporter):
    """BEAR-Lag's."""

    kind = "gaussian-candidates"

    def noise_size(self) -> int:
        return len(self.policy.metadata.action_low)

    def propose(self, graph: Graph, states: str, noise: str) -> str:
        size = self.noise_size()
        both = graph.layers(layers_of(self.tensors, "actor"), states)
        mean, log_std = (
            graph.node("Slice", both, graph.shape(start), graph.shape(start + size), graph.shape(1))
            for start in (0, size)
        )
        low, high = (graph.constant(float(end)) for end in LOG_STD_RANGE)
        std = graph.node("Exp", graph.node("Clip", log_std, low, high))
        return graph.node("Tanh", graph.node("Add", mean, graph.node("Mul", std, noise)))


class PerturbedDecodesExporter(CandidateExporter):
    """BCQ-Lag's."""

    kind = "perturbed-decodes"

    def noise_size(self) -> int:
        return int(self.tensors["decoderweight0"].shape[0]) - self.policy.observation_size

    def propose(self, graph: Graph, states: str, noise: str) -> str:
        latents = graph.node("Clip", noise, graph.constant(-LATENT_RANGE), graph.constant(LATENT_RANGE))
        decoder, actor = layers_of(self.tensors, "decoder"), layers_of(self.tensors, "actor")
        decoded = graph.node("Tanh", graph.layers(decoder, graph.node("Concat", states, latents, axis=-1)))
        shift = graph.layers(actor, graph.node("Concat", states, decoded, axis=-1), "Tanh")
        moved = graph.node("Mul", graph.node("Tanh", shift), graph.constant(float(self.policy.settings()["phi"])))
        return graph.node("Clip", graph.node("Add", decoded, moved), graph.constant(-1.0), graph.constant(1.0))
