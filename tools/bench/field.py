"""Who takes part: shardq on one kind of store, and what people would use instead of it there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from sqlite3 import sqlite_version

import msgspec

import shardq

from .database import Database
from .peer import Peer, PeerMissing


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """``peers`` by module, shardq first; ``batch`` is that of receives."""

    store: str
    title: str
    peers: dict[str, str]
    database: Database | None = None  # that all of them use
    batch: int = 500
    single_batch: int = 500

    def server(self) -> AbstractContextManager[str | None]:
        """What they all use, started if need be: its URL, None where each has its own. Raises PeerMissing."""
        return nullcontext() if self.database is None else self.database.running()

    def software(self) -> str:
        """What stores the messages, with its version."""
        if self.database is None:
            return f"SQLite {sqlite_version}"
        with shardq.connect(os.environ[self.database.variable]) as client:
            releases = [finding.value for finding in client.diagnose() if finding.name == "release"]
        return " ".join([self.database.title, *releases])

    def find_peers(self) -> Iterator[Peer | PeerMissing]:
        """Each peer, or why it is missing."""
        for name, kind in self.peers.items():
            try:
                yield getattr(import_module(f"{__package__}.peers.{name}"), kind)()
            except PeerMissing as missing:
                yield missing


SQLITE = Field(
    store="sqlite",
    title="Benchmarks",
    peers={
        "shardq_sqlite": "ShardqSqlite",
        "persist_queue_ack": "PersistQueueAck",
        "persist_queue_fifo": "PersistQueueFifo",
        "huey_sqlite": "HueySqlite",
        "litequeue_sqlite": "LitequeueSqlite",
        "redis_streams": "RedisStreams",
        "redis_streams_python": "RedisStreamsPython",
        "rabbitmq_confirmed": "RabbitmqConfirmed",
        "rabbitmq_unconfirmed": "RabbitmqUnconfirmed",
    },
)
CASSANDRA = Field(
    store="cassandra",
    title="Benchmarks on Cassandra",
    peers={
        "shardq_cassandra": "ShardqCassandra",
        "shardq_cassandra_prefetch": "ShardqCassandraPrefetch",
        "cassandra_recipe": "CassandraRecipe",
        "cassandra_driver": "CassandraDriver",
    },
    database=Database(
        name="cassandra", title="Cassandra", variable="SHARDQ_TEST_CASSANDRA_URL", options=("--heap", "1G")
    ),
    batch=1000,
    single_batch=100,
)
MONGODB = Field(
    store="mongodb",
    title="Benchmarks on MongoDB",
    peers={
        "shardq_mongodb": "ShardqMongodb",
        "keuss_mongo": "KeussMongo",
        "keuss_bucket": "KeussBucket",
        "kombu_mongodb": "KombuMongodb",
        "mongodb_driver": "MongodbDriver",
    },
    database=Database(
        name="mongodb", title="MongoDB", variable="SHARDQ_TEST_MONGODB_URL", options=("--cache", "1")
    ),
    batch=1000,
    single_batch=100,
)
FIELDS = {field.store: field for field in (SQLITE, CASSANDRA, MONGODB)}
