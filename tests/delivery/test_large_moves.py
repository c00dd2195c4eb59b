"""Moves of more bytes than a store takes in one request."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import Fenced, Forward
from shardq.testing import ManualClock
from shardq.worker import Worker
from tests.narrow_store import NarrowStore

COUNT, SIZE = 40, 8 << 10


@pytest.fixture
def client(url: str, clock: ManualClock) -> Iterator[shardq.Client]:
    with shardq.Client(NarrowStore(open_store(url, clock)), retry_seconds=0.0) as client:
        yield client


@pytest.fixture(params=[None, "g"], ids=["no group", "a group"])
def group(request: pytest.FixtureRequest) -> str | None:
    value: str | None = request.param
    return value


def bodies_of(count: int = COUNT, size: int = SIZE) -> list[bytes]:
    return [b"%08d" % number + os.urandom(size - 8) for number in range(count)]


def filled(
    client: shardq.Client, bodies: list[bytes], *, group: str | None = None, max_deliveries: int = 1
) -> shardq.Queue:
    """A queue with the messages, which are in one bundle."""
    client.create_queue("target")
    queue = client.create_queue("source", max_deliveries=max_deliveries, visibility_timeout=60)
    queue.producer().send_many(bodies, group=group)
    return queue


def received(queue: shardq.Queue) -> list[bytes]:
    with queue.consumer() as consumer:
        batch = consumer.receive(1_000)
        batch.ack()
        return batch.bodies


def test_a_batch_is_forwarded_in_its_order(client: shardq.Client, group: str | None) -> None:
    bodies = bodies_of()
    filled(client, bodies, group=group).consumer().receive(COUNT).forward("target")
    arrived = received(client.queue("target"))
    assert arrived == bodies if group else sorted(arrived) == bodies


def test_dead_letters_with_long_reasons_are_redriven_in_their_order(
    client: shardq.Client, group: str | None
) -> None:
    bodies = bodies_of()
    queue = filled(client, bodies, group=group)
    queue.consumer().receive(COUNT).dead_letter("€" * 500)
    assert client.queue("source.dead").counts().ready == COUNT
    assert queue.redrive() == COUNT
    arrived = received(queue)
    assert arrived == bodies if group else sorted(arrived) == bodies


def test_small_messages_whose_reasons_make_them_large_are_dead_lettered(client: shardq.Client) -> None:
    queue = filled(client, [b"%d" % number for number in range(500)])
    queue.consumer().receive(500).dead_letter("€" * 500)
    assert client.queue("source.dead").counts().ready == 500


def test_what_was_delivered_too_often_is_dead_lettered(client: shardq.Client, clock: ManualClock) -> None:
    queue = filled(client, bodies_of())
    queue.consumer().receive(COUNT)
    clock.advance(61)
    assert not queue.consumer().receive(COUNT)
    assert client.queue("source.dead").counts().ready == COUNT


def test_what_has_expired_is_dead_lettered(client: shardq.Client, clock: ManualClock) -> None:
    queue = filled(client, bodies_of())
    queue.alter(retention=3_600, dead_letter_expired=True)
    clock.advance(3_700)
    assert not queue.consumer().receive(COUNT)
    assert client.queue("source.dead").counts().ready == COUNT


def test_a_worker_dead_letters_what_fails(client: shardq.Client) -> None:
    queue = filled(client, bodies_of())

    def fail(message: shardq.Message) -> None:
        raise ValueError("bad")

    report = Worker(queue, fail, batch=COUNT, idle_exit=0).run()
    assert report.dead_lettered == client.queue("source.dead").counts().ready == COUNT


def test_given_up_messages_of_a_blocked_group_go_on_in_their_order(client: shardq.Client) -> None:
    bodies = bodies_of()
    queue = filled(client, bodies, group="g")
    queue.alter(on_dead_letter="block")
    queue.consumer().receive(COUNT).dead_letter("bad")
    assert queue.redrive() == COUNT
    assert received(queue) == bodies


def test_what_follows_a_failed_step_does_not_overtake_it(url: str, clock: ManualClock) -> None:
    # Given a store that fails at the second step of a move
    class Failing(NarrowStore):
        steps = 0

        def forward(self, request: Forward) -> Fenced:
            self.steps += 1
            if self.steps == 2:
                raise shardq.StoreUnavailable("away")
            return super().forward(request)

    with shardq.Client(Failing(open_store(url, clock)), retry_seconds=0.0) as client:
        bodies = bodies_of()
        batch = filled(client, bodies, group="g").consumer().receive(COUNT)
        # When the messages of a group are moved
        with pytest.raises(shardq.StoreUnavailable):
            batch.forward("target")
        # Then what arrived is the front of the group, and a repetition moves the rest behind it
        first = client.queue("target").counts().ready
        assert 0 < first < COUNT
        batch.forward("target")
        assert received(client.queue("target")) == bodies


def test_a_worker_goes_on_when_a_message_can_be_neither_worked_nor_moved(
    url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a store that lets no message with some body into another queue
    class Refusing(NarrowStore):
        def forward(self, request: Forward) -> Fenced:
            if any(b"stuck" in bundle.data for bundle in request.append.bundles):
                raise shardq.MessageTooLarge("too large for this store")
            return super().forward(request)

    with shardq.Client(Refusing(open_store(url, clock)), retry_seconds=0.0) as client:
        queue = filled(client, [b"bad 1", b"stuck", b"bad 2", b"good"])

        def handle(message: shardq.Message) -> None:
            if message.body != b"good":
                raise ValueError("bad")

        # When a worker fails at several messages
        with caplog.at_level(logging.ERROR):
            report = Worker(queue, handle, batch=4, idle_exit=0).run()
        # Then that one stays, the log names it, and all others are settled
        assert (report.worked, report.dead_lettered) == (1, 2)
        assert sorted(each.body for each in client.queue("source.dead").peek()) == [b"bad 1", b"bad 2"]
        (left,) = queue.peek()
        assert left.body == b"stuck"
        assert f"message {left.id} stays in its queue" in caplog.text


@pytest.mark.parametrize("messages", [1, 3])
def test_a_message_that_is_larger_than_a_request_moves_alone(client: shardq.Client, messages: int) -> None:
    queue = filled(client, [os.urandom(NarrowStore.most + 1)] * messages)
    queue.consumer().receive(messages).forward("target")
    assert client.queue("target").counts().ready == messages


STORES = [
    pytest.param(("replica_set_url", 40), marks=pytest.mark.server),
    pytest.param(("postgresql_url", 40), marks=pytest.mark.server),
    pytest.param(("cassandra_url", 12), marks=pytest.mark.server),
]


@pytest.fixture(params=STORES)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[shardq.Client, str, int]]:
    """A client of a real store, a name for a queue, and how many messages of 1 MiB are more than it takes at once."""
    fixture, count = request.param
    with shardq.connect(request.getfixturevalue(fixture)) as client:
        name = f"m{os.urandom(4).hex()}"
        yield client, name, count
        for queue in client.queues(name):
            client.delete_queue(queue)


def moved_by_forward(queue: shardq.Queue, target: shardq.Queue, count: int) -> None:
    queue.consumer().receive(count).forward(target.name, atomic=False)
    assert target.counts().ready == count


def moved_as_dead_letters(queue: shardq.Queue, target: shardq.Queue, count: int) -> None:
    queue.consumer().receive(count).dead_letter("bad")
    assert queue.redrive() == count
    assert queue.counts().ready == count


@pytest.mark.parametrize("move", [moved_by_forward, moved_as_dead_letters])
def test_a_server_moves_more_than_it_takes_in_one_request(
    server: tuple[shardq.Client, str, int], move: Callable[[shardq.Queue, shardq.Queue, int], None]
) -> None:
    client, name, count = server
    target = client.create_queue(f"{name}-to", shards=1, time_shards=1)
    queue = client.create_queue(name, shards=1, time_shards=1, visibility_timeout=60)
    queue.producer().send_many([os.urandom(1_000_000) for _ in range(count)])
    move(queue, target, count)
    client.delete_queue(f"{name}.dead") if client.exists(f"{name}.dead") else None


def test_a_server_lets_a_blocked_group_of_large_messages_go_on(
    server: tuple[shardq.Client, str, int],
) -> None:
    client, name, count = server
    queue = client.create_queue(name, visibility_timeout=60, on_dead_letter="block")
    bodies = [b"%04d" % number + os.urandom(1_000_000) for number in range(count)]
    try:
        queue.producer().send_many(bodies, group="g")
    except shardq.UnsupportedByStore:
        pytest.skip("the store has no groups")
    queue.consumer().receive(count).dead_letter("bad")
    assert queue.redrive() == count
    with queue.consumer() as consumer:
        arrived: list[bytes] = []
        while batch := consumer.receive(count):
            arrived += [body[:4] for body in batch.bodies]
            batch.ack()
    assert arrived == [body[:4] for body in bodies]
