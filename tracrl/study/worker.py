"""A process that works on one stack: ``python -m tracrl.study.worker ASSIGNMENT --out RUNS``.

Whatever it and its libraries print goes to the assignment's log. Its standard output carries one line alone: the
outcome as JSON, so that the one who started it learns the reason even where the disk is full.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import io
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tracrl.claims import BusyError, Claim, ClaimLostError
from tracrl.envs.environment import EnvSpec
from tracrl.errors import TracrlError
from tracrl.files import read_json, replacing
from tracrl.methods.registry import get_method
from tracrl.processes import number_of
from tracrl.study.collecting import CollectionSpec, Report, collect_data
from tracrl.study.measured import Stopwatch, kind_of
from tracrl.study.stack import StackSpec
from tracrl.study.store import Assignment, Outcome, Store
from tracrl.study.training_report import TrainingReport
from tracrl.tasks.table import all_tasks
from tracrl.train import checksums
from tracrl.train.directory import RunDirectory, describe
from tracrl.train.finished import RunMetadata, read_finished

EXIT_CODES = {"done": 0, "failed": 1, "busy": 3, "stopped": 130}
CALIBRATION_SECONDS = 6.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("assignment", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for another worker to be gone")
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0)
    parser.add_argument("--calibrate", action="store_true", help="measure the rate and train nothing")
    parser.add_argument("--method", default=None, help="a method from outside: module:Class")
    parser.add_argument("--env", default=None, help="an environment from outside: module:Class")
    parser.add_argument("--parent", type=int, default=None, help="the process that must be alive")
    options = parser.parse_args(arguments)
    assignment = Assignment(options.assignment)
    signal.signal(signal.SIGTERM, _interrupt)  # training has its own way to stop; this is for before and after it
    _die_with(options.parent)
    with _only_the_outcome_on_stdout(assignment) as say:
        outcome = _attempt(assignment, options)
        if outcome.state != "busy" and not options.calibrate:
            with contextlib.suppress(TracrlError):  # the disk may be full: then the line below has to do
                assignment.write_outcome(outcome)
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {outcome.state} {outcome.reason}".rstrip(), flush=True)
        say(json.dumps(asdict(outcome)))
    return EXIT_CODES[outcome.state]


def _attempt(assignment: Assignment, options: argparse.Namespace) -> Outcome:
    """Do the work, and put into a sentence why it could not be done."""
    try:
        if options.method is not None:
            get_method(options.method)
        if assignment.collection.is_file():
            return _collect(assignment, options)
        stack = StackSpec.from_dict(read_json(assignment.stack))
        if stack.env is not None and stack.env.name not in (options.env, *all_tasks()):  # a file never says it
            raise TracrlError(f"{stack.env.name!r} is not an environment that this process was told to import.")
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {stack.title}, process {os.getpid()}", flush=True)
        store = Store(options.out)
        if options.calibrate:
            calibrate(stack, assignment, options)
        else:
            with Claim(store.run(stack).claim, options.patience) as claim:
                work(stack, store, assignment, options, claim)
        return Outcome("done")
    except (BusyError, ClaimLostError) as busy:
        return Outcome("busy", str(busy), final=False)
    except KeyboardInterrupt as stop:
        return Outcome("stopped", str(stop) or "Stopped.", final=False)
    except Exception as error:
        if not isinstance(error, TracrlError):
            traceback.print_exc()
        return Outcome("failed", _reason(error))


def _collect(assignment: Assignment, options: argparse.Namespace) -> Outcome:
    spec = CollectionSpec.from_dict(read_json(assignment.collection))
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {spec.title}, process {os.getpid()}", flush=True)
    collect_data(spec, Report(assignment.progress, assignment.measured, spec, options.cores))
    return Outcome("done")


def _reason(error: Exception) -> str:
    if isinstance(error, TracrlError):
        return str(error)
    if isinstance(error, OSError) and (error.errno == errno.ENOSPC or "No usable temporary directory" in str(error)):
        return "The disk is full: free some space."
    if isinstance(error, MemoryError) or "out of memory" in str(error):
        return "There was not enough memory: run fewer side by side with --workers."
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def work(stack: StackSpec, store: Store, assignment: Assignment, options: argparse.Namespace, claim: Claim) -> None:
    """Train to the end from wherever it is, and score."""
    if store.done(stack):  # somebody else has been here since it was planned
        return
    from tracrl.evaluation.evaluate import Evaluator
    from tracrl.train.devices import choose_device
    from tracrl.train.fit import fit

    device = choose_device(options.device).type
    report = TrainingReport(assignment, stack, options.cores, device)
    data = _data_of(stack)
    run = store.run(stack)
    source = None if run.finished or run.checkpoint.exists() else store.inventory().source(stack)
    if source is not None:
        _take_from(source, stack, run, data)
    elif not run.finished:
        fit(
            stack.method,
            data,
            limits=stack.limits,
            seeds=stack.seeds,
            out=run.path,
            resume=True,
            device=options.device,
            precision=stack.precision,
            evaluator=None if stack.environment is None else Evaluator(stack.environment, episodes=stack.episodes),
            evaluations=stack.evaluations,
            evaluate_beside=False,  # another stack trains meanwhile
            checkpoint_seconds=options.checkpoint_seconds,
            progress=report,
            claim=claim,
        )
    if not store.done(stack):
        run.check(stack.config, resume=True)
        if stack.environment is not None:
            _score_again(stack, store, stack.environment)
        checksums.renew(run.path)
        # What cannot be made good by scoring again is said here.
        read_finished(run.path, scored=stack.environment is not None)


def calibrate(stack: StackSpec, assignment: Assignment, options: argparse.Namespace) -> None:
    """Some seconds of updates and an episode a core, for their rates."""
    from tracrl.evaluation.evaluate import Evaluator
    from tracrl.train.devices import choose_device, choose_precision
    from tracrl.train.stack import Stack

    device = choose_device(options.device)
    precision = choose_precision(stack.precision, device, stack.method)
    watch = Stopwatch(options.cores)
    with Stack(stack.method, _data_of(stack), stack.trained, device, precision=precision) as learners:
        # Of several phases the last is the longest and the dearest.
        learners.skip_to(max(stack.method.phase_ends, default=0))
        learners.update(3)
        _finish(device.type)
        began, times = time.monotonic(), 1
        while watch.training < CALIBRATION_SECONDS:
            learners.update(times)
            _finish(device.type)
            watch.updates += times
            watch.training = time.monotonic() - began
            times = max(1, round(watch.updates / watch.training))
        policy = learners.policy()
    if stack.environment is not None:
        watch.episodes = 2 * number_of(None)
        with Evaluator(stack.environment, episodes=watch.episodes) as evaluator:
            evaluator.evaluate(policy[[0]])
            began = time.monotonic()
            evaluator.evaluate(policy[[0]])
            watch.evaluating = time.monotonic() - began
    watch.save(assignment.measured, kind_of(stack, device.type))


def _data_of(stack: StackSpec) -> Any:
    """The very episodes that were planned with, from the same file or, on another machine, from where it has them."""
    from tracrl.data.locate import load_dataset

    assert stack.data is not None
    planned, task = Path(stack.data.file), stack.task if stack.task in all_tasks() else None
    data = load_dataset(planned if planned.is_file() or task is None else task, task=task)
    if data.fingerprint != stack.data.fingerprint:
        raise TracrlError(
            f"The data of {stack.task} are not those that the study was planned with: {data.metadata.get('file')} has "
            f"fingerprint {data.fingerprint}, planned was {stack.data.fingerprint}; start the study again."
        )
    return data


def _take_from(source: RunMetadata, stack: StackSpec, run: RunDirectory, data: Any) -> None:
    """Runs that were trained in another directory, which stays as it is; what is left to do is to score them."""
    from tracrl.policies.load import load_policy

    there = RunDirectory(source.path)
    policy = load_policy(there.policy)
    place = {(r.limit if source.depends_on_limit else None, r.seed): i for i, r in enumerate(source.runs)}
    picked = [place[r.limit if source.depends_on_limit else None, r.seed] for r in stack.runs]
    print(f"Trained already, in {source.path}.", flush=True)
    config = describe(stack.method, data, stack.trained, stack.limits, stack.seeds)
    same = {key: value for key, value in there.read_config().items() if key in ("device", "precision", "versions")}
    run.begin({**config, **same, "trained_in": str(source.path)}, resume=True)
    if there.metrics.exists():
        with replacing(run.metrics) as aside:
            shutil.copyfile(there.metrics, aside)
    policy[picked].at([r.limit for r in stack.runs]).save(run.policy)


def _score_again(stack: StackSpec, store: Store, env: EnvSpec) -> None:
    """Score finished policies that have no scores, or over another number of episodes than asked for."""
    from tracrl.evaluation.evaluate import Evaluator
    from tracrl.policies.load import load_policy

    run = store.run(stack)
    with Evaluator(env, episodes=stack.episodes) as evaluator:
        if run.best.exists():
            evaluator.evaluate(load_policy(run.best)).save(run.best_scores)
        evaluator.evaluate(load_policy(run.policy)).save(run.scores)


@contextlib.contextmanager
def _only_the_outcome_on_stdout(assignment: Assignment) -> Iterator[Callable[[str], None]]:
    """File descriptors, not ``sys.stdout`` alone: simulators print from C++."""
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    try:
        assignment.path.mkdir(parents=True, exist_ok=True)
        log = os.open(assignment.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    sys.stdout, sys.stderr = _Log(1), _Log(2)

    def say(line: str) -> None:
        with contextlib.suppress(OSError):  # nobody is listening any more
            told.write(line + "\n")
            told.flush()

    yield say


class _Log(io.TextIOBase):
    """Text to a file descriptor. What a full disk does not take is lost, and the training goes on."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, text.encode("utf-8", "replace"))
        return len(text)

    def fileno(self) -> int:
        return self._descriptor


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _die_with(parent: int | None) -> None:
    """Have the kernel send SIGTERM when the one who started us is gone: then training is saved and stopped."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, Linux
    if parent is not None and os.getppid() != parent:
        sys.exit(EXIT_CODES["stopped"])


def _finish(device: str) -> None:
    """Wait for what the GPU still has to do."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
