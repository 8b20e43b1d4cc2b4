"""A GPU trains the same runs as a CPU: same batches, same dropout, same mathematics. Needs a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.conftest import make_small_data
from tests.methods.test_stacks import METHODS, RUNS, label
from tracrl.methods.bc import BCSafe
from tracrl.methods.cdt import CDT
from tracrl.methods.method import Method
from tracrl.methods.trac import TraC
from tracrl.methods.trac_any import TraCAny
from tracrl.nets import random
from tracrl.nets.stacked import StackedMLP, generators
from tracrl.train import graphs
from tracrl.train import stack as stacks
from tracrl.train.stack import Stack

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
    pytest.mark.filterwarnings("error:Left out"),  # where there is a GPU, its kernels must be used
]
TRAC = TraC(batch_size=8, hidden=(16, 16), clone_updates=3, updates=6, bc_lr=1e-2, lr=1e-2, warmup=1)
ANY = TraCAny(
    batch_size=8, hidden=(16, 16), clone_updates=2, updates=6, rounds=2, bc_lr=1e-2, lr=1e-2, warmup=1, label_limits=5
)
TOLD_X = replace(ANY, least_x=10.0)
WIDE = replace(TRAC, hidden=(64, 128), bc_lr=1e-3, lr=1e-3)
"""sizes that the kernels of a network take; slow, so that what is rounded does not grow from update to update"""
WIDE_ANY = replace(ANY, hidden=(64, 128), bc_lr=1e-3, lr=1e-3)
FUSED = CDT(batch_size=8, context=4, width=32, layers=2, heads=2, dropout=0.1, warmup=1, lr=1e-3)
"""sizes that the kernel of attention takes"""
BC = BCSafe(batch_size=16, hidden=(8, 8), lr=1e-2)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short a training is; with kernels of our own, as users have it, and none missing."""
    monkeypatch.setattr(graphs, "COMPILED_FROM", 0)
    monkeypatch.setenv("TRACRL_FUSED", "1")
    monkeypatch.setattr(random, "_kernel", None)


