"""Evaluations on the way of a training: which policy is due, and its episodes beside the training that goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tracrl.evaluation.evaluate import Evaluator
from tracrl.evaluation.scores import Scores
from tracrl.policies.base import Policy

SECONDS_A_LOOK = 0.1


@dataclass
class Due:
    """An evaluation that is not finished."""

    step: int
    """after which update the policies were taken"""
    phase: str
    policy: Policy
    scores: Future[Scores] | None = None
    """of one that is played beside the training"""


class Beside:
    """Plays one evaluation at a time in a thread of its own; the simulators are processes anyway."""

    def __init__(self, evaluator: Evaluator):
        self._evaluator = evaluator
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluation")
        self._over = threading.Event()

    def begin(self, policy: Policy) -> Future[Scores]:
        return self._thread.submit(self._evaluator.evaluate, policy, on_the_way=True, progress=self._look)

    def wait(self, scores: Future[Scores], look: Callable[[], None]) -> None:
        """Until they are there; ``look`` may end it."""
        while not scores.done():
            look()
            threading.Event().wait(SECONDS_A_LOOK)

    def close(self) -> None:
        """Wait for no more than the episode that is being played."""
        self._over.set()
        self._thread.shutdown(wait=True)

    def _look(self, done: int, episodes: int) -> None:
        if self._over.is_set() and done < episodes:
            raise _OverError


class _OverError(Exception):
    """Nobody waits for this evaluation any more."""
