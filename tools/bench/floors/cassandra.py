"""Cassandra: prepared statements of the driver, on one partition that is new for each work.

A read begins after the last row that was taken, so that it crosses no tombstones. What takes is conditional: a queue
in which it is not could hand a message out twice.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cassandra.cluster import Session
from cassandra.query import BatchStatement, BatchType

from ..cassandra_server import connect, execute_all
from ..rounds import RECEIVE, RECEIVE_SINGLES, SINGLE_SEND
from ..singles import SEND_THREADS, SENDERS
from .floor import BODY, JOINED, Size, Work, by_threads, check, in_turn, repeated

KEYSPACE = "bench_floors"
TABLES = (
    "CREATE TABLE IF NOT EXISTS message (shard text, id blob, data blob, PRIMARY KEY ((shard), id))",
    "CREATE TABLE IF NOT EXISTS entry (shard text, kind tinyint, due bigint, id blob, data blob, taken blob, "
    "PRIMARY KEY ((shard), kind, due, id))",
    "TRUNCATE message",
    "TRUNCATE entry",
)
CONTROL, LEASE, READY, BUNDLE = range(4)  # kinds of rows, as shardq has them
PARTITIONS = 8  # that sends are spread over
_AT = "WHERE shard = ? AND kind = ? AND due = ? AND id = ?"
SEND = "INSERT INTO message (shard, id, data) VALUES (?, ?, ?)"
INSERT = "INSERT INTO entry (shard, kind, due, id, data) VALUES (?, ?, ?, ?, ?)"
FIRST = f"SELECT due, id, data FROM entry WHERE shard = ? AND kind = {READY} AND due > ? LIMIT ?"
READ = f"SELECT data FROM entry {_AT}"
DELETE = f"DELETE FROM entry {_AT}"
DELETE_THERE = f"{DELETE} IF EXISTS"
DELETE_HELD = f"{DELETE} IF taken = ?"
MARK = f"UPDATE entry SET taken = ? {_AT} IF taken = ?"
DROP = "DELETE FROM entry WHERE shard = ?"


class Held(NamedTuple):
    """What was taken, and its token."""

    token: bytes
    due: int
    id: bytes


class Shard:
    """One partition after the other, each for one work."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._prepared = {
            query: session.prepare(query)
            for query in (SEND, INSERT, FIRST, READ, DELETE, DELETE_THERE, DELETE_HELD, MARK, DROP)
        }
        self._name, self._names, self._ids = "", itertools.count(), itertools.count(1)
        self._after = 0
        self._taken: bytes | None = None

    def begin(self) -> None:
        """Have one in which nothing is and was."""
        self._name, self._after, self._taken = f"shard{next(self._names)}", 0, None

    def fill(self, count: int) -> None:
        """Have one with so many messages, each in a row."""
        self.begin()
        self._fill(READY, BODY, count)

    def fill_bundles(self, data: bytes, count: int) -> None:
        """Have one with so many bundles: a row of a few bytes where it is looked for, and a row with the data."""
        self.begin()
        self._fill(READY, b"", count)
        self._fill(BUNDLE, data, count)

    def drop(self) -> None:
        """Drop what is left of it."""
        self._execute(DROP, self._name)

    def send(self) -> None:
        """Insert a row; the rows go to several partitions."""
        self.send_joined(1)

    def send_joined(self, count: int) -> None:
        """So many messages in one row."""
        number = next(self._ids)
        self._execute(SEND, f"{self._name}:{number % PARTITIONS}", number.to_bytes(16), BODY * count)

    def claim(self, batch: int) -> Held:
        """Read so many rows, and put them together into one that has the token, if nobody else took any."""
        rows = self._first(batch)
        return self._take(rows, b"".join(data for _, _, data in rows))

    def ack(self, held: Held) -> None:
        """Delete what the token holds, if it is still there."""
        self._apply(DELETE_THERE, self._name, LEASE, 0, held.token)

    def claim_bundle(self) -> Held:
        """The same of a bundle; its data stays where it is, and is read meanwhile."""
        rows = self._first(1)
        ((_, identity, _),) = rows
        data = self._data(identity)
        held = self._take(rows, identity)
        check(len(data.result().current_rows), 1)
        return held

    def ack_bundle(self, held: Held) -> None:
        """Delete what the token holds, and the data."""
        delete = self._bound(DELETE, self._name, BUNDLE, 0, held.id)
        self._apply_all([self._bound(DELETE_THERE, self._name, LEASE, 0, held.token), delete])

    def mark_bundle(self) -> Held:
        """The same, with the token in the row that was found, which stays."""
        ((due, identity, _),) = self._first(1)
        data = self._data(identity)
        token = os.urandom(16)
        self._apply(MARK, token, self._name, READY, due, identity, None)
        check(len(data.result().current_rows), 1)
        return Held(token, due, identity)

    def ack_marked(self, held: Held) -> None:
        """Delete the row if it has the token, and the data."""
        here = self._bound(DELETE_HELD, self._name, READY, held.due, held.id, held.token)
        self._apply_all([here, self._bound(DELETE, self._name, BUNDLE, 0, held.id)])

    def _data(self, identity: bytes) -> Any:
        return self._session.execute_async(self._bound(READ, self._name, BUNDLE, 0, identity))

    def _fill(self, kind: int, data: bytes, count: int) -> None:
        places = ((number if kind == READY else 0, number.to_bytes(16)) for number in range(1, count + 1))
        execute_all(self._session, (self._bound(INSERT, self._name, kind, *place, data) for place in places))

    def _first(self, count: int) -> list[tuple[int, bytes, bytes]]:
        rows: list[tuple[int, bytes, bytes]] = list(self._execute(FIRST, self._name, self._after, count))
        check(len(rows), count)
        self._after = rows[-1][0]
        return rows

    def _take(self, rows: list[tuple[int, bytes, bytes]], data: bytes) -> Held:
        token, taken = os.urandom(16), os.urandom(8)
        self._apply_all(
            [
                *(self._bound(DELETE, self._name, READY, due, identity) for due, identity, _ in rows),
                self._bound(INSERT, self._name, LEASE, 0, token, data),
                self._bound(MARK, taken, self._name, CONTROL, 0, b"", self._taken),
            ]
        )
        self._taken = taken
        return Held(token, *rows[0][:2])

    def _apply_all(self, statements: list[Any]) -> None:
        batch = BatchStatement(BatchType.UNLOGGED)
        for statement in statements:
            batch.add(statement)
        check(self._session.execute(batch).one()[0], True)

    def _apply(self, query: str, *values: object) -> None:
        check(self._execute(query, *values).one()[0], True)

    def _execute(self, query: str, *values: object) -> Any:
        return self._session.execute(self._bound(query, *values))

    def _bound(self, query: str, *values: object) -> Any:
        return self._prepared[query].bind(values)