@pytest.fixture
def turned_off(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACRL_FUSED", "0")


@pytest.mark.parametrize("method", [BC, FUSED], ids=label)
def test_compiled_parts_train_the_same_runs(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    data, results = make_small_data(), []
    for first in (0, method.updates + 1):
        monkeypatch.setattr(graphs, "COMPILED_FROM", first)
        with Stack(method, data, RUNS, torch.device("cuda")) as stack:
            torch.backends.cuda.matmul.allow_tf32 = False
            results.append(torch.stack([stack.update()["loss"] for _ in range(6)]).cpu().numpy())
    assert np.allclose(*results, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", [TRAC, ANY, TOLD_X, BC, FUSED, *METHODS], ids=label)
def test_a_gpu_trains_the_same_runs_as_a_cpu(method: Method) -> None:
    same_runs_on_both(method)
    assert random._kernel is not None


@pytest.mark.usefixtures("turned_off")
@pytest.mark.parametrize("method", [TRAC, FUSED], ids=label)
def test_a_gpu_without_kernels_of_our_own_trains_the_same_runs_as_a_cpu(method: Method) -> None:
    same_runs_on_both(method)
    assert random._kernel is None


def same_runs_on_both(method: Method) -> None:
    data = make_small_data()
    observation = data.observations[0]
    losses, actions = [], []
    for device in ("cpu", "cuda"):
        with Stack(method, data, RUNS, torch.device(device)) as stack:
            torch.backends.cuda.matmul.allow_tf32 = False  # to be compared to more than three digits
            metrics = [stack.update() for _ in range(6)]
            policy = stack.policy()
        losses.append({name: torch.stack([m[name] for m in metrics]).cpu().numpy() for name in metrics[0]})
        policy.reset(7)
        actions.append(policy.act(observation))
    for name, values in losses[0].items():
        assert np.allclose(losses[1][name], values, rtol=1e-2, atol=1e-3), name
    assert np.allclose(actions[0], actions[1], atol=5e-3)


def test_a_batch_in_chunks_trains_the_same_runs_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of two segments, recorded with the update; their masks are those of the whole batch."""
    data, results = make_small_data(), []
    segment = int(data.lengths.max()) * sum(TRAC.hidden)
    monkeypatch.setattr(stacks, "gpu_activations", lambda *_: 2 * segment * len(RUNS))
    for uncut in (TRAC.batch_size * segment, 0):
        monkeypatch.setattr(stacks, "UNCUT_ACTIVATIONS", uncut)
        with Stack(TRAC, data, RUNS, torch.device("cuda")) as stack:
            torch.backends.cuda.matmul.allow_tf32 = False
            metrics = [stack.update() for _ in range(6)]
        results.append(torch.stack([m["loss"] for m in metrics]).cpu().numpy())
    assert np.allclose(*results, rtol=1e-3, atol=1e-4)


def test_bf16_products_stay_near_the_full_ones() -> None:
    """bfloat16 keeps eight bits: one update's loss is right to a percent."""
    data, results = make_small_data(), []
    for precision in ("float32", "bfloat16"):
        with Stack(TRAC, data, RUNS, torch.device("cuda"), precision=precision) as stack:
            results.append(stack.update()["loss"].cpu().numpy())
    assert np.allclose(*results, rtol=2e-2, atol=1e-2)
    assert not np.array_equal(*results)


def losses(stack: Stack, updates: int) -> np.ndarray:
    return torch.stack([stack.update()["loss"] for _ in range(updates)]).cpu().numpy()


@pytest.mark.parametrize("inputs", [7, 60, 260])
def test_kernels_of_a_network_pass_their_trial_at_the_sizes_of_tasks(inputs: int) -> None:
    network = StackedMLP(generators([0, 10]), (inputs, 256, 256, 8), output=torch.tanh, dropout=0.25).cuda()
    network.fuse()
    assert network.fused is not None


@pytest.mark.parametrize("method", [WIDE, WIDE_ANY], ids=label)
def test_networks_in_one_kernel_train_the_same_runs(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cloning and classification, compiled and recorded; both forms round to bfloat16, in different places."""
    data, results = make_small_data(), []
    for fused in (True, False):
        monkeypatch.setenv("TRACRL_FUSED", "1" if fused else "0")
        with Stack(method, data, RUNS, torch.device("cuda"), precision="bfloat16") as stack:
            (learner,) = stack.learners
            assert (learner.network.fused is not None) == fused  # type: ignore[union-attr]
            assert (random._kernel is not None) == fused
            results.append(losses(stack, 6))
    assert np.allclose(*results, rtol=2e-2, atol=1e-2)
    assert not np.array_equal(*results)


def test_the_form_that_was_taken_trains_the_runs_of_the_last() -> None:
    """Two forms in one process: neither is given what was compiled for the other."""
    from tracrl.nets.fused import FORMS

    data, results = make_small_data(), []
    for last in (False, True):
        with Stack(WIDE, data, RUNS, torch.device("cuda"), precision="bfloat16") as stack:
            (learner,) = stack.learners
            network = learner.network  # type: ignore[union-attr]
            network.forms = (len(FORMS) - 1,) * 2 if last else network.forms
            results.append(losses(stack, 6))
    assert np.allclose(*results, rtol=1e-2, atol=2e-3)


def test_networks_in_one_kernel_take_chunks_with_the_masks_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    data, results = make_small_data(), []
    segment = int(data.lengths.max()) * sum(WIDE.hidden)
    monkeypatch.setattr(stacks, "gpu_activations", lambda *_: 2 * segment * len(RUNS))
    for uncut in (WIDE.batch_size * segment, 0):
        monkeypatch.setattr(stacks, "UNCUT_ACTIVATIONS", uncut)
        with Stack(WIDE, data, RUNS, torch.device("cuda"), precision="bfloat16") as stack:
            results.append(losses(stack, 6))
    assert np.allclose(*results, rtol=1e-2, atol=2e-3)


def test_a_resumed_training_in_one_kernel_is_the_whole_one() -> None:
    data = make_small_data()
    with Stack(WIDE, data, RUNS, torch.device("cuda"), precision="bfloat16") as stack:
        whole = losses(stack, 6)
    with Stack(WIDE, data, RUNS, torch.device("cuda"), precision="bfloat16") as stack:
        stack.update(4)
        state = stack.state()
    with Stack(WIDE, data, RUNS, torch.device("cuda"), precision="bfloat16") as stack:
        stack.restore(state, 4)
        assert np.allclose(losses(stack, 2), whole[4:], rtol=1e-5, atol=1e-6)


def test_bytes_drawn_on_a_gpu_are_those_of_a_cpu() -> None:
    device = torch.device("cuda")
    random.draw_by_kernel(device)
    assert random._kernel is not None
    key = random.keys(torch.tensor([1, 2]), torch.tensor(3), 4)
    for count, first in ((13, 0), (4096, 5)):
        drawn = random.random_bytes(key.to(device), count, torch.tensor(first, device=device))
        assert torch.equal(drawn.cpu(), random.random_bytes(key, count, first))
