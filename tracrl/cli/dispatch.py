"""Which command runs, and what is said where it fails. A command's own file parses and prints; the rest is below."""

from __future__ import annotations

import difflib
import os
import shlex
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tyro

import tracrl
from tracrl.cli.collect import CollectOptions, collect
from tracrl.cli.console import console, fail, lost_output, note, plain_streams, say_aside
from tracrl.cli.data import (
    CheckOptions,
    FetchOptions,
    ImportOptions,
    InspectOptions,
    data_check,
    data_fetch,
    data_import,
    data_inspect,
)
from tracrl.cli.evaluate import EvaluateOptions, evaluate
from tracrl.cli.export import CardOptions, ExportOptions, card, export
from tracrl.cli.ope import ChooseOptions, EstimateOptions, GateOptions, choose, estimate, gate
from tracrl.cli.report import ReportOptions, report
from tracrl.cli.study import StudyOptions, study
from tracrl.cli.tasks import MethodsOptions, SimsOptions, TasksOptions, methods, sims, tasks
from tracrl.cli.train import TrainOptions, train
from tracrl.errors import TracrlError
from tracrl.stopping import Stopped

EXIT_UNFORESEEN = 70  # EX_SOFTWARE of sysexits.h

# Words of the command -> what runs, and what it takes.
COMMANDS: dict[tuple[str, ...], tuple[Callable[[Any], int], type | None]] = {
    ("tasks",): (tasks, TasksOptions),
    ("sims",): (sims, SimsOptions),
    ("methods",): (methods, MethodsOptions),
    ("data", "import"): (data_import, ImportOptions),
    ("data", "inspect"): (data_inspect, InspectOptions),
    ("data", "check"): (data_check, CheckOptions),
    ("data", "fetch"): (data_fetch, FetchOptions),
    ("train",): (train, None),
    ("evaluate",): (evaluate, EvaluateOptions),
    ("estimate",): (estimate, EstimateOptions),
    ("gate",): (gate, GateOptions),
    ("choose",): (choose, ChooseOptions),
    ("export",): (export, ExportOptions),
    ("card",): (card, CardOptions),
    ("collect",): (collect, CollectOptions),
    ("study",): (study, StudyOptions),
    ("report",): (report, ReportOptions),
}


def run(given: list[str], interrupts: Sequence[int] = ()) -> int:
    """Run a command and say in one sentence why it failed, if it did; ``interrupts`` are signals that came."""
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    with plain_streams(), warnings.catch_warnings():
        warnings.showwarning = note
        try:
            status = _command(given)
        except SystemExit as end:  # tyro has shown the help, or what is wrong with an option
            status = end.code if isinstance(end.code, int) else 2
        except BaseException as error:
            # Libraries make other errors of an interrupt that comes while they load.
            stopped = bool(interrupts) or isinstance(error, KeyboardInterrupt)
            why = _stopped(error, interrupts) if stopped else _reason(error)
            status = fail(*(why or _unforeseen(error, given, debug)))
        if lost := lost_output():
            status = fail(*lost)
    return status


def _stopped(error: BaseException, interrupts: Sequence[int]) -> tuple[str, int]:
    """Work that was kept says so, and knows which signal it was."""
    status = 143 if signal.SIGTERM in interrupts else 130
    words = str(error) if isinstance(error, KeyboardInterrupt) else ""
    return words or "Stopped.", error.exit_code if isinstance(error, Stopped) else status


def _reason(error: BaseException) -> tuple[str, int] | None:
    """A sentence for an error that the user can mend."""
    if isinstance(error, TracrlError):
        return str(error), error.exit_code
    if isinstance(error, OSError) and error.filename is None:
        return lost_output(probe=True)
    if isinstance(error, OSError):
        return f"{os.fsdecode(error.filename)} cannot be used ({error.strerror}).", 1
    if isinstance(error, MemoryError):
        return f"There is not enough memory for this ({str(error) or 'no more could be had'}).", 1
    return None


def _command(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        _usage()
        return 0 if given else 2
    if given[0] in ("--version", "-V", "version"):
        console.print(f"tracrl {tracrl.__version__}")
        return 0
    for before, word in zip(["", *given], given, strict=False):
        if word == "" or (word.startswith("--") and word.endswith("=")):
            raise TracrlError(f"{word.rstrip('=') or before} has an empty value: give one, or leave it out.")
    for words, (function, options) in COMMANDS.items():
        if tuple(given[: len(words)]) == words:
            rest = given[len(words) :]
            if options is None:
                return function(rest)
            return function(tyro.cli(options, prog=f"tracrl {' '.join(words)}", args=rest))
    return fail(_unknown(given), 2)


def _unknown(given: Sequence[str]) -> str:
    """What is wrong with a command that is none, and what may have been meant."""
    group = [words for words in COMMANDS if len(words) > 1 and words[0] == given[0]]
    if group and (len(given) == 1 or given[1].startswith("-")):
        return f"Say what to do with it: {', '.join('tracrl ' + ' '.join(words) for words in group)}."
    typed = " ".join(given[:2]) if group else given[0]
    names = {" ".join(words): words for words in COMMANDS}
    names |= {words[-1]: words for words in COMMANDS}
    near = difflib.get_close_matches(given[1] if group else given[0], names, n=1, cutoff=0.5)
    hint = f"did you mean tracrl {' '.join(names[near[0]])}?" if near else "tracrl --help lists them."
    kind = "option" if given[0].startswith("-") else "command"
    return f"There is no {kind} called {typed!r}: {hint}"


def _unforeseen(error: BaseException, given: Sequence[str], debug: bool) -> tuple[str, int]:
    """The last resort: our mistake, said in a sentence, with all that is needed to mend it in a file."""
    trace = "".join(traceback.format_exception(error))
    if debug:
        say_aside(trace)
    text = f"tracrl {tracrl.__version__}, Python {sys.version}\ntracrl {shlex.join(given)}\n\n{trace}"
    try:
        handle, path = tempfile.mkstemp(prefix="tracrl-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        where = f"the traceback is in {path}"
    except OSError as full:
        where = f"the traceback could not be written ({full.strerror}): --debug shows it"
    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return f"An error that tracrl did not foresee ({what}); {where}: please report it.", EXIT_UNFORESEEN


def _usage() -> None:
    console.print(
        f"tracrl {tracrl.__version__}: offline safe reinforcement learning\n\nusage: tracrl COMMAND [OPTIONS]\n"
    )
    for words, (_, options) in COMMANDS.items():
        text = (options or TrainOptions).__doc__ or ""
        console.print(f"  {' '.join(words):<14}{text.splitlines()[0]}", soft_wrap=True)
    console.print(
        "\nOptions of a command: tracrl COMMAND --help\n"
        "tracrl --version shows the version; --debug with any command shows where an unforeseen error comes from."
    )
