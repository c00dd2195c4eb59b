"""Queues that use the same server, or none."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module

import msgspec

from .database import Database, Running
from .peer import Peer, PeerMissing


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """``peers`` are classes by module; ``store`` is the title of shardq's store there, where it has one."""

    peers: dict[str, str]
    database: Database | None = None
    store: str = ""

    def server(self) -> AbstractContextManager[Running | None]:
        """What they all use, started if need be; None where each has its own. Raises PeerMissing."""
        return nullcontext() if self.database is None else self.database.running()

    def of(self, modules: Collection[str]) -> Group:
        """The same with these peers only; without shardq among them it has no store to measure."""
        peers = {name: kind for name, kind in self.peers.items() if name in modules}
        store = self.store if any(name.startswith("shardq_") for name in peers) else ""
        return msgspec.structs.replace(self, peers=peers, store=store)

    def find_peers(self) -> Iterator[Peer | PeerMissing]:
        """Each peer, or why it is missing."""
        for name, kind in self.peers.items():
            try:
                yield getattr(import_module(f"{__package__}.peers.{name}"), kind)()
            except (PeerMissing, ImportError) as missing:
                yield PeerMissing(f"{name} ({missing})")


def _checkpoint() -> None:
    """Make MongoDB write its checkpoint, which it does once a minute by itself."""
    from .mongodb_server import checkpoint  # noqa: PLC0415 -- needs a driver that others do not

    checkpoint()


def _conflicts() -> dict[str, int]:
    """Writes that MongoDB had to repeat, because another one changed the same document."""
    from .mongodb_server import write_conflicts  # noqa: PLC0415 -- needs a driver that others do not

    return {"write conflicts": write_conflicts()}


FILES = Group(
    store="SQLite",
    peers={
        "shardq_sqlite": "ShardqSqlite",
        "persist_queue_ack": "PersistQueueAck",
        "persist_queue_fifo": "PersistQueueFifo",
        "huey_sqlite": "HueySqlite",
        "litequeue_sqlite": "LitequeueSqlite",
        "sqlite_driver": "SqliteDriver",
    },
)
SERVERS = Group(
    peers={
        "redis_streams": "RedisStreams",
        "redis_streams_python": "RedisStreamsPython",
        "redis_streams_always": "RedisStreamsAlways",
        "rabbitmq_confirmed": "RabbitmqConfirmed",
        "rabbitmq_unconfirmed": "RabbitmqUnconfirmed",
        "rabbitmq_quorum": "RabbitmqQuorum",
        "nats_jetstream": "NatsJetstream",
    },
)
POSTGRESQL = Group(
    store="PostgreSQL",
    peers={
        "shardq_postgresql": "ShardqPostgresql",
        "postgres_skip_locked": "PostgresSkipLocked",
        "keuss_postgres": "KeussPostgres",
        "procrastinate_queue": "ProcrastinateQueue",
        "postgresql_driver": "PostgresqlDriver",
    },
    database=Database(
        name="postgresql",
        title="PostgreSQL",
        variable="SHARDQ_TEST_POSTGRESQL_URL",
        options=("--set", "shared_buffers=256MB", "--set", "autovacuum_naptime=1min"),
    ),
)
ELASTICMQ = Group(
    peers={"elasticmq_sqs": "ElasticmqSqs"},
    database=Database(name="elasticmq", title="ElasticMQ", variable="SHARDQ_TEST_ELASTICMQ_URL"),
)
KAFKA = Group(
    peers={"kafka_flushed": "KafkaFlushed", "kafka_unflushed": "KafkaUnflushed"},
    database=Database(name="kafka", title="Kafka", variable="SHARDQ_TEST_KAFKA_URL"),
)
CASSANDRA = Group(
    store="Cassandra",
    peers={
        "shardq_cassandra": "ShardqCassandra",
        "shardq_cassandra_prefetch": "ShardqCassandraPrefetch",
        "cassandra_recipe": "CassandraRecipe",
        "cassandra_driver": "CassandraDriver",
    },
    database=Database(
        name="cassandra", title="Cassandra", variable="SHARDQ_TEST_CASSANDRA_URL", options=("--heap", "1G")
    ),
)
MONGODB = Group(
    store="MongoDB",
    peers={
        "shardq_mongodb": "ShardqMongodb",
        "shardq_mongodb_prefetch": "ShardqMongodbPrefetch",
        "keuss_mongo": "KeussMongo",
        "keuss_bucket": "KeussBucket",
        "kombu_mongodb": "KombuMongodb",
        "mongodb_driver": "MongodbDriver",
    },
    database=Database(
        name="mongodb",
        title="MongoDB",
        variable="SHARDQ_TEST_MONGODB_URL",
        options=("--cache", "1"),
        settle=_checkpoint,
        counts=_conflicts,
    ),
)
