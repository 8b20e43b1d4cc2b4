"""Updates one after the other; on a GPU recorded once and replayed."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

WARM_UP = 3


class Fitted(Protocol):
    """Something whose ``learn`` is work on tensors alone, the same in every update; ``clock`` counts them."""

    clock: Tensor

    def learn(self) -> Tensor: ...


def fit(learner: Fitted, updates: int) -> None:
    """So many updates."""
    if learner.clock.device.type != "cuda" or updates <= 2 * WARM_UP:
        for _ in range(updates):
            learner.learn()
        return
    # Libraries settle in a few updates aside from the recording. They count like any other.
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            learner.learn()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        learner.learn()
    for _ in range(updates - WARM_UP):
        graph.replay()
    torch.cuda.synchronize()
