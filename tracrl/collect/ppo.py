"""The behaviour learner: one PPO policy for every trade-off between reward and cost.

The policy is told a *penalty* in [0, 1], drawn anew each episode, and follows the advantage

    A = (1 − p) A_r / R − p A_c / C,

where A_r and A_c are the advantages for rewards and for costs, and R and C what an episode typically returns and costs
(root mean squares). So p = 0 knows no cost, p = 1 nothing else, and in the middle a whole episode's return weighs as
much as its cost, in whatever units and however rare the costs are: nothing has to be tuned to a task. (The mean reward
a step is no such unit. Where a return of 25 meets a cost of 50 it is 0.025 for each unit of cost, and no policy minds.)
Penalty 0 is p = 0; above it the odds p / (1 − p) grow by the same factor with each step of the penalty, since where a
task's trade-off lies, at which price of a cost, is known to no more than orders of magnitude.
C is never less than a cost that is tolerated anyway: else the first few costs of a policy that had none would weigh as
much as all that it earns, and it would stop there.
A is divided by its deviation at that p, so that every penalty is learned at the same pace. The critic has one output
for rewards and one for costs, each normalised by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tracrl.collect.advantages import advantages
from tracrl.collect.behaviour import OBSERVATION_CLIP, PENALTY_FEATURES, GaussianBehaviour, View, penalty_features
from tracrl.collect.gradients import Backprop, Descent
from tracrl.collect.network import copied, empty_linear, mlp
from tracrl.collect.normalise import RunningMoments
from tracrl.collect.rollout import Rollout

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class PPOSettings:
    """Proximal policy optimisation (Schulman et al. 2017); the same numbers serve every task."""

    hidden: tuple[int, ...] = (128, 128)
    sight: float = 0.5
    """how far rewards and costs ahead count, 1 / (1 − discount) steps, as a share of the longest episode"""
    shortest_sight: float = 100.0
    """in steps"""
    trace: float = 0.95
    clip: float = 0.2
    epochs: int = 10
    most_rows: int = 120_000
    """an update goes through no more rows than this, so through large batches less often"""
    value_epochs: int = 5
    """fewer: the rows of an episode are alike, and a critic soon knows by heart which of the few episodes had costs"""
    minibatches: int = 16
    learning_rate: float = 5e-4
    """of the first update; then the policy's, whatever leads to the wanted divergence, within the next two"""
    lowest_rate: float = 5e-5
    highest_rate: float = 2e-3
    divergence: float = 0.015
    """how far an update should lead from the policy that played; one that led three times as far ends there"""
    largest_gradient: float = 0.5
    first_deviation: float = 0.6
    value_memory: float = 0.9
    """how much of the value scale of the last batches is kept at the next"""
    scale_memory: float = 0.98
    """how slowly other scales may shrink: what is left of costs that were mastered is not blown up again"""
    odds: tuple[float, float] = (0.003, 24.0)
    """of cost against reward, just above penalty 0 and at 1"""

    def cost_share(self, penalties: Sequence[float]) -> Doubles:
        """What weight costs have, of 1, in what a policy with these penalties strives for."""
        told = np.array(penalties, np.float64)
        odds = self.odds[0] * (self.odds[1] / self.odds[0]) ** told
        return np.where(told > 0, odds / (1 + odds), 0.0)

    def discount(self, longest: float) -> float:
        """The discount of a task whose longest episode has so many steps."""
        return 1 - 1 / max(self.shortest_sight, self.sight * longest)


