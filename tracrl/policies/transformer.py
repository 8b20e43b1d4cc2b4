"""CDT's policy: a transformer in plain NumPy that is told how much to return and what it may cost, and keeps account.

Every policy of a stack has its own weights and its own limit; all of them are shown the same episode.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracrl.errors import TracrlError
from tracrl.policies.base import Floats, Policy, PolicyMetadata, require

MOST = 1_000_000  # steps of context, heads
TOKENS_A_STEP = 4  # return-to-go, cost-to-go, observation, action


class TransformerPolicy(Policy):
    """Tensors are named as the modules of :class:`tracrl.methods.cdt.Model`."""

    kind = "transformer"

    def __init__(
        self,
        metadata: PolicyMetadata,
        tensors: Mapping[str, Floats],
        single: bool = False,
        *,
        targets: Sequence[Sequence[float]],
        context: int,
        heads: int,
        reward_scale: float,
        cost_offset: float,
    ):
        """``targets`` are (limit, return) pairs in rising order of limits."""
        super().__init__(metadata, tensors, single)
        for name, count in (("context", context), ("heads", heads)):
            require(isinstance(count, int) and 0 < count <= MOST, name, count)
        numbers = [reward_scale, cost_offset, *(number for pair in targets for number in pair)]
        for number in numbers:
            require(isinstance(number, int | float) and math.isfinite(number), "target or scale", number)
        require(len(targets) > 0 and all(len(pair) == 2 for pair in targets), "list of targets", targets)
        self.targets = [(float(limit), float(value)) for limit, value in targets]
        self.context, self.heads = context, heads
        self.reward_scale, self.cost_offset = reward_scale, cost_offset
        self._layers = sum(key.endswith(".mixing.weight") for key in tensors)
        self.reset(0)

    def settings(self) -> dict[str, Any]:
        return {
            "targets": [list(pair) for pair in self.targets],
            "context": self.context,
            "heads": self.heads,
            "reward_scale": self.reward_scale,
            "cost_offset": self.cost_offset,
        }

    def tensor_names(self) -> set[str]:
        parts = ("mixing", "attended", "attention_norm", "mlp_norm", "widen", "narrow")
        modules = [
            *("of_return", "of_cost", "of_observation", "of_action", "mean", "gpt.embedding_norm", "gpt.final_norm"),
            *(f"gpt.blocks.{i}.{part}" for i in range(self._layers) for part in parts),
        ]
        return {"steps"} | {f"{module}.{name}" for module in modules for name in ("weight", "bias")}

    @property
    def observation_size(self) -> int:
        return int(self.tensors["of_observation.weight"].shape[1])

    def target_return(self, limit: float) -> float:
        """What is asked for at a limit: the return listed for the highest limit that does not exceed it."""
        place = bisect.bisect_right([known for known, _ in self.targets], limit)
        return self.targets[max(place - 1, 0)][1]

    def reset(self, seed: int) -> None:
        limits = [limit / self.metadata.cost_unit for limit in self.metadata.limits]
        returns = [self.target_return(limit) * self.reward_scale for limit in limits]
        self._return_to_go = np.array(returns, np.float64)[:, None]
        self._cost_to_go = np.array(limits, np.float64)[:, None]
        self._step = 0
        self._history: list[tuple[Floats, Floats, Floats]] = []
        """(R, n, width) of each past step: the embedded return- and cost-to-go, observation and action"""

    def observe(self, reward: float, cost: float) -> None:
        super().observe(reward, cost)
        self._return_to_go = self._return_to_go - self.reward_scale * reward / self.metadata.reward_unit
        self._cost_to_go = self._cost_to_go - cost / self.metadata.cost_unit

    def act_scaled(self, observations: Floats) -> Floats:
        count = len(observations)
        if self._history and self._history[0][1].shape[1] != count:
            raise TracrlError(
                f"The episode began with {self._history[0][1].shape[1]} observations at a time, now there are {count}: "
                "call reset first."
            )
        # An episode longer than any in training stays at the last step that has an embedding.
        table = self.tensors["steps"]
        moment: Floats = table[:, min(self._step, table.shape[1] - 1)][:, None]
        goals = np.stack(
            [
                self._affine("of_return", self._broadcast(self._return_to_go, count)) + moment,
                self._affine("of_cost", self._broadcast(self.cost_offset - self._cost_to_go, count)) + moment,
            ],
            axis=2,
        )
        observed = self._affine("of_observation", observations[None]) + moment
        known = [token for goal, seen, done in self._history for token in (goal[:, :, 0], goal[:, :, 1], seen, done)]
        tokens = np.stack([*known, goals[:, :, 0], goals[:, :, 1], observed], axis=2)
        action = np.clip(self._affine("mean", self._last(tokens)), -1, 1)
        self._history.append((goals, observed, self._affine("of_action", action) + moment))
        self._history = self._history[-(self.context - 1) :] if self.context > 1 else []
        self._step += 1
        return action

    def _last(self, x: Floats) -> Floats:
        """(R, n, tokens, width) → (R, n, width): what the last token knows at the end of the transformer."""
        x = self._norm("gpt.embedding_norm", x)
        for i in range(self._layers):
            x = self._block(f"gpt.blocks.{i}", x)
        return self._norm("gpt.final_norm", x)[:, :, -1]

    def _block(self, name: str, x: Floats) -> Floats:
        runs, count, tokens, width = x.shape
        mixed = self._affine(f"{name}.mixing", self._norm(f"{name}.attention_norm", x))
        query, key, value = mixed.reshape(runs, count, tokens, 3, self.heads, -1).transpose(3, 0, 1, 4, 2, 5)
        scores = query @ key.swapaxes(-1, -2) * np.float32((width // self.heads) ** -0.5)
        scores = np.where(np.triu(np.ones((tokens, tokens), bool), 1), np.float32(-np.inf), scores)
        share = np.exp(scores - scores.max(axis=-1, keepdims=True))
        share /= share.sum(axis=-1, keepdims=True)
        together = (share @ value).swapaxes(2, 3).reshape(runs, count, tokens, width)
        x = x + self._affine(f"{name}.attended", together)
        hidden = _gelu(self._affine(f"{name}.widen", self._norm(f"{name}.mlp_norm", x)))
        return x + self._affine(f"{name}.narrow", hidden)

    def _affine(self, name: str, x: Floats) -> Floats:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        flat: Floats = x.reshape(len(x), -1, x.shape[-1]) @ weight + bias
        return flat.reshape(len(flat), *x.shape[1:-1], -1)

    def _norm(self, name: str, x: Floats) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        normal = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-5))
        shape = (len(self), *[1] * (x.ndim - 2), x.shape[-1])
        result: Floats = normal * self.tensors[f"{name}.weight"].reshape(shape)
        return result + self.tensors[f"{name}.bias"].reshape(shape)

    def _broadcast(self, values: Any, count: int) -> Floats:
        """(R, 1) → (R, n, 1)"""
        return np.broadcast_to(np.asarray(values, np.float32), (len(self), count))[..., None]


def _gelu(x: Floats) -> Floats:
    """By tanh, as in training."""
    inner = np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x * x * x)
    result: Floats = np.float32(0.5) * x * (1 + np.tanh(inner))
    return result
