"""What messages are acked with by receipt, in another process than the one that received them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock

DAY = 86_400.0


def create(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("sums", history_retention=DAY, keep_results=True, shards=1, time_shards=1)


@pytest.fixture
def sums(client: shardq.Client) -> shardq.Queue:
    return create(client)


def send(queue: shardq.Queue, count: int = 1) -> Sequence[str]:
    return queue.producer().send_many([b"%d" % number for number in range(count)])


def take(queue: shardq.Queue, count: int = 1, *, prefetch: int = 0) -> list[str]:
    """The receipts of messages that were received."""
    with queue.consumer(prefetch=prefetch) as consumer:
        return [message.receipt for message in consumer.receive(count, wait=5)]


def results_of(queue: shardq.Queue) -> dict[bytes, object]:
    return {each.body: each.result for each in queue.history()}


@pytest.mark.parametrize("prefetch", [0, 10])
def test_single_messages_are_acked_with_results_of_their_own(
    sums: shardq.Queue, connect: Callable[[], shardq.Client], prefetch: int
) -> None:
    ids = send(sums, 4)
    receipts = take(sums, 4, prefetch=prefetch)
    results = {receipts[1]: {"sum": 1}, receipts[2]: None}
    connect().queue("sums").ack(receipts, results=results, codec=shardq.JSON)
    assert results_of(sums) == {b"0": None, b"1": b'{"sum":1}', b"2": None, b"3": None}
    assert sums.counts().in_flight == 0
    found = sums.get(ids[1], codec=shardq.JSON)
    assert found is not None
    assert found.result == {"sum": 1}


def test_a_repeated_ack_keeps_the_first_result_and_one_after_an_ack_without_it_none(
    sums: shardq.Queue,
) -> None:
    send(sums, 2)
    first, second = take(sums, 2)
    sums.ack([first], results={first: b"once"})
    sums.ack([second])
    sums.ack([first, second], results={first: b"twice", second: b"late"})
    assert results_of(sums) == {b"0": b"once", b"1": None}


def test_a_result_is_kept_after_the_lease_while_nobody_else_has_the_message(
    sums: shardq.Queue, clock: ManualClock
) -> None:
    send(sums)
    (late,) = take(sums)
    clock.advance(31)
    sums.ack([late], results={late: b"late"})
    assert results_of(sums) == {b"0": b"late"}


@pytest.mark.parametrize("claimed_again", [False, True])
def test_the_result_of_an_ack_that_comes_too_late_is_not_shown(
    sums: shardq.Queue, clock: ManualClock, claimed_again: bool
) -> None:
    send(sums)
    (late,) = take(sums)
    sums.release([late])
    receipts = take(sums) if claimed_again else []
    with pytest.raises(shardq.LeaseLost) as raised:
        sums.ack([late], results={late: b"late"})
    assert raised.value.messages == (late,)
    sums.ack(receipts or take(sums))
    assert results_of(sums) == {b"0": None}


def test_what_cannot_be_kept_is_refused_and_nothing_is_acked(
    client: shardq.Client, sums: shardq.Queue
) -> None:
    send(sums, 2)
    one, other = take(sums, 2)
    for results, error, text in (
        ({one: b"x" * 65_537}, shardq.MessageTooLarge, "65,536"),
        ({one: 2}, shardq.InvalidMessage, "2"),
        ({other: b"2"}, shardq.InvalidReceipt, "is not among the receipts"),
        ({"x": b"2"}, shardq.InvalidReceipt, "is not a receipt"),
    ):
        with pytest.raises(error, match=text):
            sums.ack([one], results=results)
    assert sums.counts().in_flight == 2
    plain = client.create_queue("plain")
    send(plain)
    (receipt,) = take(plain)
    with pytest.raises(shardq.InvalidSetting, match="keeps no results"):
        plain.ack([receipt], results={receipt: b"2"})


@pytest.mark.parametrize("hooks", [None, shardq.Hooks()])
@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("method", ["find", "append", "acknowledge"])
def test_whatever_request_fails_a_repeated_ack_leaves_the_message_acked_with_its_result(
    url: str, clock: ManualClock, method: str, kind: FaultKind, hooks: shardq.Hooks | None
) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store, retry_seconds=0, hooks=hooks) as client:
        queue = create(client)
        send(queue)
        (receipt,) = take(queue)
        calls = Counter(call.method for call in store.calls)
        store.plan = FaultPlan(faults=(Fault(method, calls[method] + 1, kind),))
        with pytest.raises((shardq.StoreUnavailable, shardq.OutcomeUnknown)):
            queue.ack([receipt], results={receipt: b"2"})
        acked = method == "acknowledge" and kind is FaultKind.LOST_RESPONSE
        assert results_of(queue) == ({b"0": b"2"} if acked else {})
        queue.ack([receipt], results={receipt: b"2"})
        assert results_of(queue) == {b"0": b"2"}


def test_only_what_has_a_result_is_read_first(url: str, clock: ManualClock) -> None:
    store = FaultyStore(open_store(url, clock), FaultPlan())
    with shardq.Client(store) as client:
        queue = create(client)
        send(queue, 6)
        receipts = take(queue, 6)
        costs = []
        for first in (0, 2, 4):
            before = len(store.calls)
            queue.ack(receipts[first : first + 2], results={receipts[first]: b"2"} if first else None)
            costs.append(Counter(call.method for call in store.calls[before:]))
    assert costs[0] == {"acknowledge": 1}
    assert costs[2] == {"find": 1, "append": 1, "acknowledge": 1}


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_result_stands_or_falls_with_the_transaction_of_the_application(
    client: shardq.Client, sums: shardq.Queue, url: str, end: str
) -> None:
    send(sums)
    (receipt,) = take(sums)
    db = sqlite3.connect(Path(url.removeprefix("sqlite:///").partition("?")[0]), isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    with client.transaction(connection=db) as within:
        within.queue("sums").ack([receipt], results={receipt: b"2"})
    db.execute(end)
    db.close()
    if end == "ROLLBACK":
        assert client.queues("_shardq/results/") == ()
        sums.ack([receipt], results={receipt: b"3"})
    assert results_of(sums) == {b"0": b"2" if end == "COMMIT" else b"3"}
