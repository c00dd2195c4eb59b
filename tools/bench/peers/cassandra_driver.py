"""The driver alone: the same bytes in the same bundles, without a queue. It is what shardq could reach at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid1

from ..cassandra_server import connect, execute_all
from ..peer import SHARED

SHARDS, BUNDLE = 8, 500
TABLE = "CREATE TABLE IF NOT EXISTS bundle (shard int, id uuid, data blob, PRIMARY KEY ((shard), id))"


class CassandraDriver:
    name = "cassandra-driver alone"
    durability = "one node, fsync within 10 s"
    sends = "answered by the node; inserts of 500 messages, 8 in flight"
    receives = (
        "reads by key, then deletes by key, as much at a time as the others; no queue, no lease, no condition"
    )
    share = 1.0
    wakes = ""
    threads = SHARED
    takes_one = True
    wins = "it is no queue: no lease, no condition, no order"
    place = None

    def open(self, folder: Path) -> None:
        self._session = connect("bench_driver")
        self._session.execute(TABLE)
        self._session.execute("TRUNCATE bundle")
        self._insert = self._session.prepare("INSERT INTO bundle (shard, id, data) VALUES (?, ?, ?)")
        self._read = self._session.prepare("SELECT data FROM bundle WHERE shard = ? AND id = ?")
        self._delete = self._session.prepare("DELETE FROM bundle WHERE shard = ? AND id = ?")
        self._keys: deque[tuple[int, object]] = deque()

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self._bundle = BUNDLE
        bundles = (bodies[start : start + BUNDLE] for start in range(0, len(bodies), BUNDLE))
        execute_all(
            self._session, (self._insert.bind((*self._key(), b"".join(bundle))) for bundle in bundles)
        )

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        self._bundle = 1
        for body in bodies:
            self._session.execute(self._insert.bind((*self._key(), body)))

    def receive(self, count: int, batch: int) -> int:
        size = 0
        while self._keys:
            keys = [self._keys.popleft() for _ in range(min(len(self._keys), max(1, batch // self._bundle)))]
            answers = execute_all(self._session, map(self._read.bind, keys))
            size += sum(len(row[0]) for rows in answers for row in rows)
            execute_all(self._session, map(self._delete.bind, keys))
        return size

    def close(self) -> None:
        self._session.cluster.shutdown()

    def _key(self) -> tuple[int, object]:
        key = (len(self._keys) % SHARDS, uuid1())
        self._keys.append(key)
        return key
