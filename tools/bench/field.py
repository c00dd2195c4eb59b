"""Who takes part."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from .peer import Peer, PeerMissing

PEERS = {
    "shardq_sqlite": "ShardqSqlite",
    "persist_queue_ack": "PersistQueueAck",
    "persist_queue_fifo": "PersistQueueFifo",
    "huey_sqlite": "HueySqlite",
    "litequeue_sqlite": "LitequeueSqlite",
    "redis_streams": "RedisStreams",
    "redis_streams_python": "RedisStreamsPython",
    "rabbitmq_confirmed": "RabbitmqConfirmed",
    "rabbitmq_unconfirmed": "RabbitmqUnconfirmed",
}


def find_peers(names: tuple[str, ...] = tuple(PEERS)) -> Iterator[Peer | PeerMissing]:
    """Each peer, or why it is missing."""
    for name in names:
        try:
            yield getattr(import_module(f"{__package__}.peers.{name}"), PEERS[name])()
        except PeerMissing as missing:
            yield missing