class PPO:
    """The networks, their optimiser and their normalisers."""

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        settings: PPOSettings,
        seed: int,
        *,
        longest: float = 0.0,
        tolerated: float = 0.0,
        view: View | None = None,
    ):
        """``longest`` is the number of steps of the longest episode, ``tolerated`` a cost of one that nobody minds.

        ``view`` is what the networks are given in place of the observations.
        """
        self.settings, self.tolerated, self.view = settings, tolerated, view
        self.discount = settings.discount(longest)
        size = len(self._viewed(np.zeros(observation_size, np.float32)))
        inputs = size + PENALTY_FEATURES
        generator = torch.Generator().manual_seed(seed)
        self.actor = mlp(generator, (inputs, *settings.hidden, action_size), last_gain=0.01)
        self.critic = mlp(generator, (inputs, *settings.hidden, 2), last_gain=1.0)
        self.log_deviation = empty_linear(PENALTY_FEATURES, action_size)
        nn.init.zeros_(self.log_deviation.weight)
        nn.init.constant_(self.log_deviation.bias, float(np.log(settings.first_deviation)))
        self._policy = Descent((self.actor, self.log_deviation), settings.largest_gradient)
        self._value = Descent((self.critic,), settings.largest_gradient)
        self._beside = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        """the critic's part of the last update, which goes on while the policy is updated and plays"""
        self.parameters = [*self._policy.parameters, *self._value.parameters]
        self.rate = np.array(settings.learning_rate)
        self.seen = RunningMoments(size)
        # Of rewards and costs: mean and mean square of the values, the scale of the advantages and of whole episodes.
        self.value_mean, self.value_square = np.zeros(2), np.zeros(2)
        self.advantage_scale, self.episode_scale = np.zeros(2), np.zeros(2)

    def behaviour(self) -> GaussianBehaviour:
        """A copy of the policy as it is now, for the simulator processes."""
        return GaussianBehaviour(
            mean=self.seen.mean.astype(np.float32),
            scale=self.seen.scale().astype(np.float32),
            layers=tuple(copied(layer) for layer in self.actor if isinstance(layer, nn.Linear)),
            log_deviation=copied(self.log_deviation),
            view=self.view,
        )

    def see(self, rollouts: Sequence[Rollout]) -> None:
        """Normalise by these episodes' observations too."""
        self.seen.update(self._viewed(np.concatenate([rollout.observations for rollout in rollouts])))

    def _viewed(self, observations: Floats) -> Floats:
        return observations if self.view is None else self.view(observations)

    def update(
        self, rollouts: Sequence[Rollout], penalties: Sequence[float], pace: float, generator: np.random.Generator
    ) -> dict[str, float]:
        """One round of PPO on these episodes; ``pace`` multiplies the wanted divergence.

        When it returns the policy is ready to play. The critic may still be learning: :meth:`finish` waits for it.
        """
        self.finish()
        settings = self.settings
        lengths = np.array([len(rollout) for rollout in rollouts])
        share = np.repeat(settings.cost_share(penalties), lengths)
        inputs, final_inputs = self._inputs(rollouts, penalties, lengths)
        actions = np.concatenate([rollout.actions for rollout in rollouts])
        signal = np.stack(
            [np.concatenate([getattr(rollout, name) for rollout in rollouts]) for name in ("rewards", "costs")], 1
        )
        terminated = np.array([rollout.terminated for rollout in rollouts])
        values = self._values(Backprop(self.critic).outputs(inputs))
        final_values = self._values(Backprop(self.critic).outputs(final_inputs))
        old_log_probability = self._log_probability(Backprop(self.actor), inputs, actions)[0]
        gains = advantages(
            signal, values, final_values, lengths, terminated, discount=self.discount, trace=settings.trace
        )
        targets = self._rescale_critic(gains + values).astype(np.float32)
        totals = np.add.reduceat(signal, np.cumsum(lengths) - lengths, axis=0, dtype=np.float64)
        advantage = self._scalarise(gains, totals, share).astype(np.float32)

        rows = len(advantage)
        self._pending = self._beside.submit(self._learn_values, inputs, targets, generator.spawn(1)[0])
        divergence, updates = 0.0, 0
        wanted = settings.divergence * pace
        for _ in range(max(2, min(settings.epochs, settings.most_rows // rows))):
            divergences = [
                self._learn_policy(inputs[batch], actions[batch], old_log_probability[batch], advantage[batch])
                for batch in self._batches(rows, generator)
            ]
            updates += len(divergences)
            divergence = float(np.mean(divergences))
            if divergence > 3 * wanted:
                break
        if not wanted / 2 < divergence < 2 * wanted:
            rate = self.rate * (1.2 if divergence < wanted else 1 / 1.5)
            self.rate = np.clip(rate, settings.lowest_rate, settings.highest_rate)
        return {
            "divergence": divergence,
            "updates": updates,
            "rate": float(self.rate),
            "deviation": float(self.log_deviation.bias.detach().exp().mean()),
        }

    def finish(self) -> None:
        """Wait until the critic has learned from the last update's episodes."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def _batches(self, rows: int, generator: np.random.Generator) -> list[NDArray[np.int64]]:
        shuffled, size = generator.permutation(rows), -(-rows // self.settings.minibatches)
        return [shuffled[start : start + size] for start in range(0, rows, size)]

    def _learn_policy(self, inputs: Tensor, actions: Floats, old_log_probability: Floats, gain: Floats) -> float:
        """A step up the clipped objective, min(r A, clip(r) A); returns how far the policy had moved before it."""
        network = Backprop(self.actor)
        log_probability, mean, standard, deviation = self._log_probability(network, inputs, actions)
        log_ratio = log_probability - old_log_probability
        ratio = np.exp(log_ratio)
        followed = ratio * gain
        bounded = np.minimum(np.maximum(ratio, 1 - self.settings.clip), 1 + self.settings.clip) * gain
        # Where the bounded one is less, the objective is constant.
        slope = (followed * (followed <= bounded) / np.float32(-len(gain)))[:, None]
        network.backward(slope * standard / deviation * (1 - mean * mean))
        by_deviation = slope * (standard * standard - 1)
        weight, bias = self.log_deviation.weight.grad, self.log_deviation.bias.grad
        assert weight is not None
        assert bias is not None
        weight.numpy()[:] = by_deviation.T @ inputs.numpy()[:, -PENALTY_FEATURES:]
        bias.numpy()[:] = by_deviation.sum(0)
        self._policy.step(float(self.rate))
        return float((ratio - 1 - log_ratio).mean())

    def _learn_values(self, inputs: Tensor, targets: Floats, generator: np.random.Generator) -> None:
        """A few times through all rows, down the mean squared error of both outputs."""
        network = Backprop(self.critic)
        for _ in range(self.settings.value_epochs):
            for batch in self._batches(len(targets), generator):
                error = network.outputs(inputs[batch]) - targets[batch]
                network.backward(error * np.float32(2 / error.size))
                self._value.step(self.settings.learning_rate)

    def state(self) -> dict[str, Tensor]:
        """Everything that learning goes on from."""
        self.finish()
        tensors = {f"parameter.{i}": p.detach() for i, p in enumerate(self.parameters)}
        for i, of_one in enumerate(self._policy.state() + self._value.state()):
            tensors |= {f"optimiser.{i}.{name}": value for name, value in of_one.items()}
        numbers = {
            "seen.count": np.array(self.seen.count),
            "seen.mean": self.seen.mean,
            "seen.variance": self.seen.variance,
            "value_mean": self.value_mean,
            "value_square": self.value_square,
            "rate": self.rate,
            "advantage_scale": self.advantage_scale,
            "episode_scale": self.episode_scale,
        }
        return tensors | {name: torch.from_numpy(np.array(value)) for name, value in numbers.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.finish()
        moments = []
        for i, parameter in enumerate(self.parameters):
            parameter.data.copy_(tensors[f"parameter.{i}"])
            prefix = f"optimiser.{i}."
            moments.append({k.removeprefix(prefix): v.clone() for k, v in tensors.items() if k.startswith(prefix)})
        split = len(self._policy.parameters)
        self._policy.restore(moments[:split])
        self._value.restore(moments[split:])
        self.seen.count = float(tensors["seen.count"])
        self.seen.mean, self.seen.variance = (tensors[f"seen.{name}"].numpy().copy() for name in ("mean", "variance"))
        for name in ("rate", "value_mean", "value_square", "advantage_scale", "episode_scale"):
            setattr(self, name, tensors[name].numpy().copy())

    def _inputs(
        self, rollouts: Sequence[Rollout], penalties: Sequence[float], lengths: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """What the networks see at each row, and after the last row of each episode."""
        features = penalty_features(np.array(penalties, np.float32))
        mean, scale = self.seen.mean.astype(np.float32), self.seen.scale().astype(np.float32)

        def joined(observations: NDArray[np.float32], told: NDArray[np.float32]) -> Tensor:
            normalised = np.clip((self._viewed(observations) - mean) * scale, -OBSERVATION_CLIP, OBSERVATION_CLIP)
            return torch.from_numpy(np.concatenate([normalised, told], 1))

        return (
            joined(np.concatenate([rollout.observations[:-1] for rollout in rollouts]), features.repeat(lengths, 0)),
            joined(np.stack([rollout.observations[-1] for rollout in rollouts]), features),
        )

    def _log_probability(
        self, network: Backprop, inputs: Tensor, actions: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Up to a constant, which cancels in every ratio; and mean, standardised actions, deviation."""
        weight, bias = self.log_deviation.weight.detach().numpy(), self.log_deviation.bias.detach().numpy()
        log_deviation = inputs.numpy()[:, -PENALTY_FEATURES:] @ weight.T + bias
        mean, deviation = np.tanh(network.outputs(inputs)), np.exp(log_deviation)
        standard = (actions - mean) / deviation
        return -0.5 * np.square(standard).sum(1) - log_deviation.sum(1), mean, standard, deviation

    def _value_deviation(self) -> Doubles:
        """In units of the signal; 0 where there was none so far. The floor keeps a constant value from vanishing."""
        return np.sqrt(np.maximum(self.value_square - self.value_mean**2, 1e-6 * self.value_square))

    def _values(self, outputs: Floats) -> Doubles:
        return outputs * self._value_deviation() + self.value_mean

    def _rescale_critic(self, targets: Doubles) -> Doubles:
        """Targets in normalised units; the last layer changes so that no prediction does (van Hasselt et al. 2016)."""
        old_mean, old = self.value_mean, self._value_deviation()
        # What a signal shows first counts in full.
        kept = np.where(self.value_square > 0, self.settings.value_memory, 0.0)
        self.value_mean = kept * self.value_mean + (1 - kept) * targets.mean(0)
        self.value_square = kept * self.value_square + (1 - kept) * (targets**2).mean(0)
        new = np.where((deviation := self._value_deviation()) > 0, deviation, 1.0)
        factor = np.where(kept > 0, old / new, 1.0)
        shift = np.where(kept > 0, (old_mean - self.value_mean) / new, 0.0)
        last = self.critic[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight.mul_(torch.from_numpy(factor[:, None]))
            last.bias.mul_(torch.from_numpy(factor)).add_(torch.from_numpy(shift))
        return (targets - self.value_mean) / new

    def _scalarise(self, gains: Doubles, totals: Doubles, share: Doubles) -> Doubles:
        """One advantage a row from those for rewards and costs; ``totals`` are the episodes' returns and costs."""
        memory = self.settings.scale_memory
        self.advantage_scale = np.maximum(gains.std(0), memory * self.advantage_scale)
        self.episode_scale = np.maximum(np.sqrt((totals**2).mean(0)), memory * self.episode_scale)
        # A signal that was always zero so far has no scale, and no weight either.
        scale = np.where(self.episode_scale > 0, np.maximum(self.episode_scale, (0.0, self.tolerated)), np.inf)
        weight = np.stack([1 - share, share], 1) / scale
        centred = gains - gains.mean(0)
        deviation = np.hypot(*(weight * self.advantage_scale).T)
        return (weight[:, 0] * centred[:, 0] - weight[:, 1] * centred[:, 1]) / np.where(deviation > 0, deviation, 1.0)
