from __future__ import annotations

import torch
from torch import nn

from tracrl.nets import random
from tracrl.nets.stacked import generators
from tracrl.nets.transformer import Block, Dropout, StackedGPT


def test_block_is_the_textbook_one() -> None:
    """Against torch's own attention, normalisation and layers, run by run."""
    block, width, heads = Block(generators([0, 1]), 8, 2), 8, 2
    x = torch.randn(2, 3, 5, width, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        result = block(x, Dropout(0.0, None, 0))
    for run in range(2):
        attention = nn.MultiheadAttention(width, heads, batch_first=True)
        attention.in_proj_weight.data = block.mixing.weight[run].T.detach()
        attention.in_proj_bias.data = block.mixing.bias[run, 0].detach()
        attention.out_proj.weight.data = block.attended.weight[run].T.detach()
        attention.out_proj.bias.data = block.attended.bias[run, 0].detach()

        def norm(module: nn.Module, y: torch.Tensor, run: int = run) -> torch.Tensor:
            return nn.functional.layer_norm(y, (width,), module.weight[run, 0], module.bias[run, 0])  # type: ignore[index]

        later = torch.ones(5, 5, dtype=torch.bool).triu(1)
        with torch.no_grad():
            y = norm(block.attention_norm, x[run])
            y = x[run] + attention(y, y, y, attn_mask=later, need_weights=False)[0]
            hidden = norm(block.mlp_norm, y) @ block.widen.weight[run] + block.widen.bias[run]
            hidden = nn.functional.gelu(hidden, approximate="tanh")
            y = y + hidden @ block.narrow.weight[run] + block.narrow.bias[run]
        assert torch.allclose(result[run], y, atol=1e-5)


def test_dropout_keeps_the_mean_and_depends_on_the_key_alone() -> None:
    keys = random.keys(torch.tensor([0, 1]), torch.tensor(3), 0)
    dropout = Dropout(0.25, lambda stream: keys + stream, 0)
    x = torch.ones(2, 100, 100)
    dropped = dropout(x, 0)
    assert torch.equal(dropped, dropout(x, 0))
    assert not torch.equal(dropped, dropout(x, 1))
    assert abs(dropped.mean().item() - 1) < 0.02
    assert abs((dropped == 0).float().mean().item() - 0.25) < 0.02


def test_attention_with_dropout_turned_down_is_attention() -> None:
    """The path with masks, at a rate that rounds to one in 256, stays close to the fused one without.

    Weights as large as trained ones: with the first ones a token hardly looks at the others.
    """
    gpt = StackedGPT(generators([0]), 16, layers=2, heads=2, dropout=1 / 256)
    x = torch.randn(1, 8, 6, 16, generator=torch.Generator().manual_seed(0))
    keys = random.keys(torch.tensor([0]), torch.tensor(0), 0)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for parameter in gpt.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        plain, masked = gpt(x), gpt(x, lambda stream: keys + stream)
    assert (plain - masked).abs().mean() < 0.05
    assert (plain - masked).abs().median() < 0.01
    assert not torch.equal(plain, masked)


def test_some_tokens_come_out_as_they_do_among_all() -> None:
    gpt = StackedGPT(generators([0, 1]), 16, layers=2, heads=2, dropout=0.1)
    x = torch.randn(2, 5, 12, 16, generator=torch.Generator().manual_seed(3))
    results = [gpt(x, wanted=lambda tokens: tokens[:, :, 2::4]), gpt(x)[:, :, 2::4]]
    assert torch.allclose(*results, atol=1e-6)
    slopes = [torch.autograd.grad(result.square().sum(), list(gpt.parameters())) for result in results]
    for some, among_all in zip(*slopes, strict=True):
        assert torch.allclose(some, among_all, rtol=1e-4, atol=1e-5)


def test_some_tokens_have_masks_of_their_own_in_the_last_block_alone() -> None:
    """Behind its attention; what they attend to was dropped as among all."""
    gpt = StackedGPT(generators([0]), 16, layers=1, heads=2, dropout=0.25)
    x = torch.randn(1, 3, 8, 16, generator=torch.Generator().manual_seed(3))
    keys = random.keys(torch.tensor([0]), torch.tensor(0), 0)
    some = gpt(x, lambda stream: keys + stream, wanted=lambda tokens: tokens[:, :, 1::2])
    assert some.shape == (1, 3, 4, 16)
    assert not torch.allclose(some, gpt(x, lambda stream: keys + stream)[:, :, 1::2])
