"""A queue with bounds refuses what is too much, or drops what is the oldest; a queue without pays nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import shardq
from shardq.core.context import queue_usage
from shardq.core.receiving.removing import drop_oldest
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, ManualTimer
from shardq.testing.seam import context_of, drive_timers
from tests.dying_store import DyingStore

EVERY_SECOND = queue_usage.LONGEST


class Bench:
    """Clients of one store, and their time."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self._url, self.clock, self.seconds = url, clock, ManualTimer()
        self.clients: list[shardq.Client] = []
        self.stores: list[FaultyStore] = []

    def open(self, store: Callable[[Any], Any] = lambda inner: inner) -> shardq.Client:
        faulty = FaultyStore(store(open_store(self._url, self.clock)), FaultPlan())
        client = shardq.Client(faulty, retry_seconds=0)
        self.stores.append(faulty)
        self.clients.append(client)
        return client

    def queue(self, client: shardq.Client | None = None, name: str = "q") -> shardq.Queue:
        """The queue as a client sees it, whose time of counting is the bench's."""
        queue = (client or self.open()).queue(name)
        drive_timers(queue, timer=self.seconds)
        return queue

    def create(self, name: str = "q", **settings: Any) -> shardq.Queue:
        client = self.open()
        client.create_queue(name, **{"shards": 2, "time_shards": 1, **settings})
        return self.queue(client, name)

    def asked(self, method: str) -> int:
        return sum(call.method == method for store in self.stores for call in store.calls)

    def advance(self, seconds: float) -> None:
        self.seconds.advance(seconds)
        self.clock.advance(seconds)


@pytest.fixture
def bench(url: str, clock: ManualClock) -> Iterator[Bench]:
    bench = Bench(url, clock)
    yield bench
    for client in bench.clients:
        client.close()


def waiting(queue: shardq.Queue) -> int:
    counts = queue.counts()
    return counts.ready + counts.delayed


def bodies(queue: shardq.Queue) -> set[bytes]:
    return {message.body for message in queue.peek(100_000)}


def fill(queue: shardq.Queue, first: int, last: int, **options: Any) -> None:
    with queue.producer(bundle_messages=10) as producer:
        producer.send_many([b"%d" % number for number in range(first, last)], **options)


# -- refusing


def test_what_is_above_the_number_of_messages_is_refused_with_the_counts_and_nothing_is_stored(
    bench: Bench,
) -> None:
    queue = bench.create(max_messages=10)
    producer = queue.producer()
    producer.send_many([b"x"] * 9)
    producer.send(b"last")
    for send in (lambda: producer.send(b"more"), lambda: producer.send_many([b"more"] * 2)):
        with pytest.raises(
            shardq.QueueFull, match=r"queue 'q' is full: 10 messages .* max_messages=10"
        ) as full:
            send()
        assert (full.value.messages, full.value.retryable, full.value.code) == (10, True, "queue_full")
        assert "bytes" not in str(full.value), "nobody has counted them"
    assert waiting(queue) == 10


def test_what_is_above_the_bytes_is_refused(bench: Bench) -> None:
    queue = bench.create(max_bytes=10_000)
    producer = queue.producer()
    producer.send(b"x" * 6_000)
    with pytest.raises(shardq.QueueFull, match=r"\(6,\d+ bytes\).* max_bytes=10,000") as full:
        producer.send(b"x" * 6_000)
    assert full.value.size >= 6_000
    producer.send(b"x" * 3_000)
    size = queue.counts().bytes
    assert size is not None
    assert 9_000 <= size <= 10_000


def test_a_full_queue_takes_messages_again_when_some_were_received(bench: Bench) -> None:
    queue = bench.create(max_messages=10)
    fill(queue, 0, 10)
    batch = queue.consumer().receive(4)  # what is in flight does not wait
    bench.advance(EVERY_SECOND)
    queue.producer().send_many([b"x"] * 4)
    with pytest.raises(shardq.QueueFull):
        queue.producer().send(b"x")
    batch.release()
    bench.advance(EVERY_SECOND)
    with pytest.raises(shardq.QueueFull):  # which may bring the queue above its bounds
        queue.producer().send(b"x")
    assert waiting(queue) == 14


