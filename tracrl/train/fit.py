"""Training in one call."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, get_args

from tracrl.checkpoints import Checkpoint, restoring
from tracrl.claims import BusyError, Claim, alive
from tracrl.data.episodes import Episodes
from tracrl.data.learning import small_actions
from tracrl.data.units import Units
from tracrl.errors import TracrlError
from tracrl.evaluation.evaluate import Evaluator
from tracrl.evaluation.scores import Scores
from tracrl.methods.method import Method, RunSpec
from tracrl.policies.load import load_policy
from tracrl.settings import Evaluations, check_limits, check_seeds, checked
from tracrl.stopping import stop_requests
from tracrl.tasks.table import Task
from tracrl.train.callbacks import Callback, Callbacks
from tracrl.train.devices import choose_device, choose_precision, name_of
from tracrl.train.directory import RunDirectory, describe
from tracrl.train.due import Beside
from tracrl.train.health import Health
from tracrl.train.logs import read_log, require_wandb
from tracrl.train.loop import Loop, as_row, policies_of
from tracrl.train.progress import Progress, chosen_progress
from tracrl.train.run import Run
from tracrl.train.stack import Stack

CHECKPOINT_SECONDS = 60.0
Standardise = Literal["auto", "on", "off"]


def fit(
    method: Method,
    data: Episodes,
    *,
    limits: Sequence[float],
    seeds: Sequence[int] = (0,),
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    precision: str = "auto",
    standardise: Standardise = "auto",
    strict: bool = False,
    evaluator: Evaluator | None = None,
    evaluations: int = 10,
    evaluate_beside: bool | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    wandb: str | None = None,
    progress: bool | Progress | None = True,
    callbacks: Callback | Sequence[Callback] | None = None,
    claim: Claim | None = None,
) -> Run:
    """Train limits × seeds runs of a method as one stack.

    ``out`` is a directory for logs, checkpoints and policies; without it nothing is written. The ``evaluator``, for
    example ``Evaluator("BallRun", episodes=20)``, scores the policies ``evaluations`` times along the way, the last
    time at the end, which chooses the best of each run; final and best ones are then scored in episodes of their own.
    Its processes end with the training. ``evaluate_beside``: the training goes on while policies are scored on the way;
    None: it does on a GPU, where it leaves the cores alone.
    ``standardise``: observations, and for methods with critics rewards and costs, are trained on in the data's own
    units, which the policies keep; "auto" does so for data of no known task, and for short trainings on some tasks
    (:meth:`Method.standardised`). A training that looks dead warns;
    ``strict`` makes that an error.
    ``progress``: a bar in a terminal or a notebook, and nothing where output goes elsewhere; False: nothing.
    ``callbacks``: a function, or several, called with an :class:`~tracrl.train.callbacks.Event` after each log and
    evaluation and at the end; one that raises ends the training, of which nothing is lost where there is an ``out``.
    ``claim`` is the caller's on ``out``; without one it is taken here, and refused where another process is at work.
    """
    runs = _runs(limits, seeds)
    told = Callbacks(callbacks)
    progress = chosen_progress(progress)
    trained = runs if method.depends_on_limit else [RunSpec(float(limits[0]), int(seed)) for seed in seeds]
    steps = _evaluation_steps(method.updates, evaluations)
    chosen = choose_device(device)
    directory = None if out is None else RunDirectory(Path(out))
    if wandb is not None and directory is None:
        raise TracrlError("W&B logs belong to a run directory: say where with out.")
    if wandb is not None:
        require_wandb()  # before a directory is made for a run that is not trained
    if precision == "auto" and resume and directory is not None:
        precision = directory.precision() or precision  # that which it began with
    products = choose_precision(precision, chosen, method)
    own_units = standardise_or_not(standardise, data.known_task, method)
    if standardise == "auto" and resume and directory is not None:
        there = directory.standardised()
        own_units = own_units if there is None else there
    units = Units.of(data, observations_alone=method.unit_free or data.known_task is not None) if own_units else None
    config = {
        **describe(method, data, trained, limits, seeds, own_units),
        "environment": None if evaluator is None else evaluator.spec.to_dict(),
        "device": name_of(chosen),
        "precision": products,
    }
    if directory is not None:
        if claim is None and alive(directory.claim):
            raise BusyError(directory.claim)
        directory.check(config, resume)
        if directory.finished:
            return _finished(directory)
    for finding in small_actions(data):
        warnings.warn(finding.text[0].upper() + finding.text[1:], stacklevel=2)
    with ExitStack() as closing:
        stack = closing.enter_context(Stack(method, data, trained, chosen, precision=products, units=units))
        policy = policies_of(method, stack, runs)  # now, and not after hours of training
        if evaluator is not None:
            closing.callback(evaluator.close)
            evaluator.check(policy)
        if directory is not None:  # only now: data, limits and settings have been accepted
            claim = claim or closing.enter_context(Claim(directory.claim))
            directory.begin(config, resume)
        health = Health(data, method, strict)
        loop = Loop(method, stack, runs, directory, claim, progress, health, told)
        # A link that leads nowhere is a checkpoint that cannot be read, and not none.
        if directory is not None and os.path.lexists(directory.checkpoint):
            with restoring(directory.checkpoint):
                loop.restore(Checkpoint.load(directory.checkpoint))
        loop.evaluator = evaluator
        wanted = chosen.type == "cuda" and wandb is None if evaluate_beside is None else evaluate_beside
        if evaluator is not None and wanted:
            loop.beside = Beside(evaluator)
            closing.callback(loop.beside.close)
        loop.open_logs(wandb)
        closing.callback(loop.close_logs)
        closing.enter_context(progress)
        stop = closing.enter_context(stop_requests())
        return loop.run(stop, steps, checkpoint_seconds)


def standardise_or_not(standardise: str, task: Task | None, method: Method) -> bool:
    """As told, or as the method does on the ``task`` (None: own data)."""
    if standardise not in get_args(Standardise):
        raise TracrlError(f"--standardise is {standardise!r}; expected auto, on or off.")
    return method.standardised(task, method.updates) if standardise == "auto" else standardise == "on"


def _runs(limits: Sequence[float], seeds: Sequence[int]) -> list[RunSpec]:
    if not limits or not seeds:
        raise TracrlError("At least one limit and one seed are needed: for example --limits 10 20 40 --seeds 0.")
    return [RunSpec(limit, seed) for limit in check_limits(limits) for seed in check_seeds(seeds)]


def _evaluation_steps(updates: int, evaluations: int) -> set[int]:
    """``evaluations`` steps, evenly spaced, the last at the end."""
    checked("--evaluations", evaluations, Evaluations)
    return {round(updates * (i + 1) / evaluations) for i in range(evaluations)} - {0}


def _finished(directory: RunDirectory) -> Run:
    scored = directory.scores.exists()
    return Run(
        policy=load_policy(directory.policy),
        history=[as_row(line) for line in read_log(directory.metrics)],
        best=load_policy(directory.best) if directory.best.exists() else None,
        scores=Scores.load(directory.scores) if scored else None,
        best_scores=Scores.load(directory.best_scores) if directory.best_scores.exists() else None,
        directory=directory.path,
        warnings=directory.read_warnings(),
    )
