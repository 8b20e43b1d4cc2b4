"""The learners of a stack: one on a GPU; on a CPU several, side by side in threads.

On a CPU two cores do nearly twice the work on two runs that they do together on one, and a run does not depend on
what is trained beside it, so a stack is cut into about as many parts as there are cores. Checkpoints do not know
about the cut: a part's tensors are rows of the whole stack's.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal, Self

import torch
from torch import Tensor

from tracrl.data.episodes import Episodes
from tracrl.data.units import Units, standardised
from tracrl.errors import TracrlError
from tracrl.methods.method import ActivationBudget, Compute, Learner, Method, RunSpec
from tracrl.nets import denormals, random
from tracrl.nets.stacked import StackedMLP
from tracrl.policies.base import Policy
from tracrl.train.graphs import RecordedUpdates
from tracrl.train.sharing import Portion, shared_out, sizes_of_parts

CUBLAS_WORKSPACES = ":4096:2"
"""Two of 4 MiB, not 32 MiB, for each stream that a GPU multiplies in; the environment's own setting goes first."""
Precision = Literal["float32", "bfloat16"]
"""of matrix products; everything else is float32 (on a GPU, float32 products are TF32)"""
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # what mallopt(3) calls M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
UNCUT_ACTIVATIONS = 6 * 2**20
CPU_ACTIVATIONS = 3 * 2**19
GPU_MEMORY, GPU_SHARE = 2**28, 64
"""of all runs of a stack together, in bytes: a GPU wants large products. So much, or this part of its memory, whichever
is more; a study puts two stacks on a GPU"""


def compute_on(device: torch.device, runs: int, precision: Precision = "float32") -> Compute:
    """How a stack of so many runs is computed there."""
    bf16 = precision == "bfloat16"
    chunk = CPU_ACTIVATIONS if device.type == "cpu" else gpu_activations(device, bf16) // runs
    return Compute(device, bf16, ActivationBudget(chunk, UNCUT_ACTIVATIONS))


def gpu_activations(device: torch.device, bf16: bool) -> int:
    """How many numbers the hidden layers of a whole stack may put out at once."""
    return activations_within(torch.cuda.get_device_properties(device).total_memory, bf16)


