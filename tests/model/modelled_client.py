"""The real Cassandra store, run one request at a time.

A call of the store is a function of the answers to its requests. It is run with the answers that there are; where the
next one is missing it is given up, and what it waits for is noted. So a state of a client is a value: what it
remembers, and the answers so far. No thread is needed, and every order of requests can be tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage import writing
from shardq.storage.cassandra import changing, directory, settling
from shardq.storage.cassandra.connecting import Address
from shardq.storage.cassandra.queues import Incarnations
from shardq.storage.cassandra.read_cursors import ReadCursors
from shardq.storage.cassandra.shards import GroupedShards, UngroupedShards
from shardq.storage.cassandra.store import CassandraStore
from tests.model.modelled_table import Statement

READ, WRITE, APPLY, SERIAL = "read", "write", "apply", "serial"
ADDRESS = Address(("modelled",), "modelled")


class Request(NamedTuple):
    """A request that is on its way. It is known by its number within its call."""

    number: int
    kind: str
    statements: tuple[Statement, ...]


class Lost(NamedTuple):
    """There is no answer, and there will be none."""

    writing: bool


class Memory(NamedTuple):
    """What a client knows between two calls."""

    held: Any = ()
    cursors: Any = ()
    groups: Any = ()


class Run(NamedTuple):
    """How far a call came: it waits for requests, or has ended with a result or an error."""

    answers: tuple[tuple[int, Any], ...]
    waiting: tuple[Request, ...] = ()
    ended: bool = False
    result: Any = None
    error: str = ""
    memory: Memory = Memory()


class _Waiting(BaseException):
    """An answer is missing."""


class Session:
    """What the store takes for its session: it answers with what is known."""

    def __init__(self, answers: Sequence[tuple[int, Any]], clock: int) -> None:
        self.address = ADDRESS
        self.answers = dict(answers)
        self.requests: list[Request] = []
        self._clock, self._numbers = clock, 0

    def read(self, query: str, values: Sequence[Any], *, consistency: int | None = None) -> list[Any]:
        return list(self.start_read(query, values)())

    def read_serial(self, query: str, values: Sequence[Any]) -> list[Any]:
        return list(self._wait(self._send(SERIAL, [(query, values)])))

    def start_read(
        self, query: str, values: Sequence[Any], *, consistency: int | None = None, page: int | None = None
    ) -> Callable[[], Iterator[Any]]:
        number = self._send(READ, [(query, values)])
        return lambda: iter(self._wait(number))

    def write(self, statements: Sequence[Statement]) -> None:
        self._wait(self._send(WRITE, statements))

    def apply(self, statements: Sequence[Statement]) -> bool:
        return bool(self._wait(self._send(APPLY, statements)))

    def lock(self, name: str) -> Any:
        return nullcontext()

    def now(self) -> int:
        """The client's clock: what it showed when this was first asked."""
        self._numbers += 1
        return int(self.answers.setdefault(-self._numbers, self._clock))

    def _send(self, kind: str, statements: Sequence[Statement]) -> int:
        self._numbers += 1
        request = Request(self._numbers, kind, tuple(statements))
        if request.number not in self.answers:
            self.requests.append(request)
        return request.number

    def _wait(self, number: int) -> Any:
        if number not in self.answers:
            raise _Waiting
        answer = self.answers[number]
        if isinstance(answer, Lost):
            raise (OutcomeUnknown if answer.writing else StoreUnavailable)("lost on purpose")
        return answer


class _Listed(directory.ListedShards):
    """The queue and its shards exist throughout: no other table takes part."""

    def is_fresh(self, shard: object) -> bool:
        return True

    def heal(self, session: object, shards: object) -> None:
        """Every shard is listed."""


class _Unnumbered(Incarnations):
    """No queue is created again."""

    def of(self, session: object, queue: str, *, glance: bool = False) -> str:
        return queue


class ModelledStore(CassandraStore):
    def __init__(self, session: Session, memory: Memory) -> None:
        self.session, self.clock = session, session  # type: ignore[assignment]
        self._cursors, self.listed, self._checked = ReadCursors(), _Listed(), True
        ways: Any = (session, self._cursors, self.listed, session)
        self._ungrouped, self._grouped = UngroupedShards(*ways), GroupedShards(*ways)
        self._held, self._groups = self._ungrouped.held, self._grouped.known
        self.incarnations = _Unnumbered()
        self._held.known = dict(memory.held)
        self._groups.known = {name: (dict(rows), dict(leases)) for name, rows, leases in memory.groups}
        for name, values in memory.cursors:
            cursor = self._cursors.of(name)
            for field, value in zip(cursor.__struct_fields__, values, strict=True):
                setattr(cursor, field, list(value) if field == "places" else value)

    def look_deep(self, shards: Sequence[Shard]) -> object:
        return self.probe(shards, deep=True)

    @property
    def memory(self) -> Memory:
        cursors = ((name, msgspec.structs.astuple(cursor)) for name, cursor in self._cursors.cursors.items())
        frozen = tuple((name, (tuple(values[0]), *values[1:])) for name, values in cursors)
        groups = tuple(
            (name, tuple(rows.items()), tuple(leases.items()))
            for name, (rows, leases) in self._groups.known.items()
        )
        return Memory(tuple(self._held.known.items()), frozen, groups)


def run(
    call: Callable[[CassandraStore], Any],
    memory: Memory,
    answers: Sequence[tuple[int, Any]],
    clock: int,
    seed: bytes,
) -> Run:
    """Run a call as far as the answers go. The seed names the call: it draws the same bytes whenever it is run."""
    session = Session(answers, clock)
    store = ModelledStore(session, memory)
    _dice.roll(seed)
    try:
        result = call(store)
    except _Waiting:
        return Run(tuple(sorted(session.answers.items())), tuple(session.requests))
    except ShardqError as error:
        return Run((), ended=True, error=type(error).__name__, memory=store.memory)
    return Run((), ended=True, result=result, memory=store.memory)


class _Dice:
    """Random bytes that are the same in every repetition."""

    def roll(self, seed: bytes) -> None:
        self._seed, self._drawn = seed, 0

    def urandom(self, size: int) -> bytes:
        self._drawn += 1
        return (self._seed + bytes([self._drawn])).ljust(size, b"\1")[:size]


_dice = _Dice()


@contextmanager
def deterministic() -> Iterator[None]:
    """Random bytes that can be repeated, and no pauses, in the store's modules."""
    with (
        patch.object(changing, "os", _dice),
        patch.object(settling, "os", _dice),
        patch.object(writing, "time", SimpleNamespace(sleep=lambda _: None)),
    ):
        yield
