"""Ctrl-C and SIGTERM as a request that is answered between two pieces of work, not inside one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C or SIGTERM; the second raises KeyboardInterrupt at once."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield flag
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if flag.is_set():
            raise KeyboardInterrupt
        flag.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
