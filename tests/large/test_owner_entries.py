"""Every message that has a large body has an entry of its own, or is not stored."""

from __future__ import annotations

import io

import pytest

import shardq
from shardq.large import collecting, layout
from tests.large.conftest import CONTENT


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
