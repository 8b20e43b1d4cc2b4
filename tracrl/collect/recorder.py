"""The recording: many more kinds of episodes than the behaviour would play by itself.

Episodes come from snapshots early and late, with random penalties and action noises; in half of them the penalty
changes once on the way, which fills the middle of the plane. The first half of the candidates is drawn blindly. Of the
second half, most are played like episodes that lie where the plane is sparse or that are the best safe ones, with
everything changed a little (after MAP-Elites, Mouret and Clune 2015).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracrl.checkpoints import Checkpoint, restoring
from tracrl.collect.behaviour import Behaviour
from tracrl.collect.learner import spread
from tracrl.collect.progress import Progress
from tracrl.collect.recording import Recording
from tracrl.collect.rollout import Order, Rollout
from tracrl.collect.thinning import EVERYWHERE, FRONT, Region, cell_of, nearness
from tracrl.envs.pool import EnvPool

_RECORDING = 3  # the purpose that random numbers are drawn for, beside the learner's


@dataclass(frozen=True)
class RecorderSettings:
    """How episodes are drawn for the recording."""

    candidates: float = 1.5
    """episodes to choose from for each one that is kept, those of the learning counted"""
    fresh: float = 0.4
    """of these, at least so many are played for the recording"""
    rounds: int = 16
    blind_rounds: int = 8
    alike: float = 0.75
    """share of a later round that is played much like an episode recorded before"""
    best_safe: int = 5
    """the best so many safe episodes at each limit are played alike too"""
    late: float = 0.5
    """share of blind episodes from the last third of the behaviours; the others come from all of them alike"""
    at_the_ends: float = 0.1
    """share of blind episodes with the lowest penalty, and with the highest"""
    halfhearted: tuple[float, float] | None = None
    """penalties between these two are told to nobody, where given: half of the blind episodes lie evenly below them,
    half above, so that one is safe because of who played it, and not by luck"""
    changing: float = 0.5
    """share of blind episodes whose penalty changes once on the way"""
    most_noise: float = 1.5
    """the policy's deviation is multiplied with a number between 0 and this"""
    with_random_actions: float = 0.3
    """share of blind episodes in which some actions are drawn uniformly"""
    most_random: float = 0.5
    """at most this share of the actions of such an episode"""


