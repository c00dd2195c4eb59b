"""Ack, release, extend, forward: what is promised of messages that are held, and of those whose lease is lost."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from datetime import timedelta

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store
from shardq.testing import FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import claims_of, keep_lease
from tests.function_calls import function_calls


@pytest.fixture
def batch(queue: shardq.Queue) -> shardq.Batch:
    """Ten messages that are held for 30 seconds."""
    with queue.producer() as producer:
        producer.send_many([str(number).encode() for number in range(10)])
    return queue.consumer().receive(10)


def everything(queue: shardq.Queue) -> list[bytes]:
    return sorted(message.body for message in queue.consumer().receive(1000))


def test_an_acked_batch_is_gone(queue: shardq.Queue, batch: shardq.Batch, clock: ManualClock) -> None:
    batch.ack()
    clock.advance(100)
    assert everything(queue) == []
    assert queue.peek() == []


def test_what_was_settled_is_freed_at_once(queue: shardq.Queue) -> None:
    """Nothing of it is left to the collector of cycles, which would keep bodies in memory until it comes."""
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send_many([b"one", b"two"])
        batch = consumer.receive(2)
        held = weakref.ref(claims_of(batch)[0])
        collects = gc.isenabled()
        gc.disable()
        try:
            batch.ack()
            del batch
            assert held() is None
        finally:
            if collects:
                gc.enable()


def test_acking_twice_is_harmless(batch: shardq.Batch, clock: ManualClock) -> None:
    batch[3].ack()
    batch[3].ack()
    batch.ack()
    batch.ack()
    batch[4].ack()
    clock.advance(100)
    batch.ack()


def test_messages_may_be_acked_one_by_one_in_any_order(
    queue: shardq.Queue, batch: shardq.Batch, clock: ManualClock
) -> None:
    for position in (5, 0, 9, 4, 6):
        batch[position].ack()
    clock.advance(30)
    assert everything(queue) == [b"1", b"2", b"3", b"7", b"8"]


def test_a_released_message_comes_back_at_once_with_its_deliveries(
    queue: shardq.Queue, batch: shardq.Batch
) -> None:
    batch[2].release()
    batch.ack()
    (message,) = queue.consumer().receive(10)
    assert (message.body, message.deliveries) == (b"2", 2)


def test_the_consumer_that_released_a_message_finds_it_in_an_old_time_shard(
    queue: shardq.Queue, clock: ManualClock
) -> None:
    with queue.producer() as producer:
        producer.send(b"x")
    consumer = queue.consumer()
    consumer.receive(1)
    clock.advance(200)
    (message,) = consumer.receive(1)
    message.release()
    assert len(consumer.receive(1)) == 1


def test_a_released_message_waits_for_its_delay(
    queue: shardq.Queue, batch: shardq.Batch, clock: ManualClock
) -> None:
    batch.release(delay=60)
    clock.advance(59)
    assert everything(queue) == []
    assert queue.counts().delayed == 10
    clock.advance(1)
    assert len(everything(queue)) == 10


def test_a_message_can_go_back_with_another_body(
    queue: shardq.Queue, batch: shardq.Batch, clock: ManualClock
) -> None:
    batch[0].release(body=b"changed", delay=5)
    batch.ack()
    assert everything(queue) == []
    clock.advance(5)
    (message,) = queue.consumer().receive(10)
    assert (message.body, message.deliveries) == (b"changed", 1)
    message.ack()
    assert queue.peek() == []


def test_extending_holds_messages_longer(
    queue: shardq.Queue, batch: shardq.Batch, clock: ManualClock
) -> None:
    clock.advance(20)
    batch.extend(60)
    clock.advance(59)
    assert everything(queue) == []
    assert batch.lease_until is not None
    batch.ack()


def test_a_lease_that_ran_out_still_counts_while_nobody_else_took_the_message(
    batch: shardq.Batch, clock: ManualClock
) -> None:
    clock.advance(1000)
    batch.ack()


@pytest.mark.parametrize(
    "settle",
    [
        lambda batch: batch.ack(),
        lambda batch: batch.release(),
        lambda batch: batch.extend(10),
        lambda batch: batch.dead_letter("why"),
        lambda batch: batch.forward("elsewhere"),
    ],
    ids=["ack", "release", "extend", "dead_letter", "forward"],
)
def test_what_was_claimed_again_is_lost_and_the_rest_is_done(
    client: shardq.Client,
    queue: shardq.Queue,
    batch: shardq.Batch,
    clock: ManualClock,
    settle: Callable[[shardq.Batch], None],
) -> None:
    client.create_queue("elsewhere")
    clock.advance(31)
    thief = queue.consumer().receive(4)
    with pytest.raises(shardq.LeaseLost) as caught:
        settle(batch)
    assert [message.id for message in caught.value.messages] == [message.id for message in thief]
    assert caught.value.messages == tuple(batch[:4])
    thief.ack()


@pytest.mark.parametrize("settle", [lambda batch: batch.ack(), lambda batch: batch.extend(10)])
def test_what_somebody_else_has_worked_on_and_acked_is_lost_too(
    queue: shardq.Queue, batch: shardq.Batch, clock: ManualClock, settle: Callable[[shardq.Batch], None]
) -> None:
    clock.advance(31)
    queue.consumer().receive(10).ack()
    with pytest.raises(shardq.LeaseLost) as caught:
        settle(batch)
    assert len(caught.value.messages) == 10


def test_what_is_told_of_many_lost_messages_costs_little_for_each(
    client: shardq.Client, clock: ManualClock
) -> None:
    def calls(count: int) -> int:  # each was sent alone, so there are as many slices as spans
        queue = client.create_queue(f"q{count}", shards=1, time_shards=1)
        queue.producer(bundle_messages=1).send_many([b"x"] * count)
        batch = queue.consumer().receive(count)
        clock.advance(31)
        assert len(queue.consumer().receive(count)) == count

        def ack() -> None:
            with pytest.raises(shardq.LeaseLost):
                batch.ack()

        return function_calls(ack)

    assert calls(800) < 5 * calls(200)


@pytest.mark.parametrize("keep", [False, True])
def test_extending_one_message_says_nothing_of_the_lease_of_another_in_its_bundle(
    queue: shardq.Queue, batch: shardq.Batch, clock: ManualClock, keep: bool
) -> None:
    until = batch[1].lease_until
    batch[0].extend(600)
    if keep:
        clock.advance(10)
        keep_lease(batch[2], 30)
        assert batch[2].lease_until == until + timedelta(seconds=10)
    assert (batch[1].lease_until, batch.lease_until) == (until, until)
    clock.advance(31)
    for taken in queue.consumer().receive(1000):
        taken.ack()
    with pytest.raises(shardq.LeaseLost):
        batch[1].ack()
    batch[0].ack()


def test_a_message_of_a_group_whose_lease_is_over_is_lost_to_a_release_though_another_was_extended(
    queue: shardq.Queue, clock: ManualClock
) -> None:
    queue.producer().send_many([b"1", b"2"], group="g")
    first, second = queue.consumer().receive(2)
    first.extend(600)
    first.ack()
    clock.advance(31)
    assert len(queue.consumer().receive()) == 1
    with pytest.raises(shardq.LeaseLost):
        second.release()


def test_a_message_that_was_released_cannot_be_acked(batch: shardq.Batch) -> None:
    batch[0].release()
    with pytest.raises(shardq.LeaseLost):
        batch[0].ack()
    batch[0].release()


@pytest.mark.parametrize(
    ("first", "then", "reason"),
    [
        (shardq.Message.ack, shardq.Message.release, "acked or moved before by this consumer"),
        (shardq.Message.release, shardq.Message.ack, "released before by this consumer"),
    ],
    ids=["acked", "released"],
)
def test_who_settles_a_message_twice_is_told_what_was_done_before(
    batch: shardq.Batch,
    first: Callable[[shardq.Message], None],
    then: Callable[[shardq.Message], None],
    reason: str,
) -> None:
    first(batch[0])
    with pytest.raises(shardq.LeaseLost, match=f"1 message of .* was not .*: {reason}$"):
        then(batch[0])


def test_an_error_by_receipt_says_that_the_message_may_have_been_settled(client: shardq.Client) -> None:
    queue = client.create_queue("settled-before")
    queue.producer().send(b"x")
    (message,) = queue.consumer().receive(1)
    message.release(delay=60)
    with pytest.raises(shardq.LeaseLost, match=r"; or settled before, maybe in another process$"):
        queue.ack([message.receipt])


def test_a_message_that_was_removed_can_be_acked(queue: shardq.Queue, batch: shardq.Batch) -> None:
    assert queue.remove(batch[0].id)
    assert not queue.remove(batch[0].id)
    batch.ack()
    assert queue.peek() == []


@pytest.mark.parametrize(
    "move", [lambda batch: batch.forward("target"), lambda batch: batch.dead_letter("why")]
)
def test_a_move_leaves_out_bundles_that_are_lost_and_moves_the_others(
    client: shardq.Client, clock: ManualClock, move: Callable[[shardq.Batch], None]
) -> None:
    client.create_queue("target")
    queue = client.create_queue("one", shards=1, time_shards=1, visibility_timeout=10)
    with queue.producer(bundle_messages=2) as producer:
        producer.send_many([b"1", b"2", b"3", b"4"])
    batch = queue.consumer().receive(4)
    clock.advance(11)
    assert len(queue.consumer().receive(2)) == 2
    with pytest.raises(shardq.LeaseLost) as error:
        move(batch)
    assert len(error.value.messages) == 2
    moved = client.queue("target").peek() + client.queue("one.dead").peek()
    assert sorted(message.body for message in moved) == [b"3", b"4"]


def test_forward_moves_messages_whole(client: shardq.Client, queue: shardq.Queue) -> None:
    target = client.create_queue("target")
    with queue.producer() as producer:
        producer.send_many([b"1", b"2", b"3"], priority=2, headers={"a": 1})
    batch = queue.consumer().receive(3)
    batch[1].forward("target")
    batch.forward("target")
    moved = list(target.consumer().receive(10))
    assert sorted(message.body for message in moved) == [b"1", b"2", b"3"]
    assert {(message.priority, message.headers["a"], message.deliveries) for message in moved} == {(2, 1, 1)}
    assert queue.peek() == []
    with pytest.raises(shardq.QueueNotFound):
        moved[0].forward("nowhere")


def test_after_too_many_deliveries_a_message_goes_to_the_dead_letter_queue(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("poison", max_deliveries=2)
    with queue.producer() as producer:
        producer.send_many([b"bad", b"good"], headers={"mine": 1})
    consumer = queue.consumer()
    for _ in range(2):
        batch = consumer.receive(2)
        assert len(batch) == 2
        clock.advance(30)
    assert len(consumer.receive(2)) == 0
    (letter, _) = client.queue("poison.dead").consumer().receive(10)
    assert (letter.body, letter.headers["mine"], letter.headers["shardq-queue"]) == (b"bad", 1, "poison")
    assert letter.headers["shardq-deliveries"] == 2
    assert letter.headers["shardq-reason"] == "delivered too often"
    assert queue.peek() == []
    assert client.counters.dead_lettered == 2


def test_redrive_sends_dead_letters_back_as_they_were(client: shardq.Client) -> None:
    queue = client.create_queue("poison")
    with queue.producer() as producer:
        producer.send_many([b"%d" % number for number in range(7)], headers={"mine": 1}, priority=1)
    queue.consumer().receive(7).dead_letter("cannot be read")
    assert client.queue("poison.dead").counts().ready == 7
    assert queue.redrive(limit=3) == 3
    assert queue.redrive() == 4
    assert queue.redrive() == 0
    back = queue.consumer().receive(10)
    assert sorted(message.body for message in back) == [b"%d" % number for number in range(7)]
    assert {(tuple(message.headers), message.priority, message.deliveries) for message in back} == {
        (("mine",), 1, 1)
    }
    assert client.queue("poison.dead").peek() == []


def test_redrive_leaves_other_queues_letters_where_they_are(client: shardq.Client) -> None:
    one = client.create_queue("one", dead_letter_queue="graves")
    two = client.create_queue("two", dead_letter_queue="graves")
    for queue in (one, two):
        with queue.producer() as producer:
            producer.send(queue.name.encode())
        queue.consumer().receive(1).dead_letter("over")
    assert two.redrive() == 1
    (letter,) = client.queue("graves").consumer().receive(10)
    assert (letter.body, letter.deliveries) == (b"one", 1)


def test_a_redrive_meets_the_letters_of_other_queues_once_however_few_it_may_move(url: str) -> None:
    store = FaultyStore(open_store(url, SystemClock()), FaultPlan())
    client = shardq.Client(store)
    one = client.create_queue("one", dead_letter_queue="graves")
    two = client.create_queue("two", dead_letter_queue="graves")
    for queue, letters in ((one, 100), (two, 3)):
        with queue.producer() as producer:
            producer.send_many([b"%d" % number for number in range(letters)])
        queue.consumer().receive(letters).dead_letter("over")
    before = len([call for call in store.calls if call.method == "claim"])
    assert two.redrive(limit=2) == 2
    assert len([call for call in store.calls if call.method == "claim"]) <= before + 2
    graves = client.queue("graves").consumer().receive(200)
    assert (len(graves), {letter.deliveries for letter in graves}) == (101, {1})
    client.close()


@pytest.mark.parametrize("reason", [None, 5, b"bytes"])
def test_a_reason_that_is_no_text_is_refused_and_its_message_stays_held(
    queue: shardq.Queue, batch: shardq.Batch, reason: object
) -> None:
    with pytest.raises(shardq.InvalidSetting, match="reason"):
        batch.dead_letter(reason)  # type: ignore[arg-type]
    batch.ack()
    assert queue.peek() == []


def test_bytes_that_are_no_text_are_escaped_in_the_reason_of_a_dead_letter(
    client: shardq.Client, queue: shardq.Queue, batch: shardq.Batch
) -> None:
    batch.dead_letter("no file \udcff")
    assert {letter.headers["shardq-reason"] for letter in client.queue(f"{queue.name}.dead").peek(20)} == {
        "no file \\udcff"
    }


def test_history_keeps_what_was_acked_for_its_retention_and_replays_it(
    client: shardq.Client, clock: ManualClock
) -> None:
    queue = client.create_queue("kept", history_retention=100)
    with queue.producer() as producer:
        producer.send_many([b"%d" % number for number in range(6)])
    batch = queue.consumer().receive(6)
    batch[2].ack()
    clock.advance(10)
    batch.ack()
    history = list(queue.history())
    assert [message.body for message in history] == [b"2", b"0", b"1", b"3", b"4", b"5"]
    assert queue.counts().processed == 6
    assert [message.body for message in queue.history(since=history[1].due)] == [b"0", b"1", b"3", b"4", b"5"]
    assert queue.replay(until=history[1].due) == 1
    assert everything(queue) == [b"2"]
    clock.advance(91)
    assert len(list(queue.history())) == 5
    queue.sweep()
    assert queue.counts().processed == 5
    clock.advance(100)
    queue.sweep()
    assert queue.counts().processed == 0


def test_receipts_settle_messages_in_another_process(
    connect: Callable[[], shardq.Client], queue: shardq.Queue, batch: shardq.Batch, clock: ManualClock
) -> None:
    other = connect().queue(queue.name)
    receipts = [message.receipt for message in batch]
    other.ack(receipts[:4])
    other.ack(receipts[:4])
    other.extend(receipts[4:6], 100)
    other.release(receipts[6:8])
    assert len(everything(queue)) == 2
    with pytest.raises(shardq.LeaseLost) as caught:
        other.ack(receipts)
    assert sorted(caught.value.messages) == sorted(receipts[6:8])


@pytest.mark.parametrize(
    "receipt",
    [
        "",
        "x",
        "a:b:c",
        None,
        7,
        "queue:0:0:" + "g" * 32 + ":0:" + "0" * 32,
        "q:-1:0:" + "0" * 32 + ":0:" + "0" * 32,
    ],
)
def test_a_malformed_receipt_is_refused(queue: shardq.Queue, receipt: str) -> None:
    with pytest.raises(shardq.InvalidReceipt):
        queue.ack([receipt])


def test_a_foreign_receipt_or_id_is_refused_and_nothing_is_done(
    client: shardq.Client, queue: shardq.Queue, batch: shardq.Batch
) -> None:
    other = client.create_queue("other")
    with pytest.raises(shardq.InvalidReceipt, match="other"):
        other.ack([batch[0].receipt])
    with pytest.raises(shardq.InvalidReceipt):
        other.remove(batch[0].id)
    assert queue.counts().in_flight == 10


def test_a_live_consumer_sweeps_the_history_that_is_over(client: shardq.Client, clock: ManualClock) -> None:
    queue = client.create_queue("kept", history_retention=100)
    with queue.producer() as producer:
        producer.send(b"x")
    with queue.consumer() as consumer:
        consumer.receive(1).ack()
        clock.advance(101)
        consumer.receive(1)
    assert queue.counts().processed == 0


def test_only_what_was_acked_or_forwarded_is_in_the_history(client: shardq.Client) -> None:
    queue = client.create_queue("kept", history_retention=100, max_deliveries=None)
    client.create_queue("next")
    with queue.producer() as producer:
        producer.send_many([b"acked", b"forwarded", b"dead", b"replaced"])
    batch = queue.consumer().receive(4)
    batch[1].forward("next")
    batch[2].dead_letter("broken")
    batch[3].release(body=b"new", delay=60)
    batch.ack()
    assert sorted(message.body for message in queue.history()) == [b"acked", b"forwarded"]
    assert client.queue("kept.dead").counts().ready == 1
    assert queue.redrive() == 1


def test_redrive_of_a_queue_without_dead_letters_moves_nothing(client: shardq.Client) -> None:
    assert client.create_queue("plain", max_deliveries=None).redrive() == 0


def test_a_redrive_makes_no_queue(client: shardq.Client) -> None:
    client.create_queue("orders")
    with pytest.raises(shardq.QueueNotFound, match="shardq redrive orders`"):
        client.queue("orders.dead").redrive()
    assert client.queues() == ("orders", "orders.dead")


@pytest.mark.parametrize("end", ["ack", "dead_letter"])
def test_a_keeper_that_comes_too_late_does_not_make_an_ack_look_well(
    queue: shardq.Queue, batch: shardq.Batch, clock: ManualClock, end: str
) -> None:
    # Given messages whose lease ran out, of which another consumer made an end
    clock.advance(31)
    other = queue.consumer().receive(10)
    other.ack() if end == "ack" else other.dead_letter("twice is enough")
    # When the lease keeper of the first, which stood still, extends what is gone
    keep_lease(batch, 30)
    # Then its ack is told of the loss
    with pytest.raises(shardq.LeaseLost):
        batch.ack()
