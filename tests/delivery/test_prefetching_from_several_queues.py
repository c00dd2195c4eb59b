"""A consumer that claims ahead from several queues: they take turns, and none holds up the others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import FaultKind, FaultPlan, FaultyStore, ManualClock, ManualTimer
from shardq.testing.seam import drive_timers, expire_caches, fetch, fetch_by_hand
from shardq.worker import Worker

QUEUES = ("a", "b", "c")


class Bench:
    """Three queues, and a consumer of all that claims ahead."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.store = FaultyStore(open_store(url, clock), FaultPlan())
        self.client = shardq.Client(self.store, retry_seconds=0)
        self.queues = {
            name: self.client.create_queue(
                name, shards=2, time_shards=1, visibility_timeout=600, max_deliveries=2
            )
            for name in QUEUES
        }
        self.consumers: list[shardq.Consumer] = []

    def consumer(self, *, thread: bool = True, prefetch: int = 20, **options: Any) -> shardq.Consumer:
        """One whose thread claims ahead, or leaves that to the test."""
        consumer = self.client.consumer(QUEUES, prefetch=prefetch, **options)
        self.consumers.append(consumer)
        if not thread:
            fetch_by_hand(consumer)
        return consumer

    def fetch(self, times: int = 3) -> None:
        fetch(self.consumers[-1], times)

    def send(self, queue: str, count: int) -> None:
        self.client.queue(queue).producer(bundle_messages=5).send_many([queue.encode()] * count)

    def notice(self) -> None:
        """Let the time pass after which the settings are read again."""
        expire_caches(*self.queues.values())

    def asked(self, method: str) -> int:
        return sum(call.method == method for call in self.store.calls)


@pytest.fixture
def bench(url: str, clock: ManualClock) -> Iterator[Bench]:
    bench = Bench(url, clock)
    yield bench
    for consumer in bench.consumers:
        consumer.close()
    bench.client.close()


def taken(consumer: shardq.Consumer, limit: int, *, times: int = 1000) -> Counter[str | None]:
    """How many messages of each queue came in so many batches."""
    got: Counter[str | None] = Counter()
    for _ in range(times):
        if not (batch := consumer.receive(limit)):
            break
        assert {message.queue for message in batch} == {batch.queue}
        got[batch.queue] += len(batch)
        batch.ack()
    return got


def test_every_message_comes_once_and_each_batch_is_of_one_queue(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 50)
    assert taken(bench.consumer(), 7) == dict.fromkeys(QUEUES, 50)
    assert all(bench.queues[queue].counts().in_flight == 0 for queue in QUEUES)


def test_queues_share_the_receiving_by_their_weights_however_much_waits_of_each(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 60)
    consumer = bench.consumer(thread=False, prefetch=60, weights={"a": 3, "b": 2})
    bench.fetch()
    assert taken(consumer, 2, times=30) == {"a": 30, "b": 20, "c": 10}


def test_they_share_by_their_weights_where_nothing_waits_either(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 60)
    consumer = bench.consumer(thread=False, weights={"a": 3, "b": 2})
    assert taken(consumer, 2, times=30) == {"a": 30, "b": 20, "c": 10}


def test_in_strict_order_what_comes_first_passes_all_that_was_claimed_ahead(bench: Bench) -> None:
    bench.send("c", 20)
    consumer = bench.consumer(thread=False, order="strict")
    bench.fetch(1)
    assert consumer.receive(2).queue == "c"
    bench.send("a", 3)
    bench.fetch(1)
    assert [consumer.receive(2).queue for _ in range(3)] == ["a", "a", "c"]


def test_a_delivery_is_counted_when_its_message_is_handed_out(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 4)
    consumer = bench.consumer(thread=False)
    bench.fetch()
    assert bench.asked("extend") == 0
    handed = [consumer.receive(1) for _ in range(3)]
    assert {batch.queue for batch in handed} == set(QUEUES)
    assert {message.deliveries for batch in handed for message in batch} == {1}
    assert bench.asked("extend") == 3
    consumer.close()
    for queue in QUEUES:
        with bench.queues[queue].consumer() as other:
            assert [message.deliveries for message in other.receive(10)] == [1, 1, 1]


def test_a_queue_that_cannot_count_deliveries_holds_nobody_up(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 2)
    consumer = bench.consumer(thread=False, order="strict")
    bench.fetch()
    extend = bench.store.extend

    def fail(request: Any) -> Any:
        if request.shard.queue == "a":
            raise shardq.StoreUnavailable("nobody answers for a")
        return extend(request)

    bench.store.extend = fail  # type: ignore[method-assign]
    assert [consumer.receive(2).queue for _ in range(2)] == ["b", "c"]
    with pytest.raises(shardq.StoreUnavailable, match="for a"):
        consumer.receive(2)
    bench.store.extend = extend  # type: ignore[method-assign]
    assert taken(consumer, 2) == {"a": 2}


