"""Queues in the SQLite database of an application: it stays as the application has it, and the promises hold there."""

from __future__ import annotations

import multiprocessing
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.storage.listening import Waiter
from shardq.storage.opening import open_store
from shardq.storage.requests import QueueRecord
from shardq.storage.sqlite import log, tables
from shardq.storage.sqlite.store import SqliteStore
from shardq.storage.sqlite.tables import include_name
from shardq.storage.sqlite.url import SharedStore

FORK = multiprocessing.get_context("fork")
JOURNALS = pytest.mark.parametrize("journal", ["wal", "delete", "truncate", "persist"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}?tables=shardq_&busy_timeout=0.2"


def application(path: Path, journal: str = "delete") -> sqlite3.Connection:
    """The application's own connection, to a database that it has made."""
    db = sqlite3.connect(path, isolation_level=None, timeout=0.2, check_same_thread=False)
    db.execute("PRAGMA page_size = 1024")
    db.execute(f"PRAGMA journal_mode = {journal}")
    db.execute("PRAGMA user_version = 41")
    db.execute("PRAGMA application_id = 42")
    db.execute("CREATE TABLE slice (shard_key TEXT, bundle_id TEXT)")
    db.execute("CREATE INDEX slice_by_due ON slice (shard_key)")
    return db


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(application(path)) as db:
        yield db


def state(db: sqlite3.Connection) -> dict[str, Any]:
    pragmas = ("page_size", "journal_mode", "user_version", "application_id", "auto_vacuum", "encoding")
    return {each: db.execute(f"PRAGMA {each}").fetchone()[0] for each in pragmas}


def use(client: shardq.Client) -> None:
    """Do with a queue what writes to each of its tables."""
    queue = client.create_queue("orders", history_retention=600, exist_ok=True)
    queue.producer().send_many([b"x" * size for size in (1, 5_000, 100_000)])
    queue.producer().send(b"once", dedupe_key="once")
    queue.producer().send(b"one", unique_key="one")
    queue.producer().send_many([shardq.OutgoingMessage(body=b"in order", group="a")] * 3)
    with queue.consumer() as consumer:
        worked = 0
        while batch := consumer.receive(10):
            batch.ack()
            worked += len(batch)
        assert worked == 8
        assert queue.counts().processed == 8


@JOURNALS
def test_the_database_stays_as_the_application_has_it(path: Path, url: str, journal: str) -> None:
    with closing(application(path, journal)) as db:
        before, tables = state(db), set(db.execute("SELECT name, sql FROM sqlite_schema"))
        with shardq.connect(url) as client:
            use(client)
        added = {name for name, _ in set(db.execute("SELECT name, sql FROM sqlite_schema")) - tables}
        assert state(db) == before
        assert added
        assert {
            name for name in added if not name.startswith(("shardq_", "sqlite_autoindex_shardq_"))
        } == set()
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_every_statement_names_tables_in_brackets() -> None:
    """A name without brackets would be a table of the application there."""
    folder = Path(tables.__file__).parent
    names = "queue|shard|slice|bundle_data|finished_id|finished_period|moved|dedupe|consumer|finishing"
    bare = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE|INDEXED BY|TABLE) ({names})\w*\b")
    sources = [*folder.glob("*.py"), *folder.parents[2].glob("schema/sqlite/*.sql")]
    assert len(sources) > 20
    found = [f"{file.name}: {match[0]}" for file in sources for match in bare.finditer(file.read_text())]
    assert found == []


def test_two_sets_of_queues_are_in_one_database(path: Path, db: sqlite3.Connection) -> None:
    for prefix in ("one_", "two_"):
        with shardq.connect(f"sqlite:///{path}?tables={prefix}") as client:
            use(client)
            client.create_queue(prefix)
    with shardq.connect(f"sqlite:///{path}?tables=one_") as client:
        assert "two_" not in client.queues()