def test_delayed_messages_wait_too(bench: Bench) -> None:
    queue = bench.create(max_messages=3)
    queue.producer().send_many([b"x"] * 3, delay=60)
    with pytest.raises(shardq.QueueFull):
        queue.producer().send(b"x")


def test_a_bulk_send_says_what_is_stored_and_the_rest_can_be_sent_when_there_is_room(bench: Bench) -> None:
    queue = bench.create(max_messages=10)
    producer = queue.producer(bundle_messages=4)
    with pytest.raises(shardq.PartialSend) as stopped:
        producer.send_many([b"%d" % number for number in range(15)])
    assert isinstance(stopped.value.__cause__, shardq.QueueFull)
    assert (len(stopped.value.stored), len(stopped.value.unsent)) == (8, 7)
    queue.consumer().receive(10).ack()
    bench.advance(EVERY_SECOND)
    producer.send_many(stopped.value.unsent)
    assert bodies(queue) == {b"%d" % number for number in range(8, 15)}


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_of_sends_that_are_joined_as_many_are_stored_as_there_is_room_for(bench: Bench, room: int) -> None:
    queue = bench.create(max_messages=3)
    fill(queue, 0, 3 - room)
    producer = queue.producer(linger=30, bundle_messages=3)
    stored: list[str] = []
    refused: list[int] = []

    def send() -> None:
        try:
            stored.append(producer.send(b"x"))
        except shardq.QueueFull as error:
            refused.append(error.messages)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(stored)) == room
    assert refused == [3] * (3 - room)
    assert waiting(queue) == 3


def test_a_key_whose_message_did_not_fit_can_be_sent_again(bench: Bench) -> None:
    queue = bench.create(max_messages=1)
    queue.producer().send(b"x")
    with pytest.raises(shardq.QueueFull):
        queue.producer().send(b"y", dedupe_key="k")
    queue.consumer().receive(1).ack()
    bench.advance(EVERY_SECOND)
    queue.producer().send(b"y", dedupe_key="k")
    assert bodies(queue) == {b"y"}


def unanswered(bench: Bench, queue: shardq.Queue, **options: Any) -> shardq.OutgoingMessage:
    """The message of a send that is stored, and whose answer was lost."""
    bench.stores[0].plan = FaultPlan((Fault("append", 1, FaultKind.LOST_RESPONSE),))
    with pytest.raises(shardq.OutcomeUnknown) as unknown:
        queue.producer().send(b"x", **options)
    bench.stores[0].plan = FaultPlan()
    return unknown.value.unsent[0]


@pytest.mark.parametrize("overflow", ["reject", "drop_oldest"])
@pytest.mark.parametrize("options", [{}, {"dedupe_key": "k"}, {"unique_key": "k"}, {"priority": 0}])
def test_a_repeated_send_needs_no_room_and_drops_nothing_as_it_was_let_in_before(
    bench: Bench, overflow: str, options: dict[str, Any]
) -> None:
    queue = bench.create(max_messages=2, overflow=overflow)
    again = unanswered(bench, queue, **options)
    fill(bench.queue(), 0, 1)
    bench.advance(EVERY_SECOND)
    assert queue.producer().send(again) == again.id
    assert bodies(queue) == {b"x", b"0"}


def test_a_repeated_send_whose_message_was_worked_meanwhile_needs_no_room(bench: Bench) -> None:
    queue = bench.create(max_messages=1)
    again = unanswered(bench, queue)
    queue.consumer().receive(1).ack()
    bench.advance(EVERY_SECOND)
    fill(bench.queue(), 0, 1)
    bench.advance(EVERY_SECOND)
    assert queue.producer().send(again) == again.id
    assert bodies(queue) == {b"0"}


