"""Messages that a filter means: looked at, removed, and redriven; and nothing else is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

import shardq
from shardq import MessageFilter
from shardq.base.clock import to_datetime
from shardq.testing import ManualClock


@pytest.fixture
def queue(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("orders", shards=2, time_shards=1, max_deliveries=1)


def bodies(queue: shardq.Queue, where: MessageFilter) -> list[bytes]:
    return sorted(message.body for message in queue.select(where))


def test_messages_are_found_by_header_group_and_time(queue: shardq.Queue, clock: ManualClock) -> None:
    producer = queue.producer()
    producer.send(b"old", headers={"tenant": "acme", "try": 1})
    producer.send(b"old and grouped", group="g")
    clock.advance(60)
    moment = to_datetime(clock.now())
    producer.send(b"new", headers={"tenant": "acme"})
    producer.send(b"later", delay=600)
    assert bodies(queue, MessageFilter(headers={"tenant": "acme"})) == [b"new", b"old"]
    assert bodies(queue, MessageFilter(headers={"tenant": "acme", "try": 1})) == [b"old"]
    assert bodies(queue, MessageFilter(group="g")) == [b"old and grouped"]
    assert bodies(queue, MessageFilter(sent_until=moment)) == [b"old", b"old and grouped"]
    assert bodies(queue, MessageFilter(sent_since=moment)) == [b"later", b"new"]
    assert bodies(queue, MessageFilter(due_since=moment + timedelta(seconds=1))) == [b"later"]
    assert len(bodies(queue, MessageFilter())) == 4


def test_messages_in_flight_are_found_by_the_name_or_id_of_who_holds_them(queue: shardq.Queue) -> None:
    queue.producer().send_many([b"%d" % number for number in range(6)])
    with queue.consumer(name="first") as first, queue.consumer(name="second") as second:
        held = [sorted(consumer.receive(2).bodies) for consumer in (first, second)]
        assert bodies(queue, MessageFilter(owner="first")) == held[0]
        assert bodies(queue, MessageFilter(in_flight=True)) == sorted(held[0] + held[1])
        ids = {each.name: each.id for each in queue.consumers()}
        assert bodies(queue, MessageFilter(owner=ids["second"])) == held[1]
        assert bodies(queue, MessageFilter(owner="third")) == []


def test_only_selected_messages_are_removed_and_progress_is_told(queue: shardq.Queue) -> None:
    producer = queue.producer()
    for number in range(4):
        producer.send(b"%d" % number, headers={"even": number % 2 == 0})
    told: list[int] = []
    assert queue.remove_where(MessageFilter(headers={"even": True}), progress=told.append) == 2
    assert told == [1, 2]
    assert bodies(queue, MessageFilter()) == [b"1", b"3"]


def dead_letters(queue: shardq.Queue, clock: ManualClock, reasons: dict[bytes, str]) -> None:
    """Dead letters with these reasons, a minute apart."""
    for body, reason in reasons.items():
        queue.producer().send(
            body, headers={"kind": body.decode()}, group="g" if body == b"grouped" else None
        )
        with queue.consumer() as consumer:
            consumer.receive(1)[0].dead_letter(reason)
        clock.advance(60)


@pytest.mark.parametrize(
    ("where", "moved"),
    [
        (MessageFilter(reason="timeout"), [b"a", b"grouped"]),
        (MessageFilter(headers={"kind": "b"}), [b"b"]),
        (MessageFilter(group="g"), [b"grouped"]),
        (MessageFilter(reason="timeout", group="g"), [b"grouped"]),
        (MessageFilter(reason="nothing"), []),
    ],
)
def test_only_selected_dead_letters_are_redriven(
    client: shardq.Client,
    queue: shardq.Queue,
    clock: ManualClock,
    where: MessageFilter,
    moved: list[bytes],
) -> None:
    dead_letters(queue, clock, {b"a": "timeout of 3 s", b"b": "refused", b"grouped": "timeout"})
    assert queue.redrive(where=where) == len(moved)
    assert bodies(queue, MessageFilter()) == moved
    letters = client.queue("orders.dead")
    assert letters.counts().in_flight == 0
    assert letters.counts().ready == 3 - len(moved)


def test_dead_letters_are_selected_by_when_they_became_so(
    client: shardq.Client, queue: shardq.Queue, clock: ManualClock
) -> None:
    dead_letters(queue, clock, {b"a": "x", b"b": "x", b"c": "x"})
    since = to_datetime(clock.now()) - timedelta(seconds=130)
    assert bodies(client.queue("orders.dead"), MessageFilter(due_since=since)) == [b"b", b"c"]
    told: list[int] = []
    assert queue.redrive(where=MessageFilter(due_since=since), progress=told.append) == 2
    assert told[-1] == 2


def test_a_blocked_group_goes_on_only_if_all_that_blocks_it_is_selected(client: shardq.Client) -> None:
    queue = client.create_queue("lanes", max_deliveries=1, on_dead_letter="block")
    for group in ("a", "b"):
        queue.producer().send(group.encode(), group=group)
        with queue.consumer() as consumer:
            consumer.receive(1)[0].dead_letter(f"reason {group}")
    assert bodies(queue, MessageFilter(reason="reason b", blocked=True)) == [b"b"]
    assert queue.redrive(where=MessageFilter(reason="reason b")) == 1
    assert [each.body for each in queue.peek(blocked=True)] == [b"a"]


@pytest.mark.parametrize(
    "wrong",
    [{"owner": 3}, {"sent_since": datetime(2026, 1, 1)}, {"headers": ["a"]}, {"reason": b"x"}],
)
def test_a_wrong_condition_names_itself_and_the_remedy(wrong: dict[str, Any]) -> None:
    with pytest.raises(shardq.InvalidSetting, match=f"{next(iter(wrong))}=.*give"):
        MessageFilter(**wrong)


def test_dead_letters_are_not_selected_by_who_holds_them(queue: shardq.Queue) -> None:
    with pytest.raises(shardq.InvalidSetting, match="not in flight"):
        queue.redrive(where=MessageFilter(owner="somebody"))
    with pytest.raises(shardq.InvalidSetting, match="MessageFilter"):
        queue.redrive(where="reason")  # type: ignore[arg-type]
