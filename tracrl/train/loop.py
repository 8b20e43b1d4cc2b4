"""The one loop that trains every method: updates, logs, checkpoints and evaluations in their turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import numpy as np
import torch
from torch import Tensor

from tracrl.checkpoints import Checkpoint
from tracrl.claims import Claim
from tracrl.errors import TracrlError
from tracrl.evaluation.evaluate import Evaluator
from tracrl.evaluation.scores import Scores
from tracrl.files import write_json
from tracrl.methods.method import Method, RunSpec
from tracrl.policies.base import Policy
from tracrl.stopping import Stopped
from tracrl.train import checksums
from tracrl.train.callbacks import Callbacks, Event, Kind
from tracrl.train.directory import RunDirectory
from tracrl.train.due import Beside, Due
from tracrl.train.health import ENOUGH, Health
from tracrl.train.logs import COMMON, CsvLog, Row, Sink, WandbLog, read_log, rows_of, tensorboard_logs
from tracrl.train.progress import Progress
from tracrl.train.run import Run
from tracrl.train.stack import Stack

SECONDS_A_TURN = 0.25
"""The loop looks around (progress, Ctrl-C, checkpoints) about this often."""
LOG_POINTS = 400
LOOKS = 10
"""at the health of the policies along the way"""
_BEST = "best."
_STATE = "state."
_DUE = "due."


class Interrupted(Stopped):
    """Training was stopped from outside, after a checkpoint was written."""


class Loop:
    """The state of one call of :func:`fit` between its turns."""

    def __init__(
        self,
        method: Method,
        stack: Stack,
        runs: Sequence[RunSpec],
        directory: RunDirectory | None,
        claim: Claim | None,
        progress: Progress,
        health: Health,
        callbacks: Callbacks,
    ):
        self.method, self.stack, self.runs, self.directory = method, stack, runs, directory
        self.claim, self.progress, self.health, self.callbacks = claim, progress, health, callbacks
        self.evaluator: Evaluator | None = None
        self.beside: Beside | None = None
        """where evaluations on the way are played while the training goes on; None: it waits for them"""
        self.due: Due | None = None
        """the evaluation on the way that is not finished; kept where a stop comes in between"""
        self.best: Policy | None = None
        self.best_scores: Scores | None = None
        """of the episodes on the way, by which it was chosen"""
        self.history: list[Row] = []
        self.metric_sinks: list[Sink] = []
        self.evaluation_sinks: list[Sink] = []
        self.resumed_from: int | None = None

    def run(self, stop: threading.Event, evaluation_steps: set[int], checkpoint_seconds: float) -> Run:
        updates = self.method.updates
        log_every = max(1, updates // LOG_POINTS)
        looked, look_every = self.stack.step, max(ENOUGH, updates // LOOKS)
        saved, turn = time.monotonic(), 1
        self.progress.start(self.stack.step, updates, self.stack.runs)
        self.evaluate(stop)
        self.callbacks.tell(self.checkpoint)
        while self.stack.step < updates:
            step, phase = self.stack.step, self.stack.phase
            # Go on to whatever comes next: a log line, an evaluation, another phase, the end, or that of this turn.
            ahead = [log_every - step % log_every, updates - step, turn]
            ahead += [s - step for s in (*evaluation_steps, *self.method.phase_ends) if s > step]
            began = time.monotonic()
            metrics = self.stack.update(min(ahead))
            seconds = time.monotonic() - began
            step = self.stack.step
            if self.claim is not None:
                self.claim.check()
            turn = max(self.stack.turn, round(min(ahead) * SECONDS_A_TURN / max(seconds, 1e-6)))
            self.progress.advance(step, phase, metrics["loss"])
            if step % log_every == 0 or step == updates:
                self.log(phase, {name: values.float().tolist() for name, values in metrics.items()})
            if look_every <= step - looked and step < updates:
                looked = step
                self.health.look(self.policy(), self.history, step)
            if self.evaluator is not None and step in evaluation_steps:
                self.evaluate(stop)  # the one before, if that is still being played
                self.due = Due(step, phase, self.policy())
                self.due.scores = None if self.beside is None else self.beside.begin(self.due.policy)
            self.evaluate(stop, wait=self.beside is None)
            self.callbacks.tell(self.checkpoint)
            if stop.is_set():
                self.interrupt()
            if time.monotonic() - saved > checkpoint_seconds:
                self.checkpoint()
                saved = time.monotonic()
        return self.finish(stop)

    def log(self, phase: str, metrics: dict[str, list[float]]) -> None:
        rows = rows_of(self.stack.runs, self.stack.step, phase, metrics)
        for row in rows:
            if not all(np.isfinite(v) for v in row.values() if isinstance(v, float)):
                raise TracrlError(
                    f"{self.method.title} diverged: at update {row['step']} the metrics of limit {row['limit']}, seed "
                    f"{row['seed']} are no longer finite; lower the learning rate."
                )
            self.history.append(row)
            for sink in self.metric_sinks:
                sink.write(row)
        self.note("log", phase, rows)

    def evaluate(self, stop: threading.Event, wait: bool = True) -> None:
        """Score the policies that are due, and keep the best of each run; without ``wait``, if that is done already."""
        due = self.due
        if self.evaluator is None or due is None or not (wait or due.scores is None or due.scores.done()):
            return
        policy = due.policy
        scores = self.score(policy, stop, on_the_way=True, played=due.scores)
        if self.best is None or self.best_scores is None:
            self.best, self.best_scores = policy, scores
        else:
            if self.best_scores.protocol != scores.protocol:  # resumed with other episodes, or by another version
                self.best_scores = self.score(self.best, stop, on_the_way=True)
            better = scores.better_than(self.best_scores)
            n = len(policy)
            pick = [i if better[i] else n + i for i in range(n)]
            self.best = policy.joined_with([self.best])[pick]
            self.best_scores = scores.joined_with(self.best_scores).take(pick)
        rows = rows_of(self.runs, due.step, due.phase, scores.means())
        for row in rows:
            for sink in self.evaluation_sinks:
                sink.write(row)
        self.due = None
        self.note("evaluation", due.phase, rows, step=due.step)
        self.progress.evaluated(scores)

    def score(
        self, policy: Policy, stop: threading.Event, *, on_the_way: bool, played: Future[Scores] | None = None
    ) -> Scores:
        """A stop does not wait for the last episode, and no update is lost where the simulator fails: either way the
        evaluation is done anew later. ``played``: it is under way beside the training."""
        assert self.evaluator is not None

        def look(done: int = 0, episodes: int = 1) -> None:
            if self.claim is not None:
                self.claim.check()
            if stop.is_set() and done < episodes:
                self.interrupt()

        def told(done: int, episodes: int) -> None:
            self.progress.evaluating(done, episodes)
            look(done, episodes)

        try:
            if played is not None and self.beside is not None:
                self.beside.wait(played, look)
                return played.result()
            return self.evaluator.evaluate(policy, on_the_way=on_the_way, progress=told)
        except TracrlError as error:
            if self.directory is None:
                raise
            self.checkpoint()
            raise TracrlError(
                f"{error} The training is kept in {self.directory.path}, with {self.stack.step} of "
                f"{self.method.updates} updates: go on with the same command and --resume."
            ) from error

    def policy(self) -> Policy:
        """The policies of all runs."""
        return policies_of(self.method, self.stack, self.runs)

    def checkpoint(self) -> None:
        if self.directory is None:
            return
        if self.claim is not None:
            self.claim.check(look=True)
        tensors = {_STATE + name: tensor for name, tensor in self.stack.state().items()}
        if self.best is not None:
            tensors |= {_BEST + name: torch.from_numpy(array) for name, array in self.best.tensors.items()}
        due = self.due
        if due is not None and due.step != self.stack.step:
            tensors |= {_DUE + name: torch.from_numpy(array) for name, array in due.policy.tensors.items()}
        best = None if self.best_scores is None else self.best_scores.to_dict()
        metadata = {
            "method": self.method.name,
            "best_scores": best,
            "pending_evaluation": None if due is None else due.phase,
            "pending_step": None if due is None else due.step,
        }
        Checkpoint(self.stack.step, tensors, metadata).save(self.directory.checkpoint)

    def restore(self, checkpoint: Checkpoint) -> None:
        if checkpoint.metadata.get("method") != self.method.name:
            raise TracrlError(
                f"The checkpoint is one of {checkpoint.metadata.get('method')}, not of {self.method.name}: "
                "choose another --out."
            )
        if checkpoint.step > self.method.updates:
            raise ValueError(f"its step is {checkpoint.step}, of {self.method.updates} updates")
        of = {
            prefix: {name.removeprefix(prefix): t for name, t in checkpoint.tensors.items() if name.startswith(prefix)}
            for prefix in (_STATE, _BEST, _DUE)
        }
        self.stack.restore(of[_STATE], checkpoint.step)
        # "owed" in version 0.4.0
        phase = checkpoint.metadata.get("pending_evaluation", checkpoint.metadata.get("owed"))
        if not isinstance(phase, str | None):
            raise ValueError(f"its pending evaluation is {phase!r}, not a phase")
        if phase is not None:
            step = int(checkpoint.metadata.get("pending_step") or checkpoint.step)
            self.due = Due(step, phase, self.kept_policy(_DUE, of[_DUE]) if of[_DUE] else self.policy())
        if of[_BEST]:
            self.best = self.kept_policy(_BEST, of[_BEST])
            self.best_scores = Scores.from_dict(checkpoint.metadata["best_scores"])
        self.resumed_from = checkpoint.step

    def kept_policy(self, prefix: str, tensors: Mapping[str, Tensor]) -> Policy:
        """Policies like these, of a checkpoint."""
        policy = self.policy()
        for name, tensor in policy.tensors.items():
            found = tensors[name]
            if found.shape != tensor.shape or not found.is_floating_point():
                raise TracrlError(
                    f"The checkpoint does not fit: {prefix}{name} holds {found.dtype} of shape {tuple(found.shape)}, "
                    f"where {tensor.dtype} of shape {tensor.shape} was expected: choose another --out."
                )
        return policy.with_tensors({name: t.numpy() for name, t in tensors.items()})

    def interrupt(self) -> None:
        self.checkpoint()
        if self.directory is None:
            raise Interrupted(f"Stopped after {self.stack.step} of {self.method.updates} updates; nothing was kept.")
        raise Interrupted(
            f"Stopped after {self.stack.step} of {self.method.updates} updates; all of them are kept in "
            f"{self.directory.path}. Go on with the same command and --resume."
        )

    def finish(self, stop: threading.Event) -> Run:
        self.evaluate(stop)
        policy = self.policy()
        found = self.health.examine(policy, self.history)
        if self.directory is not None and found:
            write_json(self.directory.warnings, found)
        scores = best_scores = None
        if self.evaluator is not None:
            scores = self.score(policy, stop, on_the_way=False)
            if self.best is not None:
                last_is_best = all(np.array_equal(policy.tensors[name], t) for name, t in self.best.tensors.items())
                best_scores = scores if last_is_best else self.score(self.best, stop, on_the_way=False)
        if self.directory is not None:
            self.checkpoint()
            if self.best is not None:
                self.best.save(self.directory.best)
            if best_scores is not None:
                best_scores.save(self.directory.best_scores)
            if scores is not None:
                scores.save(self.directory.scores)
            self.directory.further_scores.unlink(missing_ok=True)  # of policies that were here before
            checksums.write(self.directory.path)
            policy.save(self.directory.policy)  # last: its presence says that the run is finished
        rows = [] if scores is None else rows_of(self.runs, self.stack.step, self.stack.phase, scores.means())
        self.note("end", self.stack.phase, rows, tuple(found))
        self.callbacks.tell(self.checkpoint)
        return Run(
            policy=policy,
            history=self.history,
            best=self.best,
            scores=scores,
            best_scores=best_scores,
            directory=None if self.directory is None else self.directory.path,
            warnings=tuple(found),
        )

    def note(
        self, kind: Kind, phase: str, rows: Sequence[Row], found: tuple[str, ...] = (), step: int | None = None
    ) -> None:
        """For the callbacks; of this update, or of an earlier one."""
        where = None if self.directory is None else self.directory.path
        at = self.stack.step if step is None else step
        event = Event(kind, at, self.method.updates, phase, directory=where, warnings=found)
        self.callbacks.note(event, rows)

    def open_logs(self, wandb: str | None) -> None:
        if self.directory is None:
            return
        keep = self.resumed_from
        scored = [*COMMON, "return", "cost", "normalised_reward", "normalised_cost"]
        boards = tensorboard_logs(self.directory.path / "tensorboard", 0 if keep is None else keep + 1)
        self.metric_sinks = [CsvLog(self.directory.metrics, [*COMMON, *self.method.metrics], keep), *boards]
        # An evaluation that is pending may have been logged after the checkpoint, and is done again.
        scored_to = keep if keep is None or self.due is None else min(keep, self.due.step - 1)
        self.evaluation_sinks = [CsvLog(self.directory.evaluations, scored, scored_to), *boards]
        if wandb is not None:
            online = WandbLog(wandb, self.directory.read_config())
            self.metric_sinks.append(online)
            self.evaluation_sinks.append(online)
        self.history = [as_row(line) for line in read_log(self.directory.metrics)]

    def close_logs(self) -> None:
        for sink in {id(s): s for s in (*self.metric_sinks, *self.evaluation_sinks)}.values():
            sink.close()


def policies_of(method: Method, stack: Stack, runs: Sequence[RunSpec]) -> Policy:
    """A policy for each run; a method that does not depend on the limit answers for each limit."""
    policy = stack.policy()
    if method.depends_on_limit:
        return policy
    place = {run.seed: i for i, run in enumerate(stack.runs)}
    return policy[[place[run.seed] for run in runs]].at([run.limit for run in runs])


def as_row(line: dict[str, str]) -> Row:
    numbers = {k: float(v) for k, v in line.items() if k not in ("step", "phase", "limit", "seed") and v != ""}
    return {
        "step": int(line["step"]),
        "phase": line["phase"],
        "limit": line["limit"],
        "seed": int(line["seed"]),
        **numbers,
    }
