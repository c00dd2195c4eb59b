"""Groups, and what is claimed ahead, by name, or copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import shardq
from shardq.base.clock import microseconds
from shardq.base.shard import Shard, group_shard
from shardq.core.held import HeldSlice
from shardq.core.receiving.named_claim_log import ClaimName
from shardq.core.receiving.named_claims import NamedClaims
from shardq.core.receiving.prefetch_buffer import PrefetchBuffer
from shardq.spark.jobs.copies import begin_copy, copy_shard, hash_of_shard
from shardq.storage.opening import open_store
from shardq.storage.requests import Bundle, ClaimedSlice
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, ManualTimer
from shardq.testing.seam import context_of, drive_timers, fetch, fetch_by_hand

LIMITS = pytest.mark.parametrize("max_deliveries", [None, 3])


def numbers(batch: shardq.Batch) -> list[int]:
    return [int(body) for body in batch.bodies]


def end_thread(consumer: shardq.Consumer) -> None:
    """End the thread that claims ahead, when all has been claimed that there is room for."""
    fetch_by_hand(consumer)
    fetch(consumer)


def fill(queue: shardq.Queue, count: int, group: str = "a") -> None:
    with queue.producer() as producer:
        for number in range(count):
            producer.send(b"%d" % number, group=group)


@LIMITS
def test_what_was_claimed_ahead_behind_a_released_message_is_not_handed_out(
    client: shardq.Client, clock: ManualClock, max_deliveries: int | None
) -> None:
    queue = client.create_queue("q", max_deliveries=max_deliveries)
    fill(queue, 5)
    with queue.consumer(prefetch=20) as consumer:
        first = consumer.receive(1, wait=30)  # those behind it are claimed with it
        first.release(delay=10)
        assert numbers(consumer.receive(10)) == []
        clock.advance(11)
        again = consumer.receive(10)
        assert numbers(again) == list(range(len(again)))
        assert [message.deliveries for message in again] == [2, *[1] * (len(again) - 1)]


@LIMITS
def test_what_was_claimed_ahead_behind_a_message_that_another_one_took_is_not_handed_out(
    client: shardq.Client,
    connect: Callable[[], shardq.Client],
    clock: ManualClock,
    max_deliveries: int | None,
) -> None:
    queue = client.create_queue("q", max_deliveries=max_deliveries, visibility_timeout=10)
    fill(queue, 3)
    with queue.consumer(prefetch=20) as consumer, connect().queue("q").consumer() as other:
        assert numbers(consumer.receive(1, wait=30)) == [0]
        end_thread(consumer)
        clock.advance(11)
        assert numbers(other.receive(1)) == [0]
        assert numbers(consumer.receive(10)) == []


def test_a_failing_count_hands_nothing_out_before_what_it_follows(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("q")
        fill(queue, 6)
        with queue.consumer(prefetch=20) as consumer:
            store.plan = FaultPlan(faults=(Fault("extend", 1, FaultKind.UNAVAILABLE),))
            found = [number for _ in range(6) for number in numbers(consumer.receive(1, wait=30))]
            assert found == list(range(6))


TAKING_AWAY = frozenset({"acknowledge", "forward"})


@LIMITS
@pytest.mark.parametrize("limit", [1, 10])
@pytest.mark.parametrize("together", [False, True], ids=["alone", "in bulk"])
@pytest.mark.parametrize("dead_letters", [False, True], ids=["dropped", "dead-lettered"])
@pytest.mark.parametrize("kind", FaultKind)
def test_nothing_is_handed_out_behind_what_expired_while_it_waited_and_stays(
    url: str,
    clock: ManualClock,
    connect: Callable[[], shardq.Client],
    kind: FaultKind,
    dead_letters: bool,
    together: bool,
    limit: int,
    max_deliveries: int | None,
) -> None:
    """It is held until its lease is over, and then all that was claimed with it is somebody else's."""
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue(
            "q", visibility_timeout=60, max_deliveries=max_deliveries, dead_letter_expired=dead_letters
        )
        queue.producer().send(b"0", group="other")
        old = [shardq.OutgoingMessage(body=b"%d" % number, group="a", ttl=5) for number in (1, 2)]
        for part in [old] if together else [[each] for each in old]:
            queue.producer().send_many(part)
        queue.producer().send_many([shardq.OutgoingMessage(body=b"%d" % n, group="a") for n in (3, 4)])
        with queue.consumer(prefetch=5) as consumer, connect().queue("q").consumer() as other:
            assert numbers(consumer.receive(1, wait=30)) == [0]
            end_thread(consumer)
            clock.advance(6)
            store.plan = FaultPlan(probability=1.0, kinds=(kind,), methods=TAKING_AWAY)
            behind = [number for _ in range(5) for number in numbers(consumer.receive(limit))]
            store.plan = FaultPlan()
            assert behind == [] or kind is FaultKind.LOST_RESPONSE  # which has taken it away
            clock.advance(55)
            again = []
            while batch := other.receive(limit):
                again += numbers(batch)
                batch.ack()
            found = [number for number in [*behind, *again] if number]
            assert found == [3, 4][: len(found)] != []


