"""What a store holds for a queue, found by the URL of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shardq.storage.sqlite.url import path_in
from shardq.testing import RawQueue

from .cassandra_rows import read_cassandra
from .mongodb_documents import read_mongodb
from .sqlite_rows import read_sqlite

__all__ = ["read_by_url"]


def read_by_url(url: str, queue: str) -> RawQueue:
    """Read everything of the queue. Nobody may be at work meanwhile."""
    readers = {"sqlite": _sqlite, "mongodb": _mongodb, "cassandra": _cassandra, "postgresql": _postgresql}
    return readers[urlsplit(url).scheme](url, queue)


def _sqlite(url: str, queue: str) -> RawQueue:
    return read_sqlite(Path(path_in(url)), queue)


def _mongodb(url: str, queue: str) -> RawQueue:
    from pymongo import MongoClient  # noqa: PLC0415 -- only this store needs the driver

    client: MongoClient[dict[str, Any]] = MongoClient(url)
    with client:
        return read_mongodb(client[urlsplit(url).path.strip("/")], queue)


def _cassandra(url: str, queue: str) -> RawQueue:
    from cassandra.cluster import Cluster  # noqa: PLC0415 -- as above

    from shardq.storage.cassandra.url import parse  # noqa: PLC0415

    address = parse(url)
    with Cluster(address.hosts, port=address.port) as cluster:
        return read_cassandra(cluster.connect(), address.keyspace, queue)


def _postgresql(url: str, queue: str) -> RawQueue:
    from shardq.storage.postgresql.url import parse  # noqa: PLC0415 -- as above

    from .postgresql_rows import read_postgresql  # noqa: PLC0415

    address, _ = parse(url)
    return read_postgresql(address.conninfo, address.schema, queue)