class Recorder:
    """Plays candidates round by round; each round is a file, so that a recording can go on where it stopped."""

    def __init__(
        self,
        pool: EnvPool,
        behaviours: Sequence[Behaviour],
        episodes: int,
        *,
        seed: int,
        limits: Sequence[float],
        share: float,
        highest_penalty: float,
        settings: RecorderSettings,
        region: Region = EVERYWHERE,
        front: float = FRONT,
        learned: Recording | None = None,
    ):
        """``share`` of the episodes is to be safe, and as much unsafe, at each limit.

        More are played in the ``region``, and near the ``front`` (:func:`~tracrl.collect.thinning.thin`). ``learned``
        are episodes that the behaviours have played already, while they were learned.
        """
        self.pool, self.episodes, self.seed, self.limits = pool, episodes, seed, limits
        self.needed, self.highest_penalty, self.settings = math.ceil(share * episodes), highest_penalty, settings
        self.behaviours = dict(enumerate(behaviours))
        self.region, self.front = region, front
        self.recording = Recording()
        if learned is not None:
            self.recording.add(learned.orders, learned.rollouts)
        self.learned = len(self.recording)

    def run(self, directory: Path | None, progress: Progress) -> Recording:
        settings = self.settings
        fresh = max(settings.fresh * self.episodes, settings.candidates * self.episodes - self.learned)
        total = math.ceil(fresh)
        sizes = [len(part) for part in np.array_split(np.arange(total), settings.rounds) if len(part)]
        files = [] if directory is None else [directory / f"round{i:02}.safetensors" for i in range(len(sizes))]
        before = list(itertools.takewhile(Path.exists, files))
        for file in before:
            with restoring(file):
                self.recording.unpack(Checkpoint.load(file))
        covered = self.recording.coverage(self.limits) if before else None
        progress.recording(len(self.recording) - self.learned, total, covered)
        for number in range(len(before), len(sizes)):
            generator = np.random.default_rng((self.seed, _RECORDING, number))
            orders = self.orders(sizes[number], generator, blind=number < settings.blind_rounds)
            rollouts = self._play(orders, total, progress)
            if files:
                Recording(orders, rollouts).pack(number).save(files[number])
            self.recording.add(orders, rollouts)
            progress.recording(len(self.recording) - self.learned, total, self.recording.coverage(self.limits))
        return self.recording

    def orders(self, count: int, generator: np.random.Generator, blind: bool) -> list[Order]:
        """What to play in a round."""
        length = self._length()
        like = [] if blind else self._parents(count, generator)
        return [
            self._near(like[i], length, generator) if i < len(like) else self._blind(length, generator)
            for i in range(count)
        ]

    def _play(self, orders: Sequence[Order], total: int, progress: Progress) -> list[Rollout]:
        done = len(self.recording) - self.learned

        def played(_: Rollout) -> None:
            nonlocal done
            done += 1
            progress.recording(done, total, None)

        return self.pool.play(self.behaviours, orders, self._length(), played)

    def _length(self) -> float:
        """Steps of a long episode: a change of penalty later than that would never come."""
        if not self.recording.rollouts:
            return float(self.pool.info.max_steps or 1000)
        return float(np.quantile([len(rollout) for rollout in self.recording.rollouts], 0.9))

    def _blind(self, length: float, generator: np.random.Generator) -> Order:
        settings = self.settings
        count = len(self.behaviours)
        first = count - max(1, count // 3) if generator.random() < settings.late else 0
        uniform = generator.random(2)
        if settings.halfhearted is None:
            before, after = spread(uniform, self.highest_penalty, settings.at_the_ends)
        else:
            before, after = decided(uniform, settings.halfhearted, self.highest_penalty)
        changes = generator.random() < settings.changing
        disturbed = generator.random() < settings.with_random_actions
        return Order(
            behaviour=int(generator.integers(first, count)),
            seed=int(generator.integers(2**63)),
            penalty=float(before),
            change_at=int(generator.uniform(0.05, 0.95) * length) if changes else -1,
            later_penalty=float(after),
            noise=float(generator.uniform(0, settings.most_noise)),
            random=float(generator.uniform(0, settings.most_random)) if disturbed else 0.0,
        )

    def _parents(self, count: int, generator: np.random.Generator) -> list[Order]:
        """Orders of recorded episodes: of sparse cells by the front, of kinds short at a limit, of the best safe."""
        costs, returns = self.recording.costs, self.recording.returns
        cells = cell_of(costs, returns)
        _, place, filled = np.unique(cells, return_inverse=True, return_counts=True)
        # Outside the region only where all of a kind are.
        weight = (nearness(costs, returns, self.region, self.front) + 1e-9) / filled[place]
        picked = []
        wanted = round(count * self.settings.alike)
        special = [*self._scarce(costs), *self._best_safe(costs, returns)]
        for i in range(wanted):
            # In turns: the plane as a whole, and what there should be more of.
            among = weight * special[i // 2 % len(special)] if special and i % 2 else weight
            picked.append(self.recording.orders[int(generator.choice(len(costs), p=among / among.sum()))])
        return picked

    def _scarce(self, costs: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
        """The episodes of each kind, safe or unsafe, of which there are too few at some limit, or those next to it."""
        kinds = []
        for limit in self.limits:
            for members in (costs <= limit, costs > limit):
                if members.sum() >= self.needed:
                    continue
                if not members.any():
                    few = max(1, len(costs) // 20)
                    toward = costs if limit < costs.min() else -costs
                    members = np.isin(np.arange(len(costs)), np.argsort(toward, kind="stable")[:few])  # noqa: PLW2901
                kinds.append(members)
        return kinds

    def _best_safe(self, costs: NDArray[np.float64], returns: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
        """The few safe episodes of the highest return at each limit: others like them lead further."""
        ranked = np.argsort(-returns, kind="stable")
        best = [ranked[costs[ranked] <= limit][: self.settings.best_safe] for limit in self.limits]
        return [np.isin(np.arange(len(costs)), few) for few in best if len(few)]

    def _near(self, order: Order, length: float, generator: np.random.Generator) -> Order:
        """Another episode played much like this one."""
        highest, last = self.highest_penalty, len(self.behaviours) - 1
        penalty, later = np.clip(generator.normal((order.penalty, order.later_penalty), 0.06), 0, highest)
        moved = order.change_at + generator.normal(0, 0.1) * length
        return replace(
            order,
            behaviour=int(np.clip(order.behaviour + generator.integers(-1, 2), 0, last)),
            seed=int(generator.integers(2**63)),
            penalty=float(penalty),
            later_penalty=float(later),
            change_at=-1 if order.change_at < 0 else int(np.clip(moved, 1, length)),
            noise=float(np.clip(order.noise + generator.normal(0, 0.1), 0, self.settings.most_noise)),
            random=float(np.clip(order.random * generator.uniform(0.7, 1.3), 0, 1)),
        )


def decided(uniform: NDArray[np.float64], gap: tuple[float, float], highest: float) -> NDArray[np.float64]:
    """Penalties from numbers that are uniform in [0, 1): half evenly below the gap, half evenly above it."""
    low, high = gap
    return np.where(uniform < 0.5, 2 * uniform * low, high + (2 * uniform - 1) * (highest - high))
