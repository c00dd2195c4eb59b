"""Bounds of a queue that several transactions of the application send to at once, and one whose process is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import shardq
from shardq.testing.conformance.contract import run_together
from shardq.testing.seam import expire_caches

pytestmark = pytest.mark.server


class OnMongoDB:
    begin_in_a_process = """
from pymongo import MongoClient
connection = MongoClient(url).start_session()
connection.start_transaction()
"""

    def __init__(self, url: str) -> None:
        pymongo = pytest.importorskip("pymongo", reason="the extra `mongodb` is not installed")
        self.url, self._driver = url, pymongo.MongoClient(url)

    def begin(self) -> Any:
        session = self._driver.start_session()
        session.start_transaction()
        return session

    def end(self, connection: Any, *, commits: bool) -> None:
        if connection.in_transaction:
            connection.commit_transaction() if commits else connection.abort_transaction()
        connection.end_session()

    def end_killed(self) -> None:
        """End what a killed process has begun, as the server does after a minute."""
        self._driver.admin.command("killAllSessions", [])

    def close(self) -> None:
        self._driver.close()


class OnPostgreSQL:
    begin_in_a_process = """
import psycopg
connection = psycopg.connect(url)
"""

    def __init__(self, url: str) -> None:
        self._driver = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")
        self.url = url

    def begin(self) -> Any:
        return self._driver.connect(self.url)

    def end(self, connection: Any, *, commits: bool) -> None:
        with connection:
            connection.commit() if commits else connection.rollback()

    def end_killed(self) -> None:
        """Do nothing: the server ends it with the connection."""

    def close(self) -> None:
        pass


@pytest.fixture(
    params=[("replica_set_url", OnMongoDB), ("postgresql_url", OnPostgreSQL)], ids=["mongodb", "postgresql"]
)
def app(request: pytest.FixtureRequest) -> Iterator[Any]:
    fixture, kind = request.param
    app = kind(request.getfixturevalue(fixture))
    yield app
    app.close()


@pytest.fixture
def client(app: Any) -> Iterator[shardq.Client]:
    with shardq.connect(app.url) as client:
        yield client


@pytest.fixture
def queue(client: shardq.Client) -> Iterator[shardq.Queue]:
    """A queue with one shard, which is there."""
    queue = client.create_queue(f"t{os.urandom(5).hex()}", shards=1, time_shards=1)
    for group in (None, "g"):
        queue.producer().send(b"first", group=group)
        queue.consumer().receive(1, wait=10).ack()
    yield queue
    client.delete_queue(queue.name)


def send(
    client: shardq.Client, queue: shardq.Queue, connection: Any, messages: int = 1, **options: Any
) -> None:
    with client.transaction(connection=connection) as within:
        within.queue(queue.name).producer().send_many([b"x"] * messages, **options)


def sent_until_full(client: shardq.Client, queue: shardq.Queue, connection: Any) -> int:
    sent = 0
    with suppress(shardq.QueueFull):
        while sent < 100:
            send(client, queue, connection)
            sent += 1
    return sent


def waiting(queue: shardq.Queue) -> int:
    counts = queue.counts()
    return counts.ready + counts.delayed


def test_transactions_at_once_do_not_count_each_other_and_later_ones_do(
    client: shardq.Client, queue: shardq.Queue, app: Any
) -> None:
    queue.alter(max_messages=4)
    one, two = app.begin(), app.begin()
    assert [sent_until_full(client, queue, each) for each in (one, two)] == [4, 4]
    app.end(one, commits=True)
    assert sent_until_full(client, queue, two) == 0
    app.end(two, commits=True)
    assert waiting(queue) == 8
    three = app.begin()
    assert sent_until_full(client, queue, three) == 0
    queue.consumer().receive(6).ack()
    assert sent_until_full(client, queue, three) == 2
    app.end(three, commits=False)
    assert waiting(queue) == 2


def test_a_bound_is_exceeded_by_no_more_than_another_open_transaction_has_sent(
    client: shardq.Client, queue: shardq.Queue, app: Any
) -> None:
    bound, most = 6, 3
    queue.alter(max_messages=bound)
    stored, excess = list[int](), list[int]()

    def work(seed: int) -> None:
        dice = random.Random(seed)
        with shardq.connect(app.url) as own:
            for _ in range(12):
                connection, number, commits = app.begin(), dice.randint(1, most), dice.random() < 0.6
                try:
                    send(own, queue, connection, number)
                except shardq.QueueFull:
                    commits = False
                app.end(connection, commits=commits)
                stored.extend([number] * commits)
                excess.append(waiting(queue) - bound)

    run_together([partial(work, seed) for seed in range(2)])
    assert waiting(queue) == sum(stored) >= bound - most
    assert max(excess) <= most


def test_the_room_that_a_killed_process_has_taken_is_free(
    client: shardq.Client, queue: shardq.Queue, app: Any
) -> None:
    queue.alter(max_messages=3)
    killed = f"""
import os, signal, shardq
url = {app.url!r}
{app.begin_in_a_process}
with shardq.connect(url).transaction(connection=connection) as within:
    within.queue({queue.name!r}).producer().send_many([b"x"] * 3)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert (
        subprocess.run([sys.executable, "-c", killed], check=False, timeout=120).returncode == -signal.SIGKILL
    )
    connection = app.begin()
    assert sent_until_full(client, queue, connection) == 3
    app.end(connection, commits=True)
    assert waiting(queue) == 3
    app.end_killed()


@pytest.mark.parametrize("options", [{}, {"group": "g"}, {"delay": 60}], ids=["plain", "group", "delayed"])
def test_room_is_made_beside_what_the_transaction_has_locked(
    client: shardq.Client, queue: shardq.Queue, app: Any, options: dict[str, Any]
) -> None:
    """Committed messages that are due are dropped while the transaction is open, in its own group too."""
    queue.producer().send_many([b"old"] * 6)
    queue.producer().send_many([b"old"] * 2, **options)
    connection = app.begin()
    send(client, queue, connection, **options)
    queue.alter(max_messages=4, overflow="drop_oldest")
    expire_caches(queue)
    send(client, queue, connection, **options)
    assert waiting(queue) == 4
    app.end(connection, commits=True)
    assert waiting(queue) == 6


def test_delayed_messages_of_the_transaction_are_not_dropped_and_fill_the_queue(
    client: shardq.Client, queue: shardq.Queue, app: Any
) -> None:
    queue.alter(max_messages=3, overflow="drop_oldest")
    connection = app.begin()
    for _ in range(3):
        send(client, queue, connection, delay=60)
    with pytest.raises(shardq.QueueFull, match="3 delayed messages"):
        send(client, queue, connection)
    app.end(connection, commits=True)
    assert waiting(queue) == 3


@pytest.mark.parametrize("key", ["dedupe_key", "unique_key"])
def test_a_key_that_did_not_fit_can_be_sent_again_after_the_commit(
    client: shardq.Client, queue: shardq.Queue, app: Any, key: str
) -> None:
    queue.alter(max_messages=1)
    options: Any = {key: "k"}
    connection = app.begin()
    send(client, queue, connection)
    with pytest.raises(shardq.QueueFull), client.transaction(connection=connection) as within:
        within.queue(queue.name).producer().send(b"y", **options)
    app.end(connection, commits=True)
    queue.consumer().receive(1).ack()
    queue.producer().send(b"y", **options)
    assert [message.body for message in queue.peek(10)] == [b"y"]
