"""A causal transformer with a leading dimension of runs, of the kind called GPT: normalisation first, GELU, dropout.

Layers are those of :mod:`tracrl.nets.stacked`; tokens are (R, sequences, tokens, width).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tracrl.nets import fusing
from tracrl.nets.blocks import affine
from tracrl.nets.dropout import scaled_dropout
from tracrl.nets.gelu import gelu
from tracrl.nets.stacked import gpu_product

STD = 0.02  # of all first weights
Keys = Callable[[int], Tensor]
"""stream → keys (R,) of dropout masks"""
Attend = Callable[[Tensor, Tensor, Tensor, int, int], Tensor]
Wanted = Callable[[Tensor], Tensor]
"""(R, sequences, tokens, width) → the same of some of the tokens"""
_STREAMS_A_BLOCK = 3
MOST_FUSED_TOKENS, FUSED_HEADS = 128, (16, 32, 64)
"""what the kernel of :mod:`tracrl.nets.attention` takes, tokens a multiple of 8: a program has all scores of a head"""


def every(tokens: Tensor) -> Tensor:
    return tokens


class Affine(nn.Module):
    """x ↦ x W + b on the last dimension: weight (R, in, out), bias (R, 1, out), input (R, …, in)."""

    def __init__(self, generators: Sequence[torch.Generator], inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.stack([_normal(g, inputs, outputs) for g in generators]))
        self.bias = nn.Parameter(torch.zeros(len(generators), 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1, -2)
        if x.is_cuda:
            result = gpu_product(flat, self.weight) + self.bias
        elif self.weight.dtype == torch.float32:
            result = affine(flat, self.weight, self.bias, torch.is_autocast_enabled("cpu"))
        else:
            result = torch.baddbmm(self.bias, flat, self.weight)
        return result.view(*x.shape[:-1], -1)


class LayerNorm(nn.Module):
    """Normalisation of the last dimension, with a scale and a shift (R, 1, width) for each run."""

    def __init__(self, runs: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(runs, 1, width))
        self.bias = nn.Parameter(torch.zeros(runs, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        flat = nn.functional.layer_norm(x, x.shape[-1:]).flatten(1, -2)
        return torch.addcmul(self.bias, flat, self.weight).view_as(x)


class Block(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, generators: Sequence[torch.Generator], width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.fused: Attend | None = None
        """attention with dropout in one kernel, where there is one (:meth:`StackedGPT.fuse_attention`)"""
        self.attention_norm = LayerNorm(len(generators), width)
        self.mixing = Affine(generators, width, 3 * width)
        self.attended = Affine(generators, width, width)
        self.mlp_norm = LayerNorm(len(generators), width)
        self.widen = Affine(generators, width, 4 * width)
        self.narrow = Affine(generators, 4 * width, width)

    def forward(self, x: Tensor, dropout: Dropout, wanted: Wanted = every) -> Tensor:
        """What comes out for the ``wanted`` tokens."""
        together = wanted(self.attend(self.attention_norm(x), dropout))
        x = wanted(x) + dropout(self.attended(together), 1)
        hidden = gelu(self.widen(self.mlp_norm(x)))
        return x + dropout(self.narrow(hidden), 2)

    def attend(self, x: Tensor, dropout: Dropout) -> Tensor:
        """Causal self-attention, its heads side by side."""
        runs, sequences, tokens, width = x.shape
        if dropout.keys is not None and dropout.active and self.fused is not None:
            mixed = gpu_product(x.flatten(1, -2), self.mixing.weight).view(runs * sequences, tokens, -1)
            keys = dropout.keys(dropout.first_stream)
            return self.fused(mixed, self.mixing.bias, keys, self.heads, dropout.dropped).view(x.shape)
        mixed = self.mixing(x).view(runs * sequences, tokens, -1)
        # (3, R · sequences, heads, tokens, width of a head)
        query, key, value = mixed.view(*mixed.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if not dropout.active:
            together = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            hidden = query.new_full((tokens, tokens), -torch.inf).triu(1)
            scaled, turned = query * (width // self.heads) ** -0.5, key.transpose(-2, -1)
            scores = torch.baddbmm(hidden, scaled.flatten(0, 1), turned.flatten(0, 1)).view(*query.shape[:3], tokens)
            share = scores.softmax(-1)
            together = dropout(share.view(runs, sequences, self.heads, tokens, tokens), 0).view_as(share) @ value
        return together.transpose(1, 2).reshape(runs, sequences, tokens, width)


class Dropout:
    """Dropout of one block or of the embedding, its masks a function of keys alone; without keys it does nothing."""

    def __init__(self, rate: float, keys: Keys | None, first_stream: int):
        self.dropped = round(rate * 256)  # a byte decides about each unit
        self.keys, self.first_stream = keys, first_stream

    @property
    def active(self) -> bool:
        return self.keys is not None and self.dropped > 0

    def __call__(self, x: Tensor, stream: int) -> Tensor:
        if self.keys is None or self.dropped == 0:
            return x
        return scaled_dropout(x, self.keys(self.first_stream + stream), self.dropped)


class StackedGPT(nn.Module):
    """Embedded tokens (R, sequences, tokens, width) → what each token knows of itself and those before it."""

    def __init__(
        self, generators: Sequence[torch.Generator], width: int, layers: int, heads: int, dropout: float = 0.0
    ):
        super().__init__()
        self.dropout = dropout
        self.embedding_norm = LayerNorm(len(generators), width)
        blocks = nn.ModuleList(Block(generators, width, heads) for _ in range(layers))
        self.blocks: Sequence[Block] = blocks  # type: ignore[assignment]
        self.final_norm = LayerNorm(len(generators), width)

    def fuse_attention(self, tokens: int) -> None:
        """On a GPU: attention to so many tokens in one kernel, where that is wanted
        (:func:`tracrl.nets.fusing.wanted`), Triton is there and the sizes fit."""
        block = self.blocks[0]
        head = block.mixing.weight.shape[1] // block.heads
        if not fusing.wanted() or tokens % 8 or tokens > MOST_FUSED_TOKENS or head not in FUSED_HEADS:
            return
        try:
            from tracrl.nets.attention import attend
        except ImportError:
            return
        for block in self.blocks:
            block.fused = attend

    def forward(self, x: Tensor, keys: Keys | None = None, first_stream: int = 1000, wanted: Wanted = every) -> Tensor:
        """``keys`` turn dropout on: (R,) keys for each stream from ``first_stream`` on. Only the ``wanted`` tokens go
        through the last block behind its attention: nothing comes of the others."""
        x = Dropout(self.dropout, keys, first_stream)(self.embedding_norm(x), 0)
        for i, block in enumerate(self.blocks):
            dropout = Dropout(self.dropout, keys, first_stream + 1 + i * _STREAMS_A_BLOCK)
            last = i == len(self.blocks) - 1
            x = block(x, dropout, wanted if last else every)
        return self.final_norm(x)


def embedding_table(generators: Sequence[torch.Generator], rows: int, width: int) -> nn.Parameter:
    """(R, rows, width)"""
    return nn.Parameter(torch.stack([_normal(g, rows, width) for g in generators]))


def _normal(generator: torch.Generator, inputs: int, outputs: int) -> Tensor:
    return torch.empty(inputs, outputs).normal_(0, STD, generator=generator)