def activations_within(memory: int, bf16: bool) -> int:
    """The same for a GPU of so much memory, in bytes."""
    return max(GPU_MEMORY, memory // GPU_SHARE) // (2 if bf16 else 4)


def has_bf16(device: torch.device) -> bool:
    """Whether products in bfloat16 are faster than others there."""
    asked = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # not part of torch's promises
    return device.type == "cuda" or (asked is not None and asked())


class Stack:
    """Runs in training, wherever their parts live."""

    def __init__(
        self,
        method: Method,
        data: Episodes,
        runs: Sequence[RunSpec],
        device: torch.device,
        threads: int | None = None,
        precision: Precision = "float32",
        units: Units | None = None,
    ):
        """``units``: the learners see the data in these, and the policies know it; None: as they were logged."""
        self.runs, self.units = tuple(runs), units
        if units is not None:
            data = standardised(data, units)
        learnt = [RunSpec(run.limit / units.cost, run.seed) if units is not None else run for run in runs]
        self._threads_before = torch.get_num_threads()
        cores = threads or self._threads_before
        sizes = [len(runs)]
        if device.type == "cpu":
            sizes = [1] * len(runs) if method.runs_apart_on_cpus else sizes_of_parts(len(runs), cores)
        parts, self._sizes = len(sizes), sizes
        bounds = list(itertools.accumulate(sizes, initial=0))
        self.parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        each = max(1, cores // parts)
        if device.type == "cpu":
            # Networks share their rows out between threads by themselves. All else is small: torch's own threads would
            # wait for each other more than they do.
            torch.set_num_threads(each if method.runs_apart_on_cpus else 1)
            _keep_freed_memory()
        else:  # read at a process's first product
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACES)
            random.draw_by_kernel(device)
        compute = compute_on(device, len(runs), precision)
        try:
            self.learners: list[Learner] = [method.learner(data, learnt[part], compute) for part in self.parts]
        except BaseException:  # data that a learner refuses
            torch.set_num_threads(self._threads_before)
            raise
        for learner in self.learners if device.type == "cpu" else ():
            for network in learner.modules():
                if isinstance(network, StackedMLP):
                    network.threads = each
        workers = min(parts, cores)
        self.turn = workers if len(runs) % workers else 1
        """updates at a time that cores share out evenly"""
        self._cores = workers
        # Some of torch's libraries have a number of threads for each thread that calls them.
        self._workers = (
            ThreadPoolExecutor(workers, initializer=_begin_thread, initargs=(torch.get_num_threads(),))
            if parts > 1
            else None
        )
        self._recorded = RecordedUpdates(self.learners[0], method.updates) if device.type == "cuda" else None
        self._tf32_before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._workers is not None:
            self._workers.shutdown()
        torch.set_num_threads(self._threads_before)
        torch.backends.cuda.matmul.allow_tf32 = self._tf32_before

    @property
    def step(self) -> int:
        return self.learners[0].step

    @property
    def phase(self) -> str:
        return self.learners[0].phase

    def update(self, times: int = 1) -> dict[str, Tensor]:
        """So many updates of every run; the metrics (R,) of the last. Parts need not wait for each other in between."""
        if self._recorded is not None:
            return self._recorded.advance(times)
        if self._workers is None:
            with denormals.taken_for_zero():
                results = [_advance(self.learners[0], times)]
        else:
            results = self._side_by_side(times)
        return {name: torch.cat([r[name] for r in results]) for name in results[0]}

    def _side_by_side(self, times: int) -> list[dict[str, Tensor]]:
        """The metrics of each part's last update."""
        results: list[dict[str, Tensor]] = [{} for _ in self.parts]
        begun = [threading.Event() for _ in self.parts]

        def work(portions: Sequence[Portion]) -> None:
            for portion in portions:
                if portion.after_another:
                    begun[portion.part].wait()
                try:
                    results[portion.part] = _advance(self.learners[portion.part], portion.updates)
                finally:
                    begun[portion.part].set()

        assert self._workers is not None
        for done in [self._workers.submit(work, share) for share in shared_out(self._sizes, self._cores, times)]:
            done.result()
        return results

    def skip_to(self, step: int) -> None:
        """Go on as if so many updates had been made, with the weights as they are."""
        for learner in self.learners:
            learner.step = step
            learner.clock.fill_(step)

    def policy(self) -> Policy:
        first, *others = [learner.policy() for learner in self.learners]
        joined = first.joined_with(others) if others else first
        if self.units is None:
            return joined
        return joined.in_units(
            replace(
                joined.metadata,
                limits=tuple(run.limit for run in self.runs),
                observation_mean=self.units.mean,
                observation_scale=self.units.scale,
                reward_unit=self.units.reward,
                cost_unit=self.units.cost,
            )
        )

    def state(self) -> dict[str, Tensor]:
        """Every tensor that training goes on from, with the runs as first dimension."""
        states = [learner.state_dict() for learner in self.learners]
        return {name: torch.cat([state[name].cpu() for state in states]) for name in states[0]}

    def restore(self, state: Mapping[str, Tensor], step: int) -> None:
        for learner, part in zip(self.learners, self.parts, strict=True):
            mine = learner.state_dict()
            for name, tensor in mine.items():
                expected = (len(self.runs), *tensor.shape[1:])
                if name not in state or state[name].shape != expected:
                    found = tuple(state[name].shape) if name in state else "nothing"
                    raise TracrlError(
                        f"The checkpoint does not fit: {name} should have shape {expected}, found {found}; "
                        "it was written by another method, or for networks or data of other sizes."
                    )
                if state[name].is_floating_point() != tensor.is_floating_point():
                    raise TracrlError(
                        f"The checkpoint does not fit: {name} holds {state[name].dtype}, where {tensor.dtype} was "
                        "expected; it was changed after it was written: choose another --out."
                    )
            learner.restore({name: state[name][part] for name in mine}, step)


@functools.cache
def _keep_freed_memory() -> None:
    """glibc hands large blocks back to the system when they are freed, and every update has to pay for their pages
    anew: a sixth of CDT's time. From now on the process keeps up to 256 MiB of them. Elsewhere nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for setting, size in ((TRIM_THRESHOLD, 2**28), (MMAP_THRESHOLD, 2**25)):
        mallopt(ctypes.c_int(setting), ctypes.c_int(size))


def _begin_thread(threads: int) -> None:
    torch.set_num_threads(threads)
    denormals.take_for_zero()


def _advance(learner: Learner, times: int) -> dict[str, Tensor]:
    metrics: dict[str, Tensor] = {}
    for _ in range(times):
        metrics = learner.update()
    return metrics
