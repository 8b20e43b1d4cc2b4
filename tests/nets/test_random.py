from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tracrl.nets import random

MASK = 2**64 - 1


def splitmix64(value: int) -> int:
    """The published finaliser in Python's unbounded integers."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def test_bits_are_splitmix64_over_a_counter() -> None:
    key = torch.tensor([12345, -7])
    drawn = random.bits(key, 5)
    for r, start in enumerate((12345, -7 & MASK)):
        for i in range(5):
            expected = splitmix64(((start ^ i) * 0x9E3779B97F4A7C15) & MASK)
            assert int(drawn[r, i]) & MASK == expected


def test_a_part_of_the_numbers_is_drawn_by_its_position() -> None:
    """Whether a number or a tensor says where it begins."""
    key = torch.tensor([12345, -7])
    for first in (3, torch.tensor(3)):
        assert torch.equal(random.bits(key, 5, first), random.bits(key, 8)[:, 3:])
        assert torch.equal(random.random_bytes(key, 13, first), random.random_bytes(key, 3 * 8 + 13)[:, 3 * 8 :])


def test_keys_depend_on_seed_step_and_stream() -> None:
    seeds = torch.tensor([0, 1, 2**40])
    seen = {
        int(k) for step in range(20) for stream in range(20) for k in random.keys(seeds, torch.tensor(step), stream)
    }
    assert len(seen) == 3 * 20 * 20


def test_a_run_draws_the_same_alone_and_in_a_stack() -> None:
    together = random.keys(torch.tensor([5, 9]), torch.tensor(3), 1)
    alone = random.keys(torch.tensor([9]), torch.tensor(3), 1)
    assert torch.equal(random.bits(together, 10)[1:], random.bits(alone, 10))


def test_bytes_are_uniform_and_independent_of_their_neighbours() -> None:
    drawn = random.random_bytes(random.keys(torch.tensor([1]), torch.tensor(2), 3), 1 << 20)[0].numpy()
    counts = np.bincount(drawn, minlength=256)
    expected = len(drawn) / 256
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert 170 < chi_square < 350  # 255 degrees of freedom: mean 255, standard deviation 22.6
    for lag in (1, 7, 8, 256):
        correlation = np.corrcoef(drawn[:-lag].astype(float), drawn[lag:].astype(float))[0, 1]
        assert abs(correlation) < 0.005


def test_below_covers_its_range_evenly() -> None:
    key = random.keys(torch.tensor([1, 2]), torch.tensor(0), 0)
    drawn = random.below(key, torch.tensor([3, 1000]), 30_000)
    assert torch.bincount(drawn[0]).tolist() == [int((drawn[0] == i).sum()) for i in range(3)]
    assert torch.bincount(drawn[0]).min() > 9_600
    assert drawn[1].min() == 0
    assert drawn[1].max() == 999


def test_normal_has_the_moments_of_a_normal() -> None:
    drawn = random.normal(random.keys(torch.tensor([4]), torch.tensor(0), 0), 200_000)[0].double()
    assert abs(float(drawn.mean())) < 0.01
    assert abs(float(drawn.var()) - 1) < 0.01
    assert abs(float((drawn**4).mean()) - 3) < 0.1


def test_keys_by_hand_are_the_same() -> None:
    seeds = [0, 10, -3, 2**62 + 5]
    for step, stream in ((0, 0), (7, 1000), (10**9, 3)):
        expected = random.keys(torch.tensor(seeds), torch.tensor(step), stream)
        assert torch.equal(random.keys_by_hand(seeds, step, stream), expected)


def test_a_kernel_that_draws_other_bytes_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(key: torch.Tensor, first: torch.Tensor, words: int) -> torch.Tensor:
        return random.random_bytes(key, 8 * words, first)

    def others(key: torch.Tensor, first: torch.Tensor, words: int) -> torch.Tensor:
        return same(key, first + 1, words)

    monkeypatch.delenv("TRACRL_FUSED", raising=False)
    monkeypatch.setattr(random, "_kernel", None)
    for kernel in (others, same):
        monkeypatch.setitem(sys.modules, "tracrl.nets.kernels", SimpleNamespace(random_bytes=kernel))
        if kernel is others:
            with pytest.warns(UserWarning, match="not used: its bits are others"):
                random.draw_by_kernel(torch.device("cpu"))
            assert random._kernel is None
        else:
            random.draw_by_kernel(torch.device("cpu"))
            assert random._kernel is same


def test_a_kernel_that_cannot_be_there_is_missed_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACRL_FUSED", "1")
    monkeypatch.setattr(random, "_kernel", None)
    monkeypatch.setitem(sys.modules, "tracrl.nets.kernels", None)
    with pytest.warns(UserWarning, match="Left out: .* not used: ModuleNotFoundError"):
        random.draw_by_kernel(torch.device("cpu"))
    assert random._kernel is None


@pytest.mark.filterwarnings("error")
def test_where_no_kernel_can_be_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACRL_FUSED", raising=False)
    monkeypatch.setattr(random, "_kernel", None)
    monkeypatch.setitem(sys.modules, "tracrl.nets.kernels", None)
    random.draw_by_kernel(torch.device("cpu"))
    assert random._kernel is None


def test_no_kernel_draws_where_they_are_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that an earlier training of the process had."""
    monkeypatch.setenv("TRACRL_FUSED", "0")
    monkeypatch.setattr(random, "_kernel", lambda key, first, words: key)
    monkeypatch.setitem(sys.modules, "tracrl.nets.kernels", None)  # must not even be looked for
    random.draw_by_kernel(torch.device("cpu"))
    assert random._kernel is None


def test_compiled_numbers_are_those_of_tensors() -> None:
    key, (below, normal) = random.keys(torch.tensor([4]), torch.tensor(9), 2), random.compiled_numbers()
    seen = np.uint64(int(key) % 2**64)
    assert [below(seen, i, 1000) for i in range(500)] == random.below(key, torch.tensor([1000]), 500)[0].tolist()
    expected = random.normal(key, 500)[0].tolist()
    assert [float(normal(seen, i, 500)) for i in range(500)] == pytest.approx(expected, rel=1e-6)
