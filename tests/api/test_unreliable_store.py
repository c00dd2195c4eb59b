"""A store that fails in the middle of things: nothing is lost, duplicated or reported wrongly."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed, Fenced, Forward
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore

UNKNOWN = [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE]
ALL = [FaultKind.UNAVAILABLE, *UNKNOWN]


class Bench:
    """A client whose store fails by a plan, beside one that works."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.clock = clock
        self.store = FaultyStore(open_store(url, clock), FaultPlan())
        self.faulty = shardq.Client(self.store, retry_seconds=5.0)
        self.sound = shardq.connect(url, clock=clock)

    def fail(self, method: str, *kinds: FaultKind) -> None:
        """Let the next calls of a method fail."""
        start = sum(call.method == method for call in self.store.calls)
        faults = tuple(Fault(method, start + number, kind) for number, kind in enumerate(kinds, start=1))
        self.store.plan = FaultPlan(faults=faults)

    def received(self, name: str) -> Counter[bytes]:
        """Everything that can be received now, through the client that works, acked."""
        with self.sound.queue(name).consumer() as consumer:
            found: Counter[bytes] = Counter()
            for batch in consumer.batches(1000, wait=0):
                found.update(message.body for message in batch)
                batch.ack()
            return found


@pytest.fixture
def bench(url: str, clock: ManualClock) -> Iterator[Bench]:
    bench = Bench(url, clock)
    yield bench
    bench.faulty.close()
    bench.sound.close()


@pytest.mark.parametrize("kind", ALL)
def test_a_send_is_repeated_without_duplicates(bench: Bench, kind: FaultKind) -> None:
    queue = bench.faulty.create_queue("q")
    bench.fail("append", kind, kind)
    with queue.producer() as producer:
        identity = producer.send(b"x")
    assert queue.get(identity) is not None
    assert bench.received("q") == Counter([b"x"])
    assert bench.faulty.counters.sent == 1


@pytest.mark.parametrize("kind", ALL)
def test_a_message_that_was_worked_before_its_send_is_repeated_does_not_come_twice(
    bench: Bench, kind: FaultKind
) -> None:
    queue = bench.faulty.create_queue("q")
    bench.fail("append", kind)
    seen: Counter[bytes] = Counter()
    inner_append = bench.store.append

    def append_then_work(request: object) -> None:
        try:
            inner_append(request)  # type: ignore[arg-type]
        finally:
            seen.update(bench.received("q"))

    bench.store.append = append_then_work  # type: ignore[method-assign]
    with queue.producer() as producer:
        producer.send_many([b"1", b"2", b"3"])
    assert seen + bench.received("q") == Counter([b"1", b"2", b"3"])


@pytest.mark.parametrize("kind", ALL)
def test_a_bulk_send_that_fails_part_way_names_what_is_stored_and_can_be_repeated_as_it_is(
    bench: Bench, kind: FaultKind
) -> None:
    client = shardq.Client(bench.store, retry_seconds=0.0)
    queue = client.create_queue("q", shards=3)
    sent = [str(number).encode() for number in range(35)]
    bench.store.plan = FaultPlan(faults=tuple(Fault("append", number, kind) for number in range(3, 9)))
    with queue.producer(bundle_messages=10) as producer:
        with pytest.raises(shardq.PartialSend) as caught:
            producer.send_many(sent, headers={"a": 1}, priority=2)
        error = caught.value
        assert [queue.get(identity).body for identity in error.stored] == sent[:20]
        assert [message.body for message in error.unsent] == sent[20:]
        bench.store.plan = FaultPlan()
        ids = producer.send_many(error.unsent)
    assert [queue.get(identity).body for identity in ids] == sent[20:]
    assert {message.headers["a"] for message in queue.peek(100)} == {1}
    assert bench.received("q") == Counter(sent)


def test_an_iterator_that_raises_names_what_was_stored(bench: Bench) -> None:
    queue = bench.faulty.create_queue("q")

    def broken() -> Iterator[bytes]:
        yield from [b"1", b"2", b"3"]
        raise RuntimeError("no more")

    with queue.producer(bundle_messages=2) as producer, pytest.raises(shardq.PartialSend) as caught:
        producer.send_many(broken())
    assert len(caught.value.stored) == 2
    assert [message.body for message in caught.value.unsent] == [b"3"]
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_when_nothing_was_stored_a_list_gets_the_error_itself(bench: Bench) -> None:
    client = shardq.Client(bench.store, retry_seconds=0.0)
    queue = client.create_queue("q")
    bench.fail("append", *[FaultKind.UNAVAILABLE] * 3)
    with queue.producer() as producer, pytest.raises(shardq.StoreUnavailable):
        producer.send_many([b"1"])


