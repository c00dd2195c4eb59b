"""Whoever dies at any step of a large body's life, every message that is left is read whole, and nothing else stays."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec
import pytest

import shardq
from shardq.core.large.layout import BODIES
from shardq.storage.opening import open_store
from shardq.storage.requests import Fenced, Forward
from shardq.storage.store import Capabilities
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from tests.large.conftest import CONTENT, stored_bodies

P = ParamSpec("P")
T = TypeVar("T")

HOURS = 3 * 3_600
CHANGES = {
    "create_queue", "append", "reserve_keys", "confirm_keys", "compare_and_set_keys", "claim", "acknowledge", "extend",
    "forward", "remove",
}  # fmt: skip
MOST = 40  # changes in a life


class Killed(BaseException):
    """The process is no more."""


class MortalStore(WrappedStore):
    """Its process dies at one of the requests that change something, and asks nothing afterwards."""

    def __init__(self, url: str, clock: ManualClock, *, dies_at: int, after: bool, in_one_step: bool) -> None:
        super().__init__(open_store(url, clock))
        self._left, self._after, self._in_one_step, self.dead = dies_at, after, in_one_step, False

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(
            self.inner.capabilities, forward_across_shards=self._in_one_step, requests_at_once=1
        )

    def forward(self, request: Forward) -> Fenced:
        if not self._in_one_step and request.acknowledge.shard != request.append.shard:
            raise shardq.UnsupportedByStore("not across shards")
        return super().forward(request)

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.dead:
            raise Killed
        self._left -= method in CHANGES
        self.dead = self._left < 0
        if self.dead and not self._after:
            raise Killed
        answer = do(*args, **kwargs)
        if self.dead:
            raise Killed
        return answer


def live(client: shardq.Client, clock: ManualClock) -> None:
    """Send large bodies, move one to the dead letters and back, replace one, and finish them."""
    queue = client.queue("q")
    producer = queue.producer()
    producer.send_stream(io.BytesIO(CONTENT))
    producer.send_stream(io.BytesIO(CONTENT), dedupe_key="one")
    first, second = queue.consumer().receive(2)
    first.dead_letter("bad")
    second.release(body=b"small")
    clock.advance(HOURS)
    queue.redrive()
    queue.sweep()
    for message in queue.consumer().receive(10):
        message.ack()


@pytest.mark.long
@pytest.mark.parametrize("in_one_step", [True, False], ids=["in one step", "step by step"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(MOST))
def test_whatever_step_it_dies_at(
    url: str, clock: ManualClock, step: int, after: bool, in_one_step: bool
) -> None:
    with shardq.connect(url, clock=clock) as client:
        client.create_queue("q")
        store = MortalStore(url, clock, dies_at=step, after=after, in_one_step=in_one_step)
        dying = shardq.Client(store, retry_seconds=0)
        try:
            live(dying, clock)
        except Killed:
            pass
        else:
            assert step > 20
        store.inner.close()

        clock.advance(HOURS)
        large = whole(client)
        client.queue("q").sweep()
        assert whole(client) == large
        assert set(stored_bodies(client)) == large

        for name in ("q", "q.dead"):
            client.queue(name).purge()
        clock.advance(HOURS)
        client.queue("q").sweep()
        assert stored_bodies(client) == {}
        if client.exists(BODIES):
            assert client.queue(BODIES).counts().ready == 0


def whole(client: shardq.Client) -> set[bytes]:
    """The large bodies of the messages that are stored; all of them can be read."""
    found = set()
    for name in ("q", "q.dead"):
        queue = client.queue(name)
        for message in queue.peek(100):
            if message.large is not None:
                found.add(message.large.id)
                with queue.open(message.id) as body:
                    assert body.read() == CONTENT
    return found
