"""Learners whose update on a CPU is prepared calls, beside the same ones by autograd and Adam."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import make_small_data
from tracrl.data.episodes import Episodes
from tracrl.methods import prepared
from tracrl.methods.method import Compute, Method, RunSpec
from tracrl.methods.prepared import PreparedLearner
from tracrl.nets.stacked import StackedMLP

RUNS = [RunSpec(2.0, 3), RunSpec(6.0, 2**63 - 1)]
Metrics = dict[str, Tensor]


def learner_of(method: Method, data: Episodes | None = None, *, threads: int = 1, bf16: bool = False) -> Any:
    learner = method.learner(make_small_data() if data is None else data, RUNS, Compute(bf16=bf16))
    assert isinstance(learner, PreparedLearner)
    for network in learner.modules():
        if isinstance(network, StackedMLP):
            network.threads = threads
    return learner


def both_ways(
    monkeypatch: pytest.MonkeyPatch, method: Method, updates: int, **how: Any
) -> tuple[Any, Any, list[tuple[Metrics, Metrics]]]:
    """A learner in prepared calls, one without, and the metrics of their updates, side by side."""
    found, expected = (learner_of(method, **how) for _ in range(2))
    of_found = [found.update() for _ in range(updates)]
    monkeypatch.setattr(prepared, "compiled_passes", lambda _: None)
    of_expected = [expected.update() for _ in range(updates)]
    assert found.prepared is not None
    assert expected.prepared is None
    return found, expected, list(zip(of_found, of_expected, strict=True))


def assert_updates_agree(monkeypatch: pytest.MonkeyPatch, method: Method, updates: int, **how: Any) -> None:
    found, expected, metrics = both_ways(monkeypatch, method, updates, **how)
    for of_found, of_expected in metrics:
        assert of_found.keys() == of_expected.keys()
        for name, values in of_expected.items():
            assert torch.allclose(of_found[name], values, rtol=1e-4, atol=1e-5), name
    for name, tensor in expected.state_dict().items():
        assert torch.allclose(found.state_dict()[name], tensor, rtol=1e-3, atol=3e-5), name


def assert_gradients_agree(found: Any, expected: Any, optimisers: tuple[str, ...], share: float) -> None:
    """After one update: Adam's first moments are a tenth of them. They differ by no more than this ``share``."""
    for name in optimisers:
        moments = zip(getattr(found, name).moments()[0], getattr(expected, name).moments()[0], strict=True)
        for moment, other in moments:
            assert (moment - other).norm() < share * other.norm(), name
