"""Drops of queues that tests need no more."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from shardq.storage.cassandra.store import CassandraStore

__all__ = ["LateDrops"]


class LateDrops:
    """Drops queues together, at the end: each drop stands still until all producers have noticed it."""

    def __init__(self) -> None:
        self._queues: list[str] = []

    def add(self, queues: Sequence[str]) -> None:
        """Let queues be dropped at the end."""
        self._queues += queues

    def end(self, store: CassandraStore) -> None:
        """Drop them. Raises what a drop raises."""
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(store.drop_queue, self._queues))
