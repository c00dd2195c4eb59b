"""One insert of a driver for each row of ``foreachPartition``: what the sink is compared with."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import RoundRobinPolicy
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection
from pyspark.sql import DataFrame, Row

from shardq.storage.cassandra.url import parse
from shardq.storage.mongodb.url import parse as parse_mongodb

__all__ = ["insert_rows"]

KEYSPACE = "shardq_row_inserts"


def insert_rows(rows: DataFrame, url: str) -> None:
    """Insert each row into a table of its own, which is made and removed here, with the durability of the store."""
    prepare, insert, remove = WAYS[urlsplit(url).scheme]
    prepare(url)
    try:
        rows.foreachPartition(lambda some: insert(url, some))
    finally:
        remove(url)


@contextmanager
def _cassandra_session(url: str) -> Iterator[Session]:
    address = parse(url)
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
    cluster = Cluster(
        address.hosts,
        port=address.port,
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    )
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def _on_cassandra(*statements: str) -> Callable[[str], None]:
    def run(url: str) -> None:
        with _cassandra_session(url) as session:
            for statement in statements:
                session.execute(statement)

    return run


def _into_cassandra(url: str, rows: Iterator[Row]) -> None:
    with _cassandra_session(url) as session:
        insert = session.prepare(f"INSERT INTO {KEYSPACE}.rows (shard, id, body) VALUES (?, ?, ?)")
        for row in rows:
            identity = uuid.uuid4()
            session.execute(insert, (identity.int % 8, identity, row.body))


@contextmanager
def _mongodb_rows(url: str) -> Iterator[Collection[Any]]:
    """A collection beside the queues, written as they are: to a majority, and to the journal."""
    address = parse_mongodb(url)
    server: MongoClient[dict[str, Any]] = MongoClient(address.uri)
    with server as client:
        database = client.get_database(address.database)
        yield database.get_collection(KEYSPACE, write_concern=WriteConcern(w="majority", j=True))


def _make_collection(url: str) -> None:
    with _mongodb_rows(url) as rows:
        rows.database.create_collection(KEYSPACE)


def _into_collection(url: str, some: Iterator[Row]) -> None:
    with _mongodb_rows(url) as rows:
        for row in some:
            rows.insert_one({"_id": uuid.uuid4().bytes, "body": bytes(row.body)})


def _drop_collection(url: str) -> None:
    with _mongodb_rows(url) as rows:
        rows.drop()


def _sqlite_file(url: str) -> str:
    return url.removeprefix("sqlite://") + ".rows"


def _make_file(url: str) -> None:
    with closing(sqlite3.connect(_sqlite_file(url))) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE rows (id TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")


def _into_file(url: str, rows: Iterator[Row]) -> None:
    with closing(sqlite3.connect(_sqlite_file(url), timeout=60, isolation_level=None)) as connection:
        for row in rows:
            connection.execute("INSERT INTO rows VALUES (?, ?)", (uuid.uuid4().hex, row.body))


def _empty_file(url: str) -> None:
    with closing(sqlite3.connect(_sqlite_file(url))) as connection:
        connection.execute("DROP TABLE rows")


WAYS = {
    "cassandra": (
        _on_cassandra(
            f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} "
            "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            f"CREATE TABLE {KEYSPACE}.rows (shard int, id uuid, body blob, PRIMARY KEY (shard, id))",
        ),
        _into_cassandra,
        _on_cassandra(f"DROP KEYSPACE {KEYSPACE}"),
    ),
    "mongodb": (_make_collection, _into_collection, _drop_collection),
    "sqlite": (_make_file, _into_file, _empty_file),
}
"""By the scheme of a URL: make a table, insert rows, remove the table."""