def test_bounds_are_followed_when_they_are_set_changed_and_lifted(bench: Bench) -> None:
    queue = bench.create()
    fill(queue, 0, 20)
    queue.alter(max_messages=10)
    with pytest.raises(shardq.QueueFull):
        queue.producer().send(b"x")
    queue.alter(max_messages=21, max_bytes=1_000_000)
    bench.advance(EVERY_SECOND)
    queue.producer().send(b"x")
    queue.alter(max_bytes=5, max_messages=None)
    bench.advance(EVERY_SECOND)
    with pytest.raises(shardq.QueueFull):
        queue.producer().send(b"x")
    queue.alter(max_bytes=None)
    queue.producer().send(b"x")
    assert waiting(queue) == 22


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_move_into_a_full_queue_is_refused_but_dead_letters_and_new_bodies_are_not(
    bench: Bench, in_one_step: bool
) -> None:
    client = bench.open(lambda inner: inner if in_one_step else DyingStore(inner))
    for name in ("q.dead", "q", "full"):
        client.create_queue(name, shards=1, time_shards=1, max_messages=1, history_retention=60)
        bench.queue(client, name)
    client.queue("full").producer().send(b"there")
    client.queue("q.dead").producer().send(b"there")
    queue = client.queue("q")
    queue.producer().send(b"x")
    (message,) = queue.consumer().receive(1)
    with pytest.raises(shardq.QueueFull):
        message.forward("full", atomic=in_one_step)
    bench.advance(EVERY_SECOND)
    queue.producer().send(b"other")
    message.release(body=b"y")
    assert bodies(queue) == {b"other", b"y"}
    (message,) = (each for each in queue.consumer().receive(2) if each.body == b"y")
    message.dead_letter("bad")
    assert bodies(client.queue("q.dead")) == {b"there", b"y"}
    bench.advance(60)
    with pytest.raises(shardq.QueueFull):
        queue.redrive()
    queue.consumer().receive(2).ack()
    bench.advance(EVERY_SECOND)
    assert queue.redrive() == 1
    with pytest.raises(shardq.QueueFull):
        queue.replay()
    assert bodies(queue) == {b"y"}


def test_a_queue_whose_messages_cannot_be_counted_stores_nothing(bench: Bench) -> None:
    queue = bench.create(max_messages=10)
    bench.stores[0].plan = FaultPlan((Fault("shards", 1, FaultKind.UNAVAILABLE),))
    with pytest.raises(shardq.StoreUnavailable):
        queue.producer().send(b"x")
    bench.stores[0].plan = FaultPlan()
    queue.producer().send(b"x")
    assert waiting(queue) == 1


# -- what it costs


def test_a_queue_without_bounds_is_not_counted(bench: Bench) -> None:
    queue = bench.create()
    fill(queue, 0, 100)
    assert (bench.asked("shards"), bench.asked("count")) == (0, 0)


def test_what_waits_is_counted_once_a_second_while_there_is_room(bench: Bench) -> None:
    queue = bench.create(max_messages=1_000)
    for _ in range(5):
        fill(queue, 0, 50)
        bench.advance(EVERY_SECOND / 5)
    assert bench.asked("shards") == 1
    queue.producer().send(b"x")
    assert bench.asked("shards") == 2


def test_counting_takes_a_twentieth_of_the_time_at_most(bench: Bench) -> None:
    queue = bench.create(max_messages=10)

    class Slow(ManualTimer):
        def __call__(self) -> float:
            self.advance(0.25)
            return super().__call__()

    slow = Slow()
    drive_timers(queue, timer=slow)
    fill(queue, 0, 10)
    before = slow()
    for _ in range(400):
        with pytest.raises(shardq.QueueFull):
            queue.producer().send(b"x")
    counts = bench.asked("shards") - 1
    assert 0 < counts * 0.25 * queue_usage.SHARE_OF_TIME <= slow() - before + 20 * 0.25


