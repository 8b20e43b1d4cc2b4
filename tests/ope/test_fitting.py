"""The optimiser and the loop that all learners of estimates share."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tracrl.ope.fitting import Adam, fit

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]


class Line:
    """Fits a slope to a fixed one, with a learning rate that falls."""

    def __init__(self, slope: float, updates: int, device: str):
        self.weight = nn.Parameter(torch.zeros(3, 1, device=device))
        self.slope, self.updates = slope, updates
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self.adam = Adam([self.weight])

    def learn(self) -> Tensor:
        loss = (self.weight - self.slope).square().sum(1)
        self.adam.step(loss, 0.1 * (1 - self.clock / self.updates))
        self.clock += 1
        return loss.detach()


@pytest.mark.parametrize("device", DEVICES)
def test_it_is_adam(device: str) -> None:
    line, weight = Line(2.0, 40, device), nn.Parameter(torch.zeros(3, 1, device=device))
    usual = torch.optim.Adam([weight])
    for update in range(line.updates):
        usual.param_groups[0]["lr"] = 0.1 * (1 - update / line.updates)
        usual.zero_grad()
        (weight - line.slope).square().sum().backward()
        usual.step()
        line.learn()
    torch.testing.assert_close(line.weight, weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_learners_side_by_side_learn_what_they_do_alone(device: str) -> None:
    lines = [Line(1.0, 30, device), Line(-1.0, 200, device), Line(3.0, 4, device)]
    fit(*lines)
    for line in lines:
        assert int(line.clock) == line.updates
        alone = Line(line.slope, line.updates, device)
        for _ in range(line.updates):
            alone.learn()
        torch.testing.assert_close(line.weight, alone.weight)
