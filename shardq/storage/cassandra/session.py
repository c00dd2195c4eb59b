"""Requests to the cluster: prepared, translated to shardq's errors. And its nodes' clocks."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from cassandra import ConsistencyLevel, OperationTimedOut
from cassandra.cluster import Session as DriverSession
from cassandra.query import BatchStatement, BatchType, PreparedStatement

from shardq.errors import ShardqError
from shardq.storage.cassandra.connecting import Address, Connected
from shardq.storage.cassandra.faults import DRIVER_ERRORS, translate
from shardq.storage.clocks import uptime
from shardq.storage.per_process import PerProcess

__all__ = ["Answer", "Session", "Statement", "clock_leads"]

Statement: TypeAlias = tuple[str, Sequence[Any]]
Answer: TypeAlias = Callable[[], Any]  # waits for the rows

_LOCKS = 256
_TOGETHER = 10  # statements on partitions of their own in one batch; a server warns of more

_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE) (?=\w+(?:\s|$))")  # before a table without its keyspace
_NOW = "SELECT now() FROM system.local"
_UUID_EPOCH = 0x01B21DD213814000  # of version 1 UUIDs, in tenths of a microsecond before 1970
_SAMPLES = 4
_NODES = 3
_PATIENCE = 1.0  # seconds; a node that has no answer by then is left out


class Session:
    """The store's requests. Connects when it is first used, again after a fork, and again after a close."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connected = PerProcess(partial(Connected, address))
        self._locks = PerProcess(lambda: tuple(threading.RLock() for _ in range(_LOCKS)))

    def close(self) -> None:
        """Give up the connections of this process."""
        if (connected := self.connected.take()) is not None:
            connected.cluster.shutdown()

    def read(self, query: str, values: Sequence[Any], **options: Any) -> list[Any]:
        """Return the rows of a query, as tuples; options are those of :meth:`start_read`."""
        return list(self.start_read(query, values, **options)())

    def read_unprepared(self, query: str) -> list[Any]:
        """Return the rows of a query without values. The driver would log the error of one that it cannot prepare."""
        with self._translated(writing=False):
            return list(self.connected.get().driver.execute(self._qualified(query)))

    def read_serial(self, query: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of one partition after every conditional change that has begun is finished or given up."""
        level = ConsistencyLevel.name_to_value[self.address.serial_consistency]
        return self.read(query, values, consistency=level)

    def start_read(
        self,
        query: str,
        values: Sequence[Any],
        *,
        consistency: int | None = None,
        page: int | None = None,
        node: Any = None,
        patience: float | None = None,
    ) -> Answer:
        """Send a query, to a certain ``node`` if one is given; the rows come when the answer is called for."""
        with self._translated(writing=False):
            connected = self.connected.get()
            statement = (connected.prepared.get(query) or self._prepare(connected, query)).bind(values)
            if consistency is not None:
                statement.consistency_level = consistency
            if page is not None:
                statement.fetch_size = page
            limit = {} if patience is None else {"timeout": patience}
            future = connected.driver.execute_async(statement, host=node, **limit)
        return partial(self._rows, future)

    def nodes(self) -> list[Any]:
        """Return the nodes near by that answer, as far as is known, always in the same order."""
        with self._translated(writing=False):
            connected = self.connected.get()
            return sorted(connected.suspect_nodes.trusted(), key=lambda node: str(node.endpoint))

    def write(self, statements: Sequence[Statement]) -> None:
        """Carry out statements on one partition as one mutation."""
        with self._translated(writing=True):
            connected = self.connected.get()
            connected.driver.execute(self._batch(connected, statements))

    def write_all(self, statements: Sequence[Statement]) -> None:
        """Carry out statements on any partitions, each alone: ten in a request, and all requests together."""
        with self._translated(writing=True):
            connected = self.connected.get()
            groups = [statements[start : start + _TOGETHER] for start in range(0, len(statements), _TOGETHER)]
            futures = [connected.driver.execute_async(self._batch(connected, group)) for group in groups]
            for future in futures:
                future.result()

    def apply(self, statements: Sequence[Statement]) -> bool:
        """Carry out conditional statements on one partition, all or none; False when a condition does not hold."""
        with self._translated(writing=True, conditional=True):
            connected = self.connected.get()
            return bool(connected.driver.execute(self._batch(connected, statements)).one()[0])

    def lock(self, name: str) -> threading.RLock:
        """Return the lock for changes of what has this name: one thread at a time, as others would only collide.

        A plain lock, for a ``with``: a generator would be kept with its lock by the traceback of an error.
        """
        return self._locks.get()[hash(name) % _LOCKS]

    @contextmanager
    def unprepared(self) -> Iterator[DriverSession]:
        """Open another driver session, for data definition."""
        connected: Connected | None = None
        with self._translated(writing=False):
            connected = Connected(self.address)
        try:
            with self._translated(writing=True):
                yield connected.driver
        finally:
            connected.cluster.shutdown()

    def _rows(self, future: Any) -> Iterator[Any]:
        with self._translated(writing=False):
            yield from future.result()

    def _batch(self, connected: Connected, statements: Sequence[Statement]) -> Any:
        known = connected.prepared
        if len(statements) == 1:
            ((query, values),) = statements
            return (known.get(query) or self._prepare(connected, query)).bind(values)
        batch = BatchStatement(BatchType.UNLOGGED)
        for query, values in statements:
            batch.add(known.get(query) or self._prepare(connected, query), values)
        return batch

    def _prepare(self, connected: Connected, query: str) -> PreparedStatement:
        prepared = connected.driver.prepare(self._qualified(query))
        connected.prepared[query] = prepared
        return prepared

    def _qualified(self, query: str) -> str:
        """Return the query with the keyspace of its tables. A server warns of queries that are prepared without it."""
        return _TABLE.sub(rf'\g<0>"{self.address.keyspace}".', query)

    @contextmanager
    def _translated(self, *, writing: bool, conditional: bool = False) -> Iterator[None]:
        try:
            yield
        except DRIVER_ERRORS as error:
            if isinstance(error, OperationTimedOut) and error.last_host:
                self.connected.get().suspect_nodes.add(error.last_host)
            raise translate(error, str(self.address), writing=writing, conditional=conditional) from error


def clock_leads(session: Session, nodes: int = _NODES) -> tuple[int, ...]:
    """Ask up to three nodes, or ``nodes``, by how many microseconds their clocks are ahead of this machine's uptime.

    The fastest of four answers of each counts. All clients ask the same nodes, as long as they see the same ones up.
    """
    found = [lead for node in session.nodes()[:nodes] if (lead := _lead(session, node)) is not None]
    return tuple(found) or (min(_sample(session) for _ in range(_SAMPLES))[1],)


def _lead(session: Session, node: Any) -> int | None:
    try:
        return min(_sample(session, node=node, patience=_PATIENCE) for _ in range(_SAMPLES))[1]
    except ShardqError:
        return None


def _sample(session: Session, **where: Any) -> tuple[int, int]:
    before = uptime()
    ((answer,),) = session.read(_NOW, (), **where)
    after = uptime()
    return after - before, (answer.time - _UUID_EPOCH) // 10 - (before + after) // 2
