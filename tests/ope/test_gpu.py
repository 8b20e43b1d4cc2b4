"""On a GPU, where there is one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.ope.test_estimate import EFFORT, line_log, line_policy
from tracrl.ope.estimate import estimate

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def test_a_gpu_estimates_what_a_cpu_does() -> None:
    cpu, gpu = (estimate(line_policy(), line_log(), effort=EFFORT, device=device) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(gpu.costs, cpu.costs, atol=0.5)
    np.testing.assert_allclose(gpu.returns, cpu.returns, atol=0.5)