# -- how far above the bounds


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("overflow", ["reject", "drop_oldest"])
def test_beside_the_bound_there_is_no_more_than_others_send_between_two_counts(
    bench: Bench, overflow: str, seed: int
) -> None:
    """The margin of the guide: what other clients send within a second; with drop_oldest what all send."""
    dice, most = random.Random(seed), 60
    bench.create(max_messages=most, overflow=overflow)
    queues = [bench.queue() for _ in range(3)]
    sent: list[tuple[float, int, int]] = []
    for _ in range(150):
        who, number = dice.randrange(3), dice.randrange(1, 9)
        with suppress(shardq.QueueFull):
            queues[who].producer().send_many([b"x"] * number)
            sent.append((bench.seconds(), who, number))
            since, alone = bench.seconds() - EVERY_SECOND, overflow == "reject"
            between = [each for at, sender, each in sent if at >= since and not (alone and sender == who)]
            assert waiting(queues[0]) <= most + sum(between)
        if dice.random() < 0.2:
            queues[0].consumer().receive(dice.randrange(1, 20)).ack()
        bench.advance(dice.random() * 0.3)
    assert waiting(queues[0]) >= most / 2
    if overflow == "drop_oldest":
        assert sum(client.counters.dropped for client in bench.clients) > 0


def test_one_client_alone_is_never_above_the_bound(bench: Bench) -> None:
    queue = bench.create(max_messages=25)
    for _ in range(20):
        with suppress(shardq.QueueFull):
            queue.producer().send_many([b"x"] * 4)
        assert waiting(queue) <= 25


def test_what_this_client_is_storing_while_it_counts_is_not_left_out(bench: Bench) -> None:
    queue = bench.create(max_messages=2)
    begun, goes_on = threading.Event(), threading.Event()
    append = bench.stores[0].append

    def slow(request: Any) -> None:
        begun.set()
        assert goes_on.wait(60)
        append(request)

    bench.stores[0].append = slow  # type: ignore[method-assign]
    thread = threading.Thread(target=lambda: queue.producer().send_many([b"x"] * 2))
    thread.start()
    assert begun.wait(60)
    bench.advance(EVERY_SECOND)
    with pytest.raises(shardq.QueueFull):
        queue.producer().send(b"y")  # which counts, and finds nothing yet
    goes_on.set()
    thread.join()
    bench.advance(EVERY_SECOND)
    with pytest.raises(shardq.QueueFull):
        queue.producer().send(b"y")
    queue.consumer().receive(1).ack()
    bench.advance(EVERY_SECOND)
    queue.producer().send(b"y")
    assert waiting(queue) == 2


# -- dropping the oldest


def test_the_oldest_make_room_for_the_new_and_are_counted(bench: Bench) -> None:
    queue = bench.create(max_messages=30, overflow="drop_oldest", shards=3)
    for number in range(10):
        fill(queue, 10 * number, 10 * number + 10)
        bench.advance(EVERY_SECOND)
    assert bodies(queue) == {b"%d" % number for number in range(70, 100)}
    assert bench.clients[0].counters.dropped == 70
    assert bench.clients[0].counters.expired == 0


def test_what_is_in_flight_is_not_dropped(bench: Bench) -> None:
    queue = bench.create(max_messages=10, overflow="drop_oldest", shards=1)
    fill(queue, 0, 10)
    batch = queue.consumer().receive(5)
    for number in range(1, 4):
        bench.advance(EVERY_SECOND)
        fill(queue, 10 * number, 10 * number + 10)
    assert waiting(queue) == 10
    batch.ack()
    assert waiting(queue) == 10


