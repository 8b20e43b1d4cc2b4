"""A training that goes on from what a checkpoint holds ends where one that was never stopped does."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tracrl.methods.method import Learner


def assert_goes_on_exactly(make: Callable[[], Learner]) -> None:
    """Five updates; and two, whose tensors another learner, which has begun already, takes for three more."""
    whole, half, resumed = (make() for _ in range(3))
    for learner, updates in ((whole, 5), (half, 2), (resumed, 1)):
        for _ in range(updates):
            learner.update()
    resumed.restore({name: tensor.clone() for name, tensor in half.state_dict().items()}, half.step)
    for _ in range(3):
        resumed.update()
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
