"""What a consumer promises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed
from shardq.storage.store import Store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore
from shardq.testing.seam import extend_leases

LEASE = 2.0  # seconds: far above what a busy machine keeps the lease keeper waiting


def send(queue: shardq.Queue, count: int, **options: object) -> list[str]:
    with queue.producer() as producer:
        return list(producer.send_many([str(number).encode() for number in range(count)], **options))  # type: ignore[arg-type]


def test_receive_takes_no_more_than_its_limit_and_exactly_what_is_there(queue: shardq.Queue) -> None:
    send(queue, 25)
    with queue.consumer() as consumer:
        assert [len(consumer.receive(10)) for _ in range(4)] == [10, 10, 5, 0]


@pytest.mark.parametrize("prefetch", [0, 10])
def test_a_read_that_does_not_wait_finds_what_is_due_though_others_get_ahead_of_its_claims(
    url: str, clock: ManualClock, prefetch: int
) -> None:
    class Contended(WrappedStore):
        ahead = 4

        def claim(self, request: Claim) -> Claimed:
            if not self.ahead:
                return super().claim(request)
            self.ahead -= 1
            return Claimed((), self.now() + request.lease, contended=True)

    with shardq.Client(Contended(open_store(url, clock))) as client:
        queue = client.create_queue("q", shards=1, time_shards=1)
        send(queue, 3)
        with queue.consumer(prefetch=prefetch) as consumer:
            assert [len(batch) for batch in consumer.batches(10, wait=0)] == [3]


def test_a_bulk_read_fills_up_from_several_shards(client: shardq.Client) -> None:
    queue = client.create_queue("many", shards=8, time_shards=1)
    with queue.producer(bundle_messages=5) as producer:
        producer.send_many([b"x"] * 40)
    assert len(queue.shard_states()) == 8
    assert len(queue.consumer().receive(40)) == 40


def test_the_bodies_of_a_batch_come_in_the_order_of_its_messages(client: shardq.Client) -> None:
    queue = client.create_queue("json", shards=2)
    with queue.producer(codec=shardq.JSON, bundle_messages=3) as producer:
        producer.send_many({"n": number} for number in range(10))
    batch = queue.consumer(codec=shardq.JSON).receive(10)
    assert batch.bodies == [message.body for message in batch]
    assert sorted(body["n"] for body in batch.bodies) == list(range(10))
    assert batch.part([batch[1], batch[7]]).bodies == [batch[1].body, batch[7].body]


def test_messages_that_are_held_are_hidden_from_others(connect: Callable[[], shardq.Client]) -> None:
    queue = connect().create_queue("held")
    send(queue, 3)
    assert len(queue.consumer().receive(2)) == 2
    other = connect().queue("held").consumer()
    assert len(other.receive(10)) == 1
    assert len(other.receive(10)) == 0
    assert queue.counts().in_flight == 3


def test_an_unacked_message_comes_back_after_its_visibility_timeout(
    queue: shardq.Queue, clock: ManualClock
) -> None:
    send(queue, 1)
    consumer = queue.consumer()
    (message,) = consumer.receive(1)
    clock.advance(29.9)
    assert len(consumer.receive(1)) == 0
    clock.advance(0.1)
    (again,) = consumer.receive(1)
    assert (again.id, again.deliveries) == (message.id, 2)


class SlowStore(WrappedStore):
    """Lets time pass before and after each claim."""

    def __init__(
        self, inner: Store, clock: ManualClock, *, claim: float, before: Iterable[float] = ()
    ) -> None:
        super().__init__(inner)
        self._clock, self._claim, self._before = clock, claim, iter(before)

    def claim(self, request: Claim) -> Claimed:
        self._clock.advance(next(self._before, 0.0))
        claimed = super().claim(request)
        self._clock.advance(self._claim)
        return claimed


def test_a_batch_holds_a_message_once_though_its_lease_ran_out_while_the_batch_was_claimed(
    url: str, clock: ManualClock
) -> None:
    store = SlowStore(open_store(url, clock), clock, claim=1.0, before=[1.0, 40.0])
    with shardq.Client(store) as client:
        queue = client.create_queue("slow", shards=1, time_shards=1, visibility_timeout=30)
        with queue.producer(bundle_messages=5) as producer:
            producer.send_many([b"x"] * 5, priority=0)
            producer.send_many([b"x"] * 5, ttl=0.5)  # which have expired when they are claimed
        batch = queue.consumer().receive(10)
        assert len({message.id for message in batch}) == len(batch)
        assert [message.deliveries for message in batch] == [2] * 5
        batch.ack()


def test_a_batch_is_handed_out_while_half_of_its_first_lease_is_left(url: str, clock: ManualClock) -> None:
    with shardq.Client(SlowStore(open_store(url, clock), clock, claim=5.0)) as client:
        queue = client.create_queue("slow", shards=8, time_shards=1, visibility_timeout=30)
        with queue.producer(bundle_messages=5) as producer:
            producer.send_many([b"x"] * 40)
        assert len(queue.consumer().receive(40)) == 15


def test_the_visibility_timeout_can_be_set_per_consumer(queue: shardq.Queue, clock: ManualClock) -> None:
    send(queue, 1)
    assert len(queue.consumer(visibility_timeout=1).receive(1)) == 1
    clock.advance(1)
    assert len(queue.consumer().receive(1)) == 1


def test_batches_end_when_nothing_is_left(queue: shardq.Queue) -> None:
    send(queue, 1200)
    sizes = []
    with queue.consumer() as consumer:
        for batch in consumer.batches(500, wait=0):
            sizes.append(len(batch))
            batch.ack()
    assert sum(sizes) == 1200
    assert max(sizes) <= 500


def test_waiting_ends_as_soon_as_something_is_sent(queue: shardq.Queue) -> None:
    received: list[int] = []

    def receive() -> None:
        received.append(len(queue.consumer().receive(1, wait=30)))

    thread = threading.Thread(target=receive)
    thread.start()
    time.sleep(0.2)
    send(queue, 1)
    thread.join(timeout=10)
    assert received == [1]


def test_stop_ends_waiting_and_batches(queue: shardq.Queue) -> None:
    consumer = queue.consumer()
    thread = threading.Thread(target=lambda: list(consumer.batches(10)))
    thread.start()
    consumer.stop()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_pop_acks_before_it_hands_out(queue: shardq.Queue, clock: ManualClock) -> None:
    send(queue, 2)
    consumer = queue.consumer()
    message = consumer.pop()
    assert message is not None and message.body == b"0"
    assert queue.counts().in_flight == 0
    clock.advance(1000)
    assert consumer.pop() is not None
    assert consumer.pop() is None


@pytest.mark.usefixtures("shards_by_name")  # the first one has six
def test_a_live_consumers_own_shards_come_first_and_old_work_is_stolen(
    connect: Callable[[], shardq.Client], clock: ManualClock
) -> None:
    queue = connect().create_queue("affinity", shards=16, time_shards=1)
    first, second = queue.consumer(name="first"), queue.consumer(name="second")
    first.receive(1)
    second.receive(1)
    clock.advance(11)
    with queue.producer(bundle_messages=2) as producer:
        producer.send_many([b"x"] * 160)
    assert len({message.id.split(":")[2] for message in first.receive(1)}) == 1
    own = {message.id.split(":")[2] for message in first.receive(40)}
    others = {message.id.split(":")[2] for message in second.receive(40)}
    assert not own & others
    second.close()
    clock.advance(1)
    rest = [message for batch in first.batches(50, wait=0) for message in batch]
    assert len(rest) == 160 - 81


def test_prefetch_is_bounded_and_gives_back_what_was_not_started(client: shardq.Client) -> None:
    queue = client.create_queue("ahead", max_deliveries=1)
    send(queue, 100)
    consumer = queue.consumer(prefetch=20)
    batch = consumer.receive(5, wait=10)
    assert len(batch) == 5
    assert queue.counts().in_flight <= 5 + 20
    batch.ack()
    consumer.close()
    assert (queue.counts().in_flight, queue.counts().ready) == (0, 95)
    received = [message for batch in queue.consumer().batches(100, wait=0) for message in batch]
    assert len(received) == 95
    assert {message.deliveries for message in received} == {1}


def test_a_prefetching_consumer_delivers_everything_once(queue: shardq.Queue) -> None:
    send(queue, 3000)
    seen = []
    with queue.consumer(prefetch=700) as consumer:
        for batch in consumer.batches(130, wait=0.5):
            seen += [message.body for message in batch]
            batch.ack()
    assert sorted(seen, key=int) == [str(number).encode() for number in range(3000)]
    assert queue.counts().in_flight == 0


def test_the_lease_keeper_holds_messages_for_as_long_as_they_are_worked_on(url: str) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue("kept", visibility_timeout=LEASE)
        send(queue, 2)
        with queue.consumer(keep_leases=True) as consumer:
            batch = consumer.receive(2)
            time.sleep(2 * LEASE)
            assert len(queue.consumer().receive(2)) == 0
            batch[0].ack()
            time.sleep(1.5 * LEASE)
            batch.ack()
        assert queue.counts().in_flight == 0
        assert client.counters.lease_lost == 0


def test_the_lease_keeper_follows_a_visibility_timeout_that_is_lowered(url: str) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue("kept", visibility_timeout=60)
        send(queue, 1)
        with queue.consumer(keep_leases=True) as consumer:
            earlier = consumer.receive(1)
            queue.alter(visibility_timeout=LEASE)
            send(queue, 1)
            batch = consumer.receive(1)
            assert len(queue.consumer().receive(1, wait=1.5 * LEASE)) == 0
            batch.ack()
            earlier.ack()
        assert client.counters.lease_lost == 0


def test_the_lease_keeper_leaves_an_extension_for_longer_as_it_is(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("kept", visibility_timeout=60)
    send(queue, 2)
    with queue.consumer(keep_leases=True) as consumer:
        batch = consumer.receive(2)
        batch[0].extend(600)
        clock.advance(20)
        extend_leases(consumer)
        kept, extended = queue.peek(2)
        assert (extended.due - kept.due).total_seconds() == 600 - 60 - 20
        batch.ack()


def test_the_lease_keeper_lets_go_of_what_was_forgotten(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("kept", visibility_timeout=60)
    send(queue, 2)
    with queue.consumer(keep_leases=True) as consumer:
        for batch in consumer.batches(2, wait=0):
            clock.advance(40)
            extend_leases(consumer)
            clock.advance(40)
            assert len(queue.consumer().receive(2)) == 0
            del batch
        extend_leases(consumer)
        clock.advance(21)
        assert len(queue.consumer().receive(2)) == 2


@pytest.mark.parametrize("verb", ["ack", "release"])
def test_the_lease_keeper_lets_go_of_what_could_not_be_settled_once_others_are_received(
    url: str, clock: ManualClock, verb: str
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("kept", visibility_timeout=60)
        send(queue, 3)
        with queue.consumer(keep_leases=True) as consumer:
            batch = consumer.receive(3)
            method = {"ack": "acknowledge"}.get(verb, verb)
            store.plan = FaultPlan(faults=(Fault(method, 1, FaultKind.UNAVAILABLE),))
            with pytest.raises(shardq.StoreUnavailable):
                getattr(batch.part(batch[:2]), verb)()
            clock.advance(40)
            extend_leases(consumer)  # all of it: it may be tried again
            clock.advance(40)
            assert len(queue.consumer().receive(3)) == 0
            assert len(consumer.receive(3)) == 0  # but now the caller has gone on
            extend_leases(consumer)
            clock.advance(21)
            again = queue.consumer().receive(3)
            assert [message.id for message in again] == [message.id for message in batch[:2]]
            clock.advance(20)
            batch[2].ack()


def test_a_message_older_than_the_retention_is_dropped(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("kept", retention=100)
    send(queue, 3)
    clock.advance(101)
    send(queue, 1)
    assert len(queue.consumer().receive(10)) == 1
    assert client.counters.expired == 3
    assert queue.counts().ready == 0


def test_a_closed_consumer_says_so(queue: shardq.Queue) -> None:
    consumer = queue.consumer()
    consumer.close()
    consumer.close()
    with pytest.raises(shardq.Closed, match="consumer"):
        consumer.receive(1)


@pytest.mark.parametrize(
    ("limit", "wait"), [(0, 0), (-1, 0), (True, 0), (1.5, 0), (1, -1), (1, float("nan"))]
)
def test_an_absurd_limit_or_wait_is_refused(queue: shardq.Queue, limit: int, wait: float) -> None:
    with pytest.raises(shardq.InvalidSetting):
        queue.consumer().receive(limit, wait=wait)
