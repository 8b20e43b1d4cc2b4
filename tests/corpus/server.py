"""A process that has imported everything and runs each command in a child of its own: a start takes no time."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from typing import Any

MOST_MEMORY = 12 << 30  # bytes of addresses: a case that would take the whole machine is stopped


def serve() -> None:
    """One request a line: where, which words, which variables, which seconds; one answer a line."""
    import encodings.ascii
    import encodings.idna
    import encodings.latin_1
    import encodings.raw_unicode_escape
    import encodings.unicode_escape  # noqa: F401 (some cases run as a user who may not read the library)

    import h5py  # noqa: F401
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401
    import torch

    import tracrl.cli.dispatch
    import tracrl.collect.run
    import tracrl.methods.registry
    import tracrl.report.build
    import tracrl.train.fit  # noqa: F401

    with contextlib.suppress(ImportError):
        import tensorboard.compat.proto.event_pb2
        import tensorboard.summary.writer.record_writer  # noqa: F401
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(request)
        print(json.dumps(wait_for(child, request["seconds"])), file=answers, flush=True)


def wait_for(child: int, seconds: float) -> dict[str, Any]:
    """Its status (None: it had to be ended), its time, and whether processes of its own outlived it."""
    began = time.monotonic()
    status = None
    while time.monotonic() - began < seconds:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(code)
            break
        time.sleep(0.005)
    took = time.monotonic() - began
    left = _outlived(child) if status is not None else False
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return {"status": status, "took": took, "left": left}


def _outlived(group: int) -> bool:
    for _ in range(50):
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        time.sleep(0.1)
    return True


def _run(request: dict[str, Any]) -> None:
    """In the child, which never returns."""
    status = 99
    try:
        os.setsid()
        os.chdir(request["folder"])
        for number, path in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), number)
        for name, value in request["env"].items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        tempfile.tempdir = None
        if request["user"] is not None:
            os.setgroups([])
            os.setgid(request["user"])
            os.setuid(request["user"])
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        sys.path[0:0] = request["path"]
        from tracrl.cli import main

        status = main([os.fsdecode(bytes.fromhex(word)) for word in request["words"]])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
