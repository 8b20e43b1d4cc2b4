"""Kernels of a GPU against what they stand for. On a GPU; elsewhere, where Triton is installed, by its interpreter:

TRITON_INTERPRET=1 python -m pytest tests/nets/test_kernels.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tracrl.nets import random
from tracrl.nets.stacked import FUSED_TOLERANCE, StackedMLP, difference, generators
from tracrl.nets.transformer import Block, Dropout

pytest.importorskip("triton")
GPU = torch.cuda.is_available()
if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no GPU here, and TRITON_INTERPRET is not 1", allow_module_level=True)

from tracrl.nets import attention, fused, kernels  # noqa: E402

DEVICE = torch.device("cuda" if GPU else "cpu")
# Kernels multiply in bfloat16 on a GPU, where a unit near 0 may fall on its other side: a single number may differ by a
# third of the largest, all of them as a vector by a twentieth. (The interpreter's own products of bfloat16 are wrong.)
KIND, CLOSE = (torch.bfloat16, 0.1) if GPU else (torch.float32, 1e-5)


def keys(stream: int) -> Tensor:
    return random.keys(torch.tensor([3, 4], device=DEVICE), torch.tensor(5, device=DEVICE), stream)


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert (found.detach().float() - expected.detach()).norm() <= CLOSE * expected.detach().norm()


@pytest.mark.parametrize("first", [0, 3, 2**33])
def test_bytes_are_those_drawn_everywhere(first: int) -> None:
    drawn = kernels.random_bytes(keys(1), torch.tensor(first, device=DEVICE), 1500)
    assert torch.equal(drawn.cpu(), random.random_bytes(keys(1).cpu(), 8 * 1500, first))


@pytest.mark.parametrize("form", range(len(fused.FORMS)), ids=lambda form: "-".join(map(str, fused.FORMS[form])))
@pytest.mark.parametrize(
    ("inputs", "hidden", "outputs", "rows", "first_row"),
    [
        (7, (64, 128), 2, 130, 8),  # one or two blocks of rows and a bit
        (60, (256, 256), 2, 128, 0),  # whole blocks
        (60, (256, 256), 2, 130, 8),
        (150, (128, 64), 17, 40, 3),  # more columns than are multiplied at once
        (20, (256, 64), 3, 67, 5),
    ],
)
def test_a_network_in_one_kernel_is_the_plain_one(
    inputs: int, hidden: tuple[int, int], outputs: int, rows: int, first_row: int, form: int
) -> None:
    """Result and gradients, in float32 in the plain form, with the masks of rows in the middle of a batch.

    On a GPU fast forms may be wrong, by an assembler that is: then their trial must say so.
    """
    network = StackedMLP(generators([0, 1]), (inputs, *hidden, outputs), dropout=0.25)
    assert fused.fits((inputs, *hidden, outputs))
    with torch.no_grad():
        for parameter in network.parameters():  # what the kernel would round anyway
            parameter.copy_(parameter.to(KIND))
    x = torch.randn(2, rows, inputs, generator=torch.Generator().manual_seed(0)).to(KIND).float()
    slope = torch.randn(2, rows, outputs, generator=torch.Generator().manual_seed(1))

    def gradients(result: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(result, list(network.parameters()), slope.to(result.device))

    plain = network(x, lambda stream: keys(stream).cpu(), first_row=first_row)
    expected = (plain, *gradients(plain))
    network, first = network.to(DEVICE), torch.tensor(first_row, device=DEVICE)
    layers = [(layer.weight, layer.bias) for layer in network.layers]
    result = fused.fused_mlp(x.to(DEVICE, KIND), layers, [keys(1000), keys(1001)], network.dropped, first, (form, form))
    assert result.dtype == torch.float32
    found = (result, *gradients(result))
    if GPU and form < len(fused.FORMS) - 1 and not difference([t.cpu() for t in found], expected) <= CLOSE:
        assert not passes_its_trial(network, form), "wrong, and its trial does not see it"
        pytest.skip("wrong by this assembler, as its trial says")
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine.cpu(), theirs)


@pytest.mark.parametrize("form", range(len(fused.FORMS)), ids=lambda form: "-".join(map(str, fused.FORMS[form])))
@pytest.mark.parametrize("hidden", [(64, 256), (256, 128), (128, 64)], ids=str)
def test_bits_are_those_of_the_units_above_0(hidden: tuple[int, int], form: int) -> None:
    """All of them, and those that dropout leaves are the plain form's."""
    generator, rows, first_row = torch.Generator().manual_seed(0), 131, 2**33 + 5
    sizes = [(16, hidden[0]), hidden, (hidden[1], 2)]
    layers = [torch.randn(2, *s, generator=generator).to(DEVICE) for a, b in sizes for s in ((a, b), (1, b))]
    x = torch.randn(2, rows, 16, generator=generator).to(DEVICE, KIND)
    draws = torch.stack([keys(1000), keys(1001), torch.full((2,), first_row, device=DEVICE)])
    left = fused._left_by_dropout(draws, rows, *hidden, 64)
    for units, words, key in zip(hidden, left, draws, strict=False):
        drawn = random.random_bytes(key.cpu(), rows * units, first_row * units // 8).view(2, rows, units)
        assert torch.equal(units_of(words), drawn >= 64)
    out = fused._mlp(x, *layers, draws, 64, form, form)
    for units, layer, words in zip(hidden, out[1:3], out[3:], strict=True):
        assert words.numel() * words.itemsize * 8 == 2 * rows * units
        assert torch.equal(units_of(words), layer.cpu() > 0)


def units_of(words: Tensor) -> Tensor:
    """(…, 8) words → (…, units): bit j of word k is unit 8 j + k."""
    bits = torch.arange(8 * words.itemsize)[:, None]
    return (words.cpu().long()[..., None, :] >> bits & 1).flatten(-2) == 1


def passes_its_trial(network: StackedMLP, form: int) -> bool:
    network.fused = None
    expected = network.tried()
    network.fused, network.forms = fused.fused_mlp, (form, form)
    return difference(network.tried(), expected) < FUSED_TOLERANCE


def test_a_network_that_is_no_such_one_keeps_the_plain_form() -> None:
    assert not fused.fits((3, 16, 16, 2))
    assert not fused.fits((3, 256, 2))
    assert not fused.fits((3, 256, 256, 256, 2))


SIZES = [
    (8, 16),
    (16, 16),
    (16, 32),
    (24, 16),
    (24, 32),
    (40, 16),
    (40, 32),
    (48, 16),
    (56, 16),
    (64, 32),
    (80, 16),
    (104, 64),
]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("tokens", "head"), SIZES)  # one tile of scores, or three
def test_attention_in_one_kernel_is_the_plain_one(tokens: int, head: int, kind: torch.dtype) -> None:
    """Result and gradients, with masks, of what was rounded to ``kind`` before."""
    if kind == torch.bfloat16 and not GPU:
        pytest.skip("the interpreter's own products of bfloat16 are wrong")
    block = Block(generators([0, 1]), 2 * head, 2).to(DEVICE)
    x = torch.randn(2, 3, tokens, 2 * head, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    slope = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    parameters = [block.mixing.weight, block.mixing.bias]
    with torch.no_grad():
        block.mixing.weight.mul_(10)  # with the first ones a token hardly looks at the others
        block.mixing.bias.normal_(generator=torch.Generator(DEVICE).manual_seed(2))

    def attend(mixed: Tensor, bias: Tensor, *others: Any) -> Tensor:
        return attention.attend(mixed.to(kind), bias.to(kind), *others).float()

    def result(fused: Callable[..., Tensor] | None) -> tuple[Tensor, ...]:
        block.fused = fused
        out = block.attend(x, Dropout(0.25, keys, 10))
        return (out, *torch.autograd.grad(out, parameters, slope))

    close = 0.05 if kind == torch.bfloat16 else 1e-2 if GPU else 1e-5  # TF32
    for mine, theirs in zip(result(attend), result(None), strict=True):
        assert (mine - theirs).detach().abs().max() <= close * theirs.detach().abs().max()
