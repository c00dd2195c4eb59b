"""What is claimed ahead: it counts when it is handed out, is kept while it waits, and is given back in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.core.held import HeldSlice
from shardq.core.receiving.prefetch_buffer import PrefetchBuffer
from shardq.storage.opening import open_store
from shardq.storage.requests import Bundle, Claim, Claimed, ClaimedSlice, Extend, Release
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, ManualTimer
from shardq.testing.seam import (
    abandon,
    context_of,
    drive_timers,
    expire_caches,
    extend_leases,
    fetch,
    fetch_by_hand,
)
from tests.interrupted_starts import interrupt_after_start


class Bench:
    """A consumer that claims ahead, whose time stands still until it is advanced, its lease keeper's too."""

    def __init__(self, url: str, clock: ManualClock, **settings: object) -> None:
        self.clock = clock
        self.store = FaultyStore(open_store(url, clock), FaultPlan())
        self.client = shardq.Client(self.store, retry_seconds=0)
        chosen: Any = {
            "shards": 2,
            "time_shards": 1,
            "visibility_timeout": 600,
            "max_deliveries": 3,
        } | settings
        self.queue = self.client.create_queue("q", **chosen)

    @cached_property
    def consumer(self) -> shardq.Consumer:
        return self.queue.consumer(prefetch=20)

    def die(self) -> None:
        """Its process ends: nobody gives anything back."""
        abandon(self.consumer)
        del self.consumer

    def send(self, count: int) -> None:
        with self.queue.producer(bundle_messages=5) as producer:
            producer.send_many([b"%d" % number for number in range(count)])

    def asked(self, method: str) -> list[object]:
        return [call.arguments[0] for call in self.store.calls if call.method == method]

    def deliveries(self) -> set[int]:
        return {message.deliveries for message in self.queue.peek(1_000)}


@pytest.fixture
def make(url: str, clock: ManualClock) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def bench(**settings: object) -> Bench:
        benches.append(Bench(url, clock, **settings))
        return benches[-1]

    yield bench
    for bench_made in benches:
        bench_made.consumer.close()
        bench_made.client.close()


def _threads(name: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == name]


def received(queue: shardq.Queue, limit: int = 100) -> list[shardq.Message]:
    with queue.consumer() as consumer:
        return list(consumer.receive(limit))


def test_what_was_never_handed_out_counts_no_delivery_however_its_consumer_ends(
    make: Callable[..., Bench], clock: ManualClock
) -> None:
    """Nobody gives it back here: the consumer's process is gone, and its leases run out."""
    bench = make()
    bench.send(10)
    seen: set[bytes] = set()
    for _ in range(5):  # more often than max_deliveries
        (message,) = bench.consumer.receive(1, wait=20)
        seen.add(message.body)
        bench.die()
        clock.advance(601)
    rest = received(bench.queue)
    assert {message.body for message in rest if message.deliveries > 1} <= seen
    dead = {message.body for message in bench.client.queue("q.dead").peek(100)}
    assert dead <= seen
    assert len(dead) + len(rest) == 10


def test_a_message_is_counted_before_its_handler_sees_it(
    make: Callable[..., Bench], clock: ManualClock
) -> None:
    bench = make()
    bench.send(1)
    (message,) = bench.consumer.receive(1, wait=20)
    assert message.deliveries == 1
    bench.die()  # in the handler
    clock.advance(601)
    assert [message.deliveries for message in received(bench.queue)] == [2]


def test_what_could_not_be_counted_is_not_handed_out_and_waits_on(make: Callable[..., Bench]) -> None:
    bench = make(shards=1)
    bench.send(2)
    bench.store.plan = FaultPlan(
        probability=1.0, kinds=(FaultKind.UNAVAILABLE,), methods=frozenset({"extend"})
    )
    with pytest.raises(shardq.StoreUnavailable):
        bench.consumer.receive(1, wait=20)
    bench.store.plan = FaultPlan()
    assert len(bench.consumer.receive(2, wait=20)) + len(bench.consumer.receive(1, wait=0)) == 2


def test_starting_is_one_request_for_each_shard_and_none_where_deliveries_decide_nothing(
    make: Callable[..., Bench],
) -> None:
    bench = make(shards=1)
    bench.send(20)
    batch = bench.consumer.receive(20, wait=20)
    starts = [request for request in bench.asked("extend") if isinstance(request, Extend) and request.starts]
    assert len(starts) == 1
    batch.ack()