class _Hasty(ManualTimer):
    """By which settings are old each time that they are needed."""

    def __call__(self) -> float:
        self.advance(2)
        return super().__call__()


def test_what_waited_is_handed_out_in_order_when_the_settings_can_be_read_again(
    url: str, clock: ManualClock
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("q")
        fill(queue, 5)
        with queue.consumer(prefetch=5) as consumer:
            found = numbers(consumer.receive(1, wait=30))
            end_thread(consumer)
            # When the settings cannot be read after the messages were taken from those that wait
            drive_timers(queue, timer=_Hasty())
            read = sum(call.method == "load_queue" for call in store.calls)
            store.plan = FaultPlan((Fault("load_queue", read + 2, FaultKind.UNAVAILABLE),))
            with pytest.raises(shardq.StoreUnavailable):
                consumer.receive(1)
            while batch := consumer.receive(1):
                found += numbers(batch)
            assert found == list(range(5))


def test_what_waits_again_takes_its_followers_behind_the_others() -> None:
    def piece(number: int, group: str) -> HeldSlice:
        bundle = Bundle(bytes([number]) * 16, 5, 0, 0, 1, b"", group=group)
        return HeldSlice(Shard("q", 10_000, 0), ClaimedSlice(bundle, 0, 1, 1), b"t", 10)

    buffer = PrefetchBuffer(10)
    a1, b1, a2, free = piece(1, "a"), piece(2, "b"), piece(3, "a"), piece(4, "")
    buffer.add([a1, b1, a2, free], 0)
    taken, _, _ = buffer.take(1)
    assert taken == [a1]
    buffer.put_back(taken, 1)
    assert buffer.pieces == [b1, free, a1, a2]
    assert len(buffer) == 4
    assert buffer.take_groups({"a"}) == [a1, a2]
    assert buffer.pieces == [b1, free]
    assert len(buffer) == 2


def test_a_named_claim_gets_the_same_front_of_its_groups_again(
    client: shardq.Client, connect: Callable[[], shardq.Client]
) -> None:
    queue = client.create_queue("q", visibility_timeout=30)
    fill(queue, 10)
    name = ClaimName(group_shard("q", "a"), "run")

    def claims() -> NamedClaims:
        return NamedClaims(
            context_of(connect().queue("q")), lease=microseconds(30), memory=microseconds(86_400)
        )

    for _ in range(2):
        taking = claims().take(name, 4, owner="test", strict=True)
        assert [int(body) for piece in taking.held for body in piece.messages.bodies] == [0, 1, 2, 3]
    other = ClaimName(name.shard, "other")
    assert claims().take(other, 4, owner="test", strict=True).held == []
    assert claims().ack([name]) == 0
    taking = claims().take(ClaimName(name.shard, "next"), 4, owner="test", strict=True)
    assert [int(body) for piece in taking.held for body in piece.messages.bodies] == [4, 5, 6, 7]


def test_a_copy_keeps_groups_and_their_order(client: shardq.Client, clock: ManualClock) -> None:
    source, target = client.create_queue("source"), client.create_queue("target", shards=2)
    with source.producer() as producer:
        for number in range(40):
            clock.advance(0.01)
            producer.send(b"%d" % number, group="ab"[number % 2], priority=number % 3, delay=(number % 4) * 5)
    with source.consumer() as consumer:
        consumer.receive(3).release(delay=60)
    run = begin_copy(context_of(target))
    for state in source.shard_states():
        copied = copy_shard(context_of(source), state.shard, context_of(target), run)
        assert copied == copy_shard(context_of(source), state.shard, context_of(target), run)
        assert copied == hash_of_shard(context_of(source), state.shard)
    clock.advance(100)
    with target.consumer() as consumer:
        found = consumer.receive(100)
    for group, first in (("a", 0), ("b", 1)):
        bodies = [int(message.body) for message in found if message.group == group]
        assert bodies == list(range(first, 40, 2))
