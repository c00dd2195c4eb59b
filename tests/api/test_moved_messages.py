"""What is moved: what it keeps, what its new queue refuses, and queues that were created again meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import ManualClock

Move = Callable[[shardq.Client, shardq.Message], shardq.Queue]


def dead_letter(client: shardq.Client, message: shardq.Message) -> shardq.Queue:
    message.dead_letter("bad")
    return client.queue("q.dead")


def redrive(client: shardq.Client, message: shardq.Message) -> shardq.Queue:
    message.dead_letter("bad")
    assert client.queue("q").redrive() == 1
    return client.queue("q")


def forward(client: shardq.Client, message: shardq.Message) -> shardq.Queue:
    client.create_queue("other")
    message.forward("other")
    return client.queue("other")


def replace(client: shardq.Client, message: shardq.Message) -> shardq.Queue:
    message.release(body=b"new")
    return client.queue("q")


MOVES: list[Move] = [dead_letter, redrive, forward, replace]


@pytest.mark.parametrize("move", MOVES)
def test_the_time_of_sending_survives_every_move(
    client: shardq.Client, clock: ManualClock, move: Move
) -> None:
    queue = client.create_queue("q")
    identity = queue.producer().send(b"x")
    stored = queue.get(identity)
    clock.advance(10)
    target = move(client, queue.consumer().receive(1)[0])
    clock.advance(1)
    (received,) = target.consumer().receive(10)
    assert stored is not None
    assert received.enqueued_at == stored.enqueued_at


def test_the_retention_of_a_redriven_message_counts_from_its_redrive(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("q", retention=60.0)
    queue.producer().send_many([b"1", b"2"])
    queue.consumer().receive(2).dead_letter("bad")
    clock.advance(3_600)
    assert queue.redrive() == 2
    clock.advance(30)
    (message,) = queue.consumer().receive(1)
    message.release(body=b"new")
    clock.advance(29)
    assert sorted(queue.consumer().receive(10).bodies) == [b"2", b"new"]
    clock.advance(40)
    assert len(queue.consumer().receive(10)) == 0
    assert client.counters.expired == 2


@pytest.mark.parametrize("door", ["redrive", "replay", "forward"])
def test_a_queue_whose_sends_are_paused_takes_nothing_through_any_door(
    client: shardq.Client, door: str
) -> None:
    queue = client.create_queue("q", history_retention=3_600)
    other = client.create_queue("other")
    queue.producer().send_many([b"acked", b"dead", b"moved"])
    consumer = queue.consumer()
    consumer.receive(1).ack()
    consumer.receive(1).dead_letter("bad")
    (message,) = consumer.receive(1)
    queue.pause(delivery=False, sends=True)
    other.pause(delivery=False, sends=True)
    doors: dict[str, Callable[[], object]] = {
        "redrive": queue.redrive,
        "replay": queue.replay,
        "forward": lambda: message.forward("other"),
    }
    with pytest.raises(shardq.QueuePaused):
        doors[door]()
    assert (queue.counts().ready, other.counts().ready) == (0, 0)
    assert len(client.queue("q.dead").consumer().receive(10)) == 1
    message.release(body=b"its place is here")
    (message,) = consumer.receive(1)
    client.queue("q.dead").pause(delivery=False, sends=True)
    message.dead_letter("it has no other place")


def test_what_is_above_the_limit_of_its_queue_is_not_let_in_by_any_door(client: shardq.Client) -> None:
    queue = client.create_queue("q", history_retention=3_600)
    small = client.create_queue("small", max_message_bytes=100)
    headers = {"name": "x" * 80}
    queue.producer().send_many([b"acked" * 5] * 2, headers=headers)
    consumer = queue.consumer()
    consumer.receive(1).ack()
    (message,) = consumer.receive(1)
    with pytest.raises(shardq.MessageTooLarge):
        message.forward("small")
    with pytest.raises(shardq.MessageTooLarge):
        queue.replay(to="small")
    queue.alter(max_message_bytes=100)
    with pytest.raises(shardq.MessageTooLarge):
        message.release(body=b"acked" * 5)
    message.release(body=b"short")
    assert small.counts().ready == 0


def test_a_dead_letter_that_is_too_large_by_now_stays_and_all_others_are_redriven(
    client: shardq.Client,
) -> None:
    queue = client.create_queue("q", shards=1, time_shards=1)
    queue.producer().send_many([b"1", b"x" * 200, b"2"])
    queue.consumer().receive(3).dead_letter("bad")
    queue.alter(max_message_bytes=100)
    with pytest.raises(shardq.MessageTooLarge):
        queue.redrive()
    assert sorted(message.body for message in queue.peek()) == [b"1", b"2"]
    assert client.queue("q.dead").counts().ready == 1
    queue.alter(max_message_bytes=1_000)
    assert queue.redrive() == 1


def test_dead_letters_are_redriven_into_a_queue_that_was_deleted_and_created_again(
    url: str, clock: ManualClock
) -> None:
    client = shardq.Client(open_store(url, clock), retry_seconds=0.0)
    queue = client.create_queue("q", shards=2, time_shards=1)
    bodies = [b"%02d" % number for number in range(20)]
    queue.producer(bundle_messages=5).send_many(bodies)
    queue.consumer().receive(20).dead_letter("bad")
    client.delete_queue("q")
    queue = client.create_queue("q", shards=2, time_shards=1)
    assert queue.redrive() == 20
    assert sorted(queue.consumer().receive(100).bodies) == bodies


def test_messages_are_dead_lettered_into_a_queue_that_was_deleted_to_empty_it(
    url: str, clock: ManualClock
) -> None:
    client = shardq.Client(open_store(url, clock), retry_seconds=0.0)
    queue = client.create_queue("q", shards=1, time_shards=1)
    queue.producer().send_many([b"%d" % number for number in range(6)])
    queue.consumer().receive(1).dead_letter("first")
    client.delete_queue("q.dead")
    queue.consumer().receive(5).dead_letter("bad")
    assert sorted(client.queue("q.dead").consumer().receive(10).bodies) == [b"1", b"2", b"3", b"4", b"5"]
