"""Columns of rows become what a message is sent with, or are refused by name.

The sink is used as a task uses it, without Spark: an attempt is a call of ``write``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import shardq
from shardq.base.clock import from_datetime
from shardq.errors import InvalidMessage, InvalidSetting, ShardqError, UnsupportedByStore
from shardq.spark import spool
from shardq.storage.sqlite.store import SqliteStore
from shardq.testing.seam import store_of
from tests.spark.every_store import on_every_store

LATER = datetime(2100, 1, 1, tzinfo=UTC)
LAST = from_datetime(datetime.max.replace(tzinfo=UTC))
"""The end of the year 9999. Spark's own moments go on, and are given in microseconds here."""

Send = Callable[..., int]


def bodies(messages: Iterable[shardq.Message]) -> list[str]:
    return [message.body.decode() for message in messages]


def received(queue: shardq.Queue) -> list[str]:
    """All that can be received, one claim after the other."""
    with queue.consumer() as consumer:
        found = []
        for batch in consumer.batches(1_000, wait=0):
            found += bodies(batch)
            batch.ack()
    return found


@on_every_store
def test_rows_have_a_delay_a_ttl_a_group_and_keys(make_queue, send) -> None:
    queue = make_queue(dedupe_window=3_600.0)
    columns = "body string, priority int, delay double, due timestamp, ttl double, group string, "
    columns += "unique_key string, once string"
    rows = [
        ("plain", None, None, None, None, None, None, None),
        ("late", 2, 3_600.0, None, 60.0, None, None, None),
        ("due", None, None, LATER, None, None, None, None),
        ("grouped", None, None, None, 90.0, "customer 7", None, None),
        ("unique", None, None, None, None, None, "report", None),
        ("once", None, None, None, None, None, None, "k"),
        ("both", None, None, None, None, "customer 8", "other report", None),
    ]
    before = datetime.now(UTC)
    assert send(queue, columns, rows, dedupeKeyColumn="once") == len(rows)
    found = {message.body.decode(): message for message in queue.peek(100)}
    assert sorted(found) == sorted(row[0] for row in rows)
    assert (found["late"].priority, found["plain"].priority) == (2, 5)
    assert found["due"].due == LATER
    assert found["late"].due - before > timedelta(seconds=3_590)
    expires = found["late"].expires_at
    assert expires is not None
    assert expires - found["late"].due == timedelta(seconds=60)
    assert found["plain"].expires_at is None
    assert (found["grouped"].group, found["both"].group) == ("customer 7", "customer 8")
    with queue.producer() as producer:
        assert producer.send(b"again", unique_key="report") == found["unique"].id
        assert producer.send(b"again", dedupe_key="k") == found["once"].id
        assert producer.send(b"again", unique_key="other report") == found["both"].id


@on_every_store
def test_rows_of_a_group_are_delivered_in_their_order_whatever_else_differs(
    make_queue, send, monkeypatch
) -> None:
    """Also over the borders of parts, and when a task is tried again half way."""
    monkeypatch.setattr(spool, "PART_MESSAGES", 25)
    queue = make_queue()
    chance = random.Random(5)
    rows = [
        (f"{number}", f"{number % 3}", chance.choice((None, 1, 9)), chance.choice((None, 3_600.0)))
        for number in range(60)
    ]
    columns = "body string, group string, priority int, ttl double"
    options = {"inputOrder": "stable", "runId": "job", "bundleMessages": 5}
    _send_half(send, queue, columns, rows, options, monkeypatch)
    assert send(queue, columns, rows, **options) > 0
    assert send(queue, columns, rows, **options) == 0
    found = received(queue)
    assert sorted(map(int, found)) == list(range(60))
    for group in range(3):
        of_group = [int(body) for body in found if int(body) % 3 == group]
        assert of_group == sorted(of_group)


