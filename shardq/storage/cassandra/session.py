"""Requests to the cluster: prepared, translated, one driver session for each process."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from cassandra import ConsistencyLevel, OperationTimedOut
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.cluster import Session as DriverSession
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import BatchStatement, BatchType, PreparedStatement, tuple_factory

from shardq.errors import InvalidSetting
from shardq.storage.cassandra.address import Address
from shardq.storage.cassandra.faults import DRIVER_ERRORS, translate
from shardq.storage.cassandra.suspects import Suspects
from shardq.storage.per_process import PerProcess

__all__ = ["Answer", "Session", "Statement"]

Statement: TypeAlias = tuple[str, Sequence[Any]]
Answer: TypeAlias = Callable[[], Any]  # waits for the rows

_LOCKS = 256
_LONGEST_WAIT = (
    15.0  # seconds until a node that is down is tried again; the driver's is 10 minutes, and it gives up
)


class _Connected:
    """The driver's session of one process, with what was prepared on it."""

    def __init__(self, address: Address) -> None:
        local = DCAwareRoundRobinPolicy(local_dc=address.local_dc)
        self.suspects = Suspects(TokenAwarePolicy(local, shuffle_replicas=False))
        self.cluster = _cluster(address, self.suspects)
        self.prepared: dict[str, PreparedStatement] = {}
        try:
            self.driver: DriverSession = self.cluster.connect()
            self.driver.use_client_timestamp = (
                False  # what is written without a time of its own has the server's
            )
        except BaseException:
            self.cluster.shutdown()
            raise


class Session:
    """The store's requests. Connects when it is first used, again after a fork, and again after a close."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connected = PerProcess(partial(_Connected, address))
        self._locks = PerProcess(lambda: tuple(threading.Lock() for _ in range(_LOCKS)))

    def close(self) -> None:
        """Give up the connections of this process."""
        if (connected := self._connected.take()) is not None:
            connected.cluster.shutdown()

    def read(self, query: str, values: Sequence[Any], **options: Any) -> list[Any]:
        """The rows of a query, as tuples; options are those of :meth:`start_read`."""
        return list(self.start_read(query, values, **options)())

    def read_serial(self, query: str, values: Sequence[Any]) -> list[Any]:
        """The rows of one partition after every conditional change that has begun is finished or given up."""
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
            statement = self._prepare(query).bind(values)
            if consistency is not None:
                statement.consistency_level = consistency
            if page is not None:
                statement.fetch_size = page
            limit = {} if patience is None else {"timeout": patience}
            future = self._connected.get().driver.execute_async(statement, host=node, **limit)
        return partial(self._rows, future)

    def nodes(self) -> list[Any]:
        """The nodes near by that answer, as far as is known, always in the same order."""
        with self._translated(writing=False):
            connected = self._connected.get()
            return sorted(connected.suspects.trusted(), key=lambda node: str(node.endpoint))

    def write(self, statements: Sequence[Statement]) -> None:
        """Carry out statements on one partition as one mutation."""
        with self._translated(writing=True):
            self._connected.get().driver.execute(self._batch(statements))

    def apply(self, statements: Sequence[Statement]) -> bool:
        """Carry out conditional statements on one partition, all or none; False when a condition does not hold."""
        with self._translated(writing=True):
            return bool(self._connected.get().driver.execute(self._batch(statements)).one()[0])

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Let one thread of this process at a time change what has this name: others would only collide."""
        with self._locks.get()[hash(name) % _LOCKS]:
            yield

    @contextmanager
    def unprepared(self) -> Iterator[DriverSession]:
        """A driver session of its own, for data definition."""
        connected: _Connected | None = None
        with self._translated(writing=False):
            connected = _Connected(self.address)
        try:
            with self._translated(writing=True):
                yield connected.driver
        finally:
            connected.cluster.shutdown()

    def _rows(self, future: Any) -> Iterator[Any]:
        with self._translated(writing=False):
            yield from future.result()

    def _batch(self, statements: Sequence[Statement]) -> Any:
        if len(statements) == 1:
            ((query, values),) = statements
            return self._prepare(query).bind(values)
        batch = BatchStatement(BatchType.UNLOGGED)
        for query, values in statements:
            batch.add(self._prepare(query), values)
        return batch

    def _prepare(self, query: str) -> PreparedStatement:
        connected = self._connected.get()
        prepared = connected.prepared.get(query)
        if prepared is None:
            prepared = connected.driver.prepare(query, keyspace=self.address.keyspace)
            connected.prepared[query] = prepared
        return prepared

    @contextmanager
    def _translated(self, *, writing: bool) -> Iterator[None]:
        try:
            yield
        except DRIVER_ERRORS as error:
            if isinstance(error, OperationTimedOut) and error.last_host:
                self._connected.get().suspects.add(error.last_host)
            raise translate(error, str(self.address), writing=writing) from error


def _cluster(address: Address, nodes: Suspects) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=nodes,
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.name_to_value[address.consistency],
        serial_consistency_level=ConsistencyLevel.name_to_value[address.serial_consistency],
        request_timeout=address.timeout,
        row_factory=tuple_factory,
    )
    login = PlainTextAuthProvider(address.user, address.password) if address.user else None
    return Cluster(
        list(address.hosts),
        port=address.port,
        auth_provider=login,
        ssl_context=_ssl_context(address) if address.ssl else None,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        connect_timeout=min(5.0, address.timeout),
        control_connection_timeout=min(5.0, address.timeout),
        protocol_version=5,
        idle_heartbeat_interval=10,
        idle_heartbeat_timeout=5,
        reconnection_policy=ExponentialReconnectionPolicy(0.5, _LONGEST_WAIT, max_attempts=None),
    )


def _ssl_context(address: Address) -> ssl.SSLContext:
    """The certificates to trust and to show; the name or address of the server is checked too."""
    try:
        context = ssl.create_default_context(cafile=address.ca or None)
        if address.cert:
            context.load_cert_chain(address.cert, address.key or None)
    except OSError as error:
        raise InvalidSetting(
            f"ca={address.ca!r}, cert={address.cert!r}, key={address.key!r} of the Cassandra URL cannot be read as "
            f"certificates: give PEM files ({error})"
        ) from error
    return context
