"""A run in a stack is the run alone: exactly where as many threads compute it, nearly where more do."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.conftest import make_small_data
from tracrl.methods.cdt import CDT
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


def test_where_runs_are_computed_apart_each_is_the_run_alone() -> None:
    """CDT on a CPU: run by run, whatever the number of cores."""
    method = CDT(batch_size=4, context=3, width=8, layers=1, heads=2, dropout=0.1, warmup=1, lr=1e-3)
    data, runs = make_small_data(), [RunSpec(4.0, seed) for seed in range(3)]
    with Stack(method, data, runs, torch.device("cpu"), threads=1) as together:
        together.update(3)
        states = together.state()
    for i, run in enumerate(runs):
        with Stack(method, data, [run], torch.device("cpu"), threads=1) as alone:
            alone.update(3)
            for name, tensor in alone.state().items():
                assert torch.equal(states[name][i], tensor[0]), name
