"""Updates of a stack's parts are shared out evenly, each is made once, and those of a part in order."""

from __future__ import annotations

import pytest
import torch

from tests.conftest import make_small_data
from tracrl.methods.method import RunSpec
from tracrl.methods.trac import TraC
from tracrl.train.sharing import shared_out, sizes_of_parts
from tracrl.train.stack import Stack


@pytest.mark.parametrize(
    ("runs", "cores", "sizes"),
    [(1, 2, [1]), (2, 2, [1, 1]), (3, 2, [1, 1, 1]), (9, 2, [4, 1, 4]), (9, 16, [1] * 9), (4, 1, [4])],
)
def test_runs_are_shared_out_over_the_cores(runs: int, cores: int, sizes: list[int]) -> None:
    assert sizes_of_parts(runs, cores) == sizes


@pytest.mark.parametrize(("runs", "cores"), [(9, 2), (9, 4), (3, 2), (7, 4), (20, 16), (8, 2), (2, 2), (9, 1)])
def test_every_update_is_made_once_and_cores_take_as_long(runs: int, cores: int) -> None:
    updates, sizes = 60, sizes_of_parts(runs, cores)
    assert sum(sizes) == runs
    shares = shared_out(sizes, min(len(sizes), cores), updates)
    made = [sum(p.updates for share in shares for p in share if p.part == part) for part in range(len(sizes))]
    assert made == [updates] * len(sizes)
    taken = [sum(sizes[p.part] * p.updates for p in share) for share in shares]
    assert max(taken) - min(taken) <= max(sizes)
    for share in shares:  # what others have begun comes last, what others go on with comes first: nobody waits long
        assert not any(p.after_another for p in share[:-1])


def test_what_a_part_has_before_it_is_made_by_the_next_core_at_its_very_beginning() -> None:
    shares = shared_out([4, 1, 4], 2, 10)
    assert [[(p.part, p.updates, p.after_another) for p in share] for share in shares] == [
        [(0, 10, False), (1, 5, True)],
        [(1, 5, False), (2, 10, False)],
    ]


def test_a_single_update_is_not_shared() -> None:
    assert [[p.part for p in share] for share in shared_out([4, 1, 4], 2, 1)] in ([[0], [1, 2]], [[0, 1], [2]])


def test_a_stack_that_does_not_divide_trains_the_same_runs() -> None:
    """Three runs on two cores: one of them goes from core to core."""
    method = TraC(updates=12, clone_updates=6, batch_size=8, hidden=(16, 16), warmup=2)
    runs = [RunSpec(limit, seed) for limit, seed in ((3.0, 0), (4.0, 1), (4.0, 2))]
    states = []
    for cores in (1, 2):
        with Stack(method, make_small_data(), runs, torch.device("cpu"), threads=cores) as stack:
            for times in (1, 4, 7):
                stack.update(times)
            assert stack.step == 12
            states.append(stack.state())
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name]), name
