"""Ctrl-C and SIGTERM as a request that is answered between two pieces of work, not inside one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """The work was stopped from outside; the text says what was kept."""

    exit_code = 130


class StopRequest(threading.Event):
    """Set when the work is to stop; ``exit_code`` is then what shells show for the signal that asked for it."""

    exit_code = 130


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Set by the first Ctrl-C or SIGTERM; the second raises :class:`Stopped` at once.

    A signal that is ignored stays ignored: a script's ``command &`` has Ctrl-C ignored, and is stopped by SIGTERM.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield request
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if request.is_set():
            raise Stopped
        request.exit_code = 128 + number
        request.set()

    wanted = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in wanted}
    try:
        yield request
    except Stopped as stop:
        stop.exit_code = request.exit_code
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
