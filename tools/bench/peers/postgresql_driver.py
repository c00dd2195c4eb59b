"""The driver alone: the same bytes in the same bundles, without a queue: an upper bound for shardq."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg

from ..peer import JOINED

BUNDLE = 500
TABLE = "CREATE TABLE bench_bundle (id bigint PRIMARY KEY, data bytea NOT NULL)"
EXTERNAL = "ALTER TABLE bench_bundle ALTER data SET STORAGE EXTERNAL"
COPY = "COPY bench_bundle (id, data) FROM STDIN (FORMAT BINARY)"
INSERT = "INSERT INTO bench_bundle (id, data) VALUES (%b, %b)"
READ = "SELECT data FROM bench_bundle WHERE id = ANY(%b)"
DELETE = "DELETE FROM bench_bundle WHERE id = ANY(%b)"


class PostgresqlDriver:
    name = "psycopg alone"
    durability = "fsync"
    sends = "a commit with its fsync; one COPY of rows of 500 messages in bulk, an insert for each singly"
    receives = (
        "reads by id, then deletes by id, as much at a time as the others; no queue, no lease, no condition"
    )
    share = 1.0
    wakes = ""
    threads = JOINED
    takes_one = True
    wins = "it is no queue: no lease, no condition, no order"

    def open(self, folder: Path) -> None:
        ids, sent = itertools.count(), deque[int]()
        self.place = ids, sent  # shared by the threads that join
        self.join(self.place)
        self._connection.execute("DROP TABLE IF EXISTS bench_bundle")
        self._connection.execute(TABLE)
        self._connection.execute(EXTERNAL)

    def join(self, place: tuple[Iterator[int], deque[int]]) -> None:
        self._ids, self._sent = place
        self._connection = psycopg.connect(os.environ["SHARDQ_TEST_POSTGRESQL_URL"], autocommit=True)
        self._connection.prepare_threshold = 0

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self._bundle = BUNDLE
        sent = []
        with self._connection.cursor() as cursor, cursor.copy(COPY) as copy:
            copy.set_types(["int8", "bytea"])
            for start in range(0, len(bodies), BUNDLE):
                sent.append(next(self._ids))
                copy.write_row((sent[-1], b"".join(bodies[start : start + BUNDLE])))
        self._sent += sent

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        self._bundle = 1
        for body in bodies:
            identity = next(self._ids)
            self._connection.execute(INSERT, (identity, body))
            self._sent.append(identity)

    def receive(self, count: int, batch: int) -> int:
        size = 0
        while self._sent:
            ids = [self._sent.popleft() for _ in range(min(len(self._sent), max(1, batch // self._bundle)))]
            size += sum(len(data) for (data,) in self._connection.execute(READ, (ids,), binary=True))
            self._connection.execute(DELETE, (ids,))
        return size

    def leave(self) -> None:
        self._connection.close()

    def close(self) -> None:
        self._connection.execute("DROP TABLE bench_bundle")
        self.leave()
