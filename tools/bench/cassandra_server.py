"""The Cassandra that the comparison runs on, and a plain session of the driver."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from .peer import PeerMissing

try:
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
    from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
    from cassandra.query import tuple_factory
except ImportError as error:
    raise PeerMissing("cassandra-driver is not installed") from error

VARIABLE = "SHARDQ_TEST_CASSANDRA_URL"
IN_FLIGHT = 8


def url() -> str:
    """Its address, which the field has put there."""
    return os.environ[VARIABLE]


def connect(keyspace: str) -> Session:
    """A session as the driver's documentation recommends it: token-aware, prepared statements, TCP_NODELAY."""
    places, _ = url().removeprefix("cassandra://").split("/")
    hosts, ports = zip(*(place.split(":") for place in places.split(",")), strict=True)
    policy = TokenAwarePolicy(DCAwareRoundRobinPolicy())
    profile = ExecutionProfile(load_balancing_policy=policy, row_factory=tuple_factory, request_timeout=30)
    cluster = Cluster(
        hosts,
        port=int(ports[0]),
        protocol_version=5,
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    )
    session = cluster.connect()
    session.execute(
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    session.set_keyspace(keyspace)
    return session


def execute_all(session: Session, statements: Iterable[Any]) -> list[Sequence[Any]]:
    """Carry them out, eight in flight; returns the rows of each."""
    waiting: deque[Any] = deque()
    answers = []
    for statement in statements:
        if len(waiting) == IN_FLIGHT:
            answers.append(waiting.popleft().result().current_rows)
        waiting.append(session.execute_async(statement))
    answers += [future.result().current_rows for future in waiting]
    return answers
