"""What `pop` promises, where the store acks within the claim and where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.store import Store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore
from shardq.testing.broken_claims import FinishingStore

KINDS: list[type[WrappedStore]] = [WrappedStore, FinishingStore]


class Bench:
    """A client whose store fails by a plan, on a store that finishes in the claim or not."""

    def __init__(self, url: str, clock: ManualClock, kind: Callable[[Store], WrappedStore]) -> None:
        self.clock = clock
        self.store = FaultyStore(kind(open_store(url, clock)), FaultPlan())
        self.client = shardq.Client(self.store, retry_seconds=0.0)

    def asked(self, method: str) -> int:
        return sum(call.method == method for call in self.store.calls)

    def fail(self, method: str, *kinds: FaultKind) -> None:
        """Let the next calls of a method fail."""
        start = self.asked(method)
        faults = tuple(Fault(method, start + number, kind) for number, kind in enumerate(kinds, start=1))
        self.store.plan = FaultPlan(faults=faults)

    def heal(self) -> None:
        self.store.plan = FaultPlan()


@pytest.fixture(params=KINDS)
def bench(url: str, clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(url, clock, request.param)
    yield bench
    bench.client.close()


def queue_with(bench: Bench, *bodies: bytes, **settings: object) -> shardq.Queue:
    queue = bench.client.create_queue("q", shards=1, time_shards=1, **settings)  # type: ignore[arg-type]
    with queue.producer() as producer:
        for body in bodies:
            producer.send(body)
    return queue


def test_a_popped_message_is_acked_and_counted_so(bench: Bench) -> None:
    queue = queue_with(bench, b"a", b"b")
    with queue.consumer() as consumer:
        popped = [consumer.pop(), consumer.pop(), consumer.pop()]
    assert [message and (message.body, message.deliveries) for message in popped] == [
        (b"a", 1),
        (b"b", 1),
        None,
    ]
    assert queue.counts() == shardq.QueueCounts(0, 0, 0, 0, None)
    counters = bench.client.counters
    assert (counters.received, counters.acked, counters.redelivered) == (2, 2, 0)


def test_a_popped_message_is_settled_for_its_holder(bench: Bench) -> None:
    queue = queue_with(bench, b"a")
    message = queue.consumer().pop()
    assert message is not None
    message.ack()
    with pytest.raises(shardq.LeaseLost, match="acked or moved before"):
        message.release()


def test_a_pop_of_a_message_that_was_delivered_too_often_makes_it_a_dead_letter(bench: Bench) -> None:
    queue = queue_with(bench, b"a", b"b", max_deliveries=1, visibility_timeout=5)
    with queue.consumer() as consumer:
        consumer.receive(1)
        bench.clock.advance(10)
        popped = [consumer.pop(), consumer.pop()]
    assert [message and message.body for message in popped] == [b"b", None]
    (letter,) = bench.client.queue("q.dead").peek()
    assert letter.body == b"a"


def test_a_pop_drops_what_is_too_old(bench: Bench) -> None:
    queue = queue_with(bench, b"a", retention=60, history_retention=600)
    bench.clock.advance(100)
    with queue.consumer() as consumer:
        assert consumer.pop() is None
    assert bench.client.counters.expired == 1
    assert list(queue.history()) == []


def test_a_popped_message_goes_into_the_history(bench: Bench) -> None:
    queue = queue_with(bench, b"a", history_retention=600)
    assert queue.consumer().pop() is not None
    (kept,) = queue.history()
    assert (kept.body, kept.deliveries) == (b"a", 1)


def test_a_key_is_confirmed_before_its_message_is_popped(bench: Bench) -> None:
    queue = bench.client.create_queue("q", shards=1, time_shards=1)
    bench.fail("confirm_keys", FaultKind.LOST_REQUEST)
    with queue.producer() as producer:
        producer.send(b"a", dedupe_key="key")
    bench.fail("confirm_keys", *[FaultKind.UNAVAILABLE] * 50)
    consumer = queue.consumer()
    with pytest.raises(shardq.StoreUnavailable):
        consumer.pop()
    bench.heal()
    assert queue.counts().ready == 1
    message = consumer.pop()
    assert message is not None and message.body == b"a"


def test_a_hook_that_refuses_an_ack_keeps_the_message_from_being_popped(
    url: str, clock: ManualClock, bench: Bench
) -> None:
    class Refuses(shardq.Hooks):
        def before_ack(self, queue: str, messages: object) -> None:
            raise ValueError(queue)

    queue_with(bench, b"a")
    refusing = shardq.Client(FinishingStore(open_store(url, clock)), hooks=Refuses())
    with refusing.queue("q").consumer() as consumer, pytest.raises(ValueError, match="q"):
        consumer.pop()
    assert refusing.queue("q").counts().in_flight == 1
    refusing.close()


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE])
def test_what_a_pop_without_an_answer_took_is_handed_out_by_the_next(bench: Bench, kind: FaultKind) -> None:
    queue = queue_with(bench, b"a", b"b")
    consumer = queue.consumer()
    bench.fail("claim", kind, *[FaultKind.UNAVAILABLE] * 50)
    with pytest.raises(shardq.OutcomeUnknown):
        consumer.pop()
    bench.heal()
    popped = [consumer.pop(), consumer.pop(), consumer.pop()]
    assert [message and message.body for message in popped] == [b"a", b"b", None]


def test_what_a_pop_without_an_answer_took_outlives_the_refusals_that_follow(bench: Bench) -> None:
    queue = queue_with(bench, b"a", b"b")
    consumer = queue.consumer()
    bench.fail("claim", FaultKind.LOST_RESPONSE, *[FaultKind.UNAVAILABLE] * 50)
    for _ in range(3):
        with pytest.raises(shardq.OutcomeUnknown):
            consumer.pop()
    bench.heal()
    popped = [consumer.pop(), consumer.pop(), consumer.pop()]
    assert [message and message.body for message in popped] == [b"a", b"b", None]


def test_what_a_pop_without_an_answer_took_is_handed_out_by_a_receive_too(bench: Bench) -> None:
    queue = queue_with(bench, b"a", b"b")
    consumer = queue.consumer()
    bench.fail("claim", FaultKind.LOST_RESPONSE, *[FaultKind.UNAVAILABLE] * 50)
    with pytest.raises(shardq.OutcomeUnknown):
        consumer.pop()
    bench.heal()
    batch = consumer.receive(10)
    assert batch.bodies == [b"a", b"b"]
    batch.ack()
    assert queue.counts() == shardq.QueueCounts(0, 0, 0, 0, None)


def test_a_pop_that_may_have_acked_says_so_whatever_other_shards_have(bench: Bench) -> None:
    queue = bench.client.create_queue("q", shards=2, time_shards=1)
    for body in (b"a", b"b"):
        with queue.producer() as producer:  # each begins in a shard of its own turn
            producer.send(body)
    bench.fail("claim", FaultKind.LOST_RESPONSE, FaultKind.UNAVAILABLE)
    consumer = queue.consumer()
    with pytest.raises(shardq.OutcomeUnknown):
        consumer.pop()
    popped = [consumer.pop(), consumer.pop(), consumer.pop()]
    assert sorted(message.body for message in popped if message) == [b"a", b"b"]


def test_a_pop_asks_a_store_that_finishes_only_once_for_each_message(url: str, clock: ManualClock) -> None:
    bench = Bench(url, clock, FinishingStore)
    queue = queue_with(bench, b"a", b"b")
    with queue.consumer() as consumer:
        assert consumer.pop() is not None
        assert consumer.pop() is not None
    assert (bench.asked("claim"), bench.asked("acknowledge")) == (2, 0)
    bench.client.close()