def test_a_database_that_does_not_exist_is_made_and_left_to_the_application(path: Path, url: str) -> None:
    with shardq.connect(url) as client:
        assert client.queues() == ()
        use(client)
    with closing(sqlite3.connect(path)) as db:
        assert (state(db)["journal_mode"], state(db)["user_version"]) == ("delete", 0)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(path.with_name("app.db-signal").stat().st_mode)


def test_without_the_option_the_database_of_an_application_is_refused_with_the_remedy(
    path: Path, db: sqlite3.Connection
) -> None:
    with (
        shardq.connect(f"sqlite:///{path}") as client,
        pytest.raises(shardq.SchemaMismatch, match="tables=shardq_"),
    ):
        client.create_queue("orders")


def test_a_prefix_of_the_applications_own_tables_is_refused(path: Path, db: sqlite3.Connection) -> None:
    with (
        shardq.connect(f"sqlite:///{path}?tables=sl") as client,
        pytest.raises(shardq.SchemaMismatch, match="another prefix"),
    ):
        client.create_queue("orders")


@pytest.mark.parametrize("prefix", ["", "1a", "a-b", "sqlite_x", "SQLITE_x", "a" * 33, "a]b", "a b", "ä"])
def test_a_prefix_that_cannot_be_one_is_refused(path: Path, prefix: str) -> None:
    with pytest.raises(shardq.InvalidSetting, match="tables="):
        shardq.connect(f"sqlite:///{path}?tables={prefix}")


@pytest.mark.parametrize(
    ("pragma", "wrong"),
    [
        ("journal_mode", "memory"),
        ("journal_mode", "off"),
        ("synchronous", "off"),
        ("locking_mode", "exclusive"),
    ],
)
def test_a_transaction_that_would_weaken_a_promise_is_refused(
    path: Path, url: str, db: sqlite3.Connection, pragma: str, wrong: str
) -> None:
    with shardq.connect(url) as client:
        client.create_queue("orders")
        with closing(sqlite3.connect(path, isolation_level=None)) as weak:
            weak.execute(f"PRAGMA {pragma} = {wrong}")
            weak.execute("BEGIN IMMEDIATE")
            with pytest.raises(shardq.InvalidSetting, match=pragma):
                client.transaction(connection=weak)


@JOURNALS
def test_a_row_and_a_message_stand_or_fall_together(path: Path, url: str, journal: str) -> None:
    with closing(application(path, journal)) as db, shardq.connect(url) as client:
        queue = client.create_queue("orders")
        for end, rows in (("ROLLBACK", 0), ("COMMIT", 1)):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO slice VALUES ('a', 'b')")
            with client.transaction(connection=db) as within:
                producer = within.queue("orders").producer()
                producer.send(b"x" * 100_000, unique_key="one")
                producer.send(b"y", group="a")
            db.execute(end)
            assert queue.counts().ready == 2 * rows
            assert db.execute("SELECT count(*) FROM slice").fetchone() == (rows,)


def wait_in_a_child(url: str, pipe: Any) -> None:
    log.LOOK_ANYWAY = log.READ_ANYWAY = 60.0  # so that what is heard has to wake it
    waiter = Waiter(open_store(url, shardq.base.clock.SystemClock()))
    waiter.wait(["orders"], 0)
    pipe.send("ready")
    pipe.send(waiter.wait(["orders"], 50))


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="needs Linux")
@JOURNALS
def test_a_consumer_of_another_process_is_woken_with_any_journal(path: Path, url: str, journal: str) -> None:
    application(path, journal).close()
    with shardq.connect(url) as client:
        producer = client.create_queue("orders").producer()
        ours, theirs = FORK.Pipe()
        child = FORK.Process(target=wait_in_a_child, args=(url, theirs))
        child.start()
        assert ours.recv() == "ready"
        producer.send(b"news")
        assert ours.poll(40)
        assert ours.recv() == ("orders",)
        child.join(60)


