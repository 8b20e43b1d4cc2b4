from __future__ import annotations

import torch

from tracrl.nets.actor import log_prob


def test_log_density_is_that_of_a_normal_distribution() -> None:
    mean, log_std, x = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    expected = torch.distributions.Normal(mean, log_std.exp()).log_prob(x)
    assert torch.allclose(log_prob(mean, log_std, x), expected, atol=1e-6)
