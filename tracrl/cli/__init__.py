"""The command line. Nothing is imported here, so that an interrupt is answered from the first moment on."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what signal rests on, which need not be loaded first
import os  # which Python itself has loaded
import sys

STOPPED = "tracrl: Stopped.\n"
TYPE_CHECKING = False  # as typing has it, which need not be loaded first either
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


def main(arguments: Sequence[str] | None = None) -> int:
    """The command ``tracrl``: its exit status. Errors that the user can mend are one sentence, not a traceback."""
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        if arguments is None and _is_loading("torch"):  # its C++ would end the process with words of its own
            _end(interrupts)
        raise KeyboardInterrupt

    def ignored(error: sys.UnraisableHookArgs) -> None:
        # Python ignores what is raised while an object is given up, which happens in every import. Commands whose work
        # is kept answer signals themselves, and never come here.
        if interrupts and error.exc_type is KeyboardInterrupt:
            _end(interrupts)
        told(error)

    # Ctrl-C is left alone where it is ignored, as it is behind an & in a script; SIGTERM ends every command.
    before = {}
    told = sys.unraisablehook
    if arguments is None:
        sys.unraisablehook = ignored
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, interrupt)
    except ValueError:  # only the main thread may handle signals
        pass
    try:
        from tracrl.cli.dispatch import run

        return run(list(sys.argv[1:] if arguments is None else arguments), interrupts)
    except KeyboardInterrupt:
        sys.stderr.write(STOPPED)
        return _status(interrupts)
    finally:
        # Python ends itself by SIGINT, whatever is returned, if an interrupt came inside exec(), as dataclasses use it
        # while they load. Another exec() makes it forget that.
        exec("")
        sys.unraisablehook = told
        for number, handler in before.items():
            # The process is about to end, and needs no traceback for a Ctrl-C in the midst of that.
            signal.signal(number, signal.SIG_IGN if arguments is None and number == signal.SIGINT else handler)


def _end(interrupts: Sequence[int]) -> None:
    os.write(2, STOPPED.encode())
    os._exit(_status(interrupts))


def _status(interrupts: Sequence[int]) -> int:
    return 143 if signal.SIGTERM in interrupts else 130


def _is_loading(module: str) -> bool:
    return getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False)