def test_without_max_deliveries_a_hand_out_asks_the_store_for_nothing(make: Callable[..., Bench]) -> None:
    bench = make(max_deliveries=None)
    bench.send(10)
    for _ in range(10):
        assert len(bench.consumer.receive(1, wait=20)) == 1
    assert bench.asked("extend") == []


def test_the_leases_of_what_waits_are_kept(make: Callable[..., Bench], clock: ManualClock) -> None:
    bench = make()
    bench.send(20)
    bench.consumer.receive(1, wait=20)
    for _ in range(6):
        clock.advance(200)
        extend_leases(bench.consumer)
    assert len(received(bench.queue)) == 1  # the one that was handed out, whose lease nobody keeps
    rest = [message for _ in range(19) for message in bench.consumer.receive(1, wait=5)]
    assert len(rest) == 19
    assert {message.deliveries for message in rest} == {1}


def test_what_waits_for_as_long_as_a_lease_is_given_back_in_its_place(
    make: Callable[..., Bench], clock: ManualClock
) -> None:
    bench = make(shards=1)
    bench.send(10)
    timer = ManualTimer()
    drive_timers(bench.consumer, timer=timer)
    bench.consumer.receive(1, wait=20)
    fetch_by_hand(bench.consumer)
    timer.advance(601)
    fetch(bench.consumer)
    releases = [request for request in bench.asked("release") if isinstance(request, Release)]
    assert releases
    assert not any(request.started for request in releases)
    others = received(bench.queue)  # nothing is claimed ahead again before somebody asks for it
    assert [message.body for message in others] == [b"%d" % number for number in range(1, 10)]
    assert {message.deliveries for message in others} == {1}


