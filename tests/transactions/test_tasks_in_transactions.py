"""Tasks that are sent within a transaction of the application, by the frameworks that applications use."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardq
from shardq.tasks import ArgumentsRejected, Tasks, chain

sqlalchemy = pytest.importorskip("sqlalchemy")
orm = pytest.importorskip("sqlalchemy.orm")
django = pytest.importorskip("django")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def client(path: Path) -> Iterator[shardq.Client]:
    with shardq.connect(f"sqlite:///{path}?synchronous=normal&busy_timeout=0.1") as client:
        client.create_queue("mail")
        yield client


@pytest.fixture
def tasks(client: shardq.Client) -> Tasks:
    tasks = Tasks()
    tasks.bind(client)

    @tasks.task(queue="mail")
    def welcome(user: str) -> str:
        return f"Welcome, {user}!"

    return tasks


@pytest.fixture
def welcome(tasks: Tasks) -> Any:
    return tasks.tasks["welcome"]


@pytest.fixture
def db(path: Path, client: shardq.Client) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path, isolation_level=None, timeout=0.1, check_same_thread=False)
    db.execute("CREATE TABLE user (name)")
    yield db
    db.close()


def test_the_result_of_a_task_is_there_after_the_commit(
    tasks: Tasks, welcome: Any, db: sqlite3.Connection
) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO user VALUES ('Ada')")
    result = welcome.send("Ada", transaction=db)
    assert result.state == "missing"
    db.execute("COMMIT")
    assert result.state == "waiting"
    tasks.drain()
    assert result.get(timeout=0) == "Welcome, Ada!"


def test_a_task_is_sent_by_any_thread_that_uses_the_transaction(
    tasks: Tasks, welcome: Any, db: sqlite3.Connection
) -> None:
    db.execute("BEGIN IMMEDIATE")
    results = [welcome.send("Ada", transaction=db)]
    thread = threading.Thread(target=lambda: results.append(welcome.send("Bob", transaction=db)))
    thread.start()
    thread.join(60)
    db.execute("COMMIT")
    tasks.drain()
    assert [each.get(timeout=0) for each in results] == ["Welcome, Ada!", "Welcome, Bob!"]


def test_a_workflow_that_is_sent_in_a_transaction_begins_after_the_commit(
    tasks: Tasks, welcome: Any, db: sqlite3.Connection
) -> None:
    db.execute("BEGIN IMMEDIATE")
    kept = chain(welcome.signature("Ada"), welcome.then()).send(transaction=db)
    db.execute("COMMIT")
    db.execute("BEGIN IMMEDIATE")
    lost = chain(welcome.signature("Bob"), welcome.then()).send(transaction=db)
    db.execute("ROLLBACK")
    tasks.drain()
    assert kept.get(timeout=0) == "Welcome, Welcome, Ada!!"
    assert lost.state == "missing"


def test_a_large_group_stands_or_falls_with_the_transaction(
    client: shardq.Client, welcome: Any, tasks: Tasks, db: sqlite3.Connection
) -> None:
    db.execute("BEGIN IMMEDIATE")
    lost = welcome.map(f"user {number}" for number in range(300)).send(transaction=db)
    db.execute("ROLLBACK")
    db.execute("BEGIN IMMEDIATE")
    kept = welcome.map(f"user {number}" for number in range(300)).send(transaction=db)
    db.execute("COMMIT")
    tasks.drain()
    assert (lost.state, len(kept.get(timeout=0))) == ("missing", 300)


def test_a_function_that_takes_a_transaction_itself_gets_it(tasks: Tasks, db: sqlite3.Connection) -> None:
    @tasks.task(queue="mail")
    def book(transaction: str) -> str:
        return transaction

    @tasks.task(queue="mail")
    def note(**fields: str) -> dict[str, str]:
        return fields

    results = [book.send(transaction="T1"), note.send(transaction="T2")]
    db.execute("BEGIN IMMEDIATE")
    results.append(book.signature(transaction="T3").send(transaction=db))
    db.execute("COMMIT")
    tasks.drain()
    assert [each.get(timeout=0) for each in results] == ["T1", {"transaction": "T2"}, "T3"]


def test_arguments_are_checked_before_the_transaction_is_joined(welcome: Any) -> None:
    with pytest.raises(ArgumentsRejected):
        welcome.send(1, transaction="no connection")
    with pytest.raises(shardq.InvalidSetting):
        welcome.send("Ada", transaction="no connection")


def test_a_store_in_memory_names_the_remedy() -> None:
    with shardq.connect("memory://") as client:
        tasks = Tasks()
        tasks.bind(client)

        @tasks.task
        def work(number: int) -> int:
            return number

        db = sqlite3.connect(":memory:", isolation_level=None)
        db.execute("BEGIN")
        with pytest.raises(shardq.UnsupportedByStore, match="in tests an SQLite file"):
            work.send(1, transaction=db)
        db.close()
        assert not client.exists("tasks")


@pytest.mark.parametrize("commits", [True, False])
def test_a_session_of_sqlalchemy_is_joined(
    path: Path, client: shardq.Client, welcome: Any, *, commits: bool
) -> None:
    """Its driver begins a transaction with the first change of the application, or with the send."""
    base: Any = orm.declarative_base()

    class User(base):  # type: ignore[misc]
        __tablename__ = "user"
        name = sqlalchemy.Column(sqlalchemy.String, primary_key=True)

    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.execute(sqlalchemy.text("SELECT 1"))
        welcome.send("Ada", transaction=session)
        session.add(User(name="Ada"))
        session.flush()
        welcome.send("Ada", transaction=session)
        assert client.queue("mail").counts().ready == 0
        session.commit() if commits else session.rollback()
    with engine.connect() as connection:
        users = connection.execute(sqlalchemy.text('SELECT count(*) FROM "user"')).scalar()
    engine.dispose()
    assert (users, client.queue("mail").counts().ready) == ((1, 2) if commits else (0, 0))


@pytest.mark.parametrize("commits", [True, False])
def test_a_connection_of_django_is_joined(
    path: Path, client: shardq.Client, welcome: Any, db: sqlite3.Connection, *, commits: bool
) -> None:
    from django.conf import settings
    from django.db import connections, transaction
    from django.db.utils import ConnectionHandler

    if not settings.configured:
        settings.configure()
        django.setup()
    handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}})
    connections["shop"] = connection = handler["default"]
    with transaction.atomic(using="shop"):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO user VALUES ('Ada')")
        welcome.send("Ada", transaction=connection)
        assert client.queue("mail").counts().ready == 0
        transaction.set_rollback(not commits, using="shop")
    connection.close()
    users = db.execute("SELECT count(*) FROM user").fetchone()[0]
    assert (users, client.queue("mail").counts().ready) == ((1, 1) if commits else (0, 0))


def test_a_driver_that_begins_no_transactions_itself_has_to_be_in_one(
    welcome: Any, db: sqlite3.Connection
) -> None:
    with pytest.raises(shardq.InvalidSetting, match="BEGIN IMMEDIATE"):
        welcome.send("Ada", transaction=db)
