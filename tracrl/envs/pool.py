"""The simulator processes of one environment, and the handing out of episodes to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast

import cloudpickle

from tracrl.envs.environment import EnvInfo, Environment, EnvSpec
from tracrl.envs.simulators import require
from tracrl.errors import TracrlError
from tracrl.processes import Processes, number_of

MESSAGE_STEPS = 200
"""Steps that a message should be worth: shorter episodes are sent several at a time."""

ActorT_contra = TypeVar("ActorT_contra", contravariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)
ActorT = TypeVar("ActorT")
ResultT = TypeVar("ResultT")


class Order(Protocol[ActorT_contra, ResultT_co]):
    """One episode to play: with which actor, and how."""

    @property
    def actor(self) -> Hashable:
        """The key of the actor."""

    def play(self, env: Environment, actor: ActorT_contra, /) -> ResultT_co: ...


class EnvPool:
    """Processes that play whole episodes: started when first needed, kept until closed.

    What an episode becomes does not depend on which of them plays it.
    """

    def __init__(self, spec: EnvSpec, workers: int | None = None):
        self.spec = EnvSpec.of(spec)
        self.workers = number_of(workers)
        if self.spec.is_task:
            require(self.spec.name)
        self._packed_spec = self._pack(self.spec)
        self.processes = Processes("tracrl.envs.worker", self.spec.name)
        self._info: EnvInfo | None = None
        self._numbers = itertools.count()
        self._numbered: dict[int, tuple[int, Any]] = {}
        """``id`` of an actor: its number, and itself, so that the ``id`` is not given to another"""
        self._known: dict[Connection, set[int]] = {}
        """the numbers of the actors that each process has"""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def info(self) -> EnvInfo:
        """What the environment is like, as a process says that has made one."""
        if self._info is None:
            list(self._ask([range(0)], [], {}))
        assert self._info is not None
        return self._info

    def play(
        self,
        actors: Mapping[Any, ActorT],
        orders: Sequence[Order[ActorT, ResultT]],
        length: float,
        played: Callable[[ResultT], None] | None = None,
    ) -> list[ResultT]:
        """The results of the orders, in their order. ``length`` is a guess at an episode's steps.

        A process is sent an actor once, and keeps it for as long as it is among the ``actors``.
        """
        # Few at a time towards the end, so that the processes finish together.
        most = max(1, min(int(MESSAGE_STEPS / max(length, 1)), len(orders) // (4 * self.workers)))
        jobs = [range(start, min(start + most, len(orders))) for start in range(0, len(orders), most)]
        results: dict[int, ResultT] = {}
        for places, answers in self._ask(jobs, orders, actors):
            for place, result in zip(places, answers, strict=True):
                results[place] = result
                if played is not None:
                    played(result)
        return [results[place] for place in range(len(orders))]

    def close(self) -> None:
        """End the processes."""
        self.processes.close()
        self._known.clear()

    def _pack(self, what: Any) -> bytes:
        """Functions and classes of somebody's script or notebook, which nobody else can import, go along by value."""
        try:
            return cast(bytes, cloudpickle.dumps(what))
        except Exception as error:
            raise TracrlError(
                f"{self.spec.name}: a {type(what).__name__} cannot be sent to simulator processes ({error}); "
                "a function in a module, that makes the environment, can."
            ) from error

    def _ask(
        self, jobs: Sequence[range], orders: Sequence[Order[Any, Any]], actors: Mapping[Any, Any]
    ) -> Iterator[tuple[range, list[Any]]]:
        """Each job, which is some places among the orders, with its results."""
        self._numbered = {
            id(actor): self._numbered.get(id(actor)) or (next(self._numbers), actor) for actor in actors.values()
        }
        numbers = {number for number, _ in self._numbered.values()}

        def request(connection: Connection, places: range) -> Any:
            wanted = [(*self._numbered[id(actors[orders[place].actor])], orders[place]) for place in places]
            known = self._known.get(connection)
            kept = (known or set()) & numbers
            fresh = {number: self._pack(actor) for number, actor, _ in wanted if number not in kept}
            self._known[connection] = kept | fresh.keys()
            return self._packed_spec if known is None else None, fresh, kept, [(n, order) for n, _, order in wanted]

        while len(self.processes) < min(self.workers, len(jobs)):
            self.processes.start(str(Path.cwd()))
        for places, answer in self.processes.share_out(jobs, request):
            self._info, results = answer
            yield places, results
