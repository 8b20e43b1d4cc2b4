"""A run in a stack is the run alone: exactly where as many threads compute it, nearly where more do."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.conftest import make_small_data
from tracrl.methods.method import RunSpec
from tracrl.methods.trac import TraC
from tracrl.train.stack import Stack

RUNS = [RunSpec(3.0, 0), RunSpec(4.0, 1)]
# Large enough that PyTorch gives a product or a sum to two threads.
METHOD = TraC(updates=12, clone_updates=6, batch_size=48, hidden=(256, 256), warmup=2)


def trained(runs: list[RunSpec], threads: int) -> dict[str, Tensor]:
    with Stack(METHOD, make_small_data(), runs, torch.device("cpu"), threads=threads) as stack:
        stack.update(METHOD.updates)
        return stack.state()


def test_a_run_in_a_stack_is_the_run_alone_however_the_stack_is_cut() -> None:
    whole, cut, alone = trained(RUNS, 1), trained(RUNS, 2), trained(RUNS[1:], 1)
    for name, tensor in whole.items():
        assert torch.equal(tensor, cut[name]), name
        assert torch.equal(tensor[1:], alone[name]), name


def test_a_run_by_two_threads_is_nearly_the_run_by_one() -> None:
    one, two = trained(RUNS[:1], 1), trained(RUNS[:1], 2)
    for name, tensor in one.items():
        assert torch.allclose(tensor, two[name], atol=1e-4), name