@pytest.mark.parametrize("kind", UNKNOWN)
def test_an_unanswered_send_is_reported_as_unknown(bench: Bench, kind: FaultKind) -> None:
    client = shardq.Client(bench.store, retry_seconds=0.0)
    queue = client.create_queue("q")
    bench.fail("append", kind, *[FaultKind.UNAVAILABLE] * 50)
    with queue.producer() as producer, pytest.raises(shardq.OutcomeUnknown):
        producer.send(b"x")


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("method", ["reserve_keys", "append", "confirm_keys"])
def test_a_dedupe_key_survives_a_fault_at_every_step(bench: Bench, method: str, kind: FaultKind) -> None:
    queue = bench.faulty.create_queue("q")
    bench.fail(method, kind)
    with queue.producer() as producer:
        first = producer.send(b"x", dedupe_key="key")
        assert producer.send(b"x", dedupe_key="key") == first
    assert bench.received("q") == Counter([b"x"])


@pytest.mark.parametrize("method", ["append", "confirm_keys"])
def test_a_producer_that_died_with_a_reserved_key_neither_blocks_nor_duplicates_it(
    bench: Bench, method: str
) -> None:
    client = shardq.Client(bench.store, retry_seconds=0.0)
    queue = client.create_queue("q")
    bench.fail(method, *[FaultKind.LOST_REQUEST] * 9)
    with queue.producer() as producer:
        try:
            producer.send(b"x", dedupe_key="key")
        except shardq.OutcomeUnknown:
            assert method == "append"
    with bench.sound.queue("q").producer() as producer:
        producer.send(b"x", dedupe_key="key")
        producer.send(b"x", dedupe_key="key")
    assert bench.received("q") == Counter([b"x"])


@pytest.mark.parametrize("kind", ALL)
def test_a_claim_is_repeated_without_counting_a_delivery_or_hiding_messages(
    bench: Bench, kind: FaultKind
) -> None:
    queue = bench.faulty.create_queue("q")
    with queue.producer() as producer:
        producer.send_many([b"1", b"2", b"3"])
    bench.fail("claim", kind, kind)
    batch = queue.consumer().receive(2)
    assert [(message.body, message.deliveries) for message in batch] == [(b"1", 1), (b"2", 1)]
    assert queue.counts().in_flight == 2


@pytest.mark.parametrize("seconds", [9, 11])
def test_an_unanswered_claim_is_repeated_while_its_lease_lasts_and_then_passes_nothing_over(
    bench: Bench, seconds: int
) -> None:
    """When the lease is over its messages are in their places again, behind what goes first."""
    bench.faulty.create_queue("q", shards=1, time_shards=1, visibility_timeout=10)
    client = shardq.Client(bench.store, retry_seconds=0)
    producer = bench.sound.queue("q").producer()
    producer.send(b"last", priority=9)
    consumer = client.queue("q").consumer()
    bench.fail("claim", *[FaultKind.LOST_RESPONSE] * 2)
    with suppress(shardq.OutcomeUnknown):
        consumer.receive(1)
    producer.send(b"first", priority=0)
    bench.clock.advance(seconds)
    (message,) = consumer.receive(1)
    assert (message.body, message.deliveries) == ((b"last", 1) if seconds < 10 else (b"first", 1))
    bench.clock.advance(20)
    assert bench.received("q") == Counter([b"first", b"last"])


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    ("method", "settle", "left"),
    [
        ("acknowledge", lambda batch: batch.ack(), 0),
        ("release", lambda batch: batch.release(), 3),
        ("extend", lambda batch: batch.extend(100), 0),
        ("forward", lambda batch: batch.forward("other"), 0),
        ("forward", lambda batch: batch.dead_letter("why"), 0),
        ("forward", lambda batch: batch[0].release(body=b"new"), 1),
    ],
    ids=["ack", "release", "extend", "forward", "dead_letter", "replace"],
)
def test_settling_is_repeated_after_every_kind_of_fault(
    bench: Bench, method: str, settle: object, left: int, kind: FaultKind
) -> None:
    queue = bench.faulty.create_queue("q")
    bench.faulty.create_queue("other")
    with queue.producer() as producer:
        producer.send_many([b"1", b"2", b"3"])
    batch = queue.consumer().receive(3)
    bench.fail(method, kind, kind)
    settle(batch)  # type: ignore[operator]
    assert bench.faulty.counters.lease_lost == 0
    assert queue.counts().ready == left
    moved = bench.received("other") + bench.received("q.dead")
    assert all(times == 1 for times in moved.values())


