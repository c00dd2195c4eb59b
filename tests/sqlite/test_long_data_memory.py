"""What connections keep in memory of the bundles that went through them, which are too long for a row of their own."""

from __future__ import annotations

import gc
import sqlite3
import weakref
from collections.abc import Callable

import pytest

import shardq
from shardq import OutgoingMessage

BODY = b"x" * 5_000
MOST = 1_000  # handles on blobs, as the operations page states


def dead_references() -> int:
    gc.collect()
    return sum(1 for each in gc.get_objects() if type(each) is weakref.ref and each() is None)


def kept_references(database: sqlite3.Connection) -> int:
    """How many cursors and handles on blobs the connection knows, also those that are gone."""
    return sum(len(each) for each in gc.get_referents(database) if isinstance(each, list))


def work_one_by_one(queue: shardq.Queue, messages: int) -> None:
    with queue.producer() as producer, queue.consumer() as consumer:
        for _ in range(messages):
            producer.send(BODY)
            consumer.receive(1).ack()


def work_in_batches(queue: shardq.Queue, messages: int) -> None:
    """Bundles of their own, many in each transaction."""
    with queue.producer() as producer, queue.consumer() as consumer:
        for start in range(0, messages, 500):
            some = [
                OutgoingMessage(body=BODY, dedupe_key=str(number)) for number in range(start, start + 500)
            ]
            producer.send_many(some)
            consumer.receive(500).ack()


@pytest.mark.parametrize(("work", "messages"), [(work_one_by_one, 1_500), (work_in_batches, 10_000)])
def test_a_connection_keeps_nothing_of_most_bundles(
    url: str, work: Callable[[shardq.Queue, int], None], messages: int
) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue("jobs", shards=1, time_shards=1)
        before = dead_references()
        work(queue, messages)
        assert dead_references() - before < 2 * MOST  # one connection that writes, and one that reads


def test_a_connection_of_the_application_keeps_nothing_of_any_bundle(url: str) -> None:
    with shardq.connect(url) as client:
        client.create_queue("jobs", shards=1, time_shards=1)
        database = sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0], isolation_level=None)
        for _ in range(50):
            database.execute("BEGIN IMMEDIATE")
            with client.transaction(connection=database) as transaction:
                producer = transaction.queue("jobs").producer()
                for _ in range(10):
                    producer.send(BODY)
            database.execute("COMMIT")
        assert kept_references(database) < 250  # Python forgets cursors after every 200, and handles never
        database.close()
        assert [message.body for message in client.queue("jobs").consumer().receive(1_000)] == [BODY] * 500