def test_nothing_is_claimed_ahead_before_messages_are_asked_for(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a consumer whose making is interrupted at its end, so that nobody can close it
    bench = make()
    bench.send(10)
    before = _threads("shardq-prefetcher")

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shardq.client.consumer.Overlap", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.queue.consumer(prefetch=20)

    # Then nothing of it goes on, and another consumer gets every message at once
    assert set(_threads("shardq-prefetcher")) <= set(before)
    assert len(received(bench.queue)) == 10


def test_a_consumer_that_never_received_can_be_closed(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.send(10)
    bench.consumer.close()
    assert len(received(bench.queue)) == 10


def test_a_close_that_was_interrupted_holds_nothing_and_can_be_repeated(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a consumer that has claimed messages ahead, and Ctrl-C while it is closed
    bench = make()
    bench.send(10)
    before = set(threading.enumerate())
    assert len(bench.consumer.receive(1)) == 1
    (thread,) = set(_threads("shardq-prefetcher")) - before

    def interrupted(timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.consumer.close()

    # Then nobody extends what was claimed ahead, and another close gives it back
    assert set(_threads("shardq-lease-keeper")) <= before
    bench.consumer.close()
    assert bench.queue.counts().in_flight == 1


def test_a_failing_shard_keeps_nobody_from_what_waits_of_others(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.send(20)
    first = bench.consumer.receive(1, wait=20)
    bench.store.plan = FaultPlan(faults=(Fault("extend", 2, FaultKind.UNAVAILABLE),))
    assert len(bench.consumer.receive(1, wait=20)) == 1
    first.ack()


def test_an_empty_read_means_that_nothing_was_due_where_messages_are_claimed_ahead_too(
    make: Callable[..., Bench],
) -> None:
    bench = make()
    assert len(bench.consumer.receive(1)) == 0
    fetch_by_hand(bench.consumer)  # as slow as it can be
    bench.send(10)
    assert sum(len(batch) for batch in bench.consumer.batches(4, wait=0)) == 10


def test_nothing_that_was_claimed_ahead_is_handed_out_while_delivery_is_paused(
    make: Callable[..., Bench],
) -> None:
    bench = make()
    fetch_by_hand(bench.consumer)
    bench.send(10)
    fetch(bench.consumer)
    bench.queue.pause()
    assert len(bench.consumer.receive(10)) == 0
    bench.queue.resume()
    assert sum(len(batch) for batch in bench.consumer.batches(10, wait=0)) == 10


@pytest.mark.parametrize("claims_again", [False, True])
def test_nothing_of_a_queue_that_was_deleted_is_handed_out_in_the_one_that_was_created_again(
    make: Callable[..., Bench], url: str, clock: ManualClock, claims_again: bool
) -> None:
    bench = make(max_deliveries=None)
    bench.send(10)
    fetch_by_hand(bench.consumer)
    fetch(bench.consumer)
    assert len(bench.consumer.receive(1)) == 1
    with shardq.connect(url, clock=clock) as other:
        other.delete_queue("q")
        queue = other.create_queue("q", shards=3, max_deliveries=None)
        queue.producer().send_many([b"new %d" % number for number in range(5)])
        if claims_again:
            fetch(bench.consumer, 3)
        expire_caches(bench.consumer)
        bodies = list[bytes]()
        for _ in range(10):
            fetch(bench.consumer)
            batch = bench.consumer.receive(20)
            bodies += batch.bodies
            batch.ack()
        assert sorted(bodies) == [b"new %d" % number for number in range(5)]
        counts = queue.counts()
        assert counts.ready + counts.delayed + counts.in_flight == 0


def before_its_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """Do it once, when a claim has taken messages and before that is answered."""
    claim = bench.store.claim

    def claim_slowly(request: Claim) -> Claimed:
        claimed = claim(request)
        if claimed.slices:
            monkeypatch.undo()
            do()
        return claimed

    monkeypatch.setattr(bench.store, "claim", claim_slowly)


def test_a_claim_of_a_queue_that_is_known_to_be_created_again_before_its_answer_is_not_handed_out(
    make: Callable[..., Bench], url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(max_deliveries=None)
    bench.send(10)
    fetch_by_hand(bench.consumer)

    def create_again() -> None:
        with shardq.connect(url, clock=clock) as other:
            other.delete_queue("q")
            other.create_queue("q", max_deliveries=None).producer().send(b"new")
        expire_caches(bench.consumer)
        assert context_of(bench.consumer).settings.max_deliveries is None  # another thread reads them

    before_its_answer(bench, monkeypatch, create_again)
    fetch(bench.consumer)
    assert bench.consumer.receive(20).bodies == [b"new"]


def test_what_was_claimed_ahead_stays_where_settings_are_changed_and_an_older_record_is_read_late(
    make: Callable[..., Bench],
) -> None:
    bench = make(max_deliveries=None)
    bench.send(10)
    fetch_by_hand(bench.consumer)
    fetch(bench.consumer)
    older = bench.store.load_queue("q")
    bench.queue.alter(retention=3_600)
    for _ in range(2):
        expire_caches(bench.consumer)
        assert len(bench.consumer.receive(1)) == 1
        context_of(bench.consumer).live.accept(older)
    assert bench.queue.counts().in_flight == 10


def test_an_empty_read_means_that_nothing_was_due_in_the_queue_that_was_created_again(
    make: Callable[..., Bench], url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(max_deliveries=None)
    fetch_by_hand(bench.consumer)
    before_its_answer(
        bench, monkeypatch, lambda: expire_caches(bench.consumer)
    )  # shows that the queue is another one
    assert not bench.consumer.receive(1)
    with shardq.connect(url, clock=clock) as other:
        other.delete_queue("q")
        other.create_queue("q").producer().send(b"new")
        assert bench.consumer.receive(1).bodies == [b"new"]


def slices(count: int, each: int = 1) -> list[HeldSlice]:
    make = [Bundle(b"%016d" % number, 5, 0, 0, each, b"") for number in range(count)]
    shard = Shard("q", 0, 0)
    return [HeldSlice(shard, ClaimedSlice(bundle, 0, each, 1), b"t" * 16, 0) for bundle in make]


def test_claims_ahead_are_made_in_sensible_sizes() -> None:
    """Half of what may wait at least, however few messages are taken at a time."""
    buffer = PrefetchBuffer(100)
    claims = []
    for _ in range(1_000):
        if buffer.free:
            claims.append(buffer.free)
            buffer.add(slices(buffer.free), 0.0)
        buffer.take(1)
    assert min(claims) >= 50
    assert len(claims) <= 21


def test_who_is_slow_claims_less_ahead_until_somebody_has_to_wait() -> None:
    buffer = PrefetchBuffer(64)
    buffer.add(slices(64), 0.0)
    buffer.take(2)
    assert buffer.overdue(-1.0) == []
    assert len(buffer.overdue(0.0)) == 62
    buffer.take(1)  # nothing waits, as what waited has just left
    assert buffer.free == 2
    buffer.add(slices(1), 1.0)
    buffer.take(1)
    sizes = []
    for _ in range(8):
        buffer.take(1)  # nothing waits
        sizes.append(buffer.free)
    assert sizes == [4, 8, 16, 32, 64, 64, 64, 64]


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_the_buffer_hands_out_everything_once_and_in_order(limit: int) -> None:
    buffer = PrefetchBuffer(100)
    given = slices(10, 4)
    buffer.add(given, 0.0)
    seen: list[tuple[bytes, int]] = []
    while len(buffer):
        taken, _, _ = buffer.take(limit)
        assert sum(piece.count for piece in taken) <= limit
        seen += [(piece.bundle.id, piece.first + place) for piece in taken for place in range(piece.count)]
    assert seen == [(piece.bundle.id, place) for piece in given for place in range(4)]


def test_nothing_of_a_piece_that_was_lost_while_it_waited_is_handed_out(make: Callable[..., Bench]) -> None:
    bench = make(shards=1, time_shards=1)
    bench.send(5)
    first = bench.consumer.receive(1, wait=20)
    ids: Sequence[str] = [message.id for message in bench.queue.peek(10) if message.id != first[0].id]
    assert bench.queue.remove(ids[1])
    rest = [message for _ in range(3) for message in bench.consumer.receive(1, wait=5)]
    assert [message.id for message in rest] == [ids[0], *ids[2:]]


def test_threads_that_receive_for_the_first_time_at_once_share_one_consumer(queue: shardq.Queue) -> None:
    for _ in range(20):
        with queue.consumer(prefetch=10) as consumer, ThreadPoolExecutor(8) as threads:
            ready = threading.Barrier(8)

            def receive(
                _: int, consumer: shardq.Consumer = consumer, ready: threading.Barrier = ready
            ) -> int:
                ready.wait()
                return len(consumer.receive(1, wait=0))

            assert sum(threads.map(receive, range(8))) == 0


def test_a_read_that_waits_for_what_is_claimed_ahead_ends_when_its_client_is_closed(url: str) -> None:
    client = shardq.connect(url)
    consumer = client.create_queue("q").consumer(prefetch=10)
    ended = threading.Event()

    def read() -> None:
        with pytest.raises(shardq.Closed):
            consumer.receive(wait=600)
        ended.set()

    thread, before = threading.Thread(target=read, daemon=True), set(threading.enumerate())
    thread.start()
    # It waits as soon as the thread that claims ahead has begun.
    while len(set(threading.enumerate()) - before) < 2 and thread.is_alive():
        ended.wait(0.01)
    client.close()
    assert ended.wait(30)


def test_a_consumer_claims_ahead_although_an_interrupt_came_as_its_thread_was_to_be_started(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    bench.send(5)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(threading.Thread, "start", interrupt)
        bench.consumer.receive(5)
    before = set(_threads("shardq-prefetcher"))
    assert bench.consumer.receive(1, wait=30)
    assert set(_threads("shardq-prefetcher")) - before


def test_a_close_holds_nothing_after_an_interrupt_that_came_when_the_thread_had_begun(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a thread that is about to claim, and a consumer that was interrupted as it had started it
    bench = make()
    bench.send(5)
    before, goes_on, call = set(threading.enumerate()), threading.Event(), bench.store.call

    def pausing(method: str, do: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if method == "claim":
            assert goes_on.wait(30)
        return call(method, do, *arguments, **options)

    monkeypatch.setattr(bench.store, "call", pausing)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        interrupt_after_start(patched, "shardq-prefetcher")
        bench.consumer.receive(1)

    # When it is closed before the claim is answered
    closing = threading.Thread(target=bench.consumer.close)
    closing.start()
    closing.join(0.3)
    goes_on.set()
    closing.join(30)

    # Then nothing of it goes on, and others can have the messages
    for thread in set(_threads("shardq-prefetcher")) - before:
        thread.join(30)
    assert set(_threads("shardq-lease-keeper")) <= before
    assert bench.queue.counts().in_flight == 0
