from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

import pytest

from tracrl.envs.environment import Environment, EnvSpec
from tracrl.envs.pool import EnvPool
from tracrl.errors import TracrlError


@dataclass(frozen=True)
class Ask:
    """Sends back who acts, and in which process."""

    actor: str

    def play(self, env: Environment, actor: Any) -> tuple[Any, int]:
        return actor, os.getpid()


def test_a_process_keeps_an_actor_but_never_takes_one_for_another_of_the_same_name() -> None:
    with EnvPool(EnvSpec("tiny_envs:Road"), 1) as pool:
        assert pool.info.max_steps is None
        first, second = ["first"], ["second"]
        assert pool.play({"a": first}, [Ask("a")], 10)[0][0] == first
        assert pool.play({"a": second, "b": first}, [Ask("a"), Ask("b")], 10) == [
            (second, pool.processes.pids[0]),
            (first, pool.processes.pids[0]),
        ]


def test_no_more_processes_than_work() -> None:
    with EnvPool(EnvSpec("tiny_envs:Road"), 7) as pool:
        assert len(pool.processes) == 0
        pool.play({"a": 0}, [Ask("a"), Ask("a")], 10_000)
        assert len(pool.processes) == 2


def test_one_that_was_killed_is_replaced_and_given_what_it_needs() -> None:
    with EnvPool(EnvSpec("tiny_envs:Road"), 1) as pool:
        [(_, pid)] = pool.play({"a": 0}, [Ask("a")], 10)
        os.kill(pid, signal.SIGKILL)
        [(actor, other)] = pool.play({"a": 1}, [Ask("a")], 10)
        assert (actor, other != pid) == (1, True)


def test_what_cannot_be_sent_is_said() -> None:
    lock = __import__("threading").Lock()
    with pytest.raises(TracrlError, match="cannot be sent to simulator processes"):
        EnvPool(EnvSpec.of(lambda: lock))
