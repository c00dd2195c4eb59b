"""A sender whose machine is suspended for hours, while others sweep, stores a whole message or none."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import pytest

import shardq
from shardq.client import Client
from shardq.storage.opening import open_store
from shardq.storage.requests import Append
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from tests.large.conftest import CONTENT, stored_bodies

P = ParamSpec("P")
T = TypeVar("T")

HOUR = 3_600
ENOUGH = 40  # requests, for any send


class Died(BaseException):
    """The process ended."""


class SuspendedStore(WrappedStore):
    """Something happens before one of its requests, but for the one that stores the message."""

    left = -1
    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def append(self, request: Append) -> None:
        if request.shard.queue == "films":
            self.inner.append(request)
        else:
            super().append(request)

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.left -= 1
        if self.left == -1:
            self.meanwhile()
        return do(*args, **kwargs)


@pytest.mark.parametrize("hours", [0.1, 3])
@pytest.mark.parametrize("options", [{}, {"dedupe_key": "a"}, {"unique_key": "a"}, {"group": "a"}], ids=str)
def test_what_a_suspended_sender_stores_is_whole(
    url: str, clock: ManualClock, options: dict[str, Any], hours: float
) -> None:
    with shardq.connect(url, clock=clock) as other:
        queue = other.create_queue("films")
        for left in range(ENOUGH):
            store = SuspendedStore(open_store(url, clock))
            store.meanwhile = lambda: (clock.advance(hours * HOUR), queue.sweep())
            with Client(store, retry_seconds=0) as client:
                producer = client.queue("films").producer()
                store.left = left
                try:
                    producer.send_stream(io.BytesIO(CONTENT), **options)
                    raised = False
                except shardq.ShardqError:
                    raised = True
                was_suspended, store.left = store.left < 0, -1
            assert not raised or hours > 1
            found = queue.peek()
            assert len(found) == (not raised)
            for each in found:
                with queue.open(each.id) as film:
                    assert film.read() == CONTENT
                queue.remove(each.id)
            clock.advance(3 * HOUR)
            queue.sweep()
            assert stored_bodies(other) == {}
            if not was_suspended:
                return
        pytest.fail("the send has no end")


def test_a_key_whose_sender_died_hours_ago_takes_a_large_body(url: str, clock: ManualClock) -> None:
    def die() -> None:
        raise Died

    with shardq.connect(url, clock=clock) as other:
        queue = other.create_queue("films", dedupe_window=24 * HOUR)
        for left in range(ENOUGH):
            store = SuspendedStore(open_store(url, clock))
            store.meanwhile = die
            client = Client(store, retry_seconds=0)
            producer = client.queue("films").producer()
            store.left, key = left, f"key {left}"
            try:
                producer.send_stream(io.BytesIO(CONTENT), dedupe_key=key)
                died = False
            except Died:
                died = True
            clock.advance(3 * HOUR)
            sent = queue.producer().send_stream(io.BytesIO(CONTENT), dedupe_key=key)
            with queue.open(sent) as film:
                assert film.read() == CONTENT
            if not died:
                return
        pytest.fail("the send has no end")
