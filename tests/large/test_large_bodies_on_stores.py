"""Large bodies on every store, in real time."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest

import shardq
from shardq.core.large import bodies, collecting
from tests.any_store import any_url
from tests.large.conftest import stored_bodies

__all__ = ["any_url"]

SIZE = 2_500_000


@pytest.fixture
def client(any_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[shardq.Client]:
    monkeypatch.setattr(bodies, "PART_BYTES", 1 << 20)
    with shardq.connect(any_url) as client:
        yield client


@pytest.fixture
def queue(client: shardq.Client) -> Iterator[shardq.Queue]:
    queue = client.create_queue(f"large{os.urandom(4).hex()}")
    yield queue
    for name in client.queues(queue.name):
        client.delete_queue(name)


def test_a_body_is_moved_and_read_and_goes_with_its_message(
    client: shardq.Client, queue: shardq.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, content = set(stored_bodies(client)), os.urandom(SIZE)
    queue.producer().send_stream(io.BytesIO(content))
    queue.producer().send_stream(io.BytesIO(content[:10]))
    for message in queue.consumer().receive(10, wait=10):
        message.dead_letter("bad") if message.large and message.large.size == SIZE else message.ack()
    assert len(stored_bodies(client).keys() - before) == 1
    assert queue.redrive() == 1
    queue.sweep()
    popped = queue.consumer().pop(wait=10)
    assert popped is not None
    with popped.open() as body:
        assert body.read() == content
        assert body.seek(SIZE // 2) == SIZE // 2
        assert body.read(100) == content[SIZE // 2 :][:100]

    monkeypatch.setattr(collecting, "GRACE", -60_000_000)  # as if everything were old
    queue.producer().send_stream(io.BytesIO(content))
    queue.sweep()
    (left,) = queue.peek()
    assert left.large is not None
    assert set(stored_bodies(client)) == {left.large.id}
    queue.purge()
    queue.sweep()
    assert stored_bodies(client) == {}
    with pytest.raises(shardq.BodyNotFound):
        popped.open().read()
