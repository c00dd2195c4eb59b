"""The story of a message, through moves, and what messages were acked with, on every store."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import shardq

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
def queue(client: shardq.Client) -> Iterator[shardq.Queue]:
    name = f"t{os.urandom(6).hex()}"
    yield client.create_queue(name, shards=2, time_shards=1, events=3_600, max_deliveries=2)
    for each in (name, f"{name}.dead"):
        client.delete_queue(each)
    assert client.queues(f"_shardq/events/{name}") == client.queues(f"_shardq/results/{name}") == ()


def test_the_story_of_one_of_many_messages_goes_through_dead_letters_and_a_redrive(
    client: shardq.Client, queue: shardq.Queue
) -> None:
    ids = queue.producer().send_many([b"%d" % number for number in range(50)])
    with queue.consumer(name="one") as consumer:
        batch = consumer.receive(50, wait=10)
        batch[7].release()
        batch.part(batch[20:30]).dead_letter("odd")
        batch.ack()
        (again,) = consumer.receive(1, wait=10)
        again.release(delay=0.1, count=False)
    assert queue.redrive() == 10
    (last,) = [event.to for event in queue.trace(ids[25]) if event.kind == "redriven"]
    with queue.consumer(name="two") as consumer:
        left = 11
        while left:
            batch = consumer.receive(left, wait=10)
            batch.ack()
            left -= len(batch)
    assert [(each.kind, each.owner) for each in queue.trace(ids[3])] == [
        ("sent", None), ("claimed", "one"), ("acked", "one"),
    ]  # fmt: skip
    assert [each.kind for each in queue.trace(ids[7])] == [
        "sent", "claimed", "released", "claimed", "snoozed", "claimed", "acked",
    ]  # fmt: skip
    story = queue.trace(ids[25])
    assert [each.kind for each in story] == [
        "sent", "claimed", "dead_lettered", "claimed", "redriven", "claimed", "acked",
    ]  # fmt: skip
    assert story[4].owner is None  # nobody who held it has sent it back
    letter = story[2].to or ""
    assert queue.trace(last or "") == client.queue(f"{queue.name}.dead").trace(letter) == story


def test_extensions_ends_of_leases_and_purges_are_told(queue: shardq.Queue) -> None:
    identity = queue.producer().send(b"x")
    with queue.consumer(name="one") as one, queue.consumer(name="two") as two:
        one.receive(1, wait=10)[0].extend(0.1)
        assert two.receive(1, wait=30)
    queue.purge()
    assert [(each.kind, each.owner) for each in queue.trace(identity)] == [
        ("sent", None), ("claimed", "one"), ("extended", "one"), ("lease_expired", "one"), ("claimed", "two"),
        ("purged", None),
    ]  # fmt: skip


def test_results_are_shown_with_the_history(queue: shardq.Queue) -> None:
    queue.alter(events=None, history_retention=3_600, keep_results=True)
    queue.producer().send_many([b"%d" % number for number in range(20)])
    alone = queue.producer().send(b"alone")
    with queue.consumer() as consumer:
        left = 21
        while left:
            batch = consumer.receive(left, wait=10)
            by_receipt = {each.receipt: each.body * 2 for each in batch[::2] if each.body != b"7"}
            queue.ack(by_receipt, results=by_receipt)
            rest = batch.part(each for each in batch if each.receipt not in by_receipt)
            rest.ack(results={each: each.body * 2 for each in rest if each.body != b"7"})
            left -= len(batch)
    doubled = {b"%d" % number: b"%d" % number * 2 for number in range(20)} | {b"alone": b"alonealone"}
    assert {each.body: each.result for each in queue.history()} == doubled | {b"7": None}
    found = queue.get(alone)
    assert found is not None
    assert found.result == b"alonealone"
