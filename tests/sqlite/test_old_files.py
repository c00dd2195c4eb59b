"""Files that an earlier version made open again, with all that they hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shardq.errors import SchemaMismatch
from shardq.sharding.shard import Shard
from shardq.storage.migrations import migrations
from shardq.storage.requests import Acknowledge, Append, Claim, Fenced, Span
from shardq.storage.sqlite.store import SqliteStore
from shardq.testing import BundleFactory, ManualClock

FIRST_CLAIM = b"t" * 16
SHARD = Shard("orders", 0, 0)


def make_file(path: Path, version: int, rows: list[tuple[str, tuple[object, ...]]]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for migration in migrations("sqlite")[:version]:
            connection.executescript(migration.text)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("PRAGMA journal_mode = WAL")
        for statement, values in rows:
            connection.execute(statement, values)
        connection.commit()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> SqliteStore:
    """A store on a file of version 1 with a queue, a held slice, a waiting one, and a finished bundle."""
    now, shard = clock.now(), 1
    entry = (
        "INSERT INTO entry (shard_key, priority, due, bundle_key, bundle_id, first, count, deliveries, enqueued_at,"
        " token) VALUES (?, 0, ?, 1, ?, ?, ?, ?, ?, ?)"
    )
    one, done = b"a" * 16, b"b" * 16
    make_file(
        tmp_path / "queue.db",
        1,
        [
            ("INSERT INTO queue (name, version, settings) VALUES ('orders', 1, x'')", ()),
            ("INSERT INTO shard VALUES (1, 'orders', 0, 0)", ()),
            ("INSERT INTO bundle VALUES (1, ?, 1, 0, ?, ?, 3, x'00')", (one, now, now)),
            (entry, (shard, now + 10_000_000, one, 0, 2, 1, now, FIRST_CLAIM)),
            (entry, (shard, now, one, 2, 1, 0, now, None)),
            ("INSERT INTO finished (finished_at, bundle_id) VALUES (?, ?)", (now, done)),
        ],
    )
    return SqliteStore(str(tmp_path / "queue.db"), clock=clock)


def test_a_file_of_the_first_version_says_how_to_go_on(store: SqliteStore) -> None:
    with pytest.raises(SchemaMismatch, match="shardq create"):
        store.load_queue("orders")


def test_what_a_file_of_the_first_version_holds_is_worked_on(store: SqliteStore, clock: ManualClock) -> None:
    store.create_schema()
    # What was held is acked under its token
    assert store.acknowledge(Acknowledge(SHARD, (Span(b"a" * 16, 0, 1, FIRST_CLAIM),))) == Fenced()
    clock.advance(20)
    # The rest is claimed, with its deliveries
    token = b"u" * 16
    slices = store.claim(Claim(SHARD, token, 10, 1_000_000, started=False)).slices
    assert [(each.first, each.count, each.deliveries) for each in slices] == [(2, 1, 1), (1, 1, 2)]
    spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)
    assert store.acknowledge(Acknowledge(SHARD, spans, moved=True)) == Fenced()
    assert store.acknowledge(Acknowledge(SHARD, spans)).gone == ()
    store.close()


def test_what_a_file_of_the_first_version_remembers_counts(store: SqliteStore, clock: ManualClock) -> None:
    store.create_schema()
    bundle = BundleFactory(clock.now)()
    known = type(bundle)(b"b" * 16, 0, bundle.due, bundle.enqueued_at, 1, b"x")
    store.append(Append(SHARD, (known, bundle)))
    token = b"u" * 16
    assert known.id not in {each.bundle.id for each in store.claim(Claim(SHARD, token, 9, 1)).slices}
    store.close()
