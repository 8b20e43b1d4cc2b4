"""What is left of a plan would take: hours of each kind of work, and where each number comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tracrl.study.measured import Rates, memory_of_job
from tracrl.study.plan import Plan
from tracrl.study.store import Job, Store
from tracrl.study.typical import collecting_seconds, evaluating_seconds, training_seconds


@dataclass
class Work:
    """One kind of work."""

    seconds: float = 0.0
    """on the machine's cores together, as far as known"""
    measured: int = 0
    """jobs that were measured on something of their kind"""
    typical: int = 0
    """jobs whose rates come from a table of another machine"""
    unknown: int = 0

    def add(self, measured: float | None, typical: Callable[[], float | None], cores: int) -> None:
        if measured is not None:
            self.seconds, self.measured = self.seconds + measured, self.measured + 1
        elif (guess := typical()) is not None:
            self.seconds, self.typical = self.seconds + guess / cores, self.typical + 1
        else:
            self.unknown += 1

    @property
    def source(self) -> str:
        """Where the number comes from, in words."""
        told = [(self.measured, "measured here"), (self.typical, "by the table of another machine"),
                (self.unknown, "unknown")]  # fmt: skip
        there = [(count, words) for count, words in told if count]
        if len(there) == 1:
            return there[0][1]
        return ", ".join(f"{count} {words}" for count, words in there)


@dataclass
class Estimate:
    """What a plan would take."""

    collecting: Work = field(default_factory=Work)
    training: Work = field(default_factory=Work)
    evaluating: Work = field(default_factory=Work)
    memory: int = 0
    """bytes of the largest job"""

    @property
    def kinds(self) -> dict[str, Work]:
        named = {"collecting": self.collecting, "training": self.training, "evaluating": self.evaluating}
        return {name: work for name, work in named.items() if work.measured + work.typical + work.unknown}

    @property
    def seconds(self) -> float:
        return sum(work.seconds for work in self.kinds.values())


def estimate(plan: Plan, store: Store, device: str, cores: int) -> Estimate:
    """What is left of a plan on so many cores.

    A job after the other on all the cores takes as long in sum as many side by side on one each.
    """
    rates, inventory, cores = Rates.of(store), store.inventory(), max(cores, 1)
    told = Estimate()
    for spec in plan.collections:
        told.collecting.add(rates.collecting(spec, cores), lambda spec=spec: collecting_seconds(spec), cores)  # type: ignore[misc]
    waiting = [stack for stack in plan.stacks if stack.data is None or not inventory.done(stack)]
    for stack in waiting:
        training, evaluating = rates.shares(stack, device, cores) or (None, None)
        told.training.add(training, lambda stack=stack: training_seconds(stack, device), cores)  # type: ignore[misc]
        if stack.environment is not None:
            told.evaluating.add(evaluating, lambda stack=stack: evaluating_seconds(stack), cores)  # type: ignore[misc]
    jobs: list[Job] = [*plan.collections, *waiting]
    told.memory = max((memory_of_job(job, rates, device) for job in jobs), default=0)
    return told
