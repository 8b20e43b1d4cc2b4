"""The simulator processes of a collection, and the handing out of episodes to them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any, Self

from tracrl.collect.behaviour import Behaviour
from tracrl.collect.environment import EnvFacts, EnvSpec
from tracrl.collect.rollout import Order, Rollout
from tracrl.processes import Processes, number_of

SHORT = 200
"""Steps that a message should be worth: shorter episodes are sent several at a time."""


class RolloutPool:
    """Processes that play whole episodes. What an episode becomes does not depend on which of them plays it."""

    def __init__(self, spec: EnvSpec, workers: int | None = None):
        self.spec = spec
        self.workers = number_of(workers)
        self.processes = Processes("tracrl.collect.worker", spec.name)
        self._known: dict[Connection, set[int]] = {}

    def __enter__(self) -> Self:
        # Our own search path goes along: an environment that can be imported here can be imported there.
        given = json.dumps({**asdict(self.spec), "path": [path for path in sys.path if path]})
        try:
            for _ in range(self.workers):
                self.processes.start(given)
            # All of them are started before the first is asked, so that they import side by side.
            answers = [self.processes.receive(connection) for connection in self.processes]
            self.facts: EnvFacts = answers[0]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def play(
        self,
        behaviours: Mapping[int, Behaviour],
        orders: Sequence[Order],
        length: float,
        played: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """One episode for each order, in the order of the orders. ``length`` is a guess at an episode's steps.

        A number must stand for the same behaviour for as long as the pool lives: a process is sent each once, and
        keeps those that are among ``behaviours``.
        """

        def request(connection: Connection, places: range) -> Any:
            wanted = [orders[place] for place in places]
            kept = self._known.get(connection, set()) & behaviours.keys()
            fresh = {order.behaviour: behaviours[order.behaviour] for order in wanted if order.behaviour not in kept}
            self._known[connection] = kept | fresh.keys()
            return fresh, kept, wanted

        # Few at a time towards the end, so that the processes finish together.
        most = max(1, min(int(SHORT / max(length, 1)), len(orders) // (4 * self.workers)))
        jobs = [range(start, min(start + most, len(orders))) for start in range(0, len(orders), most)]
        results: dict[int, Rollout] = {}
        for places, rollouts in self.processes.share_out(jobs, request):
            for place, rollout in zip(places, rollouts, strict=True):
                results[place] = rollout
                if played is not None:
                    played(rollout)
        return [results[place] for place in range(len(orders))]

    def close(self) -> None:
        """End the processes."""
        self.processes.close()
