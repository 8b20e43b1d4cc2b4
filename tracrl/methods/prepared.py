"""Learners whose update on a CPU is calls that are the same every time, on the same memory, and so put together once.

As calls of torch and of autograd an update of a run is some hundreds, each of a few microseconds in which one thread
waits for the other. Prepared, the large products are torch's and all between them is in compiled passes
(:mod:`tracrl.nets.unrolled`). Where these are not there, and on a GPU, :meth:`Learner.learn` does the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tracrl.methods.method import Learner
from tracrl.nets.passes import compiled_passes

PreparedUpdate = Callable[[], dict[str, Tensor]]
"""an update of every run; metrics are (R,)"""


class PreparedLearner(Learner):
    """A learner that prepares its update on a CPU."""

    by_autograd = False
    """whether its method is in a form that is not prepared"""
    prepared: PreparedUpdate | None = None
    """from the first update on"""

    @abstractmethod
    def put_together(self) -> PreparedUpdate:
        """An update that does what :meth:`learn` would. Nobody else moves the learner's tensors from then on."""

    def learn_in_precision(self) -> dict[str, Tensor]:
        if self.by_autograd or self.compute.device.type != "cpu" or compiled_passes(self.compute.bf16) is None:
            return super().learn_in_precision()
        if self.prepared is None:
            self.prepared = self.put_together()
        return self.prepared()

    def drawing(self, run: int) -> tuple[int, Any]:
        """What a run's random numbers follow from, for compiled passes: its seed, and the clock where it lies."""
        return self.runs[run].seed, self.clock.numpy()

    def restore(self, state: Mapping[str, Tensor], step: int) -> None:
        self.prepared = None  # it knows the weights in bfloat16 as they were
        super().restore(state, step)