@pytest.mark.parametrize("kind", UNKNOWN)
@pytest.mark.parametrize("verb", ["acknowledge", "release", "forward"])
def test_settling_that_was_not_answered_stays_unknown_though_the_store_is_away_then(
    bench: Bench, verb: str, kind: FaultKind
) -> None:
    queue = shardq.Client(bench.store, retry_seconds=0.2).create_queue("q")
    queue.producer().send(b"1")
    (message,) = queue.consumer().receive(1)
    settle: dict[str, Callable[[], None]] = {
        "acknowledge": message.ack,
        "release": message.release,
        "forward": partial(message.dead_letter, "bad"),
    }
    bench.fail(verb, kind, *[FaultKind.UNAVAILABLE] * 500)
    with pytest.raises(shardq.OutcomeUnknown):
        settle[verb]()


@pytest.mark.parametrize("verb", ["forward", "dead_letter", "release"])
def test_a_move_that_was_not_answered_does_not_stand_for_that_of_other_messages(
    bench: Bench, clock: ManualClock, verb: str
) -> None:
    queue = bench.sound.create_queue("q", shards=1, time_shards=1, max_deliveries=1)
    bench.sound.create_queue("target")
    queue.producer().send_many([b"1", b"2", b"3"])
    batch = shardq.Client(bench.store, retry_seconds=0).queue("q").consumer().receive(3)

    arguments = {"forward": ("target",), "dead_letter": ("why",), "release": ()}[verb]
    bench.fail("forward", FaultKind.LOST_RESPONSE)
    with pytest.raises(shardq.OutcomeUnknown):
        getattr(batch[1], verb)(*arguments)
    getattr(batch, verb)(*arguments)
    clock.advance(31)
    assert bench.received("target" if verb == "forward" else "q.dead") == Counter([b"1", b"2", b"3"])
    assert bench.received("q") == Counter()


@pytest.mark.parametrize("verb", ["forward", "dead_letter"])
def test_a_move_that_was_not_made_is_lost_when_somebody_else_holds_the_message(
    bench: Bench, clock: ManualClock, verb: str
) -> None:
    # Given a move that did not come to the store, and a lease that is over
    queue = bench.sound.create_queue("q", shards=1, time_shards=1, visibility_timeout=30)
    bench.sound.create_queue("target")
    queue.producer().send(b"x")
    (message,) = shardq.Client(bench.store, retry_seconds=0).queue("q").consumer().receive()
    arguments = {"forward": ("target",), "dead_letter": ("why",)}[verb]
    bench.fail("forward", FaultKind.LOST_REQUEST)
    with pytest.raises(shardq.OutcomeUnknown):
        getattr(message, verb)(*arguments)
    clock.advance(31)
    (other,) = queue.consumer().receive()
    # When it is repeated
    with pytest.raises(shardq.LeaseLost):
        getattr(message, verb)(*arguments)
    # Then the message is the other consumer's alone
    other.ack()
    assert bench.received("target") + bench.received("q.dead") == Counter()


def test_few_requests_tell_whether_an_unanswered_move_has_moved_many_messages(bench: Bench) -> None:
    queue = bench.faulty.create_queue("q", shards=1, time_shards=1)
    queue.producer(bundle_messages=1).send_many([b"x"] * 300)
    batch = queue.consumer().receive(300)
    bench.fail("forward", FaultKind.LOST_RESPONSE)
    before = len(bench.store.calls)
    batch.dead_letter("why")
    assert len(bench.store.calls) - before < 20
    assert bench.received("q.dead") == Counter({b"x": 300})


def test_a_batch_that_could_not_be_acked_can_be_acked_later(bench: Bench) -> None:
    client = shardq.Client(bench.store, retry_seconds=0.0)
    queue = client.create_queue("q")
    with queue.producer(bundle_messages=1) as producer:
        producer.send_many([b"1", b"2", b"3"])
    batch = queue.consumer().receive(3)
    bench.store.plan = FaultPlan(faults=(Fault("acknowledge", 1, FaultKind.LOST_RESPONSE),))
    with pytest.raises(shardq.OutcomeUnknown):
        batch.ack()
    batch.ack()
    assert queue.peek() == []


@pytest.mark.parametrize("method", ["load_queue", "shards", "probe", "register_consumer", "count", "wait"])
@pytest.mark.parametrize("kind", ALL)
def test_reading_carries_on_after_a_passing_fault(bench: Bench, method: str, kind: FaultKind) -> None:
    queue = bench.faulty.create_queue("q")
    with queue.producer() as producer:
        producer.send(b"x")
    bench.fail(method, kind)
    assert len(bench.faulty.queue("q").consumer().receive(1)) == 1
    assert queue.counts().in_flight == 1


