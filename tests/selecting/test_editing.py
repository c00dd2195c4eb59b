"""Editing a message that waits, on every store: in one step, and refused once somebody holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import shardq

Connect = Callable[[], shardq.Client]


@pytest.fixture
def queue(connect_any: Connect, name: str) -> shardq.Queue:
    return connect_any().create_queue(name, shards=1, time_shards=1)


def received(queue: shardq.Queue) -> list[shardq.Message]:
    with queue.consumer() as consumer:
        batch = consumer.receive(100)
        batch.ack()
        return list(batch)


def test_body_headers_and_priority_change_and_what_is_not_named_stays(queue: shardq.Queue) -> None:
    sent = queue.producer().send(b"old", headers={"tenant": "acme"}, priority=3)
    others = queue.producer().send_many([b"before", b"edited", b"behind"])
    changed = queue.edit(sent, body=b"new")
    assert queue.get(sent) is None
    found = queue.get(changed)
    assert found is not None
    assert (found.body, found.headers, found.priority) == (b"new", {"tenant": "acme"}, 3)
    again = queue.edit(others[1], headers={"tenant": "other"}, priority=9)
    assert queue.get(again).headers == {"tenant": "other"}
    assert [message.body for message in received(queue)] == [b"new", b"before", b"behind", b"edited"]
    assert queue.counts().ready == 0


def test_the_due_time_can_be_put_off_and_brought_forward(queue: shardq.Queue) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    first, second = (queue.producer().send(body, delay=delay) for body, delay in ((b"1", 0), (b"2", 600)))
    first = queue.edit(first, due=later)
    assert abs(queue.get(first).due - later) < timedelta(milliseconds=1)
    queue.edit(second, delay=0)
    assert [message.body for message in received(queue)] == [b"2"]
    unchanged = queue.edit(first, body=b"3")
    assert queue.get(unchanged).due == queue.get(unchanged).due
    assert abs(queue.get(unchanged).due - later) < timedelta(milliseconds=1)


def test_a_message_in_flight_is_not_edited_and_is_after_its_release(queue: shardq.Queue) -> None:
    sent = queue.producer().send(b"old")
    with queue.consumer() as consumer:
        (message,) = consumer.receive()
        with pytest.raises(shardq.MessageNotPending, match="in flight"):
            queue.edit(sent, body=b"new")
        message.release(delay=600)
    changed = queue.edit(sent, delay=0)
    (message,) = received(queue)
    assert (message.id, message.body) == (changed, b"old")


def test_a_message_whose_lease_has_expired_is_edited_and_its_late_ack_is_refused(queue: shardq.Queue) -> None:
    sent = queue.producer().send(b"old")
    with queue.consumer(visibility_timeout=0.05) as consumer:
        (message,) = consumer.receive()
        while queue.counts().in_flight:
            threading.Event().wait(0.02)
        queue.edit(sent, body=b"new")
        with pytest.raises(shardq.LeaseLost):
            message.ack()
    assert [message.body for message in received(queue)] == [b"new"]


def test_of_an_edit_and_a_claim_at_the_same_moment_one_wins(
    queue: shardq.Queue, connect_any: Connect
) -> None:
    other = connect_any().queue(queue.name)
    for number in range(12):
        sent = queue.producer().send(b"old")
        go = threading.Barrier(2)
        edited: list[str] = []

        def edit(sent: str = sent, go: threading.Barrier = go, edited: list[str] = edited) -> None:
            go.wait()
            try:
                edited.append(other.edit(sent, body=b"new", delay=0.0))
            except shardq.MessageNotPending:
                edited.append("")

        thread = threading.Thread(target=edit)
        thread.start()
        with queue.consumer() as consumer:
            go.wait()
            if number % 2:
                threading.Event().wait(0.002)
            first = consumer.receive(10)
            thread.join()
            bodies = [*first.bodies, *consumer.receive(10).bodies] if edited[0] else list(first.bodies)
            assert bodies == [b"new" if edited[0] else b"old"]
            first.ack()
        queue.purge()


def test_keys_of_an_edited_message_still_refuse_a_second_one(queue: shardq.Queue) -> None:
    producer = queue.producer()
    unique = producer.send(b"unique", unique_key="key")
    deduped = producer.send(b"deduped", dedupe_key="key")
    changed = queue.edit(unique, body=b"changed")
    queue.edit(deduped, body=b"changed too")
    assert producer.send(b"second", unique_key="key") == changed
    producer.send(b"second", dedupe_key="key")
    assert sorted(message.body for message in received(queue)) == [b"changed", b"changed too"]


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({}, shardq.InvalidSetting, "changes nothing"),
        ({"priority": 10}, shardq.InvalidMessage, "priority"),
        ({"headers": {"x": []}}, shardq.InvalidMessage, "header"),
        ({"due": datetime(2026, 1, 1)}, shardq.InvalidMessage, "aware"),
        ({"body": "text"}, shardq.InvalidMessage, "bytes"),
        ({"body": b"x" * 2_000_000}, shardq.MessageTooLarge, "max_message_bytes"),
    ],
)
def test_what_cannot_be_stored_changes_nothing(
    client: shardq.Client, wrong: dict[str, Any], error: type[shardq.ShardqError], told: str
) -> None:
    queue = client.create_queue("orders")
    sent = queue.producer().send(b"old")
    with pytest.raises(error, match=told):
        queue.edit(sent, **wrong)
    assert queue.get(sent).body == b"old"


def test_what_does_not_wait_any_more_is_not_edited(client: shardq.Client) -> None:
    queue = client.create_queue("orders", history_retention=60.0)
    sent = queue.producer().send(b"old")
    received(queue)
    with pytest.raises(shardq.MessageNotPending, match="processed"):
        queue.edit(sent, body=b"new")
    with pytest.raises(shardq.MessageNotPending, match="not stored"):
        queue.edit(sent[:-1] + "7", body=b"new")


def test_a_message_of_a_group_keeps_its_place(queue: shardq.Queue) -> None:
    producer = queue.producer()
    first, *_, last = [producer.send(body, group="g") for body in (b"1", b"2", b"3")]
    try:
        queue.edit(last, body=b"third")
    except shardq.UnsupportedByStore as error:
        assert "receive it" in str(error)
        return
    queue.edit(first, body=b"first", headers={"x": 1})
    with queue.consumer() as consumer:
        held = consumer.receive(10)
        assert held.bodies == [b"first", b"2", b"third"]
        with pytest.raises(shardq.MessageNotPending):
            queue.edit(held[2].id, body=b"late")
        held.part([held[1], held[2]]).release()
        second = queue.edit(held[2].id, body=b"edited behind what is held")
        held[0].ack()
        rest = consumer.receive(10)
        assert rest.bodies == [b"2", b"edited behind what is held"]
        assert rest[1].id == second
        rest.ack()


def test_a_group_waits_for_its_first_message_that_was_put_off(queue: shardq.Queue) -> None:
    producer = queue.producer()
    first, _ = [producer.send(body, group="g") for body in (b"1", b"2")]
    try:
        later = queue.edit(first, delay=600)
    except shardq.UnsupportedByStore:
        return
    assert received(queue) == []
    queue.edit(later, delay=0)
    assert [message.body for message in received(queue)] == [b"1", b"2"]
