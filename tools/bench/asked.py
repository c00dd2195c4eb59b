"""What is asked of shardq on each store: values, read by targets.py."""

from __future__ import annotations

import msgspec

from .rounds import BULK_SEND, PROCESSOR, RECEIVE, RECEIVE_SINGLES, SINGLE_SEND
from .singles import ACKS, ONE_AT_A_TIME, POP, SEND_THREADS
from .stores.wording import IDLE, IDLE_WITH_SERVER

ACKED, FIFO, HUEY = "persist-queue, SQLiteAckQueue", "persist-queue, FIFOSQLiteQueue", "huey, SqliteHuey"
POSTGRES, RABBITMQ, REDIS = "PostgreSQL, SKIP LOCKED", "RabbitMQ, confirms", "Redis streams, hiredis"
PYMONGO, KOMBU, KEUSS = "pymongo alone", "kombu, mongodb transport", "Keuss 2.0.6, mongo"
KEUSS_BUCKETS = "Keuss 2.0.6, bucket-mongo-safe"
DRIVER, RECIPE = "cassandra-driver alone", "wide-row recipe, one row a message"
ONE_THREAD, MOST_THREADS = ACKS[1], ACKS[16]


class Times(msgspec.Struct, frozen=True):
    """``kind`` is to be so many times as fast as the peer's, or as shardq's own without a peer.

    The other's kind is the same, if nothing else is said. ``most``: what is compared is to be no larger than that.
    """

    kind: str
    peer: str
    wanted: float
    other: str = ""
    most: bool = False


class Limit(msgspec.Struct, frozen=True):
    """A measurement of the store is to give no more than that."""

    name: str
    unit: str
    most: float


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Beside other queues; from a process to another in an open loop (milliseconds); of the store itself."""

    times: tuple[Times, ...]
    p50: float
    p99: float
    limits: tuple[Limit, ...]


MEMORY = Limit("memory of a consumer", "x", 1.2)
ASKED = {
    "SQLite": Asked(
        times=(
            *(Times(SINGLE_SEND, peer, 1.1) for peer in (ACKED, FIFO, HUEY)),
            Times(SEND_THREADS, ACKED, 2),
            Times(RECEIVE_SINGLES, POSTGRES, 1),
            Times(ONE_AT_A_TIME, ACKED, 1.5),
            Times(POP, HUEY, 1),
            Times(MOST_THREADS, "", 3, ONE_THREAD),
            Times(BULK_SEND, RABBITMQ, 10),
            Times(RECEIVE, RABBITMQ, 8),
            Times(BULK_SEND, REDIS, 3),
            Times(RECEIVE, REDIS, 3),
            Times(BULK_SEND, ACKED, 20),
            Times(RECEIVE, ACKED, 20),
        ),
        p50=1.5,
        p99=4,
        limits=(Limit(IDLE, " % of a core", 1), MEMORY),
    ),
    "Cassandra": Asked(
        times=(
            Times(SINGLE_SEND, DRIVER, 0.95),
            Times(SEND_THREADS, "", 5, SINGLE_SEND),
            Times(RECEIVE_SINGLES, RECIPE, 3),
            Times(RECEIVE_SINGLES, DRIVER, 0.05, BULK_SEND),
            Times(ONE_AT_A_TIME, RECIPE, 1),
            Times(MOST_THREADS, "", 3, ONE_THREAD),
            Times(RECEIVE, DRIVER, 0.45),
            Times(RECEIVE, RECIPE, 8),
            Times(BULK_SEND, RECIPE, 4),
            Times(BULK_SEND, DRIVER, 0.7),
            Times(PROCESSOR, DRIVER, 2.5, most=True),
        ),
        p50=6,
        p99=20,
        limits=(Limit(IDLE_WITH_SERVER, " % of a core", 3), MEMORY),
    ),
    "MongoDB": Asked(
        times=(
            Times(SINGLE_SEND, PYMONGO, 0.95),
            Times(SEND_THREADS, "", 8, SINGLE_SEND),
            Times(RECEIVE_SINGLES, PYMONGO, 0.5),
            Times(ONE_AT_A_TIME, KOMBU, 1.5),
            Times(MOST_THREADS, "", 3, ONE_THREAD),
            Times(RECEIVE, PYMONGO, 0.5),
            Times(BULK_SEND, KEUSS_BUCKETS, 2),
            Times(RECEIVE, KEUSS_BUCKETS, 3),
            Times(BULK_SEND, KOMBU, 100),
            Times(RECEIVE, KOMBU, 60),
            Times(SINGLE_SEND, KEUSS, 1),
            Times(RECEIVE_SINGLES, KEUSS, 5),
            Times(PROCESSOR, PYMONGO, 2, most=True),
        ),
        p50=4,
        p99=12,
        limits=(Limit(IDLE_WITH_SERVER, " % of a core", 1.5), MEMORY),
    ),
    "PostgreSQL": Asked(
        times=(
            Times(BULK_SEND, POSTGRES, 0.9),
            Times(RECEIVE, POSTGRES, 3),
            Times(SINGLE_SEND, POSTGRES, 0.6),
            Times(SEND_THREADS, "", 4, SINGLE_SEND),
            Times(ONE_AT_A_TIME, POSTGRES, 0.8),
        ),
        p50=2.5,
        p99=8,
        limits=(Limit(IDLE_WITH_SERVER, " % of a core", 1), MEMORY),
    ),
}
NEEDED = frozenset(  # modules: a run of these peers alone gives most of the lines
    {
        *("shardq_sqlite", "persist_queue_ack", "persist_queue_fifo", "huey_sqlite", "sqlite_driver"),
        "postgres_skip_locked",
        *("shardq_cassandra", "cassandra_recipe", "cassandra_driver"),
        *("shardq_mongodb", "kombu_mongodb", "mongodb_driver"),
        "shardq_postgresql",
    }
)