@pytest.mark.parametrize("seed", range(6))
def test_under_random_faults_every_message_is_worked_and_none_is_lost(
    bench: Bench, seed: int, clock: ManualClock
) -> None:
    queue = bench.faulty.create_queue("q", shards=3, time_shard_seconds=1.0, max_deliveries=None)
    methods = ("append", "claim", "acknowledge", "release", "extend", "probe", "shards")
    bench.store.plan = FaultPlan(probability=0.15, seed=seed, methods=frozenset(methods))
    sent: set[bytes] = set()
    seen: Counter[bytes] = Counter()
    with queue.producer(bundle_messages=7) as producer, queue.consumer() as consumer:
        for step in range(12):
            chunk = [b"%d-%d" % (step, number) for number in range(15)]
            assert len(producer.send_many(chunk)) == 15
            sent.update(chunk)
            batch = consumer.receive(10)
            if step % 4 == 0:
                batch.release()
            else:
                seen.update(message.body for message in batch)
                batch.ack()
            clock.advance(0.4)
    seen += bench.received("q")
    assert set(seen) == sent
    assert max(seen.values()) == 1


def test_what_some_shards_gave_is_delivered_although_another_cannot_be_read(bench: Bench) -> None:
    client = shardq.Client(bench.store, retry_seconds=0.0)
    queue = client.create_queue("q", shards=2, time_shards=1)
    with queue.producer(bundle_messages=2) as producer:
        producer.send_many([b"1", b"2", b"3", b"4"])
    bench.fail("claim")
    bench.store.plan = FaultPlan(faults=(Fault("claim", 2, FaultKind.UNAVAILABLE),))
    assert len(queue.consumer().receive(4)) == 2


def test_a_sender_that_is_interrupted_while_it_waits_for_company_does_not_block_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = bench.faulty.create_queue("q").producer(linger=0.01)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shardq.core.context.group_commit.ThreadWait.wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send(b"1")
    producer.send(b"2")
    assert bench.received("q") == Counter([b"2"])


def test_a_prefetching_consumer_carries_on_after_the_store_was_away(bench: Bench) -> None:
    client = shardq.Client(bench.store, retry_seconds=0.0)
    queue = client.create_queue("q")
    bench.store.plan = FaultPlan(faults=(Fault("claim", 1, FaultKind.UNAVAILABLE),))
    with queue.producer() as producer:
        producer.send(b"x")
    with queue.consumer(prefetch=10) as consumer:
        assert len(consumer.receive(1, wait=20)) == 1


class FullDisk(WrappedStore):
    """Claims fail while it is full, and repeating them is said not to help."""

    full = True

    def claim(self, request: Claim) -> Claimed:
        if self.full:
            raise shardq.StoreUnavailable("the disk is full", retryable=False)
        return super().claim(request)


@pytest.mark.parametrize("wait", [0.5, 0])
def test_a_prefetching_consumer_carries_on_after_what_repeating_could_not_help(
    url: str, clock: ManualClock, wait: float
) -> None:
    store = FullDisk(open_store(url, clock))
    client = shardq.Client(store, retry_seconds=0.0)
    queue = client.create_queue("q", shards=1, time_shards=1)
    with queue.producer() as producer:
        producer.send(b"x")
    with client, queue.consumer(prefetch=10) as consumer:
        with pytest.raises(shardq.StoreUnavailable):
            consumer.receive(1, wait=20)
        time.sleep(0.2)  # for the next attempt ahead, which fails too
        store.full = False
        received: list[bytes] = []
        for _ in range(200):
            with suppress(shardq.StoreUnavailable):
                received += [message.body for message in consumer.receive(1, wait=wait)]
            if received:
                break
            time.sleep(0.05)
        assert wait or list(consumer.receive(1, wait=0)) == []  # and nothing is told of what is over
    assert received == [b"x"]


def test_a_prefetching_consumer_tells_that_its_queue_was_deleted(bench: Bench) -> None:
    queue = bench.faulty.create_queue("q")
    with queue.consumer(prefetch=10) as consumer:
        bench.sound.delete_queue("q")
        with pytest.raises(shardq.QueueNotFound):
            consumer.receive(1, wait=20)


