"""Messages whose dedupe keys were not confirmed, sent again: there a bundle is known by its whole place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import shardq
from shardq.storage.cassandra.rows import CONTROL
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import DedupeEntry
from tests.dying_store import STEPS, Died, DyingStore

pytestmark = pytest.mark.server

LONG = b"long" * 10_000  # too long to be kept inside its row


@pytest.mark.parametrize(
    "options",
    [{}, {"priority": 0}, {"delay": 30.0}, {"due": datetime(2030, 1, 1, tzinfo=UTC)}],
    ids=["as it was", "another priority", "another delay", "a due time"],
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_message_is_stored_once_however_it_is_sent_again(
    open_store: Callable[[], CassandraStore], options: dict[str, Any], *, after: bool
) -> None:
    client = shardq.Client(open_store())
    for step in ("append", "confirm_keys"):
        queue = client.create_queue(f"k{os.urandom(6).hex()}", shards=1, time_shards=1)
        dying = DyingStore(open_store())
        producer = shardq.Client(dying).queue(queue.name).producer()
        dying.calls_left, dying.after = STEPS.index(step) - STEPS.index("reserve_keys"), after
        with pytest.raises(Died):
            producer.send(b"x", dedupe_key="key")
        first = queue.producer().send(LONG, dedupe_key="key", **options)
        (message,) = queue.consumer().receive(5, wait=10)
        assert (message.id, message.priority, message.body in (b"x", LONG)) == (first, 5, True)
        message.ack()
        assert queue.counts().oldest is None
        client.delete_queue(queue.name)


def test_a_message_that_two_producers_send_at_once_is_stored_once(
    open_store: Callable[[], CassandraStore],
) -> None:
    client = shardq.Client(open_store())
    queue = client.create_queue(f"k{os.urandom(6).hex()}", shards=1, time_shards=1)

    class Overtaken(DyingStore):
        def append(self, request: Any) -> None:
            queue.producer().send(b"other", dedupe_key="key", priority=0, delay=60)
            super().append(request)

    first = shardq.Client(Overtaken(open_store())).queue(queue.name).producer().send(b"own", dedupe_key="key")
    (message,) = queue.consumer().receive(5, wait=10)
    assert message.id == first
    message.ack()
    assert queue.counts().oldest is None
    client.delete_queue(queue.name)


def test_a_confirmation_ends_before_its_reservation_and_is_not_made_after_the_window(
    open_store: Callable[[], CassandraStore],
) -> None:
    # Given a key of which only the reservation was made
    store = open_store()
    queue = shardq.Client(store).create_queue(f"k{os.urandom(6).hex()}", shards=1, time_shards=1)
    for window in (1.0, 600.0):
        entry = DedupeEntry(f"key{window:g}", "message")
        store.reserve_keys(queue.name, [entry], int(window * 1_000_000))
    time.sleep(1.2)
    # When both are confirmed, one after its window
    store.confirm_keys(queue.name, [DedupeEntry("key1", "message"), DedupeEntry("key600", "message")])
    # Then no confirmation stays without its reservation, which would stand in the way of the next one
    rows = store.session.read("SELECT key, TTL(message_id), TTL(confirmed) FROM dedupe", ())
    ends = {row[0]: row[1:] for row in rows if row[0] in ("key1", "key600")}
    assert ends["key1"][1] is None
    assert 600 < ends["key600"][1] < ends["key600"][0] - 20
    shardq.Client(store).delete_queue(queue.name)


@pytest.mark.parametrize("late", [False, True], ids=["before it is received", "after it was received"])
@pytest.mark.parametrize(("body", "other"), [(b"x", LONG), (LONG, b"x")], ids=["short", "long"])
def test_a_message_that_two_producers_send_at_once_leaves_one_body_and_then_none(
    open_store: Callable[[], CassandraStore], body: bytes, other: bytes, *, late: bool
) -> None:
    # Given a message that one producer stores where another one has just stored it with a body of another kind
    store = open_store()
    client = shardq.Client(store)
    queue = client.create_queue(f"k{os.urandom(6).hex()}", shards=1, time_shards=1, history_retention=3600)
    received: list[shardq.Message] = []

    class Overtaken(DyingStore):
        def append(self, request: Any) -> None:
            queue.producer().send(other, dedupe_key="key")
            received.extend(queue.consumer().receive(5, wait=10) if late else ())
            super().append(request)

    first = shardq.Client(Overtaken(open_store())).queue(queue.name).producer().send(body, dedupe_key="key")
    (message,) = received or queue.consumer().receive(5, wait=10)
    # When it is acked, then it is in the history, as it was received
    message.ack()
    (kept,) = queue.history()
    assert (kept.id, kept.body) == (first, message.body)
    # And when it is removed from there, then nothing is left of it
    assert queue.remove(first)
    (shard,) = store.shards(queue.name)
    rows = store.session.read("SELECT kind FROM entry WHERE shard = ?", (str(store.place(shard)),))
    assert [kind for (kind,) in rows if kind != CONTROL] == []
    client.delete_queue(queue.name)
