"""A simulator process: makes one environment, plays whole episodes in it and sends back what became of them."""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tracrl.envs.environment import Environment
from tracrl.errors import TracrlError
from tracrl.processes import Failure


def serve(connection: Connection) -> None:
    """Play what is asked for until the other side hangs up."""
    actors: dict[int, Any] = {}
    env: Environment | None = None
    try:
        while True:
            spec, fresh, kept, orders = connection.recv()
            if env is None:  # with the first request
                env = Environment(pickle.loads(spec))
            actors = {number: known for number, known in actors.items() if number in kept}
            actors |= {number: pickle.loads(packed) for number, packed in fresh.items()}
            connection.send((env.info, [order.play(env, actors[number]) for number, order in orders]))
    except (EOFError, ConnectionError):
        pass
    except TracrlError as error:
        connection.send(Failure(str(error)))
    except Exception as error:
        connection.send(Failure(_blame(env, error)))
    finally:
        if env is not None:
            env.close()


def _blame(env: Environment | None, error: Exception) -> str:
    """Where in somebody's own code an error came up: the innermost line, as a traceback would show it last."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    name = "The environment or policy" if env is None else env.spec.name
    return f"{name} raised {said} (in {frame.name}, {Path(frame.filename).name} line {frame.lineno})."


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # Somebody's own environment may lie in the current folder; at the end, so that nothing is taken for a library.
    sys.path += [folder for folder in sys.argv[2:] if folder not in sys.path]
    serve(Connection(int(sys.argv[1])))
