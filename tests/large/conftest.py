"""Large bodies in small parts, so that few bytes are many of them."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

import shardq
from shardq.core.large import bodies
from shardq.core.large.layout import BODIES, body_of, is_owner
from shardq.storage.requests import Peek
from shardq.testing.seam import store_of
from tests.quick_store import url

__all__ = ["url"]

PART = 100
"""Bytes of a part."""

CONTENT = bytes(range(256)) + b"end"
"""Of three parts, the last one shorter."""


def stored_bodies(client: shardq.Client) -> dict[bytes, int]:
    """The parts of each large body that is stored, owners' entries left out."""
    found: dict[bytes, int] = {}
    if not client.exists(BODIES):
        return found
    store = store_of(client)
    for shard in store.shards(BODIES):
        for piece in store.peek(Peek(shard, 10_000, bodies=False)).slices:
            body = body_of(piece.bundle.id)
            found[body] = found.get(body, 0) + (not is_owner(piece.bundle.id))
    return found


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PART_BYTES", PART)


@pytest.fixture
def send(queue: shardq.Queue) -> Callable[..., str]:
    """Sends a large body."""
    return lambda content=CONTENT, **options: queue.producer().send_stream(io.BytesIO(content), **options)
