"""A simulator process: plays whole episodes as ordered and sends them back."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from tracrl.collect.behaviour import Behaviour
from tracrl.collect.environment import Environment, EnvSpec
from tracrl.collect.rollout import play
from tracrl.errors import TracrlError
from tracrl.processes import Failure


def serve(connection: Connection, spec: EnvSpec) -> None:
    """Say what the environment is, then play what is asked for until the other side hangs up."""
    behaviours: dict[int, Behaviour] = {}
    env: Environment | None = None
    try:
        env = Environment(spec)
        connection.send(env.facts)
        while True:
            fresh, kept, orders = connection.recv()
            behaviours = {number: known for number, known in behaviours.items() if number in kept} | fresh
            connection.send([play(env, behaviours[order.behaviour], order) for order in orders])
    except (EOFError, ConnectionError):
        pass
    except TracrlError as error:
        connection.send(Failure(str(error)))
    except Exception as error:
        connection.send(Failure(_blame(spec, error)))
    finally:
        if env is not None:
            env.close()


def _blame(spec: EnvSpec, error: Exception) -> str:
    """Where in somebody's own code an error came up: the innermost line, as a traceback would show it last."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return f"{spec.name} raised {said} (in {frame.name}, {Path(frame.filename).name} line {frame.lineno})."


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    given = json.loads(sys.argv[2])
    sys.path[:] = [*sys.path, *(path for path in given.pop("path") if path not in sys.path)]
    serve(Connection(int(sys.argv[1])), EnvSpec(**given))