def test_a_queue_that_is_paused_or_deleted_hands_out_nothing_and_holds_nobody_up(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 5)
    consumer = bench.consumer(thread=False)
    bench.fetch()
    bench.queues["a"].pause()
    shardq.Client(bench.store.inner).delete_queue("b")
    bench.notice()
    assert taken(consumer, 10, times=1) == {"c": 5}
    bench.send("c", 1)
    bench.fetch(1)
    assert taken(consumer, 10, times=1) == {"c": 1}
    with pytest.raises(shardq.QueueNotFound, match="'b'"):
        consumer.receive(1)
    bench.queues["a"].resume()
    assert taken(consumer, 10, times=1) == {"a": 5}


def test_the_thread_goes_on_when_a_queue_is_deleted_and_takes_it_up_again(bench: Bench) -> None:
    consumer = bench.consumer()
    assert not consumer.receive(1)
    bench.client.delete_queue("b")
    bench.notice()
    bench.send("a", 30)
    got = 0
    while got < 30:
        got += len(consumer.receive(10, wait=20))
    bench.client.create_queue("b")
    bench.send("b", 1)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        bench.notice()
        try:
            if consumer.receive(1, wait=1).queue == "b":
                return
        except shardq.QueueNotFound:
            continue
    pytest.fail("the queue was not taken up again")


def test_what_one_queue_waits_for_too_long_is_given_back_and_the_others_stay(bench: Bench) -> None:
    for queue in ("a", "b"):
        bench.send(queue, 5)
    consumer = bench.consumer(thread=False)
    timer = ManualTimer()
    drive_timers(consumer, timer=timer)
    bench.fetch()
    bench.queues["a"].alter(visibility_timeout=10)
    bench.notice()
    timer.advance(20)
    bench.fetch(1)
    assert (bench.queues["a"].counts().ready, bench.queues["b"].counts().ready) == (5, 0)
    assert taken(consumer, 5, times=1) == {"b": 5}


def test_a_full_queue_makes_no_looks_at_the_empty_ones_but_two_in_a_second(bench: Bench) -> None:
    bench.send("a", 400)
    consumer = bench.consumer()
    got, began = 0, time.monotonic()
    while got < 400:
        got += len(consumer.receive(1, wait=20))
    seconds = time.monotonic() - began
    assert bench.asked("claim") <= 60
    assert bench.asked("probe") <= bench.asked("claim") + 10 + 8 * seconds


def test_what_comes_into_an_empty_queue_while_another_is_full_is_claimed_soon(bench: Bench) -> None:
    bench.send("a", 100)
    consumer = bench.consumer(order="strict", prefetch=5)
    first = consumer.receive(1, wait=20)
    bench.send("b", 1)
    deadline = time.monotonic() + 30
    while bench.queues["b"].counts().ready and time.monotonic() < deadline:
        threading.Event().wait(0.05)  # nobody takes anything meanwhile
    assert bench.queues["b"].counts().in_flight == 1
    first.ack()


def test_a_consumer_that_is_closed_between_reads_of_its_empty_queues_claims_nothing_more(
    bench: Bench,
) -> None:
    # Given a queue that is full, so that the empty ones are read only now and then
    bench.send("a", 20)
    consumer = bench.consumer(thread=False)
    bench.fetch(1)
    asked = bench.asked("claim"), bench.asked("probe")
    with ThreadPoolExecutor(1) as threads:
        fetching = threads.submit(fetch, consumer)
        assert not wait([fetching], 0.1).done
        bench.send("b", 1)
        # When the consumer is closed meanwhile
        consumer.close()
        fetching.result(30)
    # Then nothing is read or claimed
    assert (bench.asked("claim"), bench.asked("probe")) == asked
    assert bench.queues["b"].counts().ready == 1


def test_closing_gives_back_what_waits_of_every_queue(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 5)
    consumer = bench.consumer(thread=False)
    bench.fetch()
    assert sum(bench.queues[queue].counts().in_flight for queue in QUEUES) == 15
    consumer.close()
    assert sum(bench.queues[queue].counts().ready for queue in QUEUES) == 15


def test_a_store_that_fails_at_random_loses_and_doubles_nothing(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 40)
        bench.queues[queue].alter(max_deliveries=None)
    consumer = bench.consumer()
    bench.store.plan = FaultPlan(
        probability=0.2,
        seed=7,
        kinds=(FaultKind.UNAVAILABLE, FaultKind.LOST_REQUEST),
        methods=frozenset({"claim", "probe", "extend", "load_queue", "register_consumer"}),
    )
    got: Counter[str | None] = Counter()
    deadline = time.monotonic() + 60
    while got.total() < 120 and time.monotonic() < deadline:
        try:
            batch = consumer.receive(7, wait=1)
        except (shardq.StoreUnavailable, shardq.OutcomeUnknown):
            continue
        got[batch.queue] += len(batch)
        batch.ack()
    bench.store.plan = FaultPlan()
    assert {name: got[name] for name in QUEUES} == dict.fromkeys(QUEUES, 40)


def test_a_worker_claims_ahead_from_its_queues(bench: Bench) -> None:
    for queue in QUEUES:
        bench.send(queue, 10)
    handled: Counter[str] = Counter()
    queues = list(bench.queues.values())
    report = Worker(queues, lambda message: handled.update([message.queue]), prefetch=20, idle_exit=0).run()
    assert (report.worked, handled) == (30, dict.fromkeys(QUEUES, 10))
