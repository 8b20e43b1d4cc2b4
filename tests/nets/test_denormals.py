"""What is too small for a whole float counts as 0 while networks learn on a CPU, in every thread, and not after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.conftest import make_small_data
from tracrl.methods.bc import BCAll, CloningLearner
from tracrl.methods.method import RunSpec
from tracrl.nets import blocks, denormals
from tracrl.train.stack import Stack


def quotient() -> float:
    return float(torch.full((64,), 1e-38).div_(16).sum())


@pytest.fixture
def _alone() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_alone")
def test_they_are_zero_meanwhile_and_not_after() -> None:
    assert quotient() > 0
    with denormals.taken_for_zero():
        assert denormals.are_taken_for_zero()
        assert quotient() == 0
        with denormals.taken_for_zero():
            pass
        assert quotient() == 0
    assert not denormals.are_taken_for_zero()
    assert quotient() > 0


def test_nothing_changes_where_torch_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are made meanwhile would keep it: half of a user's large tensor would be taken for 0 later."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with denormals.taken_for_zero():
        assert not denormals.are_taken_for_zero()


@pytest.mark.parametrize("runs", [1, 3])
def test_every_thread_that_trains_takes_them_for_zero(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    update = CloningLearner.update

    def watched(learner: CloningLearner) -> dict[str, torch.Tensor]:
        found.append(denormals.are_taken_for_zero())
        found.extend(blocks.side_by_side(denormals.are_taken_for_zero, [(), ()]))
        return update(learner)

    monkeypatch.setattr(CloningLearner, "update", watched)
    method = BCAll(updates=4, batch_size=16, hidden=(8,))
    with Stack(method, make_small_data(), [RunSpec(3.0, i) for i in range(runs)], torch.device("cpu"), 2) as stack:
        stack.update(4)
        assert not denormals.are_taken_for_zero(), "evaluations in between are computed as they are later"
    assert all(found)
    assert len(found) >= 12
