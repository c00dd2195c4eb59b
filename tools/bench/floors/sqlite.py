"""SQLite: rows of one file on disk, over a connection with shardq's settings (WAL, pages of its size).

Either into a table with the least that a lease needs, or into the b-trees that shardq changes. What is sent and what is
acked or popped waits for the disk (synchronous FULL); a claim does not (NORMAL).
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import shardq
from shardq.storage.sqlite.connections import Connection

from ..rounds import RECEIVE_SINGLES, SINGLE_SEND
from ..singles import ONE_AT_A_TIME, POP
from .floor import BODY, LEASE, Size, Work, check, in_turn, repeated

QUEUE = "bare"
LOG_PAGES = 1_000  # after which it is emptied
DELETE_ALONE = "a delete and nothing noted"
LEAST, FULL_TREES = "a table, an index by due time, a table of ids", "the trees that shardq changes"
TABLES = (
    "CREATE TABLE alone (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE leased (id INTEGER PRIMARY KEY, due INTEGER NOT NULL, token BLOB, data BLOB NOT NULL)",
    "CREATE INDEX leased_by_due ON leased (due)",
    "CREATE TABLE done (id INTEGER PRIMARY KEY)",
)
# So that a pop whose commit was not answered can be repeated.
MARK = "INSERT OR REPLACE INTO finishing (client, token, until) VALUES (x'01', ?, ?)"
ANNOUNCE = f"UPDATE queue SET signal = signal + 1 WHERE name = '{QUEUE}'"
DURABLE = {True: "PRAGMA synchronous = FULL", False: "PRAGMA synchronous = NORMAL"}


class Table:
    """Rows with leases in the least trees."""

    insert = "INSERT INTO leased (due, data) VALUES (?2, ?3)"
    claim_one = """
        UPDATE leased SET due = ?1, token = ?2
        WHERE id = (SELECT id FROM leased WHERE due <= ?3 ORDER BY due LIMIT 1) RETURNING id, id, data
    """
    finish_one = "INSERT INTO done (id) VALUES (?)"
    delete_one = "DELETE FROM leased WHERE id = ? AND token = ?"
    pop_one = """
        DELETE FROM leased
        WHERE id = (SELECT id FROM leased WHERE due <= ? ORDER BY due LIMIT 1) RETURNING id, id, data
    """
    find = "SELECT id, data FROM leased WHERE due <= ? ORDER BY due LIMIT ?"
    claim = "UPDATE leased SET due = ?1, token = ?2 WHERE id BETWEEN ?3 AND ?4 AND due <= ?5"
    finish = "INSERT INTO done (id) SELECT id FROM leased WHERE id BETWEEN ?2 AND ?3 AND token = ?1"
    delete = "DELETE FROM leased WHERE id BETWEEN ?2 AND ?3 AND token = ?1"
    clear = ("DELETE FROM leased", "DELETE FROM done")


class Slices(Table):
    """Rows in the table of shardq's schema, with its indexes; each of a bundle of one message."""

    insert = """
        INSERT INTO slice (shard_key, bundle_id, first, count, priority, due, deliveries, unstarted,
                           sent_due, enqueued_at, sent_count, data)
        VALUES (1, ?1, 0, 1, 0, ?2, 0, 0, ?2, ?2, 1, ?3)
    """
    _first = """
        SELECT {0} FROM slice INDEXED BY slice_by_due
        WHERE shard_key = 1 AND priority = 0 AND due <= ? AND processed_at IS NULL ORDER BY due LIMIT {1}
    """
    claim_one = f"""
        UPDATE slice SET due = ?1, token = ?2, deliveries = deliveries + 1
        WHERE slice_key = ({_first.format("slice_key", 1).replace("?", "?3")}) RETURNING slice_key, bundle_id, data
    """
    finish_one = "INSERT INTO finished_id (period, bundle_id, incarnation) VALUES (1, ?, 0)"
    delete_one = "DELETE FROM slice WHERE slice_key = ? AND token = ?"
    pop_one = f"""
        DELETE FROM slice
        WHERE slice_key = ({_first.format("slice_key", 1)}) RETURNING slice_key, bundle_id, data
    """
    find = _first.format("slice_key, data", "?")
    claim = """
        UPDATE slice SET due = ?1, token = ?2, deliveries = deliveries + 1
        WHERE slice_key BETWEEN ?3 AND ?4 AND due <= ?5
    """
    finish = """
        INSERT INTO finished_id (period, bundle_id, incarnation)
        SELECT 1, bundle_id, 0 FROM slice WHERE slice_key BETWEEN ?2 AND ?3 AND token = ?1
    """
    delete = "DELETE FROM slice WHERE slice_key BETWEEN ?2 AND ?3 AND token = ?1"
    clear = ("DELETE FROM slice", "DELETE FROM finished_id")


