"""How long a message of each kind takes: into a queue, out of it, and acked.

A script as well, so that an older shardq can run it: nothing but shardq and the standard library is imported.
"""

from __future__ import annotations

import io
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec

import shardq
from shardq.storage.sqlite.url import path_in

__all__ = ["GROUPS", "KINDS", "PLAIN", "Kind", "Place", "Times", "measure"]

BODY = bytes(512)
GROUPS = 1_000
BATCH = 500
PLAIN = "plain"
SOON = 5.0  # seconds; more than it takes to create a schedule


class Times(msgspec.Struct, frozen=True):
    """Seconds for each message that is sent, received and acked: in bulk, and one by one."""

    bulk: float
    single: float


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, what sends many messages to it and one, and what acks a batch. ``prepare`` is not measured."""

    queue: shardq.Queue
    send_many: Callable[[Sequence[Any]], object]
    send: Callable[[Any], object]
    ack: Callable[[shardq.Batch], object] = shardq.Batch.ack
    prepare: Callable[[Sequence[Any]], object] = lambda _: None


class Where(msgspec.Struct, frozen=True):
    """A store, and the settings of a queue that is made there."""

    client: shardq.Client
    url: str
    settings: Mapping[str, Any]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a queue, what the message of a number has beside its body, and where it is sent to."""

    settings: Mapping[str, Any] = {}
    options: Callable[[int], Mapping[str, Any]] = lambda _: {}
    place: Callable[[Where], AbstractContextManager[Place]] | None = None  # in a queue
    most: int = 1_000_000
    """Messages in bulk: of what takes longer by itself than in bulk, fewer tell as much."""
    stores: frozenset[str] = frozenset({"sqlite", "cassandra", "mongodb", "postgresql"})

    def messages(self, count: int) -> list[Any]:
        """Messages, no two of which have the same key."""
        made = [self.options(number) for number in range(min(count, self.most))]
        return [shardq.OutgoingMessage(body=BODY, **each) if each else BODY for each in made]


@contextmanager
def a_queue(where: Where) -> Iterator[shardq.Queue]:
    """A new queue."""
    name = f"cost-{os.urandom(4).hex()}"
    queue = where.client.create_queue(name, shards=2, time_shards=4, **where.settings)
    try:
        yield queue
    finally:
        where.client.delete_queue(name)


@contextmanager
def in_a_queue(where: Where) -> Iterator[Place]:
    """Sent by a producer."""
    with a_queue(where) as queue, queue.producer() as producer:
        yield Place(queue=queue, send_many=producer.send_many, send=producer.send)


@contextmanager
def in_a_topic(where: Where) -> Iterator[Place]:
    """Published, relayed, and received from a subscription."""
    topic = where.client.create_topic(f"cost-{os.urandom(4).hex()}")
    try:
        queue = topic.subscribe("all").queue
        yield Place(queue=queue, send_many=topic.publish_many, send=topic.publish)
    finally:
        where.client.delete_topic(topic.name)


@contextmanager
def beside_a_schedule(where: Where) -> Iterator[Place]:
    """As plain ones, in a queue that has a schedule, of which nothing is due."""
    with in_a_queue(where) as place:
        where.client.schedules.create(place.queue.name, queue=place.queue.name, cron="@yearly")
        yield place
        where.client.schedules.delete(place.queue.name)


@contextmanager
def by_schedules(where: Where) -> Iterator[Place]:
    """Sent by schedules of which each has one occurrence, by the consumer that receives them."""
    client, made = where.client, list[str]()

    def prepare(messages: Sequence[Any]) -> None:
        while made:
            client.schedules.delete(made.pop())
        for body in messages:
            made.append(f"cost-{os.urandom(4).hex()}")
            soon = client.now() + timedelta(seconds=SOON)
            client.schedules.create(made[-1], queue=queue.name, at=soon, body=body)
        time.sleep(SOON)  # nobody receives yet: all are due, and none is sent

    with a_queue(where) as queue:
        yield Place(queue=queue, send_many=lambda _: None, send=lambda _: None, prepare=prepare)
        prepare(())


@contextmanager
def as_large_bodies(where: Where) -> Iterator[Place]:
    """Stored in one part beside the queue, read and acked."""

    def ack(batch: shardq.Batch) -> None:
        for message in batch:
            with message.open() as body:
                body.read()
            message.ack()

    with a_queue(where) as queue, queue.producer() as producer:

        def send(body: bytes) -> None:
            producer.send_stream(io.BytesIO(body))

        def send_many(bodies: Sequence[bytes]) -> None:
            for body in bodies:
                send(body)

        yield Place(queue=queue, send_many=send_many, send=send, ack=ack)