def test_a_reader_of_the_application_delays_a_commit_and_does_not_fail_it(
    path: Path, db: sqlite3.Connection
) -> None:
    """With a rollback journal a commit waits for all who read."""
    store = SharedStore(str(path), tables="shardq_", busy_timeout=30)
    store.create_queue(QueueRecord("first", b"", 1))
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM slice").fetchall()
    write = threading.Thread(target=store.create_queue, args=(QueueRecord("second", b"", 1),))
    write.start()
    write.join(0.3)
    assert write.is_alive()
    db.execute("COMMIT")
    write.join(60)
    assert store.list_queues() == ("first", "second")
    store.close()


def test_with_a_rollback_journal_every_commit_waits_for_the_disk_and_its_folder(path: Path) -> None:
    extra, normal, full = 3, 1, 2
    for journal, durable, passing in (("delete", extra, extra), ("wal", full, normal)):
        file = path.with_name(journal)
        application(file, journal).close()
        store = SharedStore(str(file), tables="shardq_")
        store.create_schema()
        levels = [
            store.session.write(lambda sql, _: sql.execute("PRAGMA synchronous").fetchone()[0], durable=each)
            for each in (True, False)
        ]
        assert levels == [durable, passing]
        store.close()


def test_the_lock_is_free_for_as_long_as_a_client_has_held_it(path: Path, db: sqlite3.Connection) -> None:
    """Else an application that waits as SQLite does would wait for seconds beside a worker that is never idle."""
    store = SharedStore(str(path), tables="shardq_")
    store.create_schema()
    began = time.monotonic()
    store.session.write(lambda _sql, _now: time.sleep(0.03))
    again = store.session.write(lambda _sql, _now: time.monotonic())
    assert again - began >= 0.06
    store.close()


def test_doctor_reads_the_tables_of_the_queues_only(path: Path, url: str, db: sqlite3.Connection) -> None:
    with shardq.connect(url) as client:
        client.create_queue("orders")
        found = {each.name: each for each in client.diagnose()}
    assert (found["schema"].ok, found["integrity"].ok, found["journal mode"].ok) == (True, True, True)
    assert found["journal mode"].warning
    assert "journal_mode = WAL" in found["journal mode"].remedy


def test_a_backup_and_a_restore_are_left_to_the_application(
    path: Path, url: str, db: sqlite3.Connection
) -> None:
    store = open_store(url, shardq.base.clock.SystemClock())
    assert isinstance(store, SqliteStore)
    store.create_schema()
    with pytest.raises(shardq.UnsupportedByStore, match="backup"):
        store.back_up(str(path.with_name("copy.db")))
    with pytest.raises(shardq.UnsupportedByStore, match="backup"):
        store.restore(str(path))
    store.close()
    assert state(db)["user_version"] == 41


def test_alembic_sees_no_table_of_the_queues(path: Path, url: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    autogenerate = pytest.importorskip("alembic.autogenerate")
    migration = pytest.importorskip("alembic.migration")
    metadata = sqlalchemy.MetaData()
    sqlalchemy.Table("users", metadata, sqlalchemy.Column("name", sqlalchemy.Text))
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    metadata.create_all(engine)
    with shardq.connect(url) as client:
        use(client)
    differences = {}
    for filter_ in (None, include_name, partial(include_name, prefix="queues_")):
        with engine.connect() as connection:
            context = migration.MigrationContext.configure(connection, opts={"include_name": filter_})
            differences[filter_] = autogenerate.compare_metadata(context, metadata)
    engine.dispose()
    none, ours, others = differences.values()
    assert {each[0] for each in none} >= {"remove_table"}  # which would drop the queues
    assert (ours, len(others)) == ([], len(none))


MIGRATES = """
import sys
import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=["django.contrib.contenttypes"],
)
django.setup()
call_command("migrate", verbosity=0)
call_command("flush", verbosity=0, interactive=False)
"""


def test_migrations_of_django_leave_the_queues_alone(path: Path, url: str) -> None:
    """In another process: the settings of Django are those of its whole process."""
    pytest.importorskip("django")
    with shardq.connect(url) as client:
        use(client)
        client.queue("orders").producer().send(b"kept")
        subprocess.run([sys.executable, "-c", MIGRATES, str(path)], check=True, timeout=120)
        assert client.queue("orders").counts().ready == 1
