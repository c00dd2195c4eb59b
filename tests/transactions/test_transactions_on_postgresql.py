"""Sends and acks within a transaction of the application on PostgreSQL: with its commit, or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

import shardq  # noqa: E402
from shardq.storage.abilities import TransactionEnded  # noqa: E402
from shardq.worker import Worker  # noqa: E402
from tests.local_server import local_server  # noqa: E402
from tests.postgresql.blocked import until_blocked  # noqa: E402

pytestmark = pytest.mark.server


@pytest.fixture
def client(postgresql_url: str) -> Iterator[shardq.Client]:
    with shardq.connect(postgresql_url, retry_seconds=1) as client:
        yield client


@pytest.fixture
def queue(client: shardq.Client) -> Iterator[shardq.Queue]:
    queue = client.create_queue(f"t{os.urandom(5).hex()}", shards=1, time_shards=1)
    yield queue
    client.delete_queue(queue.name)


@pytest.fixture
def app(postgresql_url: str) -> Iterator[Any]:
    """A connection of the application, without autocommit, as is the driver's default."""
    with psycopg.connect(postgresql_url) as connection:
        yield connection
        connection.rollback()


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
def test_keys_and_groups_stand_or_fall_with_the_transaction(
    client: shardq.Client, queue: shardq.Queue, app: Any, *, commits: bool
) -> None:
    with client.transaction(connection=app) as within:
        producer = within.queue(queue.name).producer()
        sent = [
            producer.send(b"deduped", dedupe_key="d"),
            producer.send(b"deduped", dedupe_key="d"),
            producer.send(b"unique", unique_key="u"),
            producer.send(b"first", group="g"),
            producer.send(b"second", group="g"),
        ]
        assert producer.send(b"again", unique_key="u") == sent[2]
    assert sent[0] == sent[1]
    assert queue.counts().ready == 0
    app.commit() if commits else app.rollback()
    assert queue.counts().ready == (4 if commits else 0)
    again = queue.producer().send(b"deduped", dedupe_key="d")
    assert (again == sent[0]) == commits


def test_what_waits_behind_the_transaction_is_done_when_it_has_ended(
    client: shardq.Client, queue: shardq.Queue, app: Any
) -> None:
    with client.transaction(connection=app) as within:
        within.queue(queue.name).producer().send(b"held", dedupe_key="d")
        queue.producer().send(b"beside it")  # which waits for nobody
        (message,) = queue.consumer().receive(1)
        message.ack()
        with pytest.raises(shardq.StoreUnavailable, match="locked by another transaction"):
            queue.producer().send(b"another", dedupe_key="d")
    app.rollback()
    assert queue.producer().send(b"another", dedupe_key="d")


@pytest.mark.parametrize("pending", [1, 0])
def test_receiving_is_refused_before_anything_is_done(
    client: shardq.Client, queue: shardq.Queue, app: Any, pending: int
) -> None:
    queue.producer().send_many([b"x"] * pending)
    with client.transaction(connection=app) as within:
        joined = within.queue(queue.name)
        for receive in (
            lambda: joined.consumer().receive(1),
            lambda: joined.consumer().pop(wait=1),
            lambda: joined.consumer(prefetch=2).receive(1, wait=1),
            Worker(joined, lambda _message: None, idle_exit=0).run,
        ):
            with pytest.raises(shardq.UnsupportedByStore, match="cannot be part of a transaction"):
                receive()
    app.rollback()
    assert queue.counts().ready == pending


def test_a_queue_that_does_not_exist_leaves_the_transaction_as_it_was(
    client: shardq.Client, queue: shardq.Queue, app: Any
) -> None:
    with client.transaction(connection=app) as within:
        with pytest.raises(shardq.QueueNotFound):
            within.queue(f"{queue.name}-not").producer().send(b"x")
        within.queue(queue.name).producer().send(b"x")
    app.commit()
    assert queue.counts().ready == 1


def test_after_an_error_of_the_server_nothing_of_the_transaction_stands(
    client: shardq.Client, queue: shardq.Queue, app: Any
) -> None:
    with client.transaction(connection=app) as within:
        within.queue(queue.name).producer().send(b"x")
        with pytest.raises(psycopg.Error):
            app.execute("SELECT 1 / 0")
        with pytest.raises(TransactionEnded, match="roll it back"):
            within.queue(queue.name).producer().send(b"y")
    app.rollback()
    assert queue.counts().ready == 0


def test_a_connection_of_a_framework_leads_to_that_of_the_driver(
    client: shardq.Client, queue: shardq.Queue, app: Any
) -> None:
    alchemy = SimpleNamespace(connection=SimpleNamespace(driver_connection=app))
    for connection in (alchemy, SimpleNamespace(connection=lambda: alchemy), SimpleNamespace(connection=app)):
        with client.transaction(connection=connection) as within:
            within.queue(queue.name).producer().send(b"x")
        app.commit()
    assert queue.counts().ready == 3


def test_another_driver_is_refused_with_a_remedy(client: shardq.Client, queue: shardq.Queue) -> None:
    for connection in (SimpleNamespace(), SimpleNamespace(connection=SimpleNamespace()), None):
        with pytest.raises(shardq.InvalidSetting, match="psycopg 3"):
            client.transaction(connection=connection)


def test_a_database_of_the_same_name_on_another_server_is_refused(
    client: shardq.Client, queue: shardq.Queue
) -> None:
    with local_server("postgresql", "--without-fsync") as (url, _), shardq.connect(url) as other:
        other.create_queue(queue.name)
        with psycopg.connect(url) as app:
            with pytest.raises(shardq.InvalidSetting, match=r"of another server: .*, schema '[^',]+'$"):
                client.transaction(connection=app)
            with other.transaction(connection=app) as within:
                within.queue(queue.name).producer().send(b"x")
        assert other.queue(queue.name).counts().ready == 1


@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_a_transaction_that_does_not_see_what_others_commit_is_refused(
    client: shardq.Client, app: Any, level: str
) -> None:
    app.isolation_level = psycopg.IsolationLevel[level]
    with pytest.raises(shardq.InvalidSetting, match="use READ COMMITTED"):
        client.transaction(connection=app)


@pytest.mark.parametrize("position", [0, 4, 9])
def test_what_another_transaction_has_cut_meanwhile_is_still_held(
    client: shardq.Client, queue: shardq.Queue, app: Any, position: int
) -> None:
    queue.producer().send_many([b"%d" % number for number in range(10)])
    receipts = [message.receipt for message in queue.consumer().receive(10)]
    with client.transaction(connection=app) as within:
        within.queue(queue.name).ack([receipts[position]])
    others = receipts[:position] + receipts[position + 1 :]
    acking = threading.Thread(target=queue.ack, args=(others[:3],))
    acking.start()
    until_blocked(app)
    app.commit()
    acking.join()
    assert queue.counts().in_flight == 6
    queue.ack(others)
    assert queue.counts().in_flight == 0