class Bare:
    """The file, and what is done with it."""

    def __init__(self, folder: Path) -> None:
        path = folder / "bare.db"
        with shardq.connect(f"sqlite:///{path}") as client:
            client.create_schema()
            client.create_queue(QUEUE)
        self.sql = Connection.open(path).sql
        for table in TABLES:
            self.sql.execute(table)
        self._ids = itertools.count(1)
        self._lengthen_log()

    def send_alone(self) -> None:
        """A row into one table."""
        self.sql.execute("INSERT INTO alone (data) VALUES (?)", (BODY,))

    def send_slice(self) -> None:
        """A row into the trees of a send, the queue's signal among them."""
        self.sql.execute("BEGIN IMMEDIATE")
        self.sql.execute(ANNOUNCE)
        self.insert(Slices)
        self.sql.execute("COMMIT")

    def insert(self, table: type[Table]) -> None:
        """Ids and due times rise, so that rows come at the ends of the trees."""
        self.sql.execute(table.insert, (next(self._ids).to_bytes(16), _now(), BODY))

    def fill(self, table: type[Table], count: int) -> None:
        """So many rows, in one commit."""
        self.sql.execute("BEGIN IMMEDIATE")
        for _ in range(count):
            self.insert(table)
        self.sql.execute("COMMIT")
        self.empty_log()

    def _lengthen_log(self) -> None:
        """Let it be as long as it ever gets: while it grows, each sync is slower."""
        self.sql.execute("PRAGMA synchronous = OFF")
        self.sql.execute("PRAGMA wal_autocheckpoint = 0")
        for _ in range(LOG_PAGES + 10):
            self.sql.execute(ANNOUNCE)
        self.sql.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        self.empty_log()

    def empty_log(self) -> None:
        """Begin it anew, in its place, so that none of that falls into what is timed."""
        self.sql.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def wait_for_disk(self, durable: bool) -> None:
        self.sql.execute(DURABLE[durable])

    def receive_one(self, table: type[Table]) -> None:
        """Claim a row, and delete it by its token."""
        token, now = os.urandom(16), _now()
        self.wait_for_disk(False)
        ((key, identity, _),) = self.sql.execute(table.claim_one, (now + LEASE, token, now)).fetchall()
        self.wait_for_disk(True)
        self.sql.execute("BEGIN IMMEDIATE")
        check(self.sql.execute(table.delete_one, (key, token)).rowcount, 1)
        self.sql.execute(table.finish_one, (identity,))
        self.sql.execute("COMMIT")

    def pop(self, table: type[Table], *, noted: bool) -> None:
        """Take a row and delete it in one transaction, noted as finished, and with the token of who took it."""
        self.wait_for_disk(True)
        now = _now()
        self.sql.execute("BEGIN IMMEDIATE")
        ((_, identity, _),) = self.sql.execute(table.pop_one, (now,)).fetchall()
        if noted:
            self.sql.execute(table.finish_one, (identity,))
            self.sql.execute(MARK, (os.urandom(16), now + LEASE))
        self.sql.execute("COMMIT")

    def claim(self, table: type[Table], batch: int) -> tuple[bytes, int, int, int]:
        """Rows that follow each other: their token, first and last key, and number."""
        token, now = os.urandom(16), _now()
        self.wait_for_disk(False)
        self.sql.execute("BEGIN IMMEDIATE")
        rows = self.sql.execute(table.find, (now, batch)).fetchall()
        first, last = rows[0][0], rows[-1][0]
        check(self.sql.execute(table.claim, (now + LEASE, token, first, last, now)).rowcount, batch)
        self.sql.execute("COMMIT")
        return token, first, last, batch

    def ack(self, table: type[Table], held: tuple[bytes, int, int, int]) -> None:
        """Delete them by their token, and note their ids."""
        *place, count = held
        self.wait_for_disk(True)
        self.sql.execute("BEGIN IMMEDIATE")
        self.sql.execute(table.finish, place)
        check(self.sql.execute(table.delete, place).rowcount, count)
        self.sql.execute("COMMIT")

    def clear(self) -> None:
        """Leave nothing to the next round."""
        for statement in ("DELETE FROM alone", *Table.clear, *Slices.clear):
            self.sql.execute(statement)


@contextmanager
def works(size: Size, folder: Path) -> Iterator[Mapping[str, Mapping[str, Work]]]:
    """The statements by kind."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        bare = Bare(Path(place))
        yield _works(bare, size)
        bare.sql.close()


def _works(bare: Bare, size: Size) -> Mapping[str, Mapping[str, Work]]:
    def sends(send: Callable[[], None]) -> Work:
        def before() -> None:
            bare.empty_log()
            bare.wait_for_disk(True)

        return Work(size.few, repeated(size.few, send), before=before, after=bare.clear)

    def ones(table: type[Table]) -> Work:
        run = repeated(size.few, lambda: bare.receive_one(table))
        return Work(size.few, run, before=lambda: bare.fill(table, size.few), after=bare.clear)

    def pops(table: type[Table], *, noted: bool = True) -> Work:
        run = repeated(size.few, lambda: bare.pop(table, noted=noted))
        return Work(size.few, run, before=lambda: bare.fill(table, size.few), after=bare.clear)

    def batches(table: type[Table]) -> Work:
        claim, ack = (lambda: bare.claim(table, size.batch)), (lambda held: bare.ack(table, held))
        run = in_turn(size.singles // size.batch, claim, ack)
        return Work(size.singles, run, before=lambda: bare.fill(table, size.singles), after=bare.clear)

    return {
        SINGLE_SEND: {
            "a row into one table": sends(bare.send_alone),
            FULL_TREES: sends(bare.send_slice),
        },
        ONE_AT_A_TIME: {LEAST: ones(Table), FULL_TREES: ones(Slices)},
        POP: {DELETE_ALONE: pops(Table, noted=False), LEAST: pops(Table), FULL_TREES: pops(Slices)},
        RECEIVE_SINGLES: {LEAST: batches(Table), FULL_TREES: batches(Slices)},
    }


def _now() -> int:
    return time.time_ns() // 1_000
