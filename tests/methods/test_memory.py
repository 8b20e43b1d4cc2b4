"""What methods say that their runs hold, against what an update on a CPU really had allocated at its peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.profiler import ProfilerActivity, profile

from tests.conftest import make_small_data
from tracrl.methods.bc import BCSafe
from tracrl.methods.bcq_lag import BCQLag
from tracrl.methods.bear_lag import BEARLag
from tracrl.methods.caps import CAPS
from tracrl.methods.carl import CARL
from tracrl.methods.cdt import CDT
from tracrl.methods.coptidice import COptiDICE
from tracrl.methods.cpq import CPQ
from tracrl.methods.method import ActivationBudget, Compute, DataSizes, Method, RunSpec
from tracrl.methods.trac import TraC
from tracrl.study.measured import Rates, memory_of
from tracrl.study.plan import make_plan

MIB, GIB = 2**20, 2**30
BUDGET = ActivationBudget(chunk=200_000, uncut=800_000)


def peak_of(work: Callable[[], Any]) -> int:
    """Bytes of tensors that were alive at once, above those before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    now = top = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        top = max(top, now)
    return top


@pytest.mark.filterwarnings("ignore:Only .* segments are safe")
@pytest.mark.parametrize(
    "method",
    [
        TraC(batch_size=64, clone_updates=0),
        TraC(batch_size=192, clone_updates=0),  # in chunks
        BCSafe(),
        CDT(batch_size=16),
        CDT(batch_size=32, width=64, layers=2, heads=4, context=5),
        BCQLag(),
        BEARLag(),
        CPQ(),
        COptiDICE(),
        CAPS(batch_size=256, hidden=(256, 256)),
        CARL(),
    ],
    ids=lambda method: f"{method.name} {method.batch_size}",
)
def test_what_a_run_holds(method: Method) -> None:
    data = make_small_data()
    learner = method.learner(data, [RunSpec(4.0, 0)], Compute(activation_budget=BUDGET))
    both = peak_of(lambda: [learner.update() for _ in range(2)])  # what the first one makes may be kept
    measured = both + sum(t.nbytes for t in learner.state_dict().values())
    sizes = DataSizes(data.observation_size, data.action_size, data.max_steps)
    said = 4 * method.numbers_held(sizes, BUDGET)
    assert 0.7 * measured < said < 1.4 * measured, (said / MIB, measured / MIB)


def test_plans_take_the_methods_at_their_word() -> None:
    """Two that were far off: CDT's activations were forgotten, TraC's chunks too."""

    def needs(task: str, method: str) -> float:
        (stack,) = make_plan("main", tasks=[task], methods=[method]).stacks
        return memory_of(stack, Rates([]), "cpu") / GIB

    # Three runs of 3.6 GiB by the profiler (2048 sub-sequences of 10 steps), and less than one for everything else.
    assert 10 < needs("BallRun", "cdt") < 13
    # Without data on this machine: nine runs of some MiB, the process and a simulator.
    assert needs("PointGoal2", "trac") < 1.3
