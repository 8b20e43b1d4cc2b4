"""Random numbers as a pure function of (seed, step, stream, position): splitmix64 over a counter.

Nothing here has a state. A run draws the same numbers alone, in any stack, on any device and after any
interruption, because they depend on its own seed and the step alone; a checkpoint need not keep a generator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tracrl.nets import fusing

# Constants of splitmix64 (Steele, Lea and Flood 2014), as signed 64-bit integers: PyTorch's products wrap around.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64

Position = int | Tensor
"""Of the first number that is drawn; a scalar tensor (int64) where compiled code is to serve any position."""


_kernel: Callable[[Tensor, Tensor, int], Tensor] | None = None
"""(keys, first, words) → bytes on a GPU, where one is wanted (:func:`draw_by_kernel`)"""


def draw_by_kernel(device: torch.device) -> None:
    """From now on draw bytes on a GPU by a kernel of our own, where that is wanted (:func:`tracrl.nets.fusing.wanted`),
    Triton is there, and it gives the same bits."""
    global _kernel  # noqa: PLW0603 - of the process: there is one Triton
    if not fusing.wanted():
        _kernel = None
        return
    if _kernel is not None:
        return
    key = keys(torch.arange(2, device=device), torch.tensor(1, device=device), 2)
    problem: object = None
    try:
        from tracrl.nets.kernels import random_bytes as by_kernel

        drawn = by_kernel(key, torch.tensor(3, device=device), 100)
        if not torch.equal(drawn, random_bytes(key, 800, 3).to(torch.uint8)):
            problem = "its bits are others"
    except Exception as error:  # no Triton, or whatever a compiler says
        problem = error
    if problem is None:
        _kernel = by_kernel
    else:
        fusing.left_out("the kernel of random numbers is", problem)


def keys(seeds: Tensor, step: Tensor, stream: int) -> Tensor:
    """(R,) int64: one key per run for this step and purpose. ``seeds`` is (R,), ``step`` a scalar, both int64."""
    return _mix(_mix(_mix(seeds * _GAMMA) + step * _GAMMA) + stream)


def keys_by_hand(seeds: Sequence[int], step: int, stream: int) -> Tensor:
    """The same keys on a CPU, from whole numbers: a few of them are mixed ten times sooner than tensors of them."""

    def mix(value: int) -> int:
        value = (value ^ value >> 30) * (_MIX_1 + 2**64) % 2**64
        value = (value ^ value >> 27) * (_MIX_2 + 2**64) % 2**64
        return value ^ value >> 31

    gamma = _GAMMA + 2**64
    drawn = [mix((mix((mix(seed * gamma % 2**64) + step * gamma) % 2**64) + stream) % 2**64) for seed in seeds]
    return torch.tensor([value - 2**64 if value >= 2**63 else value for value in drawn], dtype=torch.int64)


def bits(key: Tensor, count: int, first: Position = 0) -> Tensor:
    """(R, count) int64 whose 64 bits are all random: those at positions ``first``, ``first`` + 1, …"""
    counter = torch.arange(count, device=key.device) + first
    return _mix((key[:, None] ^ counter) * _GAMMA)


def random_bytes(key: Tensor, count: int, first: Position = 0) -> Tensor:
    """(R, count) integers, uniform over 0 … 255; ``first`` is the position of the first word of eight."""
    if key.is_cuda and _kernel is not None:
        start = first if isinstance(first, Tensor) else torch.full((), first, device=key.device)
        return _kernel(key, start, -(-count // 8))[:, :count]
    words = bits(key, -(-count // 8), first)
    if words.is_cuda:  # the same bytes in a form that the compiler fuses into whatever uses them
        places = torch.arange(0, 64, 8, device=words.device)
        return ((words[..., None] >> places) & 255).flatten(1)[:, :count]
    return words.view(torch.uint8)[:, :count]


def uniform(key: Tensor, count: int) -> Tensor:
    """(R, count) float64, uniform over [0, 1)."""
    return _shift(bits(key, count), 11).to(torch.float64) * 2.0**-53


def below(key: Tensor, bounds: Tensor, count: int) -> Tensor:
    """(R, count) int64, uniform over 0 … bounds[r] − 1."""
    return (uniform(key, count) * bounds[:, None]).to(torch.int64)


def normal(key: Tensor, count: int) -> Tensor:
    """(R, count) float32, standard normal, by Box and Muller's transform."""
    uniform = (_shift(bits(key, 2 * count), 11).to(torch.float64) + 0.5) * 2.0**-53
    radius = torch.sqrt(-2 * torch.log(uniform[:, :count]))
    return (radius * torch.cos(2 * torch.pi * uniform[:, count:])).to(torch.float32)


def _mix(value: Tensor) -> Tensor:
    value = (value ^ _shift(value, 30)) * _MIX_1
    value = (value ^ _shift(value, 27)) * _MIX_2
    return value ^ _shift(value, 31)


def _shift(value: Tensor, by: int) -> Tensor:
    """A logical shift to the right: int64's own shift drags the sign bit along."""
    return (value >> by) & (2 ** (64 - by) - 1)


@functools.cache
def compiled_draws() -> tuple[Any, Any]:
    """For compiled kernels (Numba), which see uint64: (seed, step, stream) → the key of :func:`keys`, and
    (key, position) → the number of :func:`bits`."""
    import numba
    import numpy as np

    u64 = np.uint64
    gamma, mix_1, mix_2 = (u64(c + 2**64) for c in (_GAMMA, _MIX_1, _MIX_2))

    @numba.njit(inline="always")
    def mix(z: Any) -> Any:
        z = (z ^ (z >> u64(30))) * mix_1
        z = (z ^ (z >> u64(27))) * mix_2
        return z ^ (z >> u64(31))

    @numba.njit(inline="always")
    def key(seed: Any, step: Any, stream: Any) -> Any:
        return mix(mix(mix(u64(seed) * gamma) + u64(step) * gamma) + u64(stream))

    @numba.njit(inline="always")
    def draw(key: Any, position: Any) -> Any:
        return mix((key ^ u64(position)) * gamma)

    return key, draw


@functools.cache
def compiled_numbers() -> tuple[Any, Any]:
    """For compiled kernels: (key, position, bound) → the whole number of :func:`below`, and
    (key, position, count) → one of the ``count`` numbers of :func:`normal`."""
    import numba
    import numpy as np

    _, draw = compiled_draws()
    eleven = np.uint64(11)

    @numba.njit
    def below(key: Any, position: Any, bound: Any) -> Any:
        return np.int64(float(draw(key, position) >> eleven) * 2.0**-53 * float(bound))

    @numba.njit
    def normal(key: Any, position: Any, count: Any) -> Any:
        length = (float(draw(key, position) >> eleven) + 0.5) * 2.0**-53
        angle = (float(draw(key, position + count) >> eleven) + 0.5) * 2.0**-53
        return np.float32(np.sqrt(-2 * np.log(length)) * np.cos(2 * np.pi * angle))

    return below, normal
