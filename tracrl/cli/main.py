"""Which command runs, and what is said where it fails. A command's own file parses and prints; the rest is below."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from tracrl.cli.collect import CollectOptions, collect
from tracrl.cli.console import console, fail, note
from tracrl.cli.data import CheckOptions, FetchOptions, InspectOptions, data_check, data_fetch, data_inspect
from tracrl.cli.evaluate import EvaluateOptions, evaluate
from tracrl.cli.tasks import MethodsOptions, SimsOptions, TasksOptions, methods, sims, tasks
from tracrl.cli.train import TrainOptions, train
from tracrl.errors import TracrlError
from tracrl.study.command import ReportOptions, StudyOptions, report, study

# Words of the command -> what runs, and what it takes.
COMMANDS: dict[tuple[str, ...], tuple[Callable[[Any], int], type | None]] = {
    ("tasks",): (tasks, TasksOptions),
    ("sims",): (sims, SimsOptions),
    ("methods",): (methods, MethodsOptions),
    ("data", "inspect"): (data_inspect, InspectOptions),
    ("data", "check"): (data_check, CheckOptions),
    ("data", "fetch"): (data_fetch, FetchOptions),
    ("train",): (train, None),
    ("evaluate",): (evaluate, EvaluateOptions),
    ("collect",): (collect, CollectOptions),
    ("study",): (study, StudyOptions),
    ("report",): (report, ReportOptions),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors that the user can mend are one sentence, not a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = note
    for words, (function, options) in COMMANDS.items():
        if tuple(given[: len(words)]) == words:
            rest = given[len(words) :]
            try:
                if options is None:
                    return function(rest)
                return function(tyro.cli(options, prog=f"tracrl {' '.join(words)}", args=rest))
            except TracrlError as error:
                return fail(str(error))
            except KeyboardInterrupt as stop:  # with words where a training was saved first
                return fail(str(stop) or "Stopped.", 130)
            except BrokenPipeError:  # the reader of a pipe has seen enough
                return 141
    _usage()
    return 0 if given and given[0] in ("-h", "--help", "help") else 2


def _usage() -> None:
    import tracrl

    console.print(
        f"tracrl {tracrl.__version__}: offline safe reinforcement learning\n\nusage: tracrl COMMAND [OPTIONS]\n"
    )
    for words, (_, options) in COMMANDS.items():
        text = (options or TrainOptions).__doc__ or ""
        console.print(f"  {' '.join(words):<14}{text.splitlines()[0]}", markup=False, soft_wrap=True)
    console.print("\nOptions of a command: tracrl COMMAND --help")
