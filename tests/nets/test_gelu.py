from __future__ import annotations

import pytest
import torch

from tracrl.nets.gelu import gelu


@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_it_is_torchs(kind: torch.dtype, tolerance: float) -> None:
    """Values and slopes, also where the tanh is constant."""
    x = torch.cat([torch.linspace(-6, 6, 4001), torch.tensor([-80.0, -12.0, 12.0, 80.0])]).to(kind).requires_grad_()
    weight = torch.linspace(-1, 1, len(x)).to(kind)
    pairs = []
    for result in (gelu(x), torch.nn.functional.gelu(x, approximate="tanh")):
        (slope,) = torch.autograd.grad((result * weight).sum(), [x])
        pairs.append((result, slope))
    for mine, theirs in zip(*pairs, strict=True):
        assert mine.dtype == theirs.dtype == kind
        assert torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def test_what_is_not_a_number_stays_so() -> None:
    assert gelu(torch.tensor([float("nan")])).isnan().all()
