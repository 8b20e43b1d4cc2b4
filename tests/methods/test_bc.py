from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.methods.resuming import assert_goes_on_exactly
from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods import prepared
from tracrl.methods.bc import BCAll, BCSafe
from tracrl.methods.method import Compute, RunSpec
from tracrl.methods.sampling import RowSampler
from tracrl.nets import random
from tracrl.nets.passes import compiled_passes

CPU = torch.device("cpu")


def test_rows_are_drawn_evenly_and_only_from_chosen_episodes(small_data: Episodes) -> None:
    chosen = [small_data.total_costs <= 3, np.arange(len(small_data)) == 5]
    sampler = RowSampler(small_data, chosen, CPU)
    rows = sampler.draw(random.keys(torch.tensor([0, 1]), torch.tensor(0), 0), 40_000).numpy()
    for mine, mask in zip(rows, chosen, strict=True):
        episode = np.searchsorted(small_data.offsets, mine, side="right") - 1
        allowed = np.flatnonzero(np.repeat(mask, small_data.lengths))
        assert mask[episode].all()
        counts = np.bincount(mine, minlength=small_data.rows)[allowed]
        expected = 40_000 / len(allowed)
        assert counts.min() > 0
        assert ((counts - expected) ** 2 / expected).sum() < len(allowed) + 6 * (2 * len(allowed)) ** 0.5


def test_loss_is_the_mean_square_by_hand(small_data: Episodes) -> None:
    stack = BCAll(batch_size=7, hidden=(4,)).learner(small_data, [RunSpec(0.0, 3)], Compute())
    rows = stack.sampler.draw(stack.key(0), 7)[0].numpy()
    x = torch.from_numpy(small_data.observations[rows])
    (w1, b1), (w2, b2) = stack.network.weights()
    mean = torch.tanh(torch.relu(x @ w1[0] + b1[0]) @ w2[0] + b2[0]).numpy()
    expected = ((mean - small_data.actions[rows]) ** 2).mean()
    assert float(stack.update()["loss"]) == pytest.approx(float(expected), rel=1e-5)


def test_runs_of_a_stack_are_runs_alone(small_data: Episodes) -> None:
    method = BCSafe(updates=5, batch_size=16, hidden=(8,))
    runs = [RunSpec(3.0, 0), RunSpec(5.0, 1)]
    together = method.learner(small_data, runs, Compute())
    alone = [method.learner(small_data, [run], Compute()) for run in runs]
    for _ in range(5):
        together.update()
        for single in alone:
            single.update()
    for name, tensor in together.state_dict().items():
        for r, single in enumerate(alone):
            assert torch.equal(tensor[r], single.state_dict()[name][0]), name


def test_cloning_the_safe_is_tamer_than_cloning_all(small_data: Episodes) -> None:
    def boldness(method: BCAll | BCSafe) -> float:
        stack = method.learner(small_data, [RunSpec(2.0, 0)], Compute())
        for _ in range(400):
            stack.update()
        return float(np.abs(stack.policy()[0].act(small_data.observations)).mean())

    assert boldness(BCSafe(lr=3e-3, batch_size=128, hidden=(32,))) < 0.6 * boldness(
        BCAll(lr=3e-3, batch_size=128, hidden=(32,))
    )


def test_nothing_safe_to_clone_is_said(small_data: Episodes) -> None:
    bold = small_data.select(np.flatnonzero(small_data.total_costs > 2))
    with pytest.raises(TracrlError, match="No episode is safe at cost limit 1"):
        BCSafe().learner(bold, [RunSpec(1.0, 0)], Compute())


def test_compiled_passes_draw_the_batch_of_each_step(small_data: Episodes) -> None:
    passes = compiled_passes(False)
    assert passes is not None, "numba is part of what the tests install"
    learner = BCSafe(batch_size=48, hidden=(4,)).learner(
        small_data, [RunSpec(3.0, 0), RunSpec(5.0, 2**63 - 1)], Compute()
    )
    numbered = np.arange(small_data.rows, dtype=np.float32)[:, None]
    x, y = np.empty((40, 1), np.float32), np.empty((40, 1), np.float32)
    for step in (0, 1, 7, 10**9):
        learner.clock.fill_(step)
        rows = learner.sampler.draw(learner.key(0), 48)
        for run, draws in enumerate(learner.draws()):
            passes.gather(*draws, 8, numbered, -numbered, x, y)
            assert np.array_equal(x[:, 0], rows[run, 8:].numpy()), (step, run)
            assert np.array_equal(y, -x)


@pytest.mark.parametrize("bf16", [False, True])
def test_training_goes_on_from_its_tensors_exactly(small_data: Episodes, bf16: bool) -> None:
    method, runs = BCSafe(batch_size=16, hidden=(8, 8)), [RunSpec(3.0, 0), RunSpec(5.0, 1)]
    assert_goes_on_exactly(lambda: method.learner(small_data, runs, Compute(bf16=bf16)))


def test_without_compiled_passes_autograd_learns_the_same(
    small_data: Episodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, runs = BCSafe(batch_size=300, hidden=(16, 8)), [RunSpec(3.0, 0), RunSpec(5.0, 1)]
    compiled, plain = (method.learner(small_data, runs, Compute()) for _ in range(2))
    losses = [compiled.update()["loss"] for _ in range(5)]
    monkeypatch.setattr(prepared, "compiled_passes", lambda _: None)
    for loss in losses:
        assert torch.allclose(loss, plain.update()["loss"], rtol=1e-4)
    assert compiled.prepared is not None
    assert plain.prepared is None
    for name, tensor in compiled.state_dict().items():
        assert torch.allclose(tensor, plain.state_dict()[name], atol=1e-4), name
