"""A queue's limits hold over all of its consumers, and what is held back waits in the queue."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

import shardq
from shardq.base.shard import MAX_NAME_LENGTH
from shardq.core.limits.permits import Permits
from shardq.core.limits.shares import Grant
from shardq.storage.opening import open_store
from shardq.storage.store import Capabilities
from shardq.testing import FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import expire_caches, has_slept, store_of
from tests.processes import eventually

Connect = Callable[[], shardq.Client]
PATIENCE = 30.0  # seconds


def given(client: shardq.Client, messages: int = 100, **settings: Any) -> shardq.Queue:
    """A queue with messages."""
    queue = client.create_queue("q", **settings)
    queue.producer().send_many(b"%d" % number for number in range(messages))
    return queue


def held(client: shardq.Client) -> int:
    """How many permits of messages in flight are held."""
    return client.queue("_shardq/permits/q.in-flight").counts().in_flight


# -- messages in flight


def test_the_consumers_of_two_clients_share_what_may_be_in_flight(connect: Connect) -> None:
    queue = given(connect(), max_in_flight=10)
    one, other = queue.consumer(), connect().queue("q").consumer()
    first, second = one.receive(7), other.receive(7)
    assert (len(first), len(second), len(one.receive(7))) == (7, 3, 0)
    first.part(first[:4]).ack()
    assert len(other.receive(100)) == 4
    # What is held back was delivered to nobody
    waiting = [message for message in queue.peek(100) if message.state is shardq.EntryState.READY]
    assert len(waiting) == 86
    assert not any(message.deliveries for message in waiting)


@pytest.mark.parametrize(
    "settle",
    [
        lambda batch: batch.ack(),
        lambda batch: batch.release(),
        lambda batch: batch.release(delay=60),
        lambda batch: batch.release(count=False),
        lambda batch: batch.dead_letter("bad"),
        lambda batch: batch.forward("other"),
        lambda batch: [message.ack() for message in batch],
        lambda batch: [message.release(body=b"new", delay=60) for message in batch],
    ],
)
def test_whatever_settles_a_message_gives_its_permit_back(
    client: shardq.Client, settle: Callable[[shardq.Batch], object]
) -> None:
    client.create_queue("other")
    consumer = given(client, max_in_flight=20).consumer()
    batch = consumer.receive(20)
    assert len(batch) == 20
    settle(batch)
    assert held(client) == 0
    assert len(consumer.receive(30)) == 20


def test_two_threads_that_settle_one_message_give_its_permit_back_once(
    client: shardq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two messages in flight, and two threads that note the end of the first one at the same moment
    batch = given(client, messages=2, max_in_flight=2).consumer().receive(2)
    both, settled = threading.Barrier(2), Grant.settled

    def settled_by_both(grant: Grant, messages: int) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.2)
        settled(grant, messages)

    monkeypatch.setattr(Grant, "settled", settled_by_both)
    threads = [threading.Thread(target=batch[0].ack) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Then the other one keeps its permit
    assert held(client) == 1


def test_permits_that_were_not_needed_are_given_back_at_once(client: shardq.Client) -> None:
    consumer = given(client, messages=3, max_in_flight=20).consumer()
    batch = consumer.receive(20)
    assert held(client) == 3
    batch.ack()
    assert not consumer.receive(5)
    assert held(client) == 0


def test_permits_of_a_dead_consumer_come_back_after_its_messages(
    connect: Connect, clock: ManualClock
) -> None:
    queue = given(connect(), max_in_flight=10, visibility_timeout=20)
    assert len(queue.consumer().receive(10)) == 10
    other = connect().queue("q").consumer()
    clock.advance(20)
    assert not other.receive(10)
    clock.advance(11)  # half of a lease more, and a second
    assert len(other.receive(20)) == 10


def test_a_message_whose_lease_is_extended_keeps_its_permit(connect: Connect, clock: ManualClock) -> None:
    queue = given(connect(), max_in_flight=10, visibility_timeout=20)
    batch = queue.consumer().receive(10)
    other = connect().queue("q").consumer()
    for _ in range(5):
        clock.advance(15)
        batch.extend(20)
        assert not other.receive(1)
    batch[0].extend(500)
    clock.advance(400)
    assert not other.receive(1)
    batch.ack()
    assert len(other.receive(100)) == 10


def test_kept_leases_keep_their_permits(connect: Connect, clock: ManualClock) -> None:
    queue = given(connect(), max_in_flight=5, visibility_timeout=0.3)
    other = connect().queue("q").consumer()
    with queue.consumer(keep_leases=True) as consumer:
        batch = consumer.receive(5)
        for _ in range(10):
            until = batch[0].lease_until
            clock.advance(0.2)
            assert eventually(lambda until=until: batch[0].lease_until > until)  # type: ignore[misc]
            assert not other.receive(1)
        batch.ack()


def test_a_message_whose_permit_is_lost_is_lost(connect: Connect, clock: ManualClock) -> None:
    # Given a consumer that stands still for longer than the lease of its permits
    queue = given(connect(), max_in_flight=5, visibility_timeout=20)
    batch = queue.consumer().receive(5)
    clock.advance(60)
    others = connect().queue("q").consumer().receive(5)
    assert len(others) == 5
    # Then it cannot go on with them, though nobody else may have the same messages
    with pytest.raises(shardq.LeaseLost) as raised:
        batch.extend(20)
    assert len(raised.value.messages) == 5
    others.ack()


def test_a_large_number_is_kept_in_units(connect: Connect) -> None:
    queue = given(connect(), messages=6_000, max_in_flight=2_500)
    one, other = queue.consumer(), connect().queue("q").consumer()
    first, second = one.receive(1_000), other.receive(5_000)
    assert len(first) == 1_000
    assert 2_497 <= len(first) + len(second) <= 2_500
    assert not one.receive(1)
    first.ack()
    assert 2_497 <= len(second) + len(other.receive(5_000)) <= 2_500


def test_a_limit_can_be_changed_while_the_queue_is_used(connect: Connect, clock: ManualClock) -> None:
    queue = given(connect(), max_in_flight=10)
    consumer = queue.consumer()
    batch = consumer.receive(10)
    queue.alter(max_in_flight=4)
    batch.ack()
    batch = consumer.receive(10)
    assert len(batch) == 4
    queue.alter(max_in_flight=30)
    clock.advance(6)
    assert len(consumer.receive(50)) == 26
    queue.alter(max_in_flight=None)
    assert len(consumer.receive(100)) == 60
    batch.ack()


def test_prefetched_messages_are_in_flight(client: shardq.Client) -> None:
    queue = given(client, max_in_flight=10)
    with queue.consumer(prefetch=100) as consumer:
        batch = consumer.receive(4, wait=PATIENCE)
        assert len(batch) == 4
        assert queue.counts().in_flight == 10
        batch.ack()
    assert held(client) == 0
    assert queue.counts().in_flight == 0


def test_what_was_claimed_ahead_and_lost_its_permit_is_not_passed_by_the_next_of_its_group(
    connect: Connect, clock: ManualClock
) -> None:
    # Given a message that was handed out, and behind it two of a group, whose leases and permits are over
    queue = connect().create_queue("q", max_in_flight=3, visibility_timeout=10)
    producer = queue.producer()
    producer.send(b"first", priority=0)
    producer.send_many([b"1", b"2"], group="g")
    with queue.consumer(prefetch=3) as consumer:
        assert [message.body for message in consumer.receive(1, wait=PATIENCE)] == [b"first"]
        until = time.monotonic() + PATIENCE
        while queue.counts().in_flight < 3 and time.monotonic() < until:
            time.sleep(0.005)
        clock.advance(17)
        # When another consumer takes two of the three permits
        producer.send(b"urgent", priority=0)
        with connect().queue("q").consumer() as other:
            taken = other.receive(2)
            assert sorted(message.body for message in taken) == [b"first", b"urgent"]
            # Then the second of the group does not come before the first
            assert not [message for _ in range(2) for message in consumer.receive(1) if message.body == b"2"]
            # And it is the first that comes when all leases are over
            clock.advance(30)
            bodies = [message.body for _ in range(3) for message in consumer.receive(1, wait=PATIENCE)]
            assert b"1" in bodies[: bodies.index(b"2")] if b"2" in bodies else b"1" in bodies


def test_what_was_claimed_ahead_and_lost_its_permit_is_held_back_though_no_permit_is_left_to_it(
    connect: Connect, clock: ManualClock
) -> None:
    # Given a message that was handed out, and behind it two that were claimed ahead; all leases and permits are over
    queue = connect().create_queue("q", shards=1, time_shards=1, max_in_flight=3, visibility_timeout=10)
    producer = queue.producer()
    producer.send_many([b"first", b"1", b"2"])
    with queue.consumer(prefetch=3) as consumer:
        assert [message.body for message in consumer.receive(1, wait=PATIENCE)] == [b"first"]
        until = time.monotonic() + PATIENCE
        while queue.counts().in_flight < 3 and time.monotonic() < until:
            time.sleep(0.005)
        clock.advance(17)
        # When another consumer takes all permits
        producer.send_many([b"urgent"] * 3, priority=0)
        with connect().queue("q").consumer() as other:
            assert [message.body for message in other.receive(3)] == [b"urgent"] * 3
            # Then the first does not hand out what waits in its buffer
            assert not [message.body for _ in range(3) for message in consumer.receive(1)]


class OnNetwork(FaultyStore):
    """A store that takes a claim beside an ack."""

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities, claims_beside_acks=True)


def test_batches_are_limited_also_when_the_next_is_claimed_during_an_ack(
    url: str, clock: ManualClock
) -> None:
    with shardq.Client(OnNetwork(open_store(url, clock), FaultPlan())) as client:
        queue = given(client, messages=95, max_in_flight=10)
        seen = 0
        for batch in queue.consumer().batches(10, wait=0):
            assert queue.counts().in_flight <= 10
            seen += len(batch)
            batch.ack()
        assert seen == 95
        assert held(client) == 0


def test_pop_holds_no_permit(client: shardq.Client) -> None:
    consumer = given(client, messages=3, max_in_flight=1).consumer()
    assert [consumer.pop() is not None for _ in range(4)] == [True, True, True, False]
    assert held(client) == 0


def test_who_waits_for_a_permit_is_woken_and_does_not_spin(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.connect(url, clock=clock) as sound, shardq.Client(store) as client:
        batch = given(sound, max_in_flight=5).consumer().receive(5)
        clock.advance(1)  # so that shards of the other consumer are read too
        consumer = client.queue("q").consumer()
        got: list[shardq.Batch] = []
        waiter = threading.Thread(target=lambda: got.append(consumer.receive(5, wait=PATIENCE)))
        waiter.start()
        assert eventually(lambda: has_slept(consumer))
        claims = sum(call.method == "claim" for call in store.calls)
        assert claims <= 10
        batch.ack()
        waiter.join(PATIENCE)
        assert len(got[0]) == 5


def test_a_consumer_that_waits_for_a_permit_reads_no_shards(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.connect(url, clock=clock) as sound, shardq.Client(store) as client:
        given(sound, max_in_flight=5).consumer().receive(5)
        clock.advance(1)  # so that shards of the other consumer are read too
        consumer = client.queue("q").consumer()
        assert not consumer.receive(5)
        store.calls.clear()
        for _ in range(4):
            clock.advance(1)  # after which the shards are compared again before a claim
            assert not consumer.receive(5)
        methods = {call.method for call in store.calls}
        assert "claim" in methods
        assert not methods & {"probe", "shards"}


def test_a_consumer_that_gets_a_permit_compares_the_shards_first(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = given(client, messages=1, rate_limit="1/m")
    queue.producer().send(b"later", priority=5)
    consumer = queue.consumer()
    assert consumer.receive(1)[0].body == b"0"
    assert not consumer.receive(1)
    clock.advance(60)
    queue.producer().send(b"first", priority=0)
    assert consumer.receive(1)[0].body == b"first"


# -- rates


def test_a_rate_holds_in_every_period_over_all_consumers(connect: Connect, clock: ManualClock) -> None:
    queue = given(connect(), rate_limit="10/s")
    consumers = [queue.consumer(), connect().queue("q").consumer()]
    moments: list[float] = []
    for turn in range(60):
        batch = consumers[turn % 2].receive(1 + turn % 4)
        moments += [turn * 0.1] * len(batch)
        if turn % 3:
            batch.ack()
        clock.advance(0.1)
    assert all(sum(moment - 0.999 < other <= moment for other in moments) <= 10 for moment in moments)
    assert len(moments) >= 50


def test_what_a_rate_holds_back_is_not_delivered_and_not_claimed(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = given(client, messages=10, rate_limit="3/m", max_deliveries=2)
    consumer = queue.consumer()
    consumer.receive(10).ack()
    for _ in range(10):
        assert not consumer.receive(10)
    assert queue.counts().ready == 7
    clock.advance(60)
    batch = consumer.receive(10)
    assert [message.deliveries for message in batch] == [1, 1, 1]


def test_a_rate_counts_what_is_popped(client: shardq.Client, clock: ManualClock) -> None:
    consumer = given(client, messages=5, rate_limit="2/s").consumer()
    assert [consumer.pop() is not None for _ in range(4)] == [True, True, False, False]
    clock.advance(1)
    assert consumer.pop() is not None


def test_what_is_popped_is_never_lost_to_a_limit(client: shardq.Client, clock: ManualClock) -> None:
    queue = given(client, messages=20, rate_limit="3/s", max_in_flight=5, shards=1, time_shards=1)
    consumer = queue.consumer()
    got: list[bytes] = []
    for _ in range(20):
        popped = consumer.pop_many(4).bodies
        assert len(popped) <= 3
        got += popped
        clock.advance(0.5)
    assert sorted(got, key=int) == [b"%d" % number for number in range(20)]
    assert held(client) == 0


def test_permits_of_a_rate_are_not_used_by_an_empty_queue(client: shardq.Client) -> None:
    queue = given(client, messages=0, rate_limit="5/d")
    consumer = queue.consumer()
    assert not consumer.receive(5)
    queue.producer().send_many([b"a"] * 5)
    assert len(consumer.receive(5)) == 5


def test_another_period_is_another_window(client: shardq.Client) -> None:
    queue = given(client, rate_limit="5/d")
    consumer = queue.consumer()
    assert len(consumer.receive(10)) == 5
    queue.alter(rate_limit="3/s")
    assert len(consumer.receive(10)) == 3


def test_both_limits_hold_together(connect: Connect, clock: ManualClock) -> None:
    queue = given(connect(), rate_limit="6/s", max_in_flight=4)
    one, other = queue.consumer(), connect().queue("q").consumer()
    first = one.receive(10)
    assert (len(first), len(other.receive(10))) == (4, 0)
    first.ack()
    assert len(other.receive(10)) == 2
    clock.advance(1)
    assert len(one.receive(10)) == 2


# -- a consumer of several queues


def test_a_consumer_of_several_queues_goes_on_with_those_that_have_permits(connect: Connect) -> None:
    client = connect()
    limited = given(client, messages=10, max_in_flight=2)
    other = client.create_queue("other")
    other.producer().send_many([b"x"] * 3)
    consumer = client.consumer(["q", "other"])
    got = [consumer.receive(5) for _ in range(3)]
    assert sorted((batch.queue, len(batch)) for batch in got if batch) == [("other", 3), ("q", 2)]
    assert limited.counts().in_flight == 2


def test_who_waits_for_permits_is_woken_by_messages_of_another_queue(
    connect: Connect, clock: ManualClock
) -> None:
    client = connect()
    batch = given(client, messages=10, max_in_flight=2).consumer().receive(2)
    client.create_queue("other")
    clock.advance(1)  # so that shards of the other consumer are read too
    consumer = connect().consumer(["q", "other"])
    got: list[shardq.Batch] = []
    for settle, queue in (
        (lambda: client.queue("other").producer().send(b"x"), "other"),
        (batch.ack, "q"),
    ):
        waiter = threading.Thread(target=lambda: got.append(consumer.receive(5, wait=PATIENCE)))
        waiter.start()
        settle()
        waiter.join(PATIENCE)
        assert got[-1].queue == queue


# -- the life of a queue


def test_a_queue_that_is_created_again_has_its_limits_anew(connect: Connect) -> None:
    client, other = connect(), connect()
    held = given(client, max_in_flight=5, rate_limit="5/d").consumer().receive(5)
    assert len(held) == 5
    other.delete_queue("q")
    assert other.queues() == ("q.dead",)
    queue = given(other, max_in_flight=5, rate_limit="5/d")
    assert len(queue.consumer().receive(10)) == 5


def test_a_queue_that_is_created_again_has_no_permits_of_an_interrupted_deletion(
    connect: Connect,
) -> None:
    client = connect()
    held = given(client, max_in_flight=5, rate_limit="5/d").consumer().receive(5)
    assert len(held) == 5
    assert store_of(client).drop_queue("q")  # whose process was killed, or stands still
    queue = given(connect(), max_in_flight=5, rate_limit="5/d")
    assert len(queue.consumer().receive(10)) == 5


@pytest.mark.parametrize("limit", [{"max_in_flight": 1}, {"rate_limit": "1/s"}])
def test_a_consumer_of_the_queue_before_makes_the_permits_of_the_one_that_is_created_again_at_once(
    connect: Connect, limit: dict[str, Any]
) -> None:
    other = connect()
    given(other, 1, **limit)
    with connect().queue("q").consumer() as consumer:
        consumer.receive(1).ack()
        other.delete_queue("q")
        given(other, 1, **limit)
        expire_caches(consumer)
        assert len(consumer.receive(1)) == 1


def test_a_consumer_forgets_the_permits_of_queues_that_were_created_again(connect: Connect) -> None:
    def permits() -> int:
        gc.collect()
        return sum(
            type(each) is Permits for each in gc.get_objects()
        )  # isinstance would set up lazy objects of others

    other = connect()
    given(other, 1, max_in_flight=1, rate_limit="9/s")
    with connect().queue("q").consumer() as consumer:
        consumer.receive(1).ack()
        before = permits()
        for _ in range(3):
            other.delete_queue("q")
            given(other, 1, max_in_flight=1, rate_limit="9/s")
            expire_caches(consumer)
            batch = consumer.receive(1)
            assert len(batch) == 1
            batch.ack()
        assert permits() == before


def test_deleting_a_queue_leaves_other_queues_alone(client: shardq.Client) -> None:
    for name in ("q", "q.rate", "q.in-flight", "q.other"):
        client.create_queue(name, max_deliveries=None)
    client.delete_queue("q")
    assert client.queues() == ("q.in-flight", "q.other", "q.rate")


def test_a_queue_whose_permits_are_deleted_makes_them_anew(connect: Connect, clock: ManualClock) -> None:
    client = connect()
    consumer = given(client, max_in_flight=5).consumer()
    consumer.receive(5).ack()
    connect().delete_queue("_shardq/permits/q.in-flight")
    clock.advance(10)
    assert len(consumer.receive(10)) == 5


def test_dead_letters_are_moved_back_whatever_their_queue_limits(client: shardq.Client) -> None:
    queue = given(client, messages=5)
    queue.consumer().receive(5).dead_letter("bad")
    client.queue("q.dead").alter(max_in_flight=1)
    assert queue.redrive() == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_in_flight": 0},
        {"max_in_flight": 1_000_001},
        {"max_in_flight": 2.5},
        {"max_in_flight": "5"},
        {"rate_limit": "5"},
        {"rate_limit": 5},
        {"rate_limit": "0/s"},
    ],
)
def test_wrong_limits_are_refused(client: shardq.Client, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(shardq.InvalidSetting, match=f"{name}="):
        client.create_queue("q", **wrong)
    queue = client.create_queue("q")
    with pytest.raises(shardq.InvalidSetting, match=f"{name}="):
        queue.alter(**wrong)


def test_a_name_that_leaves_no_room_for_the_permits_is_refused(client: shardq.Client) -> None:
    long = "x" * (MAX_NAME_LENGTH - 10)
    with pytest.raises(
        shardq.InvalidName, match=r"max_in_flight=5: .* at most 174, or set max_in_flight=None"
    ):
        client.create_queue(long, max_in_flight=5, max_deliveries=None)
    queue = client.create_queue(long, max_deliveries=None)
    with pytest.raises(shardq.InvalidName, match=r"rate_limit='5/s': .* at most 179"):
        queue.alter(rate_limit="5/s")
    assert client.queues() == (long,)
    longest = client.create_queue("y" * 174, max_in_flight=5, rate_limit="5/s")
    longest.producer().send(b"x")
    assert longest.consumer().receive(1)


# -- what it costs


def test_a_queue_without_limits_asks_for_no_permits(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store) as client:
        given(client).consumer().receive(100).ack()
        assert not [call for call in store.calls if "permits" in str(call.arguments)]


def test_a_batch_costs_two_requests_more_for_each_limit(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store) as client:
        consumer = given(client, max_in_flight=50, rate_limit="50/s").consumer()
        consumer.receive(10).ack()  # creates the permits
        store.calls.clear()
        consumer.receive(10).ack()
        asked = [call.method for call in store.calls if "permits" in str(call.arguments)]
        assert asked == ["claim", "claim", "extend", "release"]