@contextmanager
def in_transactions(where: Where) -> Iterator[Place]:
    """Sent and acked in transactions of the application: a bulk in one, each batch and each single in its own."""
    with a_queue(where) as queue, application(where) as transaction:

        def send_many(bodies: Sequence[bytes]) -> None:
            transaction(lambda within: within.queue(queue.name).producer().send_many(bodies))

        def ack(batch: shardq.Batch) -> None:
            receipts = [message.receipt for message in batch]
            transaction(lambda within: within.queue(queue.name).ack(receipts))

        yield Place(queue=queue, send_many=send_many, send=lambda body: send_many([body]), ack=ack)


Transaction = Callable[[Callable[[shardq.Client], object]], object]


@contextmanager
def application(where: Where) -> Iterator[Transaction]:
    """The application's own connection: what does something in a transaction of it."""
    if urlsplit(where.url).scheme == "sqlite":
        connection = sqlite3.connect(path_in(where.url), isolation_level=None, timeout=60)
        try:
            yield lambda do: _in_sqlite(where.client, connection, do)
        finally:
            connection.close()
        return
    from pymongo import MongoClient  # noqa: PLC0415 -- only this store needs the driver

    servers: MongoClient[dict[str, Any]] = MongoClient(where.url)
    with servers, servers.start_session() as session:
        yield lambda do: session.with_transaction(lambda same: _within(where.client, same, do))


def _in_sqlite(
    client: shardq.Client, connection: sqlite3.Connection, do: Callable[[shardq.Client], object]
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    _within(client, connection, do)
    connection.execute("COMMIT")


def _within(client: shardq.Client, connection: object, do: Callable[[shardq.Client], object]) -> None:
    with client.transaction(connection=connection) as within:
        do(within)


KINDS = {
    PLAIN: Kind(),
    "priority": Kind(options=lambda number: {"priority": number % 10}),
    "headers": Kind(options=lambda number: {"headers": {"tenant": "north", "number": number}}),
    "ttl": Kind(options=lambda _: {"ttl": 3_600}),
    "dedupe_key": Kind(options=lambda _: {"dedupe_key": os.urandom(8).hex()}),
    "unique_key": Kind(options=lambda _: {"unique_key": os.urandom(8).hex()}),
    f"group, of {GROUPS:,}": Kind(options=lambda number: {"group": f"customer-{number % GROUPS}"}),
    "rate_limit": Kind(settings={"rate_limit": "1000000/s"}),
    "max_in_flight": Kind(settings={"max_in_flight": 100_000}),
    "max_messages": Kind(settings={"max_messages": 10_000_000}),
    "events": Kind(settings={"events": 3_600.0}),
    "history_retention": Kind(settings={"history_retention": 3_600.0}),
    "a topic with one subscription": Kind(place=in_a_topic),
    "a schedule of the queue, not due": Kind(place=beside_a_schedule),
    "an occurrence of a schedule": Kind(place=by_schedules, most=200),
    "a large body of one part": Kind(place=as_large_bodies, most=200),
    "a transaction of the application": Kind(place=in_transactions, stores=frozenset({"sqlite", "mongodb"})),
}


def measure(client: shardq.Client, url: str, kind: Kind, messages: int, singles: int) -> Times:
    """Send, receive and ack in bulk and then one by one, through a queue of its own."""
    bulk, few = kind.messages(messages), kind.messages(singles)
    with (
        (kind.place or in_a_queue)(Where(client, url, kind.settings)) as place,
        place.queue.consumer() as consumer,
    ):
        place.prepare(bulk)
        began = time.perf_counter()
        place.send_many(bulk)
        receive(consumer, place, len(bulk), BATCH)
        in_bulk = time.perf_counter() - began
        place.prepare(few)
        began = time.perf_counter()
        for each in few:
            place.send(each)
        receive(consumer, place, len(few), 1)
        one_by_one = time.perf_counter() - began
    return Times(in_bulk / len(bulk), one_by_one / len(few))


def receive(consumer: shardq.Consumer, place: Place, messages: int, at_once: int) -> None:
    """Receive and ack so many messages."""
    while messages > 0:
        batch = consumer.receive(at_once, wait=60)
        if not batch:
            raise SystemExit(f"{messages} messages did not come")
        place.ack(batch)
        messages -= len(batch)


def main() -> None:
    """Print what plain messages take, as JSON: ``URL MESSAGES SINGLES``."""
    url, messages, singles = sys.argv[1:]
    with shardq.connect(url) as client:
        times = measure(client, url, KINDS[PLAIN], int(messages), int(singles))
    print(msgspec.json.encode(times).decode())


if __name__ == "__main__":
    main()
