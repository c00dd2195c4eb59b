"""A message is delivered within its ttl or not at all; what has expired goes, or becomes a dead letter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

import shardq
from shardq.base.clock import to_datetime
from shardq.core.settling.engine import SettleEngine
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore
from tests.defective_stores.claims import FinishingStore

Move = Callable[[shardq.Client, shardq.Message], shardq.Queue]


def make(client: shardq.Client, **settings: Any) -> shardq.Queue:
    return client.create_queue("q", **{"shards": 2, "time_shards": 1, "visibility_timeout": 30, **settings})


def bodies(queue: shardq.Queue) -> set[bytes]:
    return {message.body for message in queue.peek(10_000)}


def received(queue: shardq.Queue, limit: int = 100) -> list[bytes]:
    return queue.consumer().receive(limit).bodies


def letters(client: shardq.Client) -> dict[bytes, object]:
    return {letter.body: letter.headers["shardq-reason"] for letter in client.queue("q.dead").peek(10_000)}


# -- sending


def test_a_message_is_delivered_until_its_ttl_is_over(client: shardq.Client, clock: ManualClock) -> None:
    queue = make(client)
    queue.producer().send(b"x", ttl=10)
    clock.advance(9.99)
    (message,) = queue.consumer().receive(1)
    assert message.expires_at == to_datetime(clock.now()) + timedelta(seconds=0.01)
    message.release()
    clock.advance(0.01)
    assert received(queue) == []
    assert bodies(queue) == set()
    assert (client.counters.expired, client.counters.dead_lettered) == (1, 0)


def test_the_ttl_counts_from_when_the_message_is_due(client: shardq.Client, clock: ManualClock) -> None:
    queue = make(client)
    due = to_datetime(clock.now()) + timedelta(seconds=100)
    queue.producer().send_many(
        [
            shardq.OutgoingMessage(body=b"delay", delay=100, ttl=10),
            shardq.OutgoingMessage(body=b"due", due=due, ttl=10),
            shardq.OutgoingMessage(body=b"past", due=datetime(2000, 1, 1, tzinfo=UTC), ttl=10),
        ]
    )
    expiries = {message.body: message.expires_at for message in queue.peek()}
    later = due + timedelta(seconds=10)
    assert expiries == {b"delay": later, b"due": later, b"past": later - timedelta(seconds=100)}
    clock.advance(105)
    assert set(received(queue)) == {b"delay", b"due"}


def test_messages_of_one_send_have_their_own_ttl(client: shardq.Client, clock: ManualClock) -> None:
    queue = make(client)
    ttls = {b"short": 5.0, b"long": 50.0, b"none": None}
    queue.producer().send_many(
        [shardq.OutgoingMessage(body=body, ttl=ttl) for body, ttl in ttls.items()], ttl=None
    )
    queue.producer().send_many([b"shared", b"too"], ttl=50)
    clock.advance(10)
    assert set(received(queue)) == {b"long", b"none", b"shared", b"too"}
    assert client.counters.expired == 1


@pytest.mark.parametrize("ttl", [0, -1, 0.0001, float("nan"), float("inf"), 1e12, "10", True, timedelta(1)])
def test_a_wrong_ttl_is_refused_with_nothing_stored(queue: shardq.Queue, ttl: Any) -> None:
    producer = queue.producer()
    for send in (
        lambda: producer.send(b"x", ttl=ttl),
        lambda: producer.send_many([b"x"], ttl=ttl),
        lambda: producer.send_many([shardq.OutgoingMessage(body=b"x", ttl=ttl)]),
    ):
        with pytest.raises(shardq.InvalidMessage, match=r"ttl=.* give seconds"):
            send()
    assert queue.peek() == []


def test_a_message_that_is_due_at_the_end_of_time_may_have_a_ttl(queue: shardq.Queue) -> None:
    last = datetime.max.replace(tzinfo=UTC)
    queue.producer().send(b"x", due=last, ttl=1_000)
    assert [message.expires_at for message in queue.peek()] == [last]


def test_hooks_see_the_ttl(url: str, clock: ManualClock) -> None:
    class Seen(shardq.Hooks):
        ttls: list[float | None] = []  # noqa: RUF012

        def before_send(self, queue: str, messages: Any) -> None:
            self.ttls.extend(message.ttl for message in messages)

    with shardq.connect(url, clock=clock, hooks=Seen()) as client:
        make(client).producer().send_many([b"x", shardq.OutgoingMessage(body=b"y", ttl=2)], ttl=1)
    assert Seen.ttls == [1, 2]


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE])
def test_a_send_that_is_repeated_expires_when_the_first_attempt_would_have(
    url: str, clock: ManualClock, kind: FaultKind
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan((Fault("append", 1, kind),)))
    with shardq.Client(store, retry_seconds=0) as client:
        producer = make(client).producer()
        with pytest.raises(shardq.PartialSend) as caught:
            producer.send_many(iter([b"x"]), ttl=10)
        clock.advance(4)
        producer.send_many(caught.value.unsent)
        (stored,) = client.queue("q").peek()
        assert stored.expires_at == to_datetime(clock.now()) + timedelta(seconds=6)


def test_a_key_holds_for_its_window_although_its_message_has_expired(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = make(client, dedupe_window=60)
    first = queue.producer().send(b"x", ttl=5, dedupe_key="k")
    clock.advance(10)
    assert queue.producer().send(b"x", ttl=5, dedupe_key="k") == first
    assert received(queue) == []
    clock.advance(60)
    assert queue.producer().send(b"x", ttl=5, dedupe_key="k") != first
    assert received(queue) == [b"x"]


# -- delivering


def test_what_is_in_flight_may_be_acked_after_its_ttl_and_is_not_redelivered(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = make(client, visibility_timeout=20)
    queue.producer().send_many([b"acked", b"slow"], ttl=5)
    consumer = queue.consumer()
    batch = consumer.receive(2)
    clock.advance(10)
    queue.sweep()  # leaves what is held
    assert bodies(queue) == {b"acked", b"slow"}
    next(message for message in batch if message.body == b"acked").ack()
    clock.advance(20)
    assert consumer.receive(2).bodies == []
    assert client.counters.expired == 1


def test_a_receive_goes_on_behind_what_has_expired(client: shardq.Client, clock: ManualClock) -> None:
    queue = make(client, shards=1)
    producer = queue.producer(bundle_messages=10)
    producer.send_many([b"%d" % number for number in range(500)], ttl=1)
    clock.advance(2)
    producer.send(b"fresh")
    assert received(queue, 1) == [b"fresh"]
    assert client.counters.expired == 500


@pytest.mark.parametrize("kind", [WrappedStore, FinishingStore])
def test_what_has_expired_is_not_popped(url: str, clock: ManualClock, kind: type[WrappedStore]) -> None:
    with shardq.Client(kind(open_store(url, clock))) as client:
        queue = make(client, shards=1)
        queue.producer().send(b"old", ttl=5)
        clock.advance(5)
        queue.producer().send(b"new", ttl=5)
        message = queue.consumer().pop()
        assert message is not None
        assert message.body == b"new"
        assert queue.consumer().pop() is None
        assert (client.counters.expired, client.counters.acked) == (1, 1)


@pytest.mark.parametrize("max_deliveries", [None, 3])
def test_what_expires_while_it_is_claimed_ahead_is_not_handed_out(
    client: shardq.Client, clock: ManualClock, max_deliveries: int | None
) -> None:
    queue = make(client, shards=1, visibility_timeout=600, max_deliveries=max_deliveries)
    queue.producer(bundle_messages=2).send_many([b"%d" % number for number in range(10)], ttl=5)
    queue.producer().send_many([b"lasting"])
    with queue.consumer(prefetch=20) as consumer:
        assert len(consumer.receive(3, wait=10)) == 3
        clock.advance(10)
        assert consumer.receive(20).bodies == [b"lasting"]
        assert client.counters.expired == 7
        queue.producer().send(b"more")
        assert consumer.receive(20).bodies == [b"more"]


def test_a_receive_that_finds_only_expired_messages_ahead_looks_at_the_queue(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = make(client, shards=1, visibility_timeout=600)
    queue.producer().send_many([b"a", b"b"], ttl=5)
    with queue.consumer(prefetch=2) as consumer:
        assert consumer.receive(1, wait=10).bodies == [b"a"]
        queue.producer().send(b"waits")
        clock.advance(10)
        assert consumer.receive(1).bodies == [b"waits"]


def test_a_message_that_was_delivered_too_often_and_has_expired_is_dropped(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = make(client, max_deliveries=1)
    queue.producer().send(b"x", ttl=5)
    assert received(queue) == [b"x"]
    clock.advance(60)
    assert received(queue) == []
    assert letters(client) == {}
    assert (client.counters.expired, client.counters.dead_lettered) == (1, 0)


# -- where they go


def test_a_dead_letter_tells_how_often_it_was_delivered_however_often_it_was_tried_to_make_it_one(
    client: shardq.Client, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given messages that expired after they were claimed ahead, and cannot be moved at first
    queue = make(client, dead_letter_expired=True)
    queue.producer(bundle_messages=2).send_many([b"%d" % number for number in range(10)], ttl=5)
    with queue.consumer(prefetch=20) as consumer:
        assert len(consumer.receive(1, wait=30)) == 1
        clock.advance(6)
        for _ in range(3):
            with monkeypatch.context() as patch, pytest.raises(shardq.QueueNotFound):
                patch.setattr(SettleEngine, "move", _without_a_target)
                consumer.receive(10)
        # When they can be
        assert len(consumer.receive(10)) == 0
    # Then they tell that nobody has had them
    found = [letter.headers["shardq-deliveries"] for letter in client.queue("q.dead").peek()]
    assert found == [0] * 9


def _without_a_target(*_: object) -> None:
    raise shardq.QueueNotFound("q.dead")


@pytest.mark.parametrize("by", ["consumer", "sweep"])
def test_what_has_expired_becomes_a_dead_letter_where_the_queue_says_so(
    client: shardq.Client, clock: ManualClock, by: str
) -> None:
    queue = make(client, retention=100, dead_letter_expired=True, max_deliveries=None)
    producer = queue.producer(bundle_messages=3)
    producer.send_many([b"ttl-%d" % number for number in range(10)], ttl=5)
    clock.advance(60)
    producer.send_many([b"fresh-%d" % number for number in range(10)])
    clock.advance(30)
    assert queue.sweep() == 10 if by == "sweep" else len(received(queue)) == 10
    assert letters(client) == {b"ttl-%d" % number: "expired" for number in range(10)}
    clock.advance(80)
    assert queue.sweep() == 10 if by == "sweep" else received(queue) == []
    assert len(letters(client)) == 20
    assert (client.counters.expired, client.counters.dead_lettered) == (0, 20)
    letter = client.queue("q.dead").peek()[0]
    assert (letter.expires_at, letter.headers["shardq-queue"]) == (None, "q")


def test_the_sweep_finds_what_has_expired_behind_what_has_not_and_leaves_the_rest_in_its_place(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = make(client, shards=1, dead_letter_expired=True)
    producer = queue.producer(bundle_messages=40)
    producer.send(b"seen", priority=0)
    queue.consumer().receive(1)[0].release()
    for number in range(60):
        producer.send_many([b"keep-%d-%d" % (number, each) for each in range(40)])
        producer.send(b"old-%d" % number, ttl=5)
    producer.send(b"later", delay=50, ttl=5)
    order = [message.body for message in queue.peek(10_000) if not message.body.startswith(b"old")]
    clock.advance(10)
    assert queue.sweep() == 60
    assert letters(client) == {b"old-%d" % number: "expired" for number in range(60)}
    assert [message.body for message in queue.peek(10_000)] == order
    assert {message.deliveries for message in queue.peek(10_000) if message.body != b"seen"} == {0}
    assert queue.sweep() == 0


def test_the_sweep_drops_what_has_expired_wherever_it_stands(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = make(client, shards=1)
    producer = queue.producer()
    producer.send_many([b"old", b"put off"], ttl=5)
    producer.send_many([b"first"], priority=0)
    producer.send_many([b"old too"], ttl=5, priority=9)
    (message,) = (each for each in queue.consumer().receive(3) if each.body == b"put off")
    message.release(delay=100)
    clock.advance(50)
    queue.sweep()
    assert bodies(queue) == {b"first"}
    assert client.counters.expired == 3


def test_a_queue_whose_letters_expire_has_a_dead_letter_queue(client: shardq.Client) -> None:
    make(client, max_deliveries=None)
    assert "q.dead" not in client.queues()
    client.queue("q").alter(dead_letter_expired=True)
    assert "q.dead" in client.queues()


# -- moves


def dead_letter(client: shardq.Client, message: shardq.Message) -> shardq.Queue:
    message.dead_letter("bad")
    return client.queue("q.dead")


def redrive(client: shardq.Client, message: shardq.Message) -> shardq.Queue:
    message.dead_letter("bad")
    assert client.queue("q").redrive() == 1
    return client.queue("q")


def forward(client: shardq.Client, message: shardq.Message) -> shardq.Queue:
    client.create_queue("other")
    message.forward("other", atomic=False)
    return client.queue("other")


def replace(client: shardq.Client, message: shardq.Message) -> shardq.Queue:
    message.release(body=b"new", delay=2)
    return client.queue("q")


def replay(client: shardq.Client, message: shardq.Message) -> shardq.Queue:
    message.ack()
    assert client.queue("q").replay() == 1
    return client.queue("q")


class OneShardAtATime(WrappedStore):
    """A store that cannot move across shards in one step, as Cassandra."""

    @property
    def capabilities(self) -> Any:
        return structs.replace(super().capabilities, forward_across_shards=False)


@pytest.fixture(params=[WrappedStore, OneShardAtATime])
def moving(url: str, clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[shardq.Client]:
    with shardq.Client(request.param(open_store(url, clock))) as client:
        yield client


@pytest.mark.parametrize(
    ("move", "keeps"),
    [(dead_letter, False), (redrive, False), (replay, False), (forward, True), (replace, True)],
)
def test_what_is_moved_on_expires_when_it_would_have_and_dead_letters_and_copies_do_not(
    moving: shardq.Client, clock: ManualClock, move: Move, keeps: bool
) -> None:
    queue = make(moving, history_retention=3600)
    queue.producer().send(b"x", ttl=100)
    (sent,) = queue.peek()
    clock.advance(10)
    target = move(moving, queue.consumer().receive(1)[0])
    (moved,) = target.peek()
    assert moved.expires_at == (sent.expires_at if keeps else None)
    clock.advance(1_000)
    assert len(received(target)) == (0 if keeps else 1)
