"""Moves that are cut off between two of their steps, on a store that cannot make them in one."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

import shardq
from shardq.storage.cassandra.store import CassandraStore
from tests.dying_store import STEPS, Died, DyingStore

pytestmark = [pytest.mark.server, pytest.mark.long]


@pytest.mark.parametrize("later", [1, 3])
def test_a_move_that_was_cut_off_is_completed_by_claims_of_another_size(
    open_store: Callable[[], CassandraStore], later: int
) -> None:
    client = shardq.Client(open_store())
    queues = [
        client.create_queue(f"m{os.urandom(6).hex()}", shards=1, time_shards=1, visibility_timeout=3)
        for _ in STEPS
    ]
    for step, queue in enumerate(queues):
        queue.producer().send_many([b"1", b"2", b"3"])
        dying = DyingStore(open_store())
        batch = shardq.Client(dying).queue(queue.name).consumer().receive(3, wait=10)
        dying.calls_left, dying.after = step, True
        with pytest.raises(Died):
            batch.dead_letter("bad")
    for queue in queues:
        moved = 3 if len(queue.peek()) == 0 else 0
        with queue.consumer() as consumer:
            while moved < 3:
                batch = consumer.receive(later, wait=10)
                batch.dead_letter("bad")
                moved += len(batch)
        letters = client.queue(f"{queue.name}.dead").peek(10)
        assert sorted(letter.body for letter in letters) == [b"1", b"2", b"3"]
        assert queue.counts().oldest is None
        client.delete_queue(queue.name)


LONG = b"long" * 10_000  # too long to be kept inside its row


@pytest.mark.parametrize(
    ("first", "second"),
    [(b"short", LONG), (LONG, b"short"), (b"a", b"b")],
    ids=["longer", "shorter", "as-long"],
)
def test_a_forward_that_was_cut_off_is_completed_by_one_that_changes_the_message_otherwise(
    open_store: Callable[[], CassandraStore], first: bytes, second: bytes
) -> None:
    client = shardq.Client(open_store())
    queues = [
        client.create_queue(f"m{os.urandom(6).hex()}", shards=1, time_shards=1, visibility_timeout=3)
        for _ in STEPS
    ]
    for step, queue in enumerate(queues):
        client.create_queue(f"{queue.name}.to", shards=2, time_shards=2)
        queue.producer().send(b"sent")
        dying = DyingStore(open_store())
        (message,) = shardq.Client(dying).queue(queue.name).consumer().receive(1, wait=10)
        dying.calls_left, dying.after = step, True
        with pytest.raises(Died):
            message.forward(f"{queue.name}.to", body=first, priority=1, delay=1, atomic=False)
    for step, queue in enumerate(queues):
        target = client.queue(f"{queue.name}.to")
        if STEPS[step] != "acknowledge":
            (message,) = queue.consumer().receive(1, wait=10)
            message.forward(target.name, body=second, priority=8, delay=2, atomic=False)
        (received,) = target.consumer().receive(5, wait=10)
        assert received.body in (first, second)
        received.ack()
        for counts in (target.counts(), queue.counts()):
            assert (counts.ready, counts.delayed, counts.in_flight) == (0, 0, 0)
        client.delete_queue(queue.name)
        client.delete_queue(target.name)


def test_a_key_that_its_producer_did_not_confirm_is_confirmed_when_its_message_is_handed_out(
    open_store: Callable[[], CassandraStore],
) -> None:
    client = shardq.Client(open_store())
    queue = client.create_queue(f"m{os.urandom(6).hex()}", shards=1, time_shards=1)
    dying = DyingStore(open_store())
    dying.calls_left = STEPS.index("confirm_keys") - 1
    with pytest.raises(Died):
        shardq.Client(dying).queue(queue.name).producer().send(b"x", dedupe_key="key")
    (message,) = queue.consumer().receive(1, wait=10)
    message.ack()
    assert queue.producer().send(b"x", dedupe_key="key") == message.id
    client.delete_queue(queue.name)
