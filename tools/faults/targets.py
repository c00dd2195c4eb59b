"""The stores that the campaign knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from .server_target import CassandraTarget, MongodbTarget, PostgresqlTarget
from .sqlite_target import SqliteTarget
from .target import Target

__all__ = ["TARGETS"]

TARGETS: Mapping[str, Callable[[Path], Target]] = MappingProxyType(
    {
        "sqlite": SqliteTarget,
        "cassandra": CassandraTarget,
        "mongodb": MongodbTarget,
        "postgresql": PostgresqlTarget,
    }
)
