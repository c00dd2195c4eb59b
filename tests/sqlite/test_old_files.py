"""Files that an earlier version made open again, with all that they hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shardq.base.shard import Shard
from shardq.errors import SchemaMismatch, ShardqError
from shardq.storage.migrations import migrations
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Fenced, Peek, ShardCounts, Span, Sweep
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


def test_a_file_is_saved_before_its_schema_is_brought_up_to_date(tmp_path: Path, store: SqliteStore) -> None:
    saved = store.back_up(str(tmp_path / "backup.db"))
    assert (saved.schema, saved.queues) == (1, 1)
    store.create_schema()
    assert store.restore(str(tmp_path / "backup.db")).schema == 1
    with pytest.raises(SchemaMismatch, match="schema apply"):
        store.list_queues()


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


LONG = bytes(5000)
WAITING, CUT, HISTORY, DONE = (bytes([number]) * 16 for number in range(1, 5))


@pytest.fixture
def second(tmp_path: Path, clock: ManualClock) -> SqliteStore:
    """A store on a file of version 2: a bundle that waits, one cut and claimed in part, one kept, one finished."""
    now = clock.now()
    bundle = "INSERT INTO bundle VALUES (?, ?, 1, ?, ?, ?, ?, ?)"
    entry = "INSERT INTO entry VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    make_file(
        tmp_path / "queue.db",
        2,
        [
            ("INSERT INTO queue (name, version, settings, incarnation) VALUES ('orders', 1, x'', 7)", ()),
            ("INSERT INTO shard VALUES (1, 'orders', 0, 0)", ()),
            (bundle, (1, WAITING, 5, now, now, 1, b"short")),
            (entry, (1, 5, now, 1, WAITING, 0, 1, 0, now, None, 0)),
            (bundle, (2, CUT, 5, now, now, 4, LONG)),
            (entry, (2, 5, now + 10_000_000, 2, CUT, 1, 1, 1, now, FIRST_CLAIM, 0)),
            (entry, (3, 5, now, 2, CUT, 2, 2, 0, now, None, 0)),
            (bundle, (3, HISTORY, 5, now, now, 2, LONG)),
            ("INSERT INTO history VALUES (1, 1, ?, 3, 0, 2, 1)", (now,)),
            ("INSERT INTO finished VALUES (1, ?, ?, 7)", (now, DONE)),
        ],
    )
    return SqliteStore(str(tmp_path / "queue.db"), clock=clock)


def test_what_a_file_of_the_second_version_holds_is_drained_and_leaves_nothing(
    second: SqliteStore, clock: ManualClock, tmp_path: Path
) -> None:
    # Given the file after its migration
    now, token = clock.now(), b"u" * 16
    second.create_schema()
    assert second.count(SHARD) == ShardCounts(3, 0, 1, 2, oldest=now, ready_since=now)
    # When what is known already is appended again, nothing is stored
    known = tuple(Bundle(each, 5, now, now, 4, b"again") for each in (WAITING, CUT, HISTORY, DONE))
    second.append(Append(SHARD, known))
    assert second.count(SHARD) == ShardCounts(3, 0, 1, 2, oldest=now, ready_since=now)
    # Then all is claimed with its data, and acked
    slices = second.claim(Claim(SHARD, token, 10, 1_000_000)).slices
    assert [(each.bundle.id, each.first, each.count, each.bundle.data) for each in slices] == [
        (WAITING, 0, 1, b"short"),
        (CUT, 2, 2, LONG),
    ]
    spans = [Span(each.bundle.id, each.first, each.count, token) for each in slices]
    assert second.acknowledge(Acknowledge(SHARD, (*spans, Span(CUT, 1, 1, FIRST_CLAIM)))) == Fenced()
    (kept,) = second.peek(Peek(SHARD, 10, processed=True)).slices
    assert (kept.bundle.id, kept.bundle.data, kept.count, kept.deliveries) == (HISTORY, LONG, 2, 1)
    # And nothing is left when the history is over
    clock.advance(1)
    second.sweep(Sweep("orders", clock.now()))
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
        assert not connection.execute("SELECT 1 FROM slice").fetchall()
        assert not connection.execute("SELECT 1 FROM bundle_data").fetchall()
    second.close()


def test_a_migration_that_breaks_off_leaves_the_file_as_it_was(second: SqliteStore, tmp_path: Path) -> None:
    # Given a file in which something stands in the way of the last statements
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
        connection.execute("CREATE TABLE obstacle (x)")
        connection.execute("CREATE INDEX slice_by_moment ON obstacle (x)")
        connection.commit()
    with pytest.raises(ShardqError):
        second.create_schema()
    # Then nothing was changed, and the migration succeeds when it is gone
    with closing(sqlite3.connect(tmp_path / "queue.db")) as connection:
        assert connection.execute("SELECT count(*) FROM entry").fetchone() == (3,)
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        connection.execute("DROP TABLE obstacle")
        connection.commit()
    second.create_schema()
    assert second.count(SHARD).ready == 3
    second.close()


def test_a_file_of_the_first_version_says_how_to_go_on(store: SqliteStore) -> None:
    with pytest.raises(SchemaMismatch, match="shardq schema apply"):
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


def test_what_a_file_of_the_fourth_version_holds_never_expires(tmp_path: Path, clock: ManualClock) -> None:
    # Given a file with a message from before there was a ttl
    columns = (
        "shard_key, bundle_id, first, count, priority, due, deliveries, unstarted, sent_due, enqueued_at, "
        "sent_count, data"
    )
    now = clock.now()
    make_file(
        tmp_path / "queue.db",
        4,
        [
            ("INSERT INTO queue (name, version, settings) VALUES ('orders', 1, x'')", ()),
            ("INSERT INTO shard VALUES (1, 'orders', 0, 0)", ()),
            (
                f"INSERT INTO slice ({columns}) VALUES (1, ?, 0, 1, 5, ?, 0, 0, ?, ?, 1, x'00')",
                (WAITING, now, now, now),
            ),
        ],
    )
    store = SqliteStore(str(tmp_path / "queue.db"), clock=clock)
    with pytest.raises(SchemaMismatch, match="shardq schema apply"):
        store.load_queue("orders")
    # When the schema is applied, the message has no moment of expiry, and others may have one
    store.create_schema()
    store.append(Append(SHARD, (BundleFactory(clock.now)(ttl=5),)))
    shown = store.peek(Peek(SHARD, 10, bodies=False)).slices
    assert {each.bundle.expires_at for each in shown} == {None, now + 5_000_000}
    store.close()
