"""What becomes of messages whose handlers say so, on every store."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

import shardq
from shardq import DeadLetter, Discard, Message, Outcome, Queue, Retry, Snooze
from shardq.worker import Worker, WorkerReport

STORES = [
    "url",
    pytest.param("replica_set_url", marks=pytest.mark.server),
    pytest.param("postgresql_url", marks=pytest.mark.server),
    pytest.param("cassandra_url", marks=pytest.mark.server),
]


@pytest.fixture(params=STORES)
def client(request: pytest.FixtureRequest) -> Iterator[shardq.Client]:
    with shardq.connect(request.getfixturevalue(request.param)) as client:
        yield client


@pytest.fixture
def queue(client: shardq.Client) -> Iterator[Queue]:
    name = f"o{os.urandom(6).hex()}"
    yield client.create_queue(
        name, shards=2, time_shards=1, max_deliveries=2, history_retention=3_600, retry_delay=0
    )
    for each in (name, f"{name}.dead"):
        client.delete_queue(each)


def test_each_outcome_is_carried_out_and_a_snooze_is_no_delivery(client: shardq.Client, queue: Queue) -> None:
    deliveries: dict[bytes, list[int]] = {}

    def handler(message: Message) -> Outcome | None:
        seen = deliveries.setdefault(message.body, [])
        seen.append(message.deliveries)
        snoozed = Snooze(0.05) if len(seen) < 4 else None
        outcomes = {b"discard": Discard("old"), b"dead": DeadLetter("odd"), b"retry": Retry(0, "busy")}
        return snoozed if message.body == b"snooze" else outcomes.get(message.body)

    queue.producer().send_many([b"snooze", b"discard", b"dead", b"retry", b"good"])
    report = WorkerReport()
    while queue.counts().oldest is not None:
        report += Worker(queue, handler, idle_exit=0.1).run()
    assert deliveries == {
        b"snooze": [1, 1, 1, 1],
        b"discard": [1],
        b"dead": [1],
        b"retry": [1, 2],
        b"good": [1],
    }
    assert (report.worked, report.failed, report.snoozed, report.discarded, report.dead_lettered) == (
        2,
        3,
        3,
        1,
        2,
    )
    letters = client.queue(f"{queue.name}.dead").peek()
    assert {letter.body: letter.headers["shardq-reason"] for letter in letters} == {
        b"dead": "odd",
        b"retry": "busy",
    }
    assert queue.counts().oldest is None


def test_a_message_that_is_released_after_its_last_delivery_is_a_dead_letter_at_once(
    client: shardq.Client, queue: Queue
) -> None:
    queue.producer().send_many([b"%d" % number for number in range(20)])
    for last in (False, True):
        with queue.consumer() as consumer:
            seen = 0
            while seen < 20:
                batch = consumer.receive(20, wait=10)
                assert {message.last_delivery for message in batch} == {last}
                batch.release(delay=0.01, reason="twice is enough")
                seen += len(batch)
    letters = client.queue(f"{queue.name}.dead").peek(100)
    assert Counter(letter.body for letter in letters) == Counter(b"%d" % number for number in range(20))
    assert {letter.headers["shardq-reason"] for letter in letters} == {"twice is enough"}
    assert queue.counts().oldest is None


def test_a_worker_with_threads_keeps_groups_in_order_on_every_store(
    client: shardq.Client, queue: Queue
) -> None:
    worked: list[tuple[str | None, bytes]] = []

    def handler(message: Message) -> None:
        if message.deliveries == 1 and message.body == b"3":
            raise Retry(0)
        worked.append((message.group, message.raw))

    queue.producer().send_many(
        [shardq.OutgoingMessage(body=b"%d" % number, group=group) for number in range(8) for group in "abcd"]
    )
    queue.producer().send_many([b"%d" % number for number in range(100, 200)])
    report = WorkerReport()
    while queue.counts().oldest is not None:
        report += Worker(queue, handler, threads=8, idle_exit=0.1).run()
    for group in "abcd":
        assert [body for name, body in worked if name == group] == [b"%d" % number for number in range(8)]
    assert (report.worked, report.failed, len(worked)) == (132, 4, 132)


def test_a_message_is_forwarded_as_another_one(client: shardq.Client, queue: Queue) -> None:
    queue.producer().send_many([b"%d" % number for number in range(5)], headers={"a": 1})
    target = client.queue(f"{queue.name}.dead")
    moved = 0
    with queue.consumer() as consumer:
        while moved < 5:
            for message in consumer.receive(5, wait=10):
                message.forward(
                    target.name, body=message.body * 10_000, headers={}, priority=1, delay=0.2, atomic=False
                )
                moved += 1
    found = {message.body: (message.headers, message.priority) for message in target.peek(10)}
    assert found == {(b"%d" % number) * 10_000: ({}, 1) for number in range(5)}
    seen: list[bytes] = []
    with target.consumer() as consumer:
        while len(seen) < 5:
            batch = consumer.receive(5, wait=10)
            batch.ack()
            seen += batch.bodies
    assert Counter(seen) == Counter(list(found))
    assert (queue.counts().oldest, target.counts().oldest) == (None, None)


def test_each_message_is_popped_once_by_many_who_pop_many(client: shardq.Client, queue: Queue) -> None:
    bodies = [b"%d" % number for number in range(400)]
    queue.producer(bundle_messages=7).send_many(bodies)
    popped: list[bytes] = []

    def pop(limit: int) -> None:
        with queue.consumer() as consumer:
            while batch := consumer.pop_many(limit):
                assert len(batch) <= limit
                popped.extend(batch.bodies)

    threads = [threading.Thread(target=pop, args=(limit,)) for limit in (1, 3, 7, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(popped) == Counter(bodies)
    assert queue.counts().oldest is None
    assert queue.counts().processed == 400
