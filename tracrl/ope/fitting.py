"""Updates one after the other; on a GPU recorded once and replayed, several learners side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn

from tracrl.train.graphs import WARM_UP, recorded, warmed_up


class Fitted(Protocol):
    """Something whose ``learn`` is work on tensors alone, the same in every update; ``clock`` counts them."""

    clock: Tensor
    updates: int

    def learn(self) -> Tensor: ...


class Adam:
    """PyTorch's one kernel for all parameters; the learning rate is a tensor, as a recorded update needs it."""

    def __init__(self, parameters: Iterable[nn.Parameter]):
        self.parameters: list[Tensor] = list(parameters)
        self.moments, self.squares = ([torch.zeros_like(p) for p in self.parameters] for _ in range(2))
        self.count = torch.zeros((), device=self.parameters[0].device)

    def step(self, loss: Tensor, lr: Tensor) -> None:
        """Along the sum of the losses of all runs."""
        gradients = torch.autograd.grad(loss.sum(), self.parameters)
        with torch.no_grad():
            self.count += 1
            torch._fused_adam_(
                self.parameters,
                [gradient.contiguous() for gradient in gradients],
                self.moments,
                self.squares,
                [],
                [self.count] * len(gradients),
                lr=lr.float(),
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )


def fit(*learners: Fitted) -> None:
    """All updates of each. They share nothing, so a GPU, which one alone does not fill, takes them at the same time."""
    for learner in learners:
        if learner.clock.device.type != "cuda" or learner.updates <= 2 * WARM_UP:
            for _ in range(learner.updates):
                learner.learn()
    rest = [learner for learner in learners if int(learner.clock) < learner.updates]
    if not rest:
        return
    streams = [warmed_up(learner.learn) for learner in rest]  # whose updates count like any other
    graphs = [recorded(learner.learn, stream)[0] for learner, stream in zip(rest, streams, strict=True)]
    for update in range(WARM_UP, max(learner.updates for learner in rest)):
        for learner, graph, stream in zip(rest, graphs, streams, strict=True):
            if update < learner.updates:
                with torch.cuda.stream(stream):
                    graph.replay()
    torch.cuda.synchronize()
