"""Of the messages with a unique key one is in the queue at a time, and the key is free when that one has left."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import shardq
from shardq.core.context.unique_keys import Holder, UniqueKeys
from shardq.storage.opening import open_store
from shardq.storage.requests import Append
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import context_of, store_of

KEY = "customer-42"


def entries(queue: shardq.Queue) -> list[str]:
    """The unique keys that stand."""
    return [each.key for each in store_of(queue).list_keys(queue.name, limit=10_000)]


def bodies(queue: shardq.Queue) -> list[bytes]:
    """Receive and ack all that there is."""
    batch = queue.consumer().receive(100)
    batch.ack()
    return sorted(batch.bodies)


# -- what is promised


def test_a_second_message_of_a_key_is_not_stored_and_the_id_of_the_first_is_returned(
    queue: shardq.Queue,
) -> None:
    with queue.producer() as producer:
        first = producer.send(b"1", unique_key=KEY)
        assert producer.send(b"2", unique_key=KEY) == first
        assert producer.send(b"3", unique_key="other") != first
    assert bodies(queue) == [b"1", b"3"]


def test_a_second_message_of_a_key_raises_with_the_id_of_the_first(queue: shardq.Queue) -> None:
    producer, consumer = queue.producer(), queue.consumer()
    first = producer.send(b"1", unique_key=KEY)
    with pytest.raises(shardq.UniqueKeyTaken, match=r"'customer-42'.* waits") as caught:
        producer.send(b"2", unique_key=KEY, on_conflict="raise")
    assert (caught.value.message_id, caught.value.in_flight) == (first, False)
    batch = consumer.receive(1)
    with pytest.raises(shardq.UniqueKeyTaken, match="is in flight") as caught:
        producer.send(b"2", unique_key=KEY, on_conflict="raise")
    assert (caught.value.message_id, caught.value.in_flight) == (first, True)
    batch.ack()
    assert producer.send(b"2", unique_key=KEY, on_conflict="raise") != first


def test_a_message_takes_the_place_of_one_that_waits_with_its_own_due_time(
    queue: shardq.Queue, clock: ManualClock
) -> None:
    producer = queue.producer()
    first = producer.send(b"1", unique_key=KEY, delay=10)
    for number in range(5):
        clock.advance(5)
        last = producer.send(b"%d" % number, unique_key=KEY, on_conflict="replace", delay=10)
    assert queue.get(first) is None
    assert queue.counts().delayed == 1
    clock.advance(9)
    assert bodies(queue) == []
    clock.advance(1)
    (message,) = queue.consumer().receive(10)
    assert (message.id, message.body, message.unique_key) == (last, b"4", KEY)


@pytest.mark.parametrize("crashed", [None, 0, 3, 7], ids=["none", "first", "middle", "last"])
@pytest.mark.parametrize("without", [[], [0, 2, 4, 6], [3, 4], [7]])
def test_messages_with_unique_keys_keep_the_order_of_their_group(
    queue: shardq.Queue, clock: ManualClock, crashed: int | None, without: list[int]
) -> None:
    if crashed is not None:  # a sender that entered the key and stored nothing
        incoming = queue.producer().send(b"x")
        queue.purge()
        UniqueKeys(context_of(queue)).exchange_all([(f"k{crashed}", None, Holder(incoming=incoming))])
        clock.advance(5)
    queue.producer().send_many(
        [
            shardq.OutgoingMessage(
                body=b"%d" % number, group=group, unique_key=None if number in without else f"{key}{number}"
            )
            for number in range(8)
            for group, key in (("g", "k"), ("h", "l"))
        ]
    )
    arrived: dict[str, list[bytes]] = {"g": [], "h": []}
    with queue.consumer() as consumer:
        while batch := consumer.receive(100):
            for message in batch:
                arrived[message.group or ""].append(message.body)
            batch.ack()
    assert arrived == {group: [b"%d" % number for number in range(8)] for group in "gh"}


def test_a_message_in_flight_is_not_replaced(queue: shardq.Queue) -> None:
    producer = queue.producer()
    first = producer.send(b"1", unique_key=KEY)
    (message,) = queue.consumer().receive(1)
    with pytest.raises(shardq.UniqueKeyTaken) as caught:
        producer.send(b"2", unique_key=KEY, on_conflict="replace")
    assert (caught.value.message_id, caught.value.in_flight) == (first, True)
    message.release()
    second = producer.send(b"2", unique_key=KEY, on_conflict="replace")
    assert [each.id for each in queue.consumer().receive(10)] == [second]


def test_a_message_whose_lease_is_over_waits_and_can_be_replaced(
    queue: shardq.Queue, clock: ManualClock
) -> None:
    producer = queue.producer()
    producer.send(b"1", unique_key=KEY)
    (message,) = queue.consumer().receive(1)
    clock.advance(queue.settings.visibility_timeout + 1)
    producer.send(b"2", unique_key=KEY, on_conflict="replace")
    with pytest.raises(shardq.LeaseLost):
        message.ack()
    assert bodies(queue) == [b"2"]


def _ack(queue: shardq.Queue, _: ManualClock) -> None:
    queue.consumer().receive(1).ack()


def _ack_by_receipt(queue: shardq.Queue, _: ManualClock) -> None:
    (message,) = queue.consumer().receive(1)
    queue.ack([message.receipt])


def _pop(queue: shardq.Queue, _: ManualClock) -> None:
    message = queue.consumer().pop()
    assert message is not None


def _remove(queue: shardq.Queue, _: ManualClock) -> None:
    (message,) = queue.peek()
    assert queue.remove(message.id)


def _remove_by_key(queue: shardq.Queue, _: ManualClock) -> None:
    assert queue.remove(unique_key=KEY)


def _purge(queue: shardq.Queue, _: ManualClock) -> None:
    assert queue.purge() == 1


def _grow_old(queue: shardq.Queue, clock: ManualClock) -> None:
    queue.alter(retention=60.0)
    clock.advance(61)


def _be_dropped_for_age(queue: shardq.Queue, clock: ManualClock) -> None:
    _grow_old(queue, clock)
    assert not queue.consumer().receive(1)


def _forward(queue: shardq.Queue, _: ManualClock) -> None:
    (message,) = queue.consumer().receive(1)
    message.forward("other")


def _dead_letter(queue: shardq.Queue, _: ManualClock) -> None:
    (message,) = queue.consumer().receive(1)
    message.dead_letter("bad")


def _be_delivered_too_often(queue: shardq.Queue, clock: ManualClock) -> None:
    queue.alter(max_deliveries=1)
    assert len(queue.consumer().receive(1)) == 1
    clock.advance(queue.settings.visibility_timeout + 1)
    assert not queue.consumer().receive(1)


WAYS_OUT = [
    _ack, _ack_by_receipt, _pop, _remove, _remove_by_key, _purge, _grow_old, _be_dropped_for_age, _forward,
    _dead_letter, _be_delivered_too_often,
]  # fmt: skip


@pytest.mark.parametrize("history", [0.0, 3_600.0])
@pytest.mark.parametrize("leave", WAYS_OUT, ids=lambda leave: leave.__name__.strip("_"))
def test_a_key_is_free_as_soon_as_its_message_left_the_queue(
    client: shardq.Client,
    clock: ManualClock,
    leave: Callable[[shardq.Queue, ManualClock], None],
    history: float,
) -> None:
    client.create_queue("other")
    queue = client.create_queue("q", history_retention=history)
    first = queue.producer().send(b"1", unique_key=KEY)
    leave(queue, clock)
    assert queue.get(unique_key=KEY) is None
    assert not queue.remove(unique_key=KEY)
    second = queue.producer().send(b"2", unique_key=KEY, on_conflict="raise")
    assert second != first
    assert queue.producer().send(b"3", unique_key=KEY) == second
    assert bodies(queue) == [b"2"]


@pytest.mark.parametrize("leave", WAYS_OUT, ids=lambda leave: leave.__name__.strip("_"))
def test_nothing_is_left_of_a_key_after_a_sweep(
    client: shardq.Client, clock: ManualClock, leave: Callable[[shardq.Queue, ManualClock], None]
) -> None:
    client.create_queue("other")
    queue = client.create_queue("q")
    queue.producer().send(b"1", unique_key=KEY)
    leave(queue, clock)
    queue.sweep()
    assert entries(queue) == []


@pytest.mark.parametrize("leave", [_ack, _pop, _remove_by_key, _forward, _dead_letter])
def test_the_entry_of_a_key_goes_with_its_message_where_the_key_is_known(
    client: shardq.Client, clock: ManualClock, leave: Callable[[shardq.Queue, ManualClock], None]
) -> None:
    client.create_queue("other")
    queue = client.create_queue("q")
    queue.producer().send(b"1", unique_key=KEY)
    leave(queue, clock)
    assert leave is _remove_by_key or entries(queue) == []


def test_a_consumer_sweeps_keys_of_messages_that_are_gone_every_ten_minutes(
    queue: shardq.Queue, clock: ManualClock
) -> None:
    queue.producer().send_many(
        [shardq.OutgoingMessage(body=b"x", unique_key=f"key {number}") for number in range(1_200)]
    )
    queue.purge()
    consumer = queue.consumer()
    assert len(entries(queue)) == 1_200
    for _ in range(10):
        clock.advance(60)
        consumer.receive(1)
    assert entries(queue) == []


def test_a_message_is_found_and_removed_by_its_key(queue: shardq.Queue) -> None:
    identity = queue.producer().send(b"1", unique_key=KEY)
    found = queue.get(unique_key=KEY)
    assert found is not None
    assert (found.id, found.body, found.unique_key) == (identity, b"1", KEY)
    assert queue.remove(unique_key=KEY)
    assert queue.counts().ready == 0
    assert queue.get(unique_key="unknown") is None
    assert not queue.remove(unique_key="unknown")


@pytest.mark.parametrize("arguments", [{}, {"message_id": "q:0:0:" + "0" * 32 + ":0", "unique_key": KEY}])
def test_a_message_is_named_in_one_way(queue: shardq.Queue, arguments: dict[str, Any]) -> None:
    with pytest.raises(shardq.InvalidReceipt, match="give one of them"):
        queue.get(**arguments)
    with pytest.raises(shardq.InvalidReceipt, match="give one of them"):
        queue.remove(**arguments)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"unique_key": ""}, "unique_key=''"),
        ({"unique_key": "x" * 201}, "unique_key='x"),
        ({"unique_key": 5}, "unique_key=5"),
        ({"unique_key": "\ud800"}, "unique_key="),
        ({"unique_key": KEY, "dedupe_key": "k"}, "are both given"),
        ({"unique_key": KEY, "on_conflict": "drop"}, "on_conflict='drop'"),
        ({"unique_key": KEY, "on_conflict": None}, "on_conflict=None"),
        ({"on_conflict": "replace"}, "without a unique_key"),
    ],
)
def test_bad_options_are_refused_before_anything_is_stored(
    queue: shardq.Queue, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(shardq.InvalidMessage, match=named):
        queue.producer().send(b"x", **options)
    with pytest.raises(shardq.InvalidMessage, match=named):
        queue.producer().send_many([shardq.OutgoingMessage(body=b"x", **options)])
    assert (queue.counts().ready, entries(queue)) == (0, [])


@pytest.mark.parametrize("key", ["k", "shardq-unique:k", "a b", "\0", "漢字", " ", "x" * 200])
def test_a_key_may_be_any_text(queue: shardq.Queue, key: str) -> None:
    first = queue.producer().send(b"1", unique_key=key)
    assert queue.producer().send(b"2", unique_key=key) == first
    assert queue.producer().send(b"3", dedupe_key="k") != first
    assert entries(queue) == [key]


# -- many


def test_a_bulk_send_stores_the_first_message_of_each_key_and_answers_in_order(queue: shardq.Queue) -> None:
    sent = [shardq.OutgoingMessage(body=b"%d" % i, unique_key=f"k{i % 3}") for i in range(7)]
    ids = queue.producer().send_many([*sent, b"plain", *sent])
    assert list(ids[:3]) == list(ids[3:6]) == list(ids[8:11])
    assert len(set(ids)) == 4
    assert bodies(queue) == [b"0", b"1", b"2", b"plain"]


def test_of_a_bulk_send_that_replaces_the_last_message_of_a_key_stands(queue: shardq.Queue) -> None:
    sent = [
        shardq.OutgoingMessage(body=b"%d" % i, unique_key=f"k{i % 2}", on_conflict="replace")
        for i in range(6)
    ]
    queue.producer().send_many(sent)
    assert bodies(queue) == [b"4", b"5"]
    assert entries(queue) == []


def test_a_bulk_send_that_meets_a_taken_key_names_what_is_not_stored(queue: shardq.Queue) -> None:
    first = queue.producer().send(b"first", unique_key="k1")
    sent: list[Any] = [
        shardq.OutgoingMessage(body=b"%d" % i, unique_key=f"k{i}", on_conflict="raise") for i in range(3)
    ]
    with pytest.raises(shardq.PartialSend) as caught:
        queue.producer().send_many([*sent, b"plain"])
    cause = caught.value.__cause__
    assert isinstance(cause, shardq.UniqueKeyTaken)
    assert cause.message_id == first
    assert [(each.body, each.id) for each in caught.value.unsent] == [(b"1", None)]
    assert caught.value.unsent[0].on_conflict == "raise"
    assert bodies(queue) == [b"0", b"2", b"first", b"plain"]


def test_sends_of_a_key_by_many_threads_store_one_message(queue: shardq.Queue) -> None:
    producer = queue.producer()
    with ThreadPoolExecutor(8) as threads:
        ids = set(threads.map(lambda number: producer.send(b"%d" % number, unique_key=KEY), range(40)))
    assert len(ids) == 1
    (message,) = queue.consumer().receive(10)
    assert {message.id} == ids


def test_replacing_sends_of_a_key_by_many_threads_leave_one_message(queue: shardq.Queue) -> None:
    producer = queue.producer()
    with ThreadPoolExecutor(4) as threads:
        ids = list(
            threads.map(
                lambda number: producer.send(b"%d" % number, unique_key=KEY, on_conflict="replace"), range(16)
            )
        )
    assert len(set(ids)) == 16
    (message,) = queue.consumer().receive(100)
    assert message.id in ids
    assert queue.counts().in_flight == 1


# -- moves


def test_a_message_that_is_released_with_another_body_keeps_its_key(
    queue: shardq.Queue, clock: ManualClock
) -> None:
    queue.producer().send(b"1", unique_key=KEY)
    (message,) = queue.consumer().receive(1)
    message.release(body=b"2", delay=5)
    found = queue.get(unique_key=KEY)
    assert found is not None
    assert (found.body, found.unique_key) == (b"2", KEY)
    assert queue.producer().send(b"3", unique_key=KEY) == found.id
    clock.advance(5)
    assert bodies(queue) == [b"2"]
    assert entries(queue) == []


def test_a_dead_letter_comes_back_without_its_key(queue: shardq.Queue) -> None:
    queue.producer().send(b"1", unique_key=KEY)
    (message,) = queue.consumer().receive(1)
    message.dead_letter("bad")
    second = queue.producer().send(b"2", unique_key=KEY)
    assert queue.redrive() == 1
    batch = queue.consumer().receive(10)
    assert sorted((each.body, each.unique_key) for each in batch) == [(b"1", None), (b"2", KEY)]
    assert queue.producer().send(b"3", unique_key=KEY) == second
    batch.ack()
    assert entries(queue) == []


def test_copies_of_processed_messages_have_no_key(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("q", history_retention=3_600)
    queue.producer().send(b"1", unique_key=KEY)
    assert bodies(queue) == [b"1"]
    clock.advance(1)
    assert queue.replay() == 1
    queue.producer().send(b"2", unique_key=KEY)
    assert bodies(queue) == [b"1", b"2"]


def test_a_queue_that_is_created_again_has_no_keys(client: shardq.Client) -> None:
    queue = client.create_queue("q")
    first = queue.producer().send(b"1", unique_key=KEY)
    client.delete_queue("q")
    queue = client.create_queue("q")
    assert queue.producer().send(b"2", unique_key=KEY) != first
    assert bodies(queue) == [b"2"]


def test_a_queue_without_unique_keys_makes_no_request_for_them(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    queue = shardq.Client(store).create_queue("q")
    queue.producer().send(b"1")
    queue.producer().send_many([b"2", shardq.OutgoingMessage(body=b"3", dedupe_key="k")])
    consumer = queue.consumer()
    consumer.receive(10).ack()
    queue.producer().send(b"4")
    consumer.pop()
    assert not {"compare_and_set_keys", "list_keys"} & {call.method for call in store.calls}


def test_replacing_leaves_the_history_alone(client: shardq.Client) -> None:
    queue = client.create_queue("q", history_retention=3_600.0)
    queue.producer().send(b"1", unique_key=KEY)
    _ack_by_receipt(queue, ManualClock())
    queue.producer().send(b"2", unique_key=KEY, on_conflict="replace")
    assert [message.body for message in queue.history()] == [b"1"]
    assert bodies(queue) == [b"2"]


class DeletedMeanwhile(WrappedStore):
    """Its queue is deleted right before the sender of a message that is stored takes the key for it."""

    delete: Callable[[], object] | None = None

    def append(self, request: Append) -> None:
        super().append(request)
        if self.delete is not None:
            delete, self.delete = self.delete, None
            delete()


@pytest.mark.parametrize("received", [True, False])
def test_a_message_whose_queue_is_deleted_before_its_send_has_ended_may_have_been_received(
    url: str, client: shardq.Client, queue: shardq.Queue, clock: ManualClock, received: bool
) -> None:
    store = DeletedMeanwhile(open_store(url, clock))
    taken: list[bytes] = []

    def delete() -> None:
        if received:
            taken.extend(bodies(queue))
        client.delete_queue(queue.name)

    with shardq.Client(store, retry_seconds=0) as other:
        producer = other.queue(queue.name).producer()
        store.delete = delete
        with pytest.raises(shardq.OutcomeUnknown) as caught:
            producer.send(b"x", unique_key=KEY)
        with pytest.raises(shardq.QueueNotFound):
            producer.send(caught.value.unsent[0])
    assert taken == [b"x"] * received
