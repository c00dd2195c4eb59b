"""The wide-row recipe with one row for each message, as Astyanax had it, with prepared statements.

A reader locks the shard, reads rows, moves each from its place to a timeout marker, unlocks, and deletes the
markers to ack. The lock is conditional, everything else a batch on one partition.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid1

from cassandra.query import BatchStatement, BatchType

from ..cassandra_server import connect, execute_all
from ..peer import AT_ONCE, POLLED, SHARED, look_again

KEYSPACE = "bench_recipe"
SHARDS, BATCH, LEASE_SECONDS = 8, 100, 30
TABLES = (
    "CREATE TABLE IF NOT EXISTS entry (shard int, due bigint, id uuid, body blob, PRIMARY KEY ((shard), due, id))",
    "CREATE TABLE IF NOT EXISTS lock (shard int PRIMARY KEY, holder blob)",
    "TRUNCATE entry",
    "TRUNCATE lock",
)
INSERT = "INSERT INTO entry (shard, due, id, body) VALUES (?, ?, ?, ?)"
DELETE = "DELETE FROM entry WHERE shard = ? AND due = ? AND id = ?"
READ = "SELECT due, id, body FROM entry WHERE shard = ? AND due <= ? LIMIT ?"
LOCK = "UPDATE lock USING TTL 30 SET holder = ? WHERE shard = ? IF holder = null"
UNLOCK = "UPDATE lock SET holder = null WHERE shard = ? IF holder = ?"


class CassandraRecipe:
    name = "wide-row recipe, one row a message"
    durability = "one node, fsync within 10 s"
    sends = "answered by the node; batches of 100 rows, 8 in flight"
    receives = "lock, read, batch of deletes and markers, unlock; batches of deletes ack"
    share = 0.2
    wakes = POLLED
    threads = SHARED
    takes_one = True
    wins = "plain inserts and deletes: what is repeated after a lost answer is stored twice"
    place = None

    def open(self, folder: Path) -> None:
        session = connect(KEYSPACE)
        for statement in TABLES:
            session.execute(statement)
        session.cluster.shutdown()
        self.join(self.place)

    def join(self, place: None) -> None:
        self._session = connect(KEYSPACE)
        queries = (INSERT, DELETE, READ, LOCK, UNLOCK)
        self._insert, self._delete, self._read, self._lock, self._unlock = map(self._session.prepare, queries)
        self._turn = 0

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        execute_all(self._session, self._inserts(bodies))

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._turn += 1
            self._session.execute(self._insert.bind((self._turn % SHARDS, _now(), uuid1(), body)))

    def receive(self, count: int, batch: int) -> int:
        size = 0
        while count > 0:
            markers = self._claim(min(count, batch))
            size += sum(len(body) for _, _, _, body in markers)
            self._ack(markers)
            count -= len(markers)
        return size

    def receiving(self) -> Iterator[Sequence[bytes]]:
        for markers in look_again(lambda: self._claim(AT_ONCE)):
            yield [body for _, _, _, body in markers]
            self._ack(markers)

    def leave(self) -> None:
        self._session.cluster.shutdown()

    close = leave

    def _inserts(self, bodies: Sequence[bytes]) -> Iterator[BatchStatement]:
        for start in range(0, len(bodies), BATCH):
            self._turn += 1
            rows = ((self._turn % SHARDS, _now(), uuid1(), body) for body in bodies[start : start + BATCH])
            yield from self._batches((self._insert, row) for row in rows)

    def _claim(self, count: int) -> list[tuple[int, int, Any, bytes]]:
        self._turn += 1
        shard = self._turn % SHARDS
        token = secrets.token_bytes(16)
        if not self._session.execute(self._lock, (token, shard)).one()[0]:
            return []
        rows = list(self._session.execute(self._read, (shard, _now(), count)))
        until = _now() + LEASE_SECONDS * 1_000_000
        markers = [(shard, until, identity, body) for _, identity, body in rows]
        moves = [(self._delete, (shard, due, identity)) for due, identity, _ in rows]
        execute_all(self._session, self._batches([*((self._insert, marker) for marker in markers), *moves]))
        self._session.execute(self._unlock, (shard, token))
        return markers

    def _ack(self, markers: Sequence[tuple[int, int, Any, bytes]]) -> None:
        execute_all(self._session, self._batches((self._delete, marker[:3]) for marker in markers))

    def _batches(self, statements: Iterable[tuple[Any, Sequence[Any]]]) -> Iterator[BatchStatement]:
        statements = list(statements)
        for start in range(0, len(statements), BATCH):
            batch = BatchStatement(BatchType.UNLOGGED)
            for statement, values in statements[start : start + BATCH]:
                batch.add(statement, values)
            yield batch


def _now() -> int:
    return time.time_ns() // 1000