def test_the_bytes_are_kept_by_dropping_too(bench: Bench) -> None:
    queue = bench.create(max_bytes=100_000, overflow="drop_oldest", shards=1)
    for number in range(30):
        queue.producer().send(b"%d" % number + bytes(10_000))
        bench.advance(EVERY_SECOND)
    size = queue.counts().bytes
    assert size is not None
    assert 80_000 <= size <= 100_000
    assert b"29" in {body.rstrip(b"\0") for body in bodies(queue)}


def test_what_cannot_be_dropped_keeps_what_is_sent_out(bench: Bench) -> None:
    queue = bench.create(max_messages=10, overflow="drop_oldest")
    fill(queue, 0, 8, delay=60)
    fill(queue, 8, 10)
    bench.advance(EVERY_SECOND)
    fill(queue, 10, 12)
    assert bodies(queue) == {b"%d" % number for number in range(12) if number not in (8, 9)}
    bench.advance(EVERY_SECOND)
    with pytest.raises(shardq.QueueFull, match="8 delayed messages"):
        queue.producer().send_many([b"x"] * 3)
    with pytest.raises(shardq.QueueFull):
        queue.producer().send_many([b"x"] * 11)


def test_of_two_clients_that_counted_the_same_one_drops(bench: Bench) -> None:
    queue, other = bench.create(), bench.queue()
    fill(queue, 0, 40)
    assert drop_oldest(context_of(queue), 20) == 20
    assert drop_oldest(context_of(other), 20) == 0
    assert waiting(queue) == 20


def test_a_queue_that_cannot_drop_takes_the_message_and_drops_later(bench: Bench) -> None:
    queue = bench.create(max_messages=5, overflow="drop_oldest", shards=1)
    fill(queue, 0, 5)
    bench.advance(EVERY_SECOND)
    claims = sum(call.method == "claim" for call in bench.stores[0].calls)
    bench.stores[0].plan = FaultPlan((Fault("claim", claims + 1, FaultKind.UNAVAILABLE),))
    fill(queue, 5, 6)
    assert waiting(queue) == 6
    bench.advance(EVERY_SECOND)
    fill(queue, 6, 7)
    assert bodies(queue) == {b"2", b"3", b"4", b"5", b"6"}


class ContendedStore(WrappedStore):
    """Others get ahead of its next claims."""

    ahead = 0

    def claim(self, request: Claim) -> Claimed:
        if self.ahead:
            self.ahead -= 1
            return Claimed((), self.now() + request.lease, contended=True)
        return super().claim(request)


def test_messages_are_dropped_also_while_others_get_ahead_of_claims(bench: Bench) -> None:
    bench.create(max_messages=5, overflow="drop_oldest", shards=1)
    stores: list[ContendedStore] = []

    def contended(inner: Any) -> ContendedStore:
        stores.append(ContendedStore(inner))
        return stores[0]

    queue = bench.queue(bench.open(contended))
    fill(queue, 0, 5)
    bench.advance(EVERY_SECOND)
    stores[0].ahead = 4
    fill(queue, 5, 6)
    assert bodies(queue) == {b"1", b"2", b"3", b"4", b"5"}


@pytest.mark.parametrize(
    ("name", "value"), [("max_messages", 0), ("max_bytes", 1.5), ("overflow", "drop"), ("overflow", None)]
)
def test_a_wrong_bound_is_refused(queue: shardq.Queue, name: str, value: Any) -> None:
    change: Any = {name: value}
    with pytest.raises(shardq.InvalidSetting, match=name):
        queue.alter(**change)


def test_the_highest_bound_is_told_as_a_whole_number(queue: shardq.Queue) -> None:
    with pytest.raises(shardq.InvalidSetting, match="give 1 to 9007199254740992"):
        queue.alter(max_messages=0)


def test_bytes_are_counted_for_queues_that_are_bounded_in_them(bench: Bench) -> None:
    queue = bench.create()
    fill(queue, 0, 3)
    assert queue.counts().bytes is None
    queue.alter(max_bytes=1_000)
    assert queue.counts().bytes == sum(state.counts.bytes or 0 for state in queue.shard_states()) > 0
