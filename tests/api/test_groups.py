"""Ordering keys: what a group promises, with everything else that a queue does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import shardq
from shardq.base.shard import GROUP_SHARDS, group_shard
from shardq.storage.opening import open_store
from shardq.storage.requests import EntryState
from shardq.storage.store import Capabilities
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore
from shardq.testing.seam import drive_timers

Connect = Callable[[], shardq.Client]


@pytest.fixture
def producer(queue: shardq.Queue) -> Iterator[shardq.Producer]:
    with queue.producer() as producer:
        yield producer


@pytest.fixture
def consumer(queue: shardq.Queue) -> Iterator[shardq.Consumer]:
    with queue.consumer() as consumer:
        yield consumer


@pytest.fixture
def other(queue: shardq.Queue, connect: Connect) -> Iterator[shardq.Consumer]:
    """A consumer of another client."""
    with connect().queue(queue.name).consumer() as consumer:
        yield consumer


def bodies(consumer: shardq.Consumer, limit: int = 1000) -> list[bytes]:
    """What can be received now, not acked."""
    return [message.body for message in consumer.receive(limit)]


def drained(consumer: shardq.Consumer) -> list[bytes]:
    """What can be received, one batch after the other, acked."""
    found = []
    while batch := consumer.receive(1000):
        found += batch.bodies
        batch.ack()
    return found


# -- sending


def test_messages_of_a_group_arrive_in_the_order_of_their_sends(
    producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    sent = [b"%d" % number for number in range(50)]
    for body in sent:
        producer.send(body, group="a")
    batch = consumer.receive(1000)
    assert batch.bodies == sent
    assert {message.group for message in batch} == {"a"}


def test_a_message_without_a_group_has_none(
    queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    stored = queue.get(producer.send(b"x"))
    assert stored is not None and stored.group is None
    assert consumer.receive(1)[0].group is None
    assert not any(state.shard.is_grouped for state in queue.shard_states())


def test_the_order_of_sends_does_not_go_by_the_clocks_of_their_producers(
    url: str, queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    behind = shardq.connect(url, clock=ManualClock(1_000_000))
    producer.send(b"first", group="a")
    with behind.queue(queue.name).producer() as late:
        late.send(b"second", group="a")
    behind.close()
    producer.send(b"third", group="a")
    assert bodies(consumer) == [b"first", b"second", b"third"]


def test_a_bulk_send_keeps_each_group_in_order_whatever_its_options(
    producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    messages = [
        shardq.OutgoingMessage(
            body=b"%d" % number,
            group="ab"[number % 2],
            priority=number % 7 % 3,
            dedupe_key=str(number) if number % 5 == 0 else None,
            headers={"n": number} if number % 3 else None,
        )
        for number in range(60)
    ]
    ids = producer.send_many(messages)
    assert len(set(ids)) == 60
    found = [int(body) for body in drained(consumer)]
    assert [number for number in found if number % 2] == list(range(1, 60, 2))
    assert [number for number in found if not number % 2] == list(range(0, 60, 2))


def test_a_bulk_send_of_one_group_is_bundled(
    queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    sent = [b"%d" % number for number in range(1200)]
    ids = producer.send_many(sent, group="a")
    assert len({identity.rpartition(":")[0] for identity in ids}) == 3
    assert [len(consumer.receive(400)), bodies(consumer)] == [400, []]
    assert queue.counts().in_flight == 400


@pytest.mark.parametrize("group", ["", "x" * 201, 7, b"a", "\ud800", True])
def test_what_is_no_group_is_refused_and_named(producer: shardq.Producer, group: Any) -> None:
    with pytest.raises(shardq.InvalidMessage, match="group="):
        producer.send(b"x", group=group)
    with pytest.raises(shardq.InvalidMessage, match="group="):
        producer.send_many([b"x"], group=group)
    with pytest.raises(shardq.InvalidMessage, match=r"bodies\[1\].*group="):
        producer.send_many([b"x", shardq.OutgoingMessage(body=b"y", group=group)])


class WithoutGroups(WrappedStore):
    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities, groups=False)


def test_a_store_without_groups_refuses_them_before_anything_is_stored(url: str, clock: ManualClock) -> None:
    with shardq.Client(WithoutGroups(open_store(url, clock))) as client:
        queue = client.create_queue("q")
        with queue.producer() as producer:
            for send in (
                lambda: producer.send(b"x", group="a"),
                lambda: producer.send(b"x", group="a", dedupe_key="k"),
                lambda: producer.send_many([b"x"], group="a"),
                lambda: producer.send_many([shardq.OutgoingMessage(body=b"x", group="a")]),
            ):
                with pytest.raises(shardq.UnsupportedByStore, match=r"group='a'.*use SQLite"):
                    send()
            assert queue.counts().ready == 0
            assert queue.get(producer.send(b"x", dedupe_key="k")) is not None


@pytest.mark.parametrize("at_once", [1, 8])
def test_a_bulk_send_that_was_interrupted_is_completed_in_order(
    url: str, clock: ManualClock, at_once: int
) -> None:
    class Several(FaultyStore):
        @property
        def capabilities(self) -> Capabilities:
            return msgspec.structs.replace(super().capabilities, requests_at_once=at_once)

    store = Several(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("q")
        messages = [b"%d" % number for number in range(30)]
        for kind in (FaultKind.LOST_RESPONSE, FaultKind.LOST_REQUEST, FaultKind.UNAVAILABLE):
            begun = sum(call.method == "append" for call in store.calls)
            store.plan = FaultPlan(faults=(Fault("append", begun + 2, kind),))
            with queue.producer(bundle_messages=5) as producer:
                with pytest.raises(shardq.PartialSend) as caught:
                    producer.send_many(messages, group="a")
                producer.send_many(caught.value.unsent)
            with queue.consumer() as consumer:
                assert drained(consumer) == messages


def test_a_dedupe_key_and_a_group_go_together(
    queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    first = producer.send(b"1", group="a", dedupe_key="k")
    assert producer.send(b"1", group="a", dedupe_key="k") == first
    producer.send(b"2", group="a")
    assert bodies(consumer) == [b"1", b"2"]


def test_a_key_that_may_stand_for_a_message_of_another_group_is_refused(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("q", dedupe_window=60)
        assert group_shard("q", "a") != group_shard("q", "b")
        store.plan = FaultPlan(faults=(Fault("append", 1, FaultKind.LOST_REQUEST),))
        with queue.producer() as producer:
            with pytest.raises(shardq.OutcomeUnknown):
                producer.send(b"1", group="a", dedupe_key="k")
            for group in ("b", None):
                with pytest.raises(shardq.InvalidMessage, match="another group"):
                    producer.send(b"1", group=group, dedupe_key="k")
            producer.send(b"1", group="a", dedupe_key="k")
            clock.advance(61)
            producer.send(b"2", group="b", dedupe_key="k")
        with queue.consumer() as consumer:
            assert sorted(bodies(consumer)) == [b"1", b"2"]


# -- receiving


def test_a_group_waits_for_the_ack_and_other_groups_do_not(
    producer: shardq.Producer, consumer: shardq.Consumer, other: shardq.Consumer
) -> None:
    for number in range(2):
        for group in ("a", "b", "c"):
            producer.send(f"{group}{number}".encode(), group=group)
    producer.send(b"free")
    first = [consumer.receive(1) for _ in range(4)]
    assert sorted(batch[0].body for batch in first) == [b"a0", b"b0", b"c0", b"free"]
    assert bodies(other) == []
    next(batch for batch in first if batch[0].body == b"b0").ack()
    assert bodies(other) == [b"b1"]


def test_a_thousand_groups_wait_for_none_but_themselves(
    producer: shardq.Producer, consumer: shardq.Consumer, other: shardq.Consumer
) -> None:
    for number in range(3):
        producer.send_many(
            [shardq.OutgoingMessage(body=b"%d" % number, group=f"g{group}") for group in range(1000)]
        )
    first = consumer.receive(1000)
    assert {message.body for message in first if message.body != b"0"} <= {b"1", b"2"}
    last: dict[str | None, int] = {}
    while batch := other.receive(1000):
        for message in batch:
            assert int(message.body) == last.get(message.group, -1) + 1
            last[message.group] = int(message.body)
        batch.ack()
    held = {message.group for message in first}
    assert not held.intersection(last)
    assert len(held) + len(last) == 1000


def test_a_consumer_that_waits_gets_the_next_when_another_acks(url: str) -> None:
    with shardq.connect(url) as client, shardq.connect(url) as elsewhere:
        queue = client.create_queue("q", visibility_timeout=600)
        queue.producer().send_many([b"1", b"2"], group="a")
        found: list[bytes] = []
        with queue.consumer() as consumer, elsewhere.queue("q").consumer() as waiting:
            held = consumer.receive(1)
            thread = threading.Thread(target=lambda: found.extend(waiting.receive(1, wait=60).bodies))
            thread.start()
            held.ack()
            thread.join(50)
        assert found == [b"2"]


def test_the_layout_may_change_while_groups_wait(
    queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer, clock: ManualClock
) -> None:
    producer.send(b"1", group="a")
    queue.alter(shards=3, time_shards=2, time_shard_seconds=1)
    clock.advance(100)
    producer.send(b"2", group="a")
    queue.alter(shards=40)
    producer.send(b"3", group="a")
    assert bodies(consumer) == [b"1", b"2", b"3"]


def test_pop_takes_one_after_the_other(producer: shardq.Producer, consumer: shardq.Consumer) -> None:
    producer.send_many([b"1", b"2"], group="a")
    popped = [consumer.pop(), consumer.pop(), consumer.pop()]
    assert [message and message.body for message in popped] == [b"1", b"2", None]


def test_what_is_too_old_is_dropped_and_the_group_goes_on(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("short", retention=100)
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send(b"old", group="a")
        clock.advance(90)
        producer.send(b"young", group="a")
        clock.advance(20)
        assert bodies(consumer) == [b"young"]


def test_a_sweep_removes_what_is_too_old_wherever_it_is_in_its_group(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("short", retention=100)
    with queue.producer() as producer, queue.consumer() as consumer:
        for body, delay in ((b"1", 500.0), (b"2", 0.0), (b"3", 0.0)):
            producer.send(body, group="a", delay=delay)
        clock.advance(90)
        producer.send(b"4", group="a")
        clock.advance(20)
        queue.sweep()
        assert bodies(consumer) == [b"4"]


# -- settling


def test_acks_may_come_out_of_order(
    producer: shardq.Producer, consumer: shardq.Consumer, other: shardq.Consumer
) -> None:
    producer.send_many([b"1", b"2", b"3"], group="a")
    first, second = consumer.receive(2)
    second.ack()
    assert bodies(other) == []
    first.ack()
    assert bodies(other) == [b"3"]


def test_a_released_message_comes_before_what_was_received_with_it(
    producer: shardq.Producer, consumer: shardq.Consumer, other: shardq.Consumer, clock: ManualClock
) -> None:
    producer.send_many([b"1", b"2", b"3", b"4"], group="a")
    batch = consumer.receive(3)
    batch[0].ack()
    batch[1].release(delay=10)
    with pytest.raises(shardq.LeaseLost, match="an earlier message of its group") as caught:
        batch[2].ack()
    assert [message.body for message in caught.value.messages] == [b"3"]
    assert bodies(other) == []
    clock.advance(11)
    again = other.receive(10)
    assert [(message.body, message.deliveries) for message in again] == [(b"2", 2), (b"3", 1), (b"4", 1)]


def test_releasing_what_was_given_back_already_is_no_error(
    producer: shardq.Producer, consumer: shardq.Consumer, other: shardq.Consumer
) -> None:
    producer.send_many([b"1", b"2"], group="a")
    for message in consumer.receive(2):
        message.release()
    assert bodies(other) == [b"1", b"2"]


def test_a_receipt_releases_the_later_ones_too(
    queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer, other: shardq.Consumer
) -> None:
    producer.send_many([b"1", b"2"], group="a")
    receipts = [message.receipt for message in consumer.receive(2)]
    queue.release(receipts[:1])
    with pytest.raises(shardq.LeaseLost, match="group"):
        queue.ack(receipts[1:])
    assert bodies(other) == [b"1", b"2"]


def test_another_body_keeps_its_place(
    producer: shardq.Producer, consumer: shardq.Consumer, other: shardq.Consumer, clock: ManualClock
) -> None:
    producer.send_many([b"1", b"2", b"3", b"4"], group="a")
    batch = consumer.receive(3)
    batch[1].release(body=b"two", delay=5)
    batch[0].ack()
    assert bodies(other) == []
    clock.advance(6)
    assert [(message.body, message.group) for message in other.receive(10)] == [
        (b"two", "a"),
        (b"3", "a"),
        (b"4", "a"),
    ]


def test_a_forwarded_message_goes_to_the_end_of_its_group_there(
    client: shardq.Client, queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    target = client.create_queue("target", shards=1)
    target.producer().send(b"there", group="a")
    producer.send_many([b"1", b"2"], group="a")
    producer.send(b"other", group="b")
    producer.send(b"none")
    for batch in iter(lambda: consumer.receive(100), None):
        if not batch:
            break
        batch.forward("target")
    with target.consumer() as receiving:
        found = receiving.receive(100)
        assert [message.body for message in found if message.group == "a"] == [b"there", b"1", b"2"]
        assert {(m.body, m.group) for m in found if m.group != "a"} == {(b"other", "b"), (b"none", None)}


@pytest.mark.parametrize("groups", [["a"], ["a", "b", "c", None], [f"g{number}" for number in range(40)]])
def test_dead_letters_let_their_groups_go_on_and_come_back_to_the_end(
    client: shardq.Client,
    queue: shardq.Queue,
    producer: shardq.Producer,
    clock: ManualClock,
    groups: list[str | None],
) -> None:
    for body in (b"1", b"2", b"3"):
        for group in groups:
            producer.send(body, group=group, headers={"mine": 1})
    with queue.consumer() as consumer:
        for message in consumer.receive(1000):
            if message.body != b"3":
                message.dead_letter("bad")
        assert queue.counts().in_flight == len(groups)
    dead = client.queue(queue.name + ".dead")
    letters = dead.peek(1000)
    assert {(letter.group, letter.headers.get("shardq-group")) for letter in letters} == {
        (None, group) for group in groups
    }
    assert queue.redrive() == 2 * len(groups)
    clock.advance(31)
    with queue.consumer() as consumer:
        again = consumer.receive(1000)
        for group in set(groups) - {None}:
            assert [message.body for message in again if message.group == group] == [b"3", b"1", b"2"]
        assert all(message.headers == {"mine": 1} for message in again)


def test_a_header_that_looks_like_a_group_is_none(
    queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    producer.send(b"x", headers={"shardq-group": "a"})
    consumer.receive(1)[0].dead_letter("bad")
    assert queue.redrive() == 1
    assert consumer.receive(1)[0].group is None


def test_a_message_delivered_too_often_is_skipped(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("twice", max_deliveries=2, visibility_timeout=10)
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send_many([b"poison", b"next"], group="a")
        for _ in range(2):
            assert bodies(consumer, 1) == [b"poison"]
            clock.advance(11)
        assert bodies(consumer) == [b"next"]
        assert client.queue("twice.dead").counts().ready == 1


def test_what_cannot_be_taken_away_holds_its_group_up(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("twice", max_deliveries=1, visibility_timeout=10)
        with queue.producer() as producer, queue.consumer() as consumer:
            producer.send_many([b"poison", b"next"], group="a")
            producer.send(b"free", group="b")
            assert bodies(consumer, 1) and bodies(consumer)
            clock.advance(11)
            store.plan = FaultPlan(faults=(Fault("forward", 1, FaultKind.UNAVAILABLE),))
            found = bodies(consumer)
            assert b"next" not in found
            clock.advance(11)
            store.plan = FaultPlan()
            assert b"next" in [*found, *bodies(consumer)] or client.queue("twice.dead").counts().ready


# -- looking, and the rest


def test_looks_show_groups_in_order_and_what_waits_by_its_own_due_time(
    queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    producer.send(b"1", group="a", delay=10)
    producer.send(b"2", group="a")
    producer.send(b"3", group="a", delay=60)
    shown = queue.peek()
    assert [(message.body, message.group) for message in shown] == [(b"1", "a"), (b"2", "a"), (b"3", "a")]
    assert [message.state for message in shown] == [EntryState.DELAYED, EntryState.READY, EntryState.DELAYED]
    counts = queue.counts()
    assert (counts.ready, counts.delayed) == (1, 2)
    assert bodies(consumer) == []


def test_a_removed_message_holds_nothing_up(
    queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    first = producer.send(b"1", group="a", delay=1000)
    producer.send(b"2", group="a")
    assert queue.remove(first)
    assert bodies(consumer) == [b"2"]


def test_the_history_and_a_replay_keep_groups(client: shardq.Client) -> None:
    queue = client.create_queue("kept", history_retention=1000)
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send_many([b"1", b"2", b"3"], group="a")
        for _ in range(3):
            consumer.receive(1).ack()
        assert [(message.body, message.group) for message in queue.history()] == [
            (b"1", "a"),
            (b"2", "a"),
            (b"3", "a"),
        ]
        assert queue.replay() == 3
        again = consumer.receive(10)
        assert [(message.body, message.group) for message in again] == [(b"1", "a"), (b"2", "a"), (b"3", "a")]


def test_hooks_see_groups(url: str) -> None:
    seen: list[str | None] = []

    class Watch(shardq.Hooks):
        def before_send(self, queue: str, messages: Any) -> None:
            seen.extend(message.group for message in messages)

    with shardq.connect(url, hooks=Watch()) as client, client.create_queue("q").producer() as producer:
        producer.send(b"1", group="a")
        producer.send_many([b"2", shardq.OutgoingMessage(body=b"3", group="b")], group="c")
    assert seen == ["a", "c", "b"]


def test_nothing_is_left_of_a_queue_whose_groups_are_done(
    queue: shardq.Queue, producer: shardq.Producer, consumer: shardq.Consumer, clock: ManualClock
) -> None:
    producer.send_many([shardq.OutgoingMessage(body=b"x", group=f"g{number}") for number in range(300)])
    assert len(drained(consumer)) == 300
    assert len([state for state in queue.shard_states() if state.shard.is_grouped]) == GROUP_SHARDS
    clock.advance(4000)
    for _ in range(4):
        consumer.receive(1)
        clock.advance(4000)
    assert queue.shard_states() == ()


def test_a_deleted_queue_takes_its_groups_with_it(client: shardq.Client) -> None:
    for _ in range(2):
        queue = client.create_queue("again")
        queue.producer().send_many([b"1", b"2"], group="a")
        with queue.consumer() as consumer:
            assert bodies(consumer, 1) == [b"1"]
        client.delete_queue("again")


def test_a_release_after_the_last_delivery_lets_the_group_go_on(client: shardq.Client) -> None:
    queue = client.create_queue("once", max_deliveries=1)
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send_many([b"1", b"2", b"3"], group="a")
        batch = consumer.receive(2)
        batch[0].release(reason="bad")
        batch[1].ack()
        assert bodies(consumer) == [b"3"]
        assert [letter.body for letter in client.queue("once.dead").peek()] == [b"1"]


@pytest.mark.parametrize("mode", ["skip", "block"])
def test_a_release_of_a_group_gives_up_only_the_later_of_two_that_had_its_last_delivery(
    client: shardq.Client, clock: ManualClock, mode: Any
) -> None:
    queue = client.create_queue("q", max_deliveries=2, on_dead_letter=mode)
    queue.producer().send_many([b"1", b"2"], group="g")
    with queue.consumer() as consumer:
        consumer.receive(2)
        clock.advance(31)
        consumer.receive(2)[0].release(body=b"new")
        batch = consumer.receive(2)
        assert [message.last_delivery for message in batch] == [False, True]
        batch.release()
        dead = [message.body for message in client.queue("q.dead").peek()]
        assert (dead, bodies(consumer)) == (([b"2"], [b"new"]) if mode == "skip" else ([], [b"new", b"2"]))


def test_a_full_queue_drops_the_first_of_its_groups(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("full", max_messages=4, overflow="drop_oldest")
    drive_timers(
        queue, timer=lambda: clock.now() / 1_000_000
    )  # how often it counts depends on what that takes
    with queue.producer() as producer, queue.consumer() as consumer:
        for number in range(8):
            producer.send(b"%d" % number, group="a")
            clock.advance(2)
        found = bodies(consumer)
        assert found == [b"%d" % number for number in range(8 - len(found), 8)]
        assert 0 < len(found) < 8


def test_several_are_popped_in_order(producer: shardq.Producer, consumer: shardq.Consumer) -> None:
    producer.send_many([b"%d" % number for number in range(5)], group="a")
    popped = [message.body for _ in range(3) for message in consumer.pop_many(2)]
    assert popped == [b"0", b"1", b"2", b"3", b"4"]
    assert bodies(consumer) == []


def test_a_forward_may_change_what_it_moves_and_keeps_its_group(
    client: shardq.Client, producer: shardq.Producer, consumer: shardq.Consumer
) -> None:
    target = client.create_queue("target")
    producer.send_many([b"1", b"2"], group="a")
    for message in consumer.receive(2):
        message.forward("target", body=b"new " + message.body, priority=1)
    with target.consumer() as receiving:
        found = receiving.receive(10)
    assert [(m.body, m.group, m.priority) for m in found] == [(b"new 1", "a", 1), (b"new 2", "a", 1)]


def test_a_sweep_makes_dead_letters_of_what_expired_in_groups(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("swept", dead_letter_expired=True)
    with queue.producer() as producer, queue.consumer() as consumer:
        for number in range(6):
            producer.send(b"%d" % number, group="ab"[number % 2], ttl=10 if number in (2, 5) else None)
        clock.advance(20)
        queue.sweep()
        assert client.queue("swept.dead").counts().ready == 2
        assert sorted(bodies(consumer)) == [b"0", b"1", b"3", b"4"]
