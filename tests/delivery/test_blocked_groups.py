"""With ``on_dead_letter="block"`` a message that is given up stays in its place, and its group waits for a person."""

from __future__ import annotations

import io
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

import shardq
from shardq.base.clock import SystemClock, from_datetime, microseconds
from shardq.base.codec import BYTES
from shardq.base.receipt import MessageId
from shardq.base.shard import group_shard
from shardq.core.receiving.named_claim_log import ClaimName
from shardq.core.receiving.named_claims import NamedClaims
from shardq.core.settings import OnDeadLetter
from shardq.core.settling.engine import SettleEngine
from shardq.core.settling.receipts import dead_letter_receipts
from shardq.storage.abilities import Settle
from shardq.storage.bundles import made_at
from shardq.storage.opening import open_store
from shardq.storage.requests import Acknowledge, Extend, Fenced, Forward, Release
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import context_of
from tests.any_store import any_url, connect_any, name

__all__ = ["any_url", "connect_any", "name"]

Connect = Callable[[], shardq.Client]
FAR = 10 * 365 * 86_400.0


@pytest.fixture
def blocking(client: shardq.Client) -> shardq.Queue:
    """A queue whose groups wait for their dead letters, with two groups."""
    queue = client.create_queue(
        "orders", shards=1, max_deliveries=2, on_dead_letter="block", retry_delay=0, history_retention=60
    )
    fill(queue)
    return queue


