"""Estimates come from measurements of the same kind, and from nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tracrl.study.measured import Measurement, Rates, kind_of, memory_of
from tracrl.study.plan import make_plan
from tracrl.study.stack import StackSpec
from tracrl.train.stack import has_bf16


def stack(seeds: list[int], **options: Any) -> StackSpec:
    (only,) = make_plan("main", tasks=["BallRun"], methods=["trac"], seeds=seeds, preset="fast", **options).stacks
    return only


def test_a_stack_of_more_runs_costs_as_many_times_more_on_a_cpu_and_is_not_guessed_on_a_gpu() -> None:
    three, nine = stack([0]), stack([0, 10, 20])
    for device in ("cpu", "cuda"):
        measured = Measurement(kind_of(three, device), seconds_per_update=0.01, seconds_per_episode=0.2, memory=1)
        rates = Rates([measured])
        assert rates.find(three, device) == measured
        assert (rates.seconds(nine, device, cores=2) is None) == (device == "cuda")
    rates = Rates([Measurement(kind_of(three, "cpu"), 0.01, 0.2, 1)])
    episodes = 10 * 9 * 20
    assert rates.seconds(nine, "cpu", cores=2) == pytest.approx(10_000 * 0.03 / 2 + episodes * 0.2 / 2)
    assert rates.seconds(nine, "cpu", cores=2, updates_done=5_000) == pytest.approx(5_000 * 0.03 / 2 + episodes * 0.05)


def test_what_was_measured_for_this_very_kind_goes_first() -> None:
    three, nine = stack([0]), stack([0, 10, 20])
    own = Measurement(kind_of(nine, "cpu"), 0.02, 0.2, 1)
    for order in ([own, replace(own, kind=kind_of(three, "cpu"))], [replace(own, kind=kind_of(three, "cpu")), own]):
        assert Rates(order).find(nine, "cpu") == own


def test_another_batch_is_another_kind() -> None:
    measured = Measurement(kind_of(stack([0]), "cpu"), 0.01, 0.2, 1)
    other = stack([0], settings=("batch_size=8",))
    assert Rates([measured]).find(other, "cpu") is None


def test_another_precision_is_another_kind() -> None:
    """What was measured before versions knew of it, on a CPU, was float32."""
    full = stack([0], precision="float32")
    kind = kind_of(full, "cpu")
    assert kind["precision"] == "float32"
    old = Measurement({k: v for k, v in kind.items() if k != "precision"}, 0.01, 0.2, 1)
    assert Rates([old]).find(full, "cpu") == old
    assert kind_of(stack([0]), "cuda")["precision"] == "bfloat16"
    assert kind_of(stack([0], precision="float32"), "cuda")["precision"] == "float32"
    if has_bf16(torch.device("cpu")):
        assert Rates([old]).find(stack([0], precision="bfloat16"), "cpu") is None


def test_a_stack_keeps_its_precision_in_a_file() -> None:
    written = stack([0], precision="bfloat16").to_dict()
    assert StackSpec.from_dict(written).precision == "bfloat16"
    del written["precision"]  # as of version 0.6.0
    assert StackSpec.from_dict(written).precision == "auto"


def test_memory_is_that_of_a_stack_of_as_many_runs() -> None:
    three, nine = stack([0]), stack([0, 10, 20])
    rates = Rates([Measurement(kind_of(three, "cpu"), 0.01, 0.2, memory=123)])
    assert memory_of(three, rates, "cpu") == 123
    assert memory_of(nine, rates, "cpu") == memory_of(nine, Rates([]), "cpu") > memory_of(three, Rates([]), "cpu")
