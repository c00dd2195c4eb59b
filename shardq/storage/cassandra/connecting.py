"""Where a cluster is, and the driver's session with it: one for each process."""

# ruff: noqa: SLF001 - the driver has no public way to its event loop, which a forked child has of its parent
from __future__ import annotations

import os
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.cluster import Session as DriverSession
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    TokenAwarePolicy,
    WrapperPolicy,
)
from cassandra.query import PreparedStatement, tuple_factory

from shardq.errors import InvalidSetting

__all__ = ["Address"]

_SECONDS = 15.0
_LEAST = 1.0  # seconds for each host
_LONGEST_WAIT = 15.0  # seconds until a node that is down is tried again; the driver's are 600 and it gives up


class Address(msgspec.Struct, frozen=True):
    """The parts of a URL. Its text names hosts and keyspace, never the credentials."""

    hosts: tuple[str, ...]
    keyspace: str
    port: int = 9042
    user: str = ""
    password: str = ""
    local_dc: str = ""
    consistency: str = "LOCAL_QUORUM"
    serial_consistency: str = "LOCAL_SERIAL"
    replication: tuple[tuple[str, int], ...] = ()  # copies in each data centre, for a new keyspace
    timeout: float = 10.0
    connect_seconds: float = 10.0  # the most that connecting may take, over all hosts
    ssl: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""

    def __str__(self) -> str:
        return f"Cassandra at {','.join(self.hosts)}:{self.port}, keyspace {self.keyspace!r},"

    def __repr__(self) -> str:
        return f"<{self}>"


class SuspectNodes(WrapperPolicy):  # type: ignore[misc]
    """Puts such nodes at the end of every plan.

    The driver knows a node as down when its connections end. One that hangs keeps them, and would be asked first again
    by every repetition of a request.
    """

    def __init__(self, child: Any) -> None:
        super().__init__(child)
        self._until: dict[Any, float] = {}  # by node of the cluster

    def add(self, node: Any) -> None:
        """Note that a request to the node had no answer in time."""
        self._until[node] = time.monotonic() + _SECONDS

    def trusted(self) -> list[Any]:
        """Return the nodes that are asked for anything and not suspected."""
        now = time.monotonic()
        return [node for node in self._child_policy.make_query_plan() if self._until.get(node, 0.0) <= now]

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:
        """Return the nodes in the order in which they are asked."""
        now = time.monotonic()
        suspected = []
        for node in self._child_policy.make_query_plan(working_keyspace, query):
            if self._until.get(node, 0.0) > now:
                suspected.append(node)
            else:
                yield node
        yield from suspected


class Connected:
    """The driver's session of one process, with what was prepared on it."""

    def __init__(self, address: Address) -> None:
        local = DCAwareRoundRobinPolicy(local_dc=address.local_dc)
        self.suspect_nodes = SuspectNodes(TokenAwarePolicy(local, shuffle_replicas=False))
        self.cluster = _cluster(address, self.suspect_nodes)
        self.prepared: dict[str, PreparedStatement] = {}  # by text; no text has values in it
        try:
            self.driver: DriverSession = self.cluster.connect()
            self.driver.use_client_timestamp = False  # writes without a time get the server's
        except BaseException:
            self.cluster.shutdown()
            raise


def _cluster(address: Address, nodes: SuspectNodes) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=nodes,
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=ConsistencyLevel.name_to_value[address.consistency],
        serial_consistency_level=ConsistencyLevel.name_to_value[address.serial_consistency],
        request_timeout=address.timeout,
        row_factory=tuple_factory,
    )
    # The driver tries one host after the other, each for this long.
    patience = min(address.timeout, max(address.connect_seconds / len(address.hosts), _LEAST))
    login = PlainTextAuthProvider(address.user, address.password) if address.user else None
    return Cluster(
        list(address.hosts),
        port=address.port,
        auth_provider=login,
        ssl_context=_ssl_context(address) if address.ssl else None,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        connect_timeout=patience,
        control_connection_timeout=patience,
        protocol_version=5,
        idle_heartbeat_interval=10,
        idle_heartbeat_timeout=5,
        reconnection_policy=ExponentialReconnectionPolicy(0.5, _LONGEST_WAIT, max_attempts=None),
    )


def _ssl_context(address: Address) -> ssl.SSLContext:
    """Load the certificates to trust and to show; the name or address of the server is checked too."""
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


def _forget_parents_connections() -> None:
    """Make the driver's event loop forget the parent's connections in a forked child.

    Else the driver closes each of them when the child connects or ends. It then waits for ever for a lock that a
    thread of the parent held at the fork. Only its libev loop keeps them.
    """
    loop = getattr(sys.modules[Cluster.connection_class.__module__], "_global_loop", None)
    if loop is None or not hasattr(loop, "_live_conns"):
        return
    for connection in loop._live_conns | loop._new_conns | loop._closed_conns:
        for watcher in (connection._write_watcher, connection._read_watcher):
            if watcher is not None:
                watcher.stop()
        if connection._socket is not None:
            connection._socket.close()
    loop._live_conns, loop._new_conns, loop._closed_conns = set(), set(), set()
    loop._thread = None  # so there is nothing that the driver would wait for


os.register_at_fork(after_in_child=_forget_parents_connections)
