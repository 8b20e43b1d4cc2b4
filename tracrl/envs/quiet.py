"""Keep what a simulator prints about itself off the user's terminal."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def quiet() -> Iterator[None]:
    """Send standard output and error to nowhere, also what C code writes, and ignore warnings.

    For imports and constructions only: an exception passes through as usual. Handlers that are added to the
    root logger inside (MetaDrive does it) are taken off again.
    """
    handlers, level = logging.root.handlers[:], logging.root.level
    # Opened by number: BulletSafetyGym 1.4.0 looks a stream that has a name up in the C library.
    with os.fdopen(os.open(os.devnull, os.O_WRONLY), "w") as nowhere:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        saved = [os.dup(1), os.dup(2)]
        try:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            with redirect_stdout(nowhere), redirect_stderr(nowhere), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            logging.root.handlers[:] = handlers
            logging.root.setLevel(level)
            ctypes.CDLL(None).fflush(None)
            for number, copy in enumerate(saved, start=1):
                os.dup2(copy, number)
                os.close(copy)