@contextmanager
def works(size: Size, _: Path) -> Iterator[Mapping[str, Mapping[str, Work]]]:
    """The statements by kind."""
    session = connect(KEYSPACE)
    for statement in TABLES:
        session.execute(statement)
    yield _works(size, Shard(session))
    session.execute(f"DROP KEYSPACE {KEYSPACE}")
    session.cluster.shutdown()


def _works(size: Size, shard: Shard) -> Mapping[str, Mapping[str, Work]]:
    def bundles(claim: Callable[[], Held], ack: Callable[[Held], None]) -> Work:
        def before() -> None:
            shard.fill_bundles(BODY * size.batch, size.bundles)

        run = in_turn(size.bundles, claim, ack)
        return Work(size.bundles * size.batch, run, before=before, after=shard.drop)

    joined = size.few // SENDERS
    singles = in_turn(size.singles // size.batch, lambda: shard.claim(size.batch), shard.ack)
    return {
        SINGLE_SEND: {"an insert": Work(size.few, repeated(size.few, shard.send), before=shard.begin)},
        SEND_THREADS: {
            "an insert by each": Work(
                size.few, by_threads(size.few, SENDERS, shard.send), before=shard.begin
            ),
            JOINED: Work(
                joined * SENDERS, repeated(joined, lambda: shard.send_joined(SENDERS)), before=shard.begin
            ),
        },
        RECEIVE_SINGLES: {
            "a read; a conditional batch of deletes and one insert; a conditional delete": Work(
                size.singles, singles, before=lambda: shard.fill(size.singles), after=shard.drop
            )
        },
        RECEIVE: {
            "a read; a conditional batch; a conditional delete": bundles(
                shard.claim_bundle, shard.ack_bundle
            ),
            "a read; a conditional update; a conditional delete": bundles(
                shard.mark_bundle, shard.ack_marked
            ),
        },
    }