def test_a_damaged_bundle_stops_nobody(bench: Bench, clock: ManualClock, tmp_path: Path) -> None:
    queue = bench.sound.create_queue("q", max_deliveries=1)
    with queue.producer() as producer:
        producer.send(b"x")
        producer.send_many([b"1", b"2"])
    with sqlite3.connect(tmp_path / "queue.db") as database:
        database.execute("UPDATE slice SET data = x'c1' WHERE count = 1")
    database.close()
    seen = []
    for message in queue.consumer().receive(3):
        try:
            seen.append(message.body)
        except shardq.InvalidMessage:
            continue
        message.ack()
    assert sorted(seen) == [b"1", b"2"]
    clock.advance(31)
    assert len(queue.consumer().receive(3)) == 0


def test_a_damaged_dead_letter_keeps_no_other_from_being_redriven(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = bench.sound.create_queue("q", shards=1, time_shards=1)
    queue.producer(bundle_messages=1).send_many([b"1", b"2", b"3"])
    queue.consumer().receive(3).dead_letter("bad")
    damaged = bench.sound.queue("q.dead").peek()[1].id
    with closing(sqlite3.connect(tmp_path / "queue.db")) as database, database:
        database.execute(
            "UPDATE slice SET data = x'c1' WHERE bundle_id = ?", [bytes.fromhex(damaged.split(":")[3])]
        )
    assert queue.redrive() == 2
    assert damaged in caplog.text
    assert bench.received("q") == Counter([b"1", b"3"])
    assert bench.sound.queue("q.dead").counts().ready == 1
    assert queue.redrive() == 0


def test_a_redrive_goes_on_when_a_dead_letter_is_removed_that_it_is_about_to_move(
    url: str, clock: ManualClock
) -> None:
    class Removing(WrappedStore):
        removed = False

        def forward(self, request: Forward) -> Fenced:
            first = request.acknowledge.spans[0]
            if not self.removed:
                self.removed = self.inner.remove(request.acknowledge.shard, first.bundle_id, first.first)
            return super().forward(request)

    with (
        shardq.connect(url, clock=clock) as sound,
        shardq.Client(Removing(open_store(url, clock)), retry_seconds=0) as client,
    ):
        queue = sound.create_queue("q", shards=1, time_shards=1)
        queue.producer(bundle_messages=1).send_many([b"1", b"2", b"3"])
        queue.consumer().receive(3).dead_letter("bad")
        assert client.queue("q").redrive() == 2
        assert [message.body for message in queue.peek()] == [b"2", b"3"]
        assert sound.queue("q.dead").peek() == []


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.LOST_REQUEST])
def test_a_redrive_that_fails_gives_back_what_it_claimed(
    url: str, clock: ManualClock, kind: FaultKind
) -> None:
    # Given dead letters, and a store that fails when they are moved
    store = FaultyStore(open_store(url, clock), FaultPlan(faults=(Fault("forward", 1, kind),)))
    with shardq.Client(store, retry_seconds=0.0) as client, shardq.connect(url, clock=clock) as sound:
        queue = sound.create_queue("q", shards=1, time_shards=1)
        queue.producer().send_many([b"1", b"2"])
        queue.consumer().receive(2).dead_letter("bad")
        # When they are redriven
        with pytest.raises(shardq.ShardqError, match="were not forwarded"):
            client.queue("q").redrive()
        # Then they are dead letters again at once, not only when a lease is over
        dead = sound.queue("q.dead")
        assert (dead.counts().ready, dead.counts().in_flight) == (2, 0)
        assert queue.redrive() == 2


def test_a_release_that_was_not_answered_does_not_count_as_the_exchange_of_the_body(bench: Bench) -> None:
    # Given a message that was released without an answer, and acked by somebody else
    client = shardq.Client(bench.store, retry_seconds=0.0)
    queue = client.create_queue("q", shards=1, time_shards=1)
    queue.producer().send(b"old")
    (message,) = queue.consumer().receive()
    bench.fail("release", FaultKind.LOST_RESPONSE)
    with pytest.raises(shardq.OutcomeUnknown):
        message.release()
    assert bench.received("q") == Counter([b"old"])
    # When it is released with another body
    with pytest.raises(shardq.LeaseLost):
        message.release(body=b"new")
    # Then nobody is told that there is a message with that body
    assert bench.received("q") == Counter()


def test_an_exchange_of_the_body_that_was_not_answered_counts_as_the_release(bench: Bench) -> None:
    client = shardq.Client(bench.store, retry_seconds=0.0)
    queue = client.create_queue("q", shards=1, time_shards=1)
    queue.producer().send(b"old")
    (message,) = queue.consumer().receive()
    bench.fail("forward", FaultKind.LOST_RESPONSE)
    with pytest.raises(shardq.OutcomeUnknown):
        message.release(body=b"new")
    message.release()
    assert bench.received("q") == Counter([b"new"])
