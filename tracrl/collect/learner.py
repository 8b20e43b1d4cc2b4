"""The training of the behaviour: rounds of whole episodes, snapshots on the way, a checkpoint to go on from."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tracrl.checkpoints import Checkpoint, restoring
from tracrl.collect.behaviour import GaussianBehaviour, View
from tracrl.collect.ppo import PPO, PPOSettings
from tracrl.collect.progress import Front, Progress
from tracrl.collect.recording import Recording
from tracrl.collect.rollout import Order, Rollout
from tracrl.collect.views import VIEWS
from tracrl.envs.pool import EnvPool

CHECKPOINT_SECONDS = 20.0
_FIRST_WEIGHTS, _LEARNING, _SHUFFLING = range(3)  # purposes that random numbers are drawn for


@dataclass(frozen=True)
class LearnerSettings:
    """How the behaviour is trained; the same numbers serve every task."""

    rounds: int = 100
    """a round's steps are the training's divided by this, within the bounds below"""
    fewest_steps: int = 2_000
    most_steps: int = 5_000
    """more in one round would leave hard tasks, which need millions of steps, too few rounds to get anywhere"""
    fewest_episodes: int = 8
    """a round has at least so many penalties to compare"""
    warm_up: int = 8
    """episodes whose observations start the normalisation; nothing is learned from them"""
    highest_penalty: float = 0.9
    """costs weigh ten times as much as rewards there: what earns more among the careful is still preferred"""
    at_the_ends: float = 0.1
    """share of episodes with the lowest penalty, and with the highest"""
    snapshots: tuple[float, ...] = (0.0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    """shares of the training after which the policy is kept for the recording"""
    recorded: float = 0.5
    """the episodes of the last so much of the training may enter the data set too"""
    ppo: PPOSettings = field(default_factory=PPOSettings)


@dataclass(frozen=True)
class Snapshot:
    """The policy after so many steps of training."""

    step: int
    behaviour: GaussianBehaviour


class Learner:
    """Trains one behaviour. What it becomes is determined by settings, seed and environment, not by the processes."""

    def __init__(self, pool: EnvPool, steps: int, seed: int, settings: LearnerSettings, limits: Sequence[float] = ()):
        self.pool, self.steps, self.seed, self.settings = pool, steps, seed, settings
        facts, longest = pool.info, float(pool.info.max_steps or 1000)
        tolerated = float(np.median(limits)) if len(limits) else 0.0
        first = int(np.random.SeedSequence((seed, _FIRST_WEIGHTS)).generate_state(1)[0])
        with one_thread():
            self.ppo = PPO(
                facts.observation_size, facts.action_size, settings.ppo, first, longest=longest, tolerated=tolerated,
                view=VIEWS.get(pool.spec.name) if pool.spec.is_task else None,
            )  # fmt: skip
        self.round = 0
        self.done = 0
        """steps so far"""
        self.length = longest
        """mean steps of an episode in the last round, the guess for the next"""
        self.snapshots: list[Snapshot] = []
        self.front = Front()
        self.recording = Recording()
        """episodes of the training, each with the number of the snapshot before it"""
        self._files: list[int] = []
        """how many of them were saved in all, after each of the files beside the checkpoint"""

    def run(self, checkpoint: Path | None, progress: Progress) -> list[Snapshot]:
        """Train to the end, from the checkpoint where there is one."""
        if checkpoint is not None and checkpoint.exists():
            with restoring(checkpoint):
                self.restore(Checkpoint.load(checkpoint))
            for number in range(len(self._files)):
                with restoring(_beside(checkpoint, number)):
                    self.recording.unpack(Checkpoint.load(_beside(checkpoint, number)))
        progress.learning(self.done, self.steps, self.front)
        saved = time.monotonic()
        with one_thread():
            while self.done < self.steps:
                self.turn()
                progress.learning(self.done, self.steps, self.front)
                due = self.done >= self.steps or time.monotonic() - saved > CHECKPOINT_SECONDS
                if checkpoint is not None and due:
                    self._save_recording(checkpoint)
                    self.checkpoint().save(checkpoint)
                    saved = time.monotonic()
            self.ppo.finish()
        return self.snapshots

    def turn(self) -> None:
        """One round: play, learn, and keep a snapshot where one is due."""
        if self.round == 0:
            self._warm_up()
        behaviour = self.ppo.behaviour()
        self._keep(behaviour)
        settings = self.settings
        wanted = min(max(self.steps / settings.rounds, settings.fewest_steps), settings.most_steps)
        episodes = max(settings.fewest_episodes, math.ceil(wanted / self.length))
        penalties, seeds = self._draw(episodes)
        orders = [Order(self.round, seed, penalty) for seed, penalty in zip(seeds, penalties, strict=True)]
        rollouts = self.pool.play({self.round: behaviour}, orders, self.length)
        pace = max(0.1, 1.0 - self.done / self.steps)  # the policy settles towards the end
        generator = np.random.default_rng((self.seed, _SHUFFLING, self.round))
        self.ppo.update(rollouts, penalties, pace, generator)
        self._see(rollouts)
        if self.done >= (1 - settings.recorded) * self.steps:
            self.recording.add([replace(order, behaviour=len(self.snapshots) - 1) for order in orders], rollouts)
        self.front.add(penalties, rollouts, settings.highest_penalty)
        self.done += sum(len(rollout) for rollout in rollouts)
        self.round += 1
        if self.done >= self.steps:
            self._keep(self.ppo.behaviour())

    def checkpoint(self) -> Checkpoint:
        tensors = self.ppo.state()
        for i, snapshot in enumerate(self.snapshots):
            tensors |= {f"snapshot.{i}.{name}": tensor for name, tensor in pack(snapshot.behaviour).items()}
        facts = {
            "round": self.round,
            "length": self.length,
            "snapshots": [snapshot.step for snapshot in self.snapshots],
            "front": self.front.recent,
            "recorded": self._files,
        }
        return Checkpoint(self.done, tensors, facts)

    def restore(self, checkpoint: Checkpoint) -> None:
        self.ppo.restore(checkpoint.tensors)
        self.done, self.round = checkpoint.step, int(checkpoint.metadata["round"])
        self.length = float(checkpoint.metadata["length"])
        self.front = Front([tuple(item) for item in checkpoint.metadata["front"]])
        self._files = list(checkpoint.metadata["recorded"])
        self.snapshots = []
        for i, step in enumerate(checkpoint.metadata["snapshots"]):
            prefix = f"snapshot.{i}."
            named = {k.removeprefix(prefix): v for k, v in checkpoint.tensors.items() if k.startswith(prefix)}
            self.snapshots.append(Snapshot(step, unpack(named, self.ppo.view)))

    def _save_recording(self, checkpoint: Path) -> None:
        """Before the checkpoint that counts on it."""
        if saved := self.recording.part(self._files[-1] if self._files else 0):
            saved.pack(len(self._files)).save(_beside(checkpoint, len(self._files)))
            self._files.append(len(self.recording))

    def _warm_up(self) -> None:
        """See a first few episodes, so that the first update already has normalised observations."""
        seeds = np.random.SeedSequence((self.seed, _LEARNING, 2**31)).generate_state(self.settings.warm_up)
        orders = [Order(-1, int(seed), 0.5) for seed in seeds]
        self._see(self.pool.play({-1: self.ppo.behaviour()}, orders, self.length))

    def _see(self, rollouts: Sequence[Rollout]) -> None:
        self.ppo.see(rollouts)
        self.length = float(np.mean([len(rollout) for rollout in rollouts]))

    def _draw(self, episodes: int) -> tuple[list[float], list[int]]:
        """Penalties spread evenly over their range, and a seed for each episode."""
        sequence = np.random.SeedSequence((self.seed, _LEARNING, self.round))
        generator = np.random.default_rng(sequence)
        # One in each of as many equal parts of the range: a round of few episodes still sees all of it.
        uniform = generator.permutation((np.arange(episodes) + generator.random(episodes)) / episodes)
        penalties = spread(uniform, self.settings.highest_penalty, self.settings.at_the_ends)
        return [float(p) for p in penalties], [int(s) for s in generator.integers(2**63, size=episodes)]

    def _keep(self, behaviour: GaussianBehaviour) -> None:
        due = sum(self.done >= share * self.steps for share in self.settings.snapshots)
        if due > 0 and (not self.snapshots or self._due_at(self.snapshots[-1].step) < due):
            self.snapshots.append(Snapshot(self.done, behaviour))

    def _due_at(self, step: int) -> int:
        return sum(step >= share * self.steps for share in self.settings.snapshots)


def _beside(checkpoint: Path, number: int) -> Path:
    return checkpoint.with_name(f"{checkpoint.stem}{number:03}.safetensors")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside: the networks are small, and sums over threads depend on their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def spread(uniform: NDArray[np.float64], highest: float, at_the_ends: float) -> NDArray[np.float64]:
    """Penalties from numbers that are uniform in [0, 1]: evenly over the range, some at its very ends."""
    return np.clip((uniform - at_the_ends) / (1 - 2 * at_the_ends), 0.0, 1.0) * highest


def pack(behaviour: GaussianBehaviour) -> dict[str, Tensor]:
    """A behaviour as named tensors."""
    weight, bias = behaviour.log_deviation
    arrays = {"mean": behaviour.mean, "scale": behaviour.scale, "deviation.weight": weight, "deviation.bias": bias}
    for i, (weight, bias) in enumerate(behaviour.layers):
        arrays |= {f"weight{i}": weight, f"bias{i}": bias}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def unpack(tensors: dict[str, Tensor], view: View | None = None) -> GaussianBehaviour:
    return unpacked({name: tensor.numpy() for name, tensor in tensors.items()}, view)


def unpacked(arrays: Mapping[str, NDArray[np.float32]], view: View | None = None) -> GaussianBehaviour:
    """The same from arrays."""
    depth = sum(name.startswith("weight") for name in arrays)
    layers = tuple((arrays[f"weight{i}"], arrays[f"bias{i}"]) for i in range(depth))
    deviation = arrays["deviation.weight"], arrays["deviation.bias"]
    return GaussianBehaviour(arrays["mean"], arrays["scale"], layers, deviation, view)
