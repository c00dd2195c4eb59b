"""Every message that has a large body has an entry of its own, or is not stored."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.core.large import collecting, layout
from shardq.storage.bundles import made_at
from shardq.storage.requests import Append, Bundle, StoredSlice
from shardq.testing import ManualClock
from shardq.testing.seam import store_of
from tests.large.conftest import CONTENT, stored_bodies


def test_a_message_whose_entry_would_be_that_of_another_one_is_not_stored(
    client: shardq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of an entry has 31 bits: among 10,000 messages that have one body two may have the same."""

    def the_same(body_id: bytes, message_id: str) -> bytes:
        return body_id[:-4] + bytes([255] * 4)

    for module in (layout, collecting):
        monkeypatch.setattr(module, "owner_id", the_same)
    queue = client.create_queue("films", shards=1, time_shards=1)
    with queue.producer() as producer, queue.consumer() as consumer:
        producer.send_stream(io.BytesIO(CONTENT))
        (message,) = consumer.receive(2)
        with pytest.raises(shardq.StoreUnavailable, match="send it again, as a new message"):
            producer.send(message.large)
        with message.open() as body:
            assert body.read() == CONTENT
        message.ack()
        assert not consumer.receive(1)


def test_a_damaged_entry_keeps_its_body_and_that_of_nobody_else(
    client: shardq.Client, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    queue = client.create_queue("films", shards=1, time_shards=1)
    kept, gone = [], []
    for number in range(20):  # in all shards of bodies
        queue.producer().send_stream(io.BytesIO(CONTENT))
        body = queue.peek(1)[0].large
        assert body is not None
        queue.purge()
        (kept if number % 2 else gone).append(body.id)
    for body_id in kept:
        now = clock.now()
        damaged = Bundle(layout.owner_id(body_id, "x"), 0, made_at(body_id), now, 1, b"\xc1")
        store_of(client).append(Append(layout.shard_of(body_id), (damaged,)))
    clock.advance(3 * 3_600)
    queue.sweep()
    assert set(stored_bodies(client)) == set(kept)
    assert caplog.text.count("is damaged") >= len(kept)


def send_again(client: shardq.Client, message: shardq.Message) -> None:
    client.queue("other").producer().send(message.large)
    message.ack()


MOVES: dict[str, Callable[[shardq.Client, shardq.Message], None]] = {
    "forward": lambda _, message: message.forward("other"),
    "dead letter": lambda _, message: message.dead_letter("why"),
    "send again": send_again,
}


@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
def test_a_message_that_moves_while_another_one_leaves_keeps_their_body(
    client: shardq.Client,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[[shardq.Client, shardq.Message], None],
) -> None:
    queue = client.create_queue("films", shards=1, time_shards=1)
    client.create_queue("other")
    queue.producer().send_stream(io.BytesIO(CONTENT))
    queue.producer().send(queue.peek(1)[0].large)
    clock.advance(3 * 3_600)
    leaving, moving = queue.consumer().receive(2)
    store, moved = store_of(queue), list[Shard]()
    find = store.find

    def move_meanwhile(shard: Shard, *place: Any) -> StoredSlice | None:
        """Between the list of the entries and the first look at who has them."""
        if shard.queue == layout.BODIES and not moved:
            moved.append(shard)
            move(client, moving)
        return find(shard, *place)

    monkeypatch.setattr(store, "find", move_meanwhile)
    leaving.ack()
    assert moved
    (message,) = client.consumer(["other", "films.dead"]).receive(2)
    with message.open() as body:
        assert body.read() == CONTENT
    message.ack()
