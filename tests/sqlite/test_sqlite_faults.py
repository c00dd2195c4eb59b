"""What SQLite cannot do is told by file, reason and remedy, as an error of shardq's."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shardq import errors
from shardq.base.shard import Shard
from shardq.storage.listening import Waiter
from shardq.storage.requests import Append, Claim, QueueRecord
from shardq.storage.sqlite import log, schema
from shardq.storage.sqlite.connections import Connection
from shardq.storage.sqlite.faults import translate
from shardq.storage.sqlite.store import SqliteStore

RECORD = QueueRecord("orders", b"", 1)


@contextmanager
def opened(path: Path | str) -> Iterator[SqliteStore]:
    store = SqliteStore(str(path), busy_timeout=0.1)
    yield store
    store.close()


def test_a_missing_file_reads_as_empty_and_is_not_made(path: Path, shard: Shard) -> None:
    with opened(path) as store:
        assert store.load_queue("orders") is None
        assert store.list_queues() == ()
        assert store.shards("orders") == ()
        assert store.probe([shard])[0].empty
        assert store.claim(Claim(shard, b"t" * 16, 1, 1)).slices == ()
        assert store.drop_queue("orders") is False
        waiter = Waiter(store)
        assert waiter.wait(["orders"], 0.01) == ()
        store.diagnose()
        with pytest.raises(errors.QueueNotFound, match="orders"):
            store.append(Append(shard, ()))
        assert store.register_consumer(["orders"], "me", 1) == (None,)
        with pytest.raises(errors.QueueNotFound):
            store.reserve_keys("orders", (), 1)
    assert list(path.parent.iterdir()) == []


def test_an_empty_file_reads_as_empty_and_stays_so(path: Path) -> None:
    path.touch()
    with opened(path) as store:
        assert store.list_queues() == ()
    assert path.stat().st_size == 0


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)
    with opened(path) as store:
        for use in (lambda: store.load_queue("orders"), lambda: store.create_queue(RECORD)):
            with pytest.raises(errors.StoreUnavailable, match=r"queue\.db is not a SQLite database; give"):
                use()
        assert not all(finding.ok for finding in store.diagnose())
    assert path.read_bytes().startswith(b"no database")


def test_a_damaged_file_is_named(path: Path, store: SqliteStore, send: Callable, shard: Shard) -> None:
    for _ in range(50):
        send(data=b"x" * 5000)
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (size - 8192))
    with pytest.raises(errors.StoreUnavailable, match=r"queue\.db is damaged; put a backup"):
        store.count(shard)
    ill = {finding.name for finding in store.diagnose() if not finding.ok}
    assert ill - {"sqlite", "file system"} == {"integrity"}


def test_a_folder_in_place_of_the_file_can_never_work(tmp_path: Path) -> None:
    with opened(tmp_path) as store, pytest.raises(errors.InvalidSetting, match="is a folder"):
        store.create_queue(RECORD)


def test_a_path_that_the_system_does_not_take_is_named(tmp_path: Path) -> None:
    with opened(tmp_path / ("a" * 300)) as store:
        for use in (store.list_queues, store.ping, lambda: store.create_queue(RECORD)):
            with pytest.raises(errors.StoreUnavailable, match="cannot be reached") as raised:
                use()
            assert not raised.value.retryable
        assert [each.name for each in store.diagnose() if not each.ok][-1] == "file"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with opened(tmp_path / "absent" / "queue.db") as store:
        assert store.list_queues() == ()
        with pytest.raises(errors.StoreUnavailable, match=r"absent.*folder does not exist; make it"):
            store.create_queue(RECORD)


@pytest.mark.parametrize("path", ["", ":memory:", "a\0b", "/", "."])
def test_a_path_that_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(errors.InvalidSetting, match="give the path of a file"):
        SqliteStore(path)


@pytest.mark.parametrize(
    "settings", [{"synchronous": "off"}, {"busy_timeout": -1}, {"busy_timeout": float("nan")}]
)
def test_settings_out_of_range_are_refused(path: Path, settings: dict) -> None:
    with pytest.raises(errors.InvalidSetting, match=next(iter(settings))):
        SqliteStore(str(path), **settings)


@pytest.mark.parametrize("name", ["a b.db", "a?b#c%20.db", "ünï.db", "mode=memory&x.db"])
def test_any_file_name_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    with opened(tmp_path / name) as store:
        store.create_queue(RECORD)
        assert store.list_queues() == ("orders",)
        assert (tmp_path / name).is_file()


def test_a_file_locked_for_too_long_is_named(path: Path, store: SqliteStore, send: Callable) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(errors.StoreUnavailable, match=r"queue\.db is locked.*busy_timeout"):
            send()
        other.execute("ROLLBACK")
    send()


def test_a_full_disk_is_told_and_changes_nothing(
    path: Path, store: SqliteStore, send: Callable, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    send()
    opened_before = Connection.open

    def open_small(path: Path, *, create: bool = False, prefix: str = "") -> Connection:
        connection = opened_before(path, create=create)
        connection.sql.execute("PRAGMA max_page_count = 40")
        return connection

    monkeypatch.setattr(Connection, "open", open_small)
    store.close()
    with pytest.raises(errors.StoreUnavailable, match="disk is full"):
        send(data=b"x" * 1_000_000)
    assert store.count(shard).ready == 1
    send()
    assert store.count(shard).ready == 2


def test_a_log_that_a_reader_keeps_from_being_emptied_leaves_the_room_on_the_disk_that_emptying_it_takes(
    path: Path, store: SqliteStore, send: Callable, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def free(folder: Path) -> int:
        return (48 << 20) - sum(each.stat().st_size for each in folder.iterdir())

    # Given a disk of 48 MB, and a process that stands still while it reads
    monkeypatch.setattr(log, "_free", free)
    send()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM slice").fetchone()
        # When others go on sending, they are told in time
        with pytest.raises(
            errors.StoreUnavailable, match=r"log of 1[67] MB, beside which .* must be emptied"
        ) as raised:
            for _ in range(48):
                send(data=b"x" * 1_000_000)
        assert raised.value.retryable
        assert free(path.parent) > log.log_of(path).stat().st_size
    # Then all goes on when it has ended
    before = store.count(shard).ready
    for _ in range(10):
        send(data=b"x" * 1_000_000)
    assert store.count(shard).ready == before + 10


def test_a_file_of_a_later_version_is_left_alone(path: Path, store: SqliteStore, send: Callable) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 7")
    with pytest.raises(errors.SchemaMismatch, match=r"version 7.*up to \d+: upgrade shardq"):
        store.load_queue("orders")
    store.close()
    with pytest.raises(errors.SchemaMismatch):
        send()
    with pytest.raises(errors.SchemaMismatch):
        store.create_schema()


def test_the_database_of_another_application_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE customer (name)")
    before = path.read_bytes()
    with opened(path) as store:
        for use in (lambda: store.load_queue("orders"), lambda: store.create_queue(RECORD)):
            with pytest.raises(errors.SchemaMismatch, match=r"queue\.db belongs to another application"):
                use()
    assert path.read_bytes() == before


def test_who_opens_a_file_while_its_schema_is_made_finds_none_of_it_or_all(path: Path) -> None:
    """Programs that start at the same moment, one of which makes the file."""
    seen: set[object] = set()
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as maker,
        closing(sqlite3.connect(path)) as other,
    ):

        def look(_statement: str) -> None:
            try:
                seen.add(schema.is_current(other))
            except errors.SchemaMismatch as error:
                seen.add(str(error))

        maker.set_trace_callback(look)
        schema.apply(maker)
        look("")
    assert seen == {False, True}


def test_a_missing_table_is_a_mismatch(path: Path, store: SqliteStore, shard: Shard) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE slice")
    with pytest.raises(errors.SchemaMismatch, match="slice"):
        store.count(shard)


def test_a_file_that_was_deleted_is_not_written_any_more(
    path: Path, store: SqliteStore, send: Callable
) -> None:
    send()
    for file in path.parent.glob("queue.db*"):
        file.unlink()
    with pytest.raises(errors.QueueNotFound):
        send()
    assert store.list_queues() == ()


READ_ONLY = """
import os, sys
from pathlib import Path
from shardq.errors import StoreUnavailable
from shardq.storage.requests import QueueRecord
from shardq.storage.migrations import migrations
from shardq.storage.sqlite.store import SqliteStore
migrations("sqlite")
Path("/").as_uri()  # imports what this user may read, and nobody may not
os.setuid(int(sys.argv[2]))
store = SqliteStore(sys.argv[1], busy_timeout=0.1)
try:
    store.create_queue(QueueRecord("more", b"", 1))
