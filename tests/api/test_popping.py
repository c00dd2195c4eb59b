"""What `pop` promises, where the store acks within the claim and where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import Acknowledge, Claim, Claimed, Fenced
from shardq.storage.store import Store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore
from tests.defective_stores.claims import FinishingStore


class HoldingStore(WrappedStore):
    """A store that finishes nothing in a claim."""

    def claim(self, request: Claim) -> Claimed:
        return super().claim(replace(request, finish=None))


KINDS: list[type[WrappedStore]] = [WrappedStore, FinishingStore, HoldingStore]


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


# -- several at a time ------------------------------------------------------------------------------------------


def bodies_of(consumer: shardq.Consumer, limit: int, times: int) -> list[list[bytes]]:
    return [consumer.pop_many(limit).bodies for _ in range(times)]


def test_several_messages_are_popped_in_their_order_and_acked(bench: Bench) -> None:
    queue = queue_with(bench, b"a", b"b", b"c")
    with queue.consumer() as consumer:
        assert bodies_of(consumer, 2, 3) == [[b"a", b"b"], [b"c"], []]
    assert queue.counts() == shardq.QueueCounts(0, 0, 0, 0, None)
    counters = bench.client.counters
    assert (counters.received, counters.acked, counters.redelivered) == (3, 3, 0)


def test_a_popped_batch_is_settled_for_its_holder(bench: Bench) -> None:
    queue = queue_with(bench, b"a", b"b")
    batch = queue.consumer().pop_many(10)
    batch.ack()
    batch.release(delay=5)
    assert [message.body for message in batch] == [b"a", b"b"]
    assert queue.counts().oldest is None


@pytest.mark.parametrize(("kind", "acks"), [(HoldingStore, 1), (FinishingStore, 0)])
def test_many_cost_as_many_requests_as_one(
    url: str, clock: ManualClock, kind: type[WrappedStore], acks: int
) -> None:
    bench = Bench(url, clock, kind)
    queue = queue_with(bench, *[b"x"] * 20)
    with queue.consumer() as consumer:
        assert len(consumer.pop_many(20)) == 20
    assert (bench.asked("claim"), bench.asked("acknowledge")) == (1, acks)
    bench.client.close()


def test_a_popped_batch_is_of_one_shard_and_the_next_ones_are_of_the_others(bench: Bench) -> None:
    queue = bench.client.create_queue("q", shards=3, time_shards=1)
    for number in range(6):
        with queue.producer() as producer:  # each begins in a shard of its own turn
            producer.send(b"%d" % number)
    batches = []
    with queue.consumer() as consumer:
        while batch := consumer.pop_many(100):
            batches.append([(message.id.split(":")[2], message.body) for message in batch])
    assert all(len({shard for shard, _ in batch}) == 1 for batch in batches)
    assert sorted(body for batch in batches for _, body in batch) == [b"%d" % number for number in range(6)]


def test_what_was_delivered_too_often_or_is_too_old_is_not_popped_with_the_others(bench: Bench) -> None:
    queue = queue_with(bench, b"often", max_deliveries=1, visibility_timeout=5)
    with queue.consumer() as consumer:
        consumer.receive(1)
        bench.clock.advance(10)
        queue.producer().send(b"old", ttl=1)
        queue.producer().send(b"good")
        bench.clock.advance(2)
        assert sorted(body for batch in bodies_of(consumer, 10, 3) for body in batch) == [b"good"]
    assert [letter.body for letter in bench.client.queue("q.dead").peek()] == [b"often"]


@pytest.mark.parametrize("then", [1, 2, 10])
@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE])
def test_what_was_popped_without_an_answer_is_handed_out_by_smaller_and_larger_pops(
    bench: Bench, kind: FaultKind, then: int
) -> None:
    queue = queue_with(bench, b"a", b"b", b"c", b"d")
    consumer = queue.consumer()
    bench.fail("claim", kind, *[FaultKind.UNAVAILABLE] * 50)
    with pytest.raises(shardq.OutcomeUnknown):
        consumer.pop_many(3)
    bench.heal()
    popped = bodies_of(consumer, then, 5)
    assert [body for batch in popped for body in batch] == [b"a", b"b", b"c", b"d"]
    assert max(map(len, popped)) <= then
    assert queue.counts() == shardq.QueueCounts(0, 0, 0, 0, None)


def test_what_was_popped_without_an_answer_is_handed_out_by_receives_of_their_own_size(bench: Bench) -> None:
    queue = queue_with(bench, b"a", b"b", b"c", b"d")
    consumer = queue.consumer()
    bench.fail("claim", FaultKind.LOST_RESPONSE, *[FaultKind.UNAVAILABLE] * 50)
    with pytest.raises(shardq.OutcomeUnknown):
        consumer.pop_many(3)
    bench.heal()
    seen = []
    while batch := consumer.receive(2):
        assert len(batch) <= 2
        seen += batch.bodies
        batch.ack()
    assert seen == [b"a", b"b", b"c", b"d"]
    assert queue.counts().oldest is None


@pytest.mark.parametrize("then", [1, 2, 10])
@pytest.mark.parametrize("kind", FaultKind)
def test_what_was_acked_without_an_answer_is_handed_out_by_the_next_pop(
    url: str, clock: ManualClock, kind: FaultKind, then: int
) -> None:
    bench = Bench(url, clock, HoldingStore)
    queue = queue_with(bench, b"a", b"b", b"c")
    consumer = queue.consumer()
    bench.fail("acknowledge", kind)
    with pytest.raises((shardq.OutcomeUnknown, shardq.StoreUnavailable)):
        consumer.pop_many(2)
    popped = bodies_of(consumer, then, 4)
    assert [body for batch in popped for body in batch] == [b"a", b"b", b"c"]
    assert queue.counts().oldest is None
    bench.client.close()


@pytest.mark.parametrize("kind", FaultKind)
def test_after_the_lease_what_was_acked_without_an_answer_is_nobodys_twice(
    url: str, clock: ManualClock, kind: FaultKind
) -> None:
    bench = Bench(url, clock, HoldingStore)
    queue = queue_with(bench, b"a", b"b", visibility_timeout=5)
    consumer = queue.consumer()
    bench.fail("acknowledge", kind)
    with pytest.raises((shardq.OutcomeUnknown, shardq.StoreUnavailable)):
        consumer.pop_many(2)
    clock.advance(6)
    other = [body for batch in bodies_of(queue.consumer(), 10, 2) for body in batch]
    assert other == ([] if kind is FaultKind.LOST_RESPONSE else [b"a", b"b"])
    assert bodies_of(consumer, 10, 2) == [[], []]
    bench.client.close()


def test_those_of_a_batch_that_somebody_else_has_by_now_are_not_popped(url: str, clock: ManualClock) -> None:
    class Slow(HoldingStore):
        """Sleeps through the lease before the first ack, while somebody takes the first message."""

        slept = False

        def acknowledge(self, request: Acknowledge) -> Fenced:
            if not self.slept:
                self.slept = True
                clock.advance(6)
                assert other.receive(1).bodies == [b"a"]
            return super().acknowledge(request)

    sound = shardq.connect(url, clock=clock)
    sound.create_queue("q", shards=1, time_shards=1, visibility_timeout=5)
    other = sound.queue("q").consumer()
    sound.queue("q").producer().send_many([b"a", b"b", b"c"])
    client = shardq.Client(Slow(open_store(url, clock)))
    assert client.queue("q").consumer().pop_many(3).bodies == [b"b", b"c"]
    assert sound.queue("q").counts().in_flight == 1


def test_a_hook_that_refuses_acks_keeps_no_other_message_from_being_popped(
    url: str, clock: ManualClock
) -> None:
    class Refuses(shardq.Hooks):
        def before_ack(self, queue: str, messages: Sequence[shardq.Message]) -> None:
            if b"bad" in [message.body for message in messages]:
                raise ValueError(queue)

    with shardq.connect(url, clock=clock, hooks=Refuses()) as client:
        queue = client.create_queue("q", shards=1, time_shards=1)
        queue.producer().send_many([b"bad", b"good"])
        consumer = queue.consumer()
        with pytest.raises(ValueError, match="q"):
            consumer.pop_many(1)
        assert consumer.pop_many(1).bodies == [b"good"]


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, "5", 10**6])
def test_a_limit_that_makes_no_sense_is_refused(bench: Bench, limit: Any) -> None:
    queue = queue_with(bench, b"a")
    with pytest.raises(shardq.InvalidSetting, match="limit"):
        queue.consumer().pop_many(limit)
    assert queue.counts().ready == 1


def test_a_closed_consumer_pops_nothing_of_what_it_had(url: str, clock: ManualClock) -> None:
    bench = Bench(url, clock, HoldingStore)
    queue = queue_with(bench, b"a", b"b")
    consumer = queue.consumer()
    bench.fail("acknowledge", FaultKind.UNAVAILABLE)
    with pytest.raises(shardq.StoreUnavailable):
        consumer.pop_many(2)
    consumer.close()
    with pytest.raises(shardq.Closed):
        consumer.pop_many(2)
    bench.client.close()
