"""PostgreSQL as a queue, in the way that its documentation names SKIP LOCKED for.

A claim sets the leases of the oldest ready rows that nobody has locked, an ack deletes them: two transactions for a
batch. A partial index holds what is ready, so neither what is claimed nor what is done is looked at.

The rows are found once, in an array: with `IN (SELECT ...)` a plan that was made while the table was empty looked for
them again for each row of the table, and a claim of 1,000 took more than ten minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from ..peer import AT_ONCE, JOINED, POLLED, look_again

TABLE = """
CREATE TABLE message (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body         bytea NOT NULL,
    leased_until timestamptz,
    deliveries   int NOT NULL DEFAULT 0
)
"""
INDEX = "CREATE INDEX ready ON message (id) WHERE leased_until IS NULL"
COPY = "COPY message (body) FROM STDIN (FORMAT BINARY)"
INSERT = "INSERT INTO message (body) VALUES (%b)"
CLAIM = """
UPDATE message SET leased_until = now() + interval '30 s', deliveries = deliveries + 1 WHERE id = ANY (ARRAY(
    SELECT id FROM message WHERE leased_until IS NULL ORDER BY id LIMIT %b FOR UPDATE SKIP LOCKED
)) RETURNING id, body
"""
POP = """
DELETE FROM message WHERE id = (
    SELECT id FROM message WHERE leased_until IS NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING body
"""
ACK = "DELETE FROM message WHERE id = ANY(%b) AND leased_until > now()"


class PostgresSkipLocked:
    name = "PostgreSQL, SKIP LOCKED"
    durability = "fsync"
    sends = "a commit with its fsync; one COPY and one commit in bulk, an insert and a commit for each singly"
    receives = (
        "bulk claims under a lease (SKIP LOCKED), one delete acks them; a commit with its fsync for each"
    )
    share = 0.5
    wakes = POLLED
    threads = JOINED
    takes_one = True
    wins = "claims and acks are single statements of a server that has the rows in memory"

    def open(self, folder: Path) -> None:
        self.place = os.environ["SHARDQ_TEST_POSTGRESQL_URL"]
        self.join(self.place)
        self._connection.execute("DROP TABLE IF EXISTS message")
        self._connection.execute(TABLE)
        self._connection.execute(INDEX)

    def join(self, place: str) -> None:
        self._connection = psycopg.connect(place, autocommit=True)
        self._connection.prepare_threshold = 0

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        with self._connection.cursor() as cursor, cursor.copy(COPY) as copy:
            copy.set_types(["bytea"])
            for body in bodies:
                copy.write_row((body,))

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._connection.execute(INSERT, (body,))

    def receive(self, count: int, batch: int) -> int:
        size = 0
        while count > 0:
            rows = self._claim(min(count, batch))
            if not rows:
                raise RuntimeError(f"{count} messages did not come")
            size += sum(len(body) for _, body in rows)
            self._ack(rows)
            count -= len(rows)
        return size

    def pop(self, count: int) -> None:
        for _ in range(count):
            if self._connection.execute(POP, binary=True).fetchone() is None:
                raise RuntimeError("a message did not come")

    def receiving(self) -> Iterator[Sequence[bytes]]:
        for rows in look_again(lambda: self._claim(AT_ONCE)):
            yield [body for _, body in rows]
            self._ack(rows)

    def _claim(self, count: int) -> list[Any]:
        rows: list[Any] = self._connection.execute(CLAIM, (count,), binary=True).fetchall()
        return rows

    def _ack(self, rows: Sequence[Any]) -> None:
        if rows:
            self._connection.execute(ACK, ([identity for identity, _ in rows],))

    def leave(self) -> None:
        self._connection.close()

    def close(self) -> None:
        self._connection.execute("DROP TABLE message")
        self.leave()