except StoreUnavailable as error:
    print(error)
store.close()
"""


def test_a_file_that_may_not_be_written_is_named(path: Path, store: SqliteStore, tmp_path: Path) -> None:
    store.close()
    nobody = 65534 if os.geteuid() == 0 else os.geteuid()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    for folder in tmp_path.parents:
        if folder.name.startswith(("pytest-", "popen-")):
            folder.chmod(0o755)
    result = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(path), str(nobody)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "queue.db cannot be " in result.stdout
    assert "give this user" in result.stdout


@pytest.mark.parametrize(
    ("code", "committing", "expected"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, True, errors.OutcomeUnknown),
        (sqlite3.SQLITE_IOERR_WRITE, False, errors.StoreUnavailable),
        (sqlite3.SQLITE_FULL, True, errors.StoreUnavailable),
        (sqlite3.SQLITE_BUSY_RECOVERY, False, errors.StoreUnavailable),
        (sqlite3.SQLITE_TOOBIG, False, errors.MessageTooLarge),
        (sqlite3.SQLITE_CONSTRAINT_CHECK, False, errors.InvalidMessage),
        (sqlite3.SQLITE_MISUSE, False, errors.StoreUnavailable),
    ],
)
def test_a_fault_is_translated(path: Path, code: int, committing: bool, expected: type) -> None:
    fault = sqlite3.OperationalError("why")
    fault.sqlite_errorcode = code
    error = translate(fault, path, committing=committing)
    assert type(error) is expected
    assert "why" in str(error)


def test_a_fault_keeps_its_cause(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)
    with opened(path) as store, pytest.raises(errors.StoreUnavailable) as caught:
        store.list_queues()
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)


def test_a_connection_that_is_given_up_within_a_transaction_keeps_no_lock_while_a_cursor_lives(
    store: SqliteStore, path: Path
) -> None:
    given_up, other = Connection.open(path), Connection.open(path)
    given_up.sql.execute("BEGIN IMMEDIATE")
    cursor = given_up.sql.execute("VALUES (1), (2)")
    assert cursor.fetchone() == (1,)
    given_up.close()
    other.sql.execute("BEGIN IMMEDIATE")
    other.close()