def _send_half(
    send: Send, queue: shardq.Queue, columns: str, rows: Any, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that dies after its first request."""
    store = type(store_of(queue))
    requests, append = itertools.count(), store.append

    def die(own: Any, request: Any) -> None:
        if next(requests) == 1:
            raise RuntimeError("the task died here")
        append(own, request)

    with monkeypatch.context() as dying:
        dying.setattr(store, "append", die)
        with pytest.raises(RuntimeError, match="died here"):
            send(queue, columns, rows, **options)
    assert queue.counts().ready > 0


@on_every_store
@pytest.mark.parametrize("key", ["unique_key", "once"])
def test_rows_with_keys_are_stored_once_however_often_they_come(make_queue, send, key, monkeypatch) -> None:
    queue = make_queue(dedupe_window=3_600.0)
    columns, named = f"body string, {key} string", {"dedupeKeyColumn": "once"} if key == "once" else {}
    rows = [(f"{number}", f"key {number % 20}") for number in range(40)]
    options = {"runId": "job", "bundleMessages": 5} | named
    _send_half(send, queue, columns, rows, options, monkeypatch)
    assert send(queue, columns, rows, **options) == 20
    assert send(queue, columns, rows, **options) == 0
    assert send(queue, columns, rows, **named) == 0  # as another job
    assert queue.counts().ready == 20
    found = received(queue)
    assert len(found) == len({int(body) % 20 for body in found}) == 20
    assert send(queue, columns, rows[:20], **named) == (20 if key == "unique_key" else 0)


def test_the_messages_of_a_group_take_all_lanes_of_a_queue_the_same_ones_in_every_attempt(
    make_queue, send, monkeypatch
) -> None:
    queue = make_queue(group_concurrency=4)
    rows = [(f"{number}", "one") for number in range(40)]
    columns, options = "body string, group string", {"inputOrder": "stable", "runId": "job"}
    _send_half(send, queue, columns, rows, options | {"bundleMessages": 1}, monkeypatch)
    queue.alter(group_concurrency=2)  # the first attempt decided on four
    send(queue, columns, rows, **options | {"bundleMessages": 1})
    assert len(list(queue.peek(100))) == 40
    with queue.consumer() as consumer:
        claimed = consumer.receive(1, wait=0), consumer.receive(1, wait=0), consumer.receive(1, wait=0)
        assert all(len(batch) == 1 for batch in claimed)


def test_rows_that_come_in_any_order_are_sent_with_their_own_names_and_numbers(make_queue, send) -> None:
    queue = make_queue()
    columns = "body string, group string, ttl int, delay decimal(5,1), headers map<string, string>"
    rows = [
        (
            f"{number}",
            None if number % 4 == 0 else f"g{number % 5}",
            None if number % 3 == 0 else number + 1,
            Decimal(number % 2) / 2,
            [("n", f"{number}")] if number % 2 else None,
        )
        for number in range(50)
    ]
    random.Random(1).shuffle(rows)
    assert send(queue, columns, rows) == 50
    for message in queue.peek(100):
        number = int(message.body)
        assert message.group == (None if number % 4 == 0 else f"g{number % 5}")
        expected = None if number % 3 == 0 else timedelta(seconds=number + 1)
        assert (message.expires_at and message.expires_at - message.due) == expected
        assert message.due - message.enqueued_at == timedelta(seconds=number % 2 / 2)
        assert message.headers == ({"n": f"{number}"} if number % 2 else {})


@pytest.mark.parametrize(
    ("columns", "row", "parts"),
    [
        ("body string, ttl double", ("x", 0.0), ["column 'ttl'", "ttl=0.0", "give seconds from 0.001"]),
        ("body string, ttl double", ("x", float("nan")), ["column 'ttl'", "ttl=nan", "give seconds"]),
        ("body string, ttl int", ("x", -5), ["column 'ttl'", "ttl=-5", "give seconds"]),
        ("body string, delay double", ("x", -1.0), ["column 'delay'", "delay=-1.0", "give seconds"]),
        ("body string, delay double", ("x", 1e12), ["column 'delay'", "delay=1000000000000.0", "give seconds"]),
        ("body string, group string", ("x", ""), ["column 'group'", "group=''", "1 to 200 characters"]),
        ("body string, group string", ("x", "g" * 201), ["column 'group'", "ggg", "1 to 200 characters"]),
        ("body string, group string", ("x", "a\x1f1"), ["column 'group'", "a\\x1f1", "give another name"]),
        ("body string, unique_key string", ("x", ""), ["column 'unique_key'", "unique_key=''", "characters"]),
        ("body string, once string", ("x", "shardq-a"), ["column 'once'", "'shardq-a'", "give another one"]),
        ("body string, priority int", ("x", 10), ["column 'priority'", "10", "0 (first) to 9 (last)"]),
        ("body string, due timestamp", ("x", LAST + 1), ["column 'due'", "the year 10000", "give a moment"]),
        ("body string, wait timestamp", ("x", 2**63 - 1), ["column 'wait'", "the year 294247", "give a moment"]),
        (
            "body string, headers map<string,string>",
            ("x", [("n" * 300, "")]),
            ["column 'headers'", "nnn", "1 to 200 characters"],
        ),
        ("body string, headers map<string,string>", ("x", [("n", None)]), ["column 'headers'", "null", "leave it out"]),
        (
            "body string, delay double, due timestamp",
            ("x", 5.0, LATER),
            ["column 'delay' is 5", "'due'", "give one of them"],
        ),
        (
            "body string, once string, unique_key string",
            ("x", "a", "b"),
            ["column 'once' is 'a'", "'unique_key'", "give one of them"],
        ),
    ],
)  # fmt: skip
def test_a_value_that_no_message_can_have_is_named_with_its_column_and_its_remedy(
    make_queue, send, columns, row, parts
) -> None:
    queue, named = make_queue(), {"dedupeKeyColumn": "once"} if "once" in columns else {}
    named |= {"dueColumn": "wait"} if "wait" in columns else {}
    with pytest.raises(InvalidMessage) as caught:
        send(queue, columns, [("fine", *[None] * (len(row) - 1)), row], **named)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert queue.counts().ready == 0


@pytest.mark.parametrize("due", [LAST, -(2**63) + 1, 0, None])
def test_every_moment_that_a_row_may_be_due_at_can_be_looked_at(make_queue, send, due) -> None:
    queue = make_queue()
    assert send(queue, "body string, due timestamp, ttl double", [("x", due, 100.0)]) == 1
    (message,) = queue.peek(10)
    assert message.due == (datetime.max.replace(tzinfo=UTC) if due == LAST else message.enqueued_at)


@pytest.mark.parametrize(
    ("columns", "options", "parts"),
    [
        ("body string, ttl string", {}, ["column 'ttl' is string", "cast it to double"]),
        ("body string, delay timestamp", {}, ["column 'delay' is timestamp", "cast it to double"]),
        ("body string, group double", {}, ["column 'group' is double", "cast it to string"]),
        ("body string, unique_key binary", {}, ["column 'unique_key' is binary", "cast it to string"]),
        ("body string", {"ttlColumn": "age"}, ["no column 'age' for the ttl", "they have body"]),
        ("body string", {"dedupeKeyColumn": "k"}, ["no column 'k' for the dedupe_key"]),
        ("body string, key string, group string", {"shardBy": "key"}, ["shardBy=key", "'group'", "leave shardBy"]),
        ("body string, colour string", {}, ["column 'colour' would be lost", "ttl", "group", "unique_key"]),
    ],
)  # fmt: skip
def test_a_column_that_cannot_be_used_is_named_before_a_row_is_sent(
    queue, send, columns, options, parts
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        send(queue, columns, [], **options)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_columns_with_numbers_and_other_names_serve_as_names(make_queue, send) -> None:
    queue = make_queue()
    options = {
        "groupColumn": "customer",
        "uniqueKeyColumn": "order",
        "ttlColumn": "age",
        "delayColumn": "wait",
    }
    columns = "body string, customer bigint, order int, age int, wait int"
    assert send(queue, columns, [("x", 7, 8, 9, 10), ("y", 7, 8, None, None)], **options) == 1
    (message,) = queue.peek(10)
    assert (message.group, message.unique_key) == ("7", "8")


def test_dedupe_keys_that_a_reader_made_are_passed_over_unless_they_are_asked_for(make_queue, send) -> None:
    queue = make_queue(dedupe_window=3_600.0)
    queue.producer().send(b"x", dedupe_key="k")
    columns = "body string, dedupe_key string"
    assert send(queue, columns, [("a dead letter that comes back", "k")]) == 1
    assert send(queue, columns, [("again", "k")], dedupeKeyColumn="dedupe_key") == 0


def test_a_group_is_refused_before_a_row_is_sent_where_the_store_has_none(queue, send, monkeypatch) -> None:
    lacking = msgspec.structs.replace(SqliteStore.capabilities, groups=False)
    monkeypatch.setattr(SqliteStore, "capabilities", lacking)
    with pytest.raises(UnsupportedByStore, match=r"column 'group': the store .* replica set of MongoDB"):
        send(queue, "body string, group string", [])


def test_what_rows_have_is_part_of_what_a_repeated_run_compares(make_queue, send) -> None:
    for columns, one, other in (
        ("body string, ttl int", ("x", 5), ("x", 6)),
        ("body string, delay int", ("x", 5), ("x", 6)),
        ("body string, group string", ("x", "a"), ("x", "b")),
        ("body string, unique_key string", ("x", "a"), ("x", "b")),
    ):
        queue = make_queue()
        for extra in ((), ("id",)):
            run = {"runId": f"job {extra}"}
            ids = "".join(f", {name} string" for name in extra)
            send(queue, columns + ids, [(*one, *extra)], **run)
            with pytest.raises(ShardqError, match="other messages than in an earlier attempt"):
                send(queue, columns + ids, [(*other, *extra)], **run)
