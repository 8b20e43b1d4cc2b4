"""Random numbers for kernels of a GPU: the very bits of :mod:`tracrl.nets.random`, each word of them drawn once.

A byte decides about a unit, and a word has eight. Left to a compiler that fuses elementwise work, every unit draws the
whole word again to look at one byte of it. Used where :func:`tracrl.nets.fusing.wanted`.
"""

# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def"
# No annotations of the future: torch and Triton read those of this file as they are.

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

_GAMMA = tl.constexpr(0x9E3779B97F4A7C15)  # of splitmix64, as in tracrl.nets.random
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)
WORDS_AT_ONCE = 1024


@triton.jit
def drawn(key, position):
    """64 random bits for each position, uint64 both; ``key`` is a scalar, int64."""
    z = (key.to(tl.uint64, bitcast=True) ^ position) * _GAMMA
    z = (z ^ (z >> 30)) * _MIX_1
    z = (z ^ (z >> 27)) * _MIX_2
    return z ^ (z >> 31)


@triton.jit
def _draw(keys, first, out, words, at_once: tl.constexpr):
    run = tl.program_id(1)
    word = tl.program_id(0) * at_once + tl.arange(0, at_once)
    z = drawn(tl.load(keys + run), (tl.load(first) + word).to(tl.uint64))
    tl.store(out + run.to(tl.int64) * words + word, z.to(tl.int64, bitcast=True), mask=word < words)


@custom_op("tracrl::random_bytes", mutates_args=())
def random_bytes(keys: Tensor, first: Tensor, words: int) -> Tensor:
    """(R, 8 · words) uint8: :func:`tracrl.nets.random.random_bytes` from word ``first`` (a scalar) on."""
    out = torch.empty(len(keys), words, dtype=torch.int64, device=keys.device)
    grid = (triton.cdiv(words, WORDS_AT_ONCE), len(keys))
    _draw[grid](keys.contiguous(), first, out, words, WORDS_AT_ONCE)
    return out.view(torch.uint8)


@random_bytes.register_fake
def _(keys: Tensor, first: Tensor, words: int) -> Tensor:
    return torch.empty(len(keys), 8 * words, dtype=torch.uint8, device=keys.device)
