"""A worker process for the tests of processes: answers as the request says."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path


def main(connection: Connection) -> None:
    while True:
        try:
            what, *rest = connection.recv()
        except EOFError:
            return
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "die once":
            mark = Path(rest[0])
            if not mark.exists():
                mark.touch()
                print("A line that says why", file=sys.stderr, flush=True)
                os._exit(3)
        elif what == "stand still":
            time.sleep(1000)
        elif what == "read nothing":
            connection.send("soon")
            time.sleep(1000)
        connection.send((what, os.getpid(), random.__file__))


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
