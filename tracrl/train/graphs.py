"""A GPU replays a recorded update instead of being told each kernel anew: a CUDA graph of the whole of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from tracrl.methods.method import Learner

Result = TypeVar("Result")
WARM_UP = 3
COMPILED_FROM = 10_000
"""updates of a training: in a shorter one compiling takes longer than it saves"""


class RecordedUpdates:
    """Updates of a learner on a GPU, recorded once for each phase."""

    def __init__(self, learner: Learner, updates: int):
        """``updates`` that are to be made in all."""
        self.learner = learner
        self._phase: str | None = None
        self._graph = torch.cuda.CUDAGraph()
        self._metrics: dict[str, Tensor] = {}
        if updates < COMPILED_FROM:
            return
        # Compiled code is kept for each function, not each learner, and only a few times over; then it is silently
        # given up. A process that trains many stacks therefore begins each with an empty store.
        torch.compiler.reset()
        learner.compile_parts()

    def advance(self, times: int) -> dict[str, Tensor]:
        for _ in range(times):
            self.learner.prepare()
            if self.learner.phase != self._phase:
                self._record()
            self._graph.replay()
            self.learner.step += 1
        return {name: values.clone() for name, values in self._metrics.items()}

    def _record(self) -> None:
        """Compilers settle in the trial updates, too; what these did is undone."""
        learner = self.learner
        tensors = [*learner.parameters(), *learner.buffers()]
        before = [tensor.detach().clone() for tensor in tensors]
        warmed_up(learner.learn_in_precision)
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)
        del before

        def update() -> dict[str, Tensor]:
            metrics = learner.learn_in_precision()
            learner.clock += 1
            return metrics

        self._graph = torch.cuda.CUDAGraph()  # the memory of the phase before is free again
        self._graph, self._metrics = recorded(update)
        self._phase = learner.phase


def warmed_up(update: Callable[[], object]) -> torch.cuda.Stream:
    """Libraries settle in a few updates on a stream of their own."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            update()
    torch.cuda.current_stream().wait_stream(aside)
    return aside


def recorded(update: Callable[[], Result], on: torch.cuda.Stream | None = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The graph of an update, which it does not carry out, and the tensors that each replay fills.

    Matrix products keep their scratch memory for each stream they are recorded on: graphs that are replayed at the same
    time must be recorded on different ones.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=on):
        result = update()
    return graph, result