class Overtaken(WrappedStore):
    """Has something done before the next messages are settled."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.first: Callable[[], object] | None = None

    def _overtake(self) -> None:
        act, self.first = self.first, None
        if act is not None:
            act()

    def acknowledge(self, request: Acknowledge) -> Fenced:
        self._overtake()
        return super().acknowledge(request)

    def release(self, request: Release) -> Fenced:
        self._overtake()
        return super().release(request)

    def extend(self, request: Extend) -> Fenced:
        self._overtake()
        return super().extend(request)

    def forward(self, request: Forward) -> Fenced:
        self._overtake()
        return super().forward(request)

    def settle(self, requests: Sequence[Settle]) -> tuple[Fenced, ...]:
        self._overtake()
        return super().settle(requests)


def fill(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        for body in (b"a1", b"a2", b"a3"):
            producer.send(body, group="a")
        producer.send(b"b1", group="b")


def drained(queue: shardq.Queue) -> list[bytes]:
    """What can be received, acked."""
    with queue.consumer() as consumer:
        return drained_by(consumer)


def drained_by(consumer: shardq.Consumer) -> list[bytes]:
    """What a consumer receives, acked."""
    found = []
    while batch := consumer.receive(1):
        found += batch.bodies
        batch.ack()
    return found


def give_up(message: shardq.Message, elsewhere: shardq.Queue | None) -> None:
    """Dead-letter a message, or let another client do it by the receipt."""
    if elsewhere is None:
        message.dead_letter("no such account")
    else:
        dead_letter_receipts(context_of(elsewhere), [message.receipt], "no such account")


def give_up_first(queue: shardq.Queue, reason: str = "no such account") -> None:
    """Dead-letter the first message of group a."""
    with queue.consumer() as consumer:
        batch = consumer.receive(10)
        (first,) = [message for message in batch if message.body == b"a1"]
        first.dead_letter(reason)
        batch.part([message for message in batch if message is not first and not message.settled]).release(
            count=False
        )


def blocked(queue: shardq.Queue) -> list[tuple[bytes, str | None]]:
    return [(message.body, message.blocked) for message in queue.peek(100, blocked=True)]


# -- on every store


def test_a_group_waits_for_a_message_that_was_given_up_and_goes_on_when_that_is_redriven(
    connect_any: Connect, name: str
) -> None:
    queue = connect_any().create_queue(name, shards=1, max_deliveries=2, on_dead_letter="block")
    fill(queue)
    give_up_first(queue)
    elsewhere = connect_any().queue(name)
    assert drained(elsewhere) == [b"b1"]
    assert blocked(elsewhere) == [(b"a1", "no such account")]
    assert elsewhere.counts().in_flight == 1
    assert elsewhere.redrive() == 1
    assert blocked(elsewhere) == []
    with queue.consumer() as consumer:
        batch = consumer.receive(10, wait=5)
        assert (batch[0].body, batch[0].deliveries) == (b"a1", 1)
        batch.ack()
    assert sorted(batch.bodies + drained(queue)) == [b"a1", b"a2", b"a3"]


def test_a_group_goes_on_without_a_blocking_message_that_is_removed(connect_any: Connect, name: str) -> None:
    queue = connect_any().create_queue(name, shards=1, max_deliveries=2, on_dead_letter="block")
    fill(queue)
    give_up_first(queue)
    (found,) = connect_any().queue(name).peek(blocked=True)
    assert queue.remove(found.id)
    assert sorted(drained(queue)) == [b"a2", b"a3", b"b1"]
    assert queue.redrive() == 0


def test_two_that_redrive_at_once_deliver_a_blocked_message_once(connect_any: Connect, name: str) -> None:
    queue = connect_any().create_queue(name, shards=1, max_deliveries=2, on_dead_letter="block")
    fill(queue)
    give_up_first(queue)
    moved: list[int] = []
    queues = [connect_any().queue(name) for _ in range(3)]
    threads = [threading.Thread(target=lambda queue=queue: moved.append(queue.redrive())) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(moved) >= 1
    assert sorted(drained(queue)) == [b"a1", b"a2", b"a3", b"b1"]


@pytest.mark.parametrize("removed", [{b"a1"}, {b"a2"}, {b"a2", b"a4"}, {b"a1", b"a3"}])
def test_a_redrive_keeps_the_order_of_what_is_left_when_some_of_it_is_removed_meanwhile(
    connect_any: Connect, any_url: str, name: str, removed: set[bytes]
) -> None:
    queue = connect_any().create_queue(name, shards=1, on_dead_letter="block")
    with queue.producer() as producer:
        producer.send_many([b"a1", b"a2", b"a3", b"a4"], group="a")
        producer.send_many([b"a5", b"a6"], group="a")
    with queue.consumer() as consumer:
        consumer.receive(10).dead_letter("no")
    store = Overtaken(open_store(any_url, SystemClock()))
    with shardq.Client(store) as client:
        ids = [message.id for message in queue.peek(10) if message.body in removed]
        store.first = lambda: [queue.remove(each) for each in ids]
        assert client.queue(name).redrive() == 6 - len(removed)
    assert drained(queue) == sorted({b"a1", b"a2", b"a3", b"a4", b"a5", b"a6"} - removed)


def test_whoever_gave_up_a_message_that_blocks_its_group_holds_it_no_more(
    connect_any: Connect, name: str
) -> None:
    queue = connect_any().create_queue(name, shards=1, on_dead_letter="block")
    fill(queue)
    with queue.consumer() as consumer:
        batch = consumer.receive(10)
        (first,) = [message for message in batch if message.body == b"a1"]
        alone = [message.receipt for message in batch if message.group == "b"]
        first.dead_letter("no such account")
        elsewhere = connect_any().queue(name)
        for settle in (elsewhere.ack, elsewhere.release, lambda receipts: elsewhere.extend(receipts, 0)):
            with pytest.raises(shardq.LeaseLost) as lost:
                settle([first.receipt, *alone])
            assert list(lost.value.messages) == [first.receipt]
            alone = []
    assert blocked(queue) == [(b"a1", "no such account")]


@pytest.mark.parametrize("by_receipt", [False, True])
def test_what_was_received_behind_a_message_that_blocks_is_held_no_more(
    connect_any: Connect, name: str, by_receipt: bool
) -> None:
    queue = connect_any().create_queue(name, shards=1, max_deliveries=2, on_dead_letter="block")
    fill(queue)
    with queue.consumer() as consumer:
        received = {message.body: message for message in consumer.receive(10)}
        give_up(received[b"a1"], connect_any().queue(name) if by_receipt else None)
        with pytest.raises(shardq.LeaseLost):
            received[b"a2"].ack()
        received[b"b1"].ack()
        assert queue.redrive() == 1
        again = {message.body: message.deliveries for message in consumer.receive(10, wait=5)}
        assert again == {b"a1": 1, b"a2": 1, b"a3": 1}


@pytest.mark.parametrize("by_receipt", [False, True])
def test_what_was_claimed_ahead_behind_a_message_that_blocks_is_not_handed_out(
    connect_any: Connect, name: str, by_receipt: bool
) -> None:
    queue = connect_any().create_queue(name, shards=1, max_deliveries=2, on_dead_letter="block")
    fill(queue)
    with queue.consumer(prefetch=10) as consumer:
        (first,) = consumer.receive(1, wait=5)
        assert first.body == b"a1"
        give_up(first, connect_any().queue(name) if by_receipt else None)
        assert drained_by(consumer) == [b"b1"]
        assert queue.redrive() == 1
        assert sorted(drained_by(consumer)) == [b"a1", b"a2", b"a3"]


@pytest.mark.parametrize("given_up", [{b"a1"}, {b"a2"}, {b"a1", b"a2"}])
def test_what_blocks_is_neither_acked_nor_delivered_again_by_its_named_claim(
    connect_any: Connect, name: str, given_up: set[bytes]
) -> None:
    queue = connect_any().create_queue(name, shards=1, on_dead_letter="block")
    fill(queue)
    claim = ClaimName(group_shard(name, "a"), "a batch")

    def claims() -> NamedClaims:
        return NamedClaims(
            context_of(connect_any().queue(name)), lease=microseconds(30), memory=microseconds(600)
        )

    def take() -> dict[bytes, shardq.Message]:
        held = claims().take(claim, 10, owner="test", strict=False).held
        settlement = SettleEngine(context_of(queue), BYTES)
        messages = [message for piece in held for message in settlement.messages(piece.select())]
        return {message.body: message for message in messages if message.group == "a"}

    first = take()
    assert list(first) == [b"a1", b"a2", b"a3"]
    dead_letter_receipts(context_of(queue), [first[body].receipt for body in given_up], "no")
    before = {body for body in first if body < min(given_up)}
    assert take().keys() == before
    claims().ack([claim])
    assert {body for body, _ in blocked(queue)} == given_up
    assert drained(queue) == ([] if claim.shard == group_shard(name, "b") else [b"b1"])
    assert queue.redrive() == len(given_up)
    assert drained(queue) == sorted(first.keys() - before)


def test_what_is_dropped_from_a_full_queue_may_wait_for_a_message_that_blocks(
    connect_any: Connect, name: str
) -> None:
    queue = connect_any().create_queue(
        name, shards=1, on_dead_letter="block", max_messages=100, overflow="drop_oldest"
    )
    fill(queue)
    give_up_first(queue)
    drop_oldest = context_of(queue).drop_oldest
    assert drop_oldest(context_of(queue), 1) == 1
    assert [message.body for message in queue.peek() if message.group == "a"] == [b"a1", b"a3"]


def test_a_blocking_message_that_is_redriven_has_come_at_that_moment(connect_any: Connect, name: str) -> None:
    client = connect_any()
    queue = client.create_queue(name, shards=1, on_dead_letter="block")
    fill(queue)
    give_up_first(queue)
    since = from_datetime(client.now())
    assert queue.redrive() == 1
    (message,) = [message for message in queue.peek(10) if message.body == b"a1"]
    assert made_at(MessageId.parse(message.id).bundle_id) >= since


def test_whoever_redrives_second_leaves_its_unique_key_to_a_blocking_message(
    connect_any: Connect, any_url: str, name: str
) -> None:
    queue = connect_any().create_queue(name, shards=1, on_dead_letter="block")
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send(b"a1", group="a", unique_key="k")
        consumer.receive(1).dead_letter("no")
    store = Overtaken(open_store(any_url, SystemClock()))
    with shardq.Client(store) as client:
        store.first = queue.redrive
        assert client.queue(name).redrive() <= 1
    assert drained(queue) == [b"a1"]


def test_large_messages_that_block_their_group_are_redriven_however_many_they_are(
    connect_any: Connect, name: str
) -> None:
    largest = 4 << 20
    queue = connect_any().create_queue(name, shards=1, on_dead_letter="block", max_message_bytes=largest)
    with queue.producer() as producer:
        for body in (b"1", b"2", b"3", b"4", b"5"):
            producer.send(body * largest, group="a")
    with queue.consumer() as consumer:
        consumer.receive(5).dead_letter("no")
    assert queue.redrive() == 5
    assert [body[:1] for body in drained(queue)] == [b"1", b"2", b"3", b"4", b"5"]


# -- on SQLite, in time that is moved


@pytest.mark.parametrize("by_receipt", [True, False])
@pytest.mark.parametrize("late", ["ack", "release", "extend"])
def test_what_comes_just_after_a_block_does_not_end_it(
    blocking: shardq.Queue, url: str, clock: ManualClock, late: str, *, by_receipt: bool
) -> None:
    store = Overtaken(open_store(url, clock))
    with shardq.Client(store) as client, blocking.consumer() as consumer:
        queue = client.queue("orders")
        held = queue.consumer().receive(1)
        (message,) = held if held[0].body == b"a1" else queue.consumer().receive(1)
        store.first = lambda: dead_letter_receipts(context_of(blocking), [message.receipt], "no")
        seconds = [60] if late == "extend" else []
        with pytest.raises(shardq.LeaseLost):
            if by_receipt:
                getattr(queue, late)([message.receipt], *seconds)
            else:
                getattr(message, late)(*seconds)
        clock.advance(61)
        assert [message.group for message in consumer.receive(10)] in (["b"], [])
        assert [body for body, _ in blocked(blocking)] == [b"a1"]


def test_a_message_may_be_given_up_again_by_its_receipt(blocking: shardq.Queue, connect: Connect) -> None:
    (message,) = blocking.consumer().receive(1)
    for reason in ("no such account", "still none"):
        dead_letter_receipts(context_of(connect().queue("orders")), [message.receipt], reason)
    assert blocked(blocking) == [(message.body, "no such account")]


def test_what_blocks_is_lost_to_its_holder_after_a_change_of_the_settings_too(blocking: shardq.Queue) -> None:
    (message,) = blocking.consumer().receive(1)
    dead_letter_receipts(context_of(blocking), [message.receipt], "no")
    blocking.alter(on_dead_letter="skip")
    with pytest.raises(shardq.LeaseLost):
        blocking.ack([message.receipt])
    assert len(blocked(blocking)) == 1


def test_what_an_earlier_release_blocked_until_about_the_year_9000_blocks_still(
    blocking: shardq.Queue, url: str
) -> None:
    (message,) = blocking.consumer().receive(1)
    dead_letter_receipts(context_of(blocking), [message.receipt], "no")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute("UPDATE slice SET due = due - 3600000000 WHERE token IS NOT NULL")
    with pytest.raises(shardq.LeaseLost):
        blocking.ack([message.receipt])
    assert len(blocked(blocking)) == 1
    assert blocking.redrive() == 1


@pytest.mark.parametrize("on_dead_letter", ["skip", "block"])
def test_a_lease_may_be_shortened(
    client: shardq.Client, clock: ManualClock, on_dead_letter: OnDeadLetter
) -> None:
    queue = client.create_queue("short", shards=1, on_dead_letter=on_dead_letter)
    fill(queue)
    queue.consumer().receive(10).extend(5)
    clock.advance(6)
    assert len(drained(queue)) == 4


@pytest.mark.parametrize("hooks", [None, shardq.Hooks()])
def test_a_result_comes_too_late_for_a_message_that_blocks(
    url: str, clock: ManualClock, hooks: shardq.Hooks | None
) -> None:
    with shardq.connect(url, clock=clock, hooks=hooks) as client:
        queue = client.create_queue(
            "results", shards=1, on_dead_letter="block", history_retention=60, keep_results=True
        )
        fill(queue)
        (message,) = queue.consumer().receive(1)
        message.dead_letter("no")
        for results in ({}, {message.receipt: b"done"}):
            with pytest.raises(shardq.LeaseLost):
                queue.ack([message.receipt], results=results)
        assert len(blocked(queue)) == 1


def test_the_last_delivery_that_is_released_blocks(blocking: shardq.Queue) -> None:
    with blocking.consumer() as consumer:
        for _ in range(2):
            batch = consumer.receive(10)
            batch.part([batch[0]]).release(reason="locked")
            batch.part(batch[1:]).release(count=False)
        assert blocked(blocking) == [(b"a1", "locked")]
        assert [message.group for message in consumer.receive(10)] == ["b"]


def test_a_worker_that_dies_with_the_last_delivery_blocks(blocking: shardq.Queue, clock: ManualClock) -> None:
    for _ in range(2):
        consumer = blocking.consumer()  # is never closed, as if its process had been killed
        consumer.receive(10)
        clock.advance(31)
    assert drained(blocking) == []
    assert {body for body, _ in blocked(blocking)} == {b"a1", b"b1"}
    found = []
    while blocking.redrive():  # the others had their deliveries, too
        found += drained(blocking)
    assert [body for body in found if body != b"b1"] == [b"a1", b"a2", b"a3"]


@pytest.mark.parametrize("seconds", [31.0, FAR])
def test_time_and_sweeps_and_restarts_unblock_nothing(
    blocking: shardq.Queue, connect: Connect, clock: ManualClock, seconds: float
) -> None:
    give_up_first(blocking)
    clock.advance(seconds)
    again = connect().queue("orders")
    again.sweep()
    assert drained(again) == [b"b1"]
    assert [body for body, _ in blocked(again)] == [b"a1"]


def test_a_blocking_message_does_not_count_as_somebodys(blocking: shardq.Queue) -> None:
    give_up_first(blocking)
    assert sum(state.held for state in blocking.consumers()) == 0


def test_a_blocking_message_takes_no_room_of_a_limit(client: shardq.Client) -> None:
    queue = client.create_queue("few", max_deliveries=2, on_dead_letter="block", max_in_flight=1)
    fill(queue)
    while not blocked(queue):
        with queue.consumer() as consumer:
            (message,) = consumer.receive(10)
            message.dead_letter("no") if message.group == "a" else message.ack()
    with queue.producer() as producer:
        producer.send(b"c1")
    assert b"c1" in drained(queue)


def test_messages_without_a_group_still_move_to_the_dead_letters(blocking: shardq.Queue) -> None:
    drained(blocking)
    with blocking.producer() as producer, blocking.consumer() as consumer:
        producer.send(b"alone")
        producer.send(b"d1", group="d")
        consumer.receive(10).dead_letter("no")
    assert [body for body, _ in blocked(blocking)] == [b"d1"]
    assert blocking.redrive() == 2
    assert sorted(drained(blocking)) == [b"alone", b"d1"]


def test_what_has_expired_blocks_nothing(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("short", on_dead_letter="block", dead_letter_expired=True)
    with queue.producer() as producer:
        producer.send(b"old", group="a", ttl=10)
        producer.send(b"new", group="a")
    clock.advance(11)
    assert drained(queue) == [b"new"]
    assert [message.body for message in client.queue("short.dead").peek()] == [b"old"]


@pytest.mark.parametrize("unique_key", [None, "u"])
def test_what_blocked_for_longer_than_the_retention_is_delivered_after_its_redrive(
    client: shardq.Client, clock: ManualClock, unique_key: str | None
) -> None:
    queue = client.create_queue("short", on_dead_letter="block", retention=60)
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send(b"old", group="a", unique_key=unique_key)
        consumer.receive(1).dead_letter("no")
        clock.advance(61)
        assert queue.redrive() == 1
        clock.advance(59)
        consumer.receive(1)[0].release()
        clock.advance(2)
        assert not consumer.receive(1)


def test_a_blocking_message_keeps_its_unique_key_and_has_it_after_a_redrive(blocking: shardq.Queue) -> None:
    drained(blocking)
    with blocking.producer() as producer, blocking.consumer() as consumer:
        producer.send(b"u1", group="u", unique_key="u")
        consumer.receive(1).dead_letter("no")
        with pytest.raises(shardq.UniqueKeyTaken):
            producer.send(b"u2", group="u", unique_key="u", on_conflict="raise")
        assert blocking.redrive() == 1
        with pytest.raises(shardq.UniqueKeyTaken):
            producer.send(b"u2", group="u", unique_key="u", on_conflict="raise")
        assert drained(blocking) == [b"u1"]
        producer.send(b"u2", group="u", unique_key="u", on_conflict="raise")


def test_a_large_body_is_there_after_a_redrive(client: shardq.Client) -> None:
    queue = client.create_queue("large", on_dead_letter="block", max_message_bytes=1000)
    large = b"x" * 100_000
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send_stream(io.BytesIO(large), group="a")
        consumer.receive(1).dead_letter("no")
        queue.sweep()
        assert queue.redrive() == 1
        queue.sweep()
        (message,) = consumer.receive(1)
        with message.open() as body:
            assert body.read() == large
        message.ack()


def test_a_blocked_group_is_told_in_the_trace(client: shardq.Client) -> None:
    queue = client.create_queue("told", on_dead_letter="block", events=3600)
    with queue.producer() as producer, queue.consumer() as consumer:
        identity = producer.send(b"a1", group="a")
        consumer.receive(1).dead_letter("no such account")
        queue.redrive()
        consumer.receive(1).ack()
    kinds = [event.kind for event in queue.trace(identity)]
    assert kinds == ["sent", "claimed", "blocked", "redriven", "claimed", "acked"]
    assert [event.text for event in queue.trace(identity) if event.kind == "blocked"] == ["no such account"]


@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("method", ["reserve_keys", "extend"])
def test_a_message_whose_block_failed_is_delivered_again_and_blocks_then(
    url: str, clock: ManualClock, method: str, kind: FaultKind
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("orders", shards=1, max_deliveries=1, on_dead_letter="block")
        fill(queue)
        with queue.consumer() as consumer:
            batch = consumer.receive(3)
            done = sum(call.method == method for call in store.calls)
            store.plan = FaultPlan(faults=(Fault(method, done + 1, kind),))
            with pytest.raises((shardq.StoreUnavailable, shardq.OutcomeUnknown)):
                batch[0].dead_letter("no")
            if kind is not FaultKind.LOST_RESPONSE or method != "extend":
                assert blocked(queue) == []
            batch[0].dead_letter("no")  # repeating it is right, whatever the first attempt did
        assert [body for body, _ in blocked(queue)] == [b"a1"]
        clock.advance(60)
        assert drained(queue) == [b"b1"]


@pytest.mark.parametrize("kind", FaultKind)
def test_a_redrive_that_failed_can_be_repeated(url: str, clock: ManualClock, kind: FaultKind) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("orders", shards=1, on_dead_letter="block")
        fill(queue)
        give_up_first(queue)
        done = sum(call.method == "forward" for call in store.calls)
        store.plan = FaultPlan(faults=(Fault("forward", done + 1, kind),))
        with pytest.raises((shardq.StoreUnavailable, shardq.OutcomeUnknown)):
            queue.redrive()
        queue.redrive()
        assert sorted(drained(queue)) == [b"a1", b"a2", b"a3", b"b1"]
        assert blocked(queue) == []


def test_a_redrive_that_failed_and_is_repeated_later_than_the_retention_delivers(
    url: str, clock: ManualClock
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("short", shards=1, on_dead_letter="block", retention=60)
        queue.producer().send(b"old", group="a")
        with queue.consumer() as consumer:
            consumer.receive(1).dead_letter("no")
        done = sum(call.method == "forward" for call in store.calls)
        store.plan = FaultPlan(faults=(Fault("forward", done + 1, FaultKind.UNAVAILABLE),))
        with pytest.raises(shardq.StoreUnavailable):
            queue.redrive()
        clock.advance(61)
        queue.redrive()
        assert drained(queue) == [b"old"]


def test_a_redrive_passes_over_what_is_damaged_in_the_store(
    blocking: shardq.Queue, url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    identity = next(message.id for message in blocking.peek() if message.body == b"a1")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute(
            "UPDATE slice SET data = x'c1' WHERE bundle_id = ?", [bytes.fromhex(identity.split(":")[3])]
        )
    for _ in range(2):
        blocking.consumer().receive(10)  # and its process is killed
        clock.advance(31)
    assert drained(blocking) == []
    assert blocking.redrive() == 1
    assert drained(blocking) == [b"b1"]
    assert identity in caplog.text
    assert blocking.remove(identity)
    assert drained(blocking) == []
    assert [body for body, _ in blocked(blocking)] == [b"a2"]  # it had its deliveries, too


def test_a_redrive_lets_nothing_go_that_stands_before_or_behind_what_is_damaged(
    blocking: shardq.Queue, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It would let go of the damaged one, too, which would be delivered again."""
    with blocking.consumer() as consumer:
        consumer.receive(10).dead_letter("no")
    identity = next(message.id for message in blocking.peek(blocked=True) if message.body == b"a2")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute(
            "UPDATE slice SET data = x'c1' WHERE bundle_id = ?", [bytes.fromhex(identity.split(":")[3])]
        )
    assert blocking.redrive() == 1
    assert drained(blocking) == [b"b1"]
    assert identity in caplog.text
    assert blocking.remove(identity)
    assert blocking.redrive() == 2
    assert drained(blocking) == [b"a1", b"a3"]


def test_settings_are_checked(client: shardq.Client) -> None:
    with pytest.raises(shardq.InvalidSetting, match="on_dead_letter='wait': give one of skip, block"):
        client.create_queue("other", on_dead_letter="wait")  # type: ignore[arg-type]


def test_a_limit_of_a_redrive_holds_for_blocked_messages_too(blocking: shardq.Queue) -> None:
    with blocking.consumer() as consumer:
        consumer.receive(10).dead_letter("no")
    assert blocking.redrive(1) == 1
    assert blocking.redrive() >= 1
    assert sorted(drained(blocking)) == [b"a1", b"a2", b"a3", b"b1"]
