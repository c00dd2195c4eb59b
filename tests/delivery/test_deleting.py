"""A deletion that is repeated, or comes between other changes, deletes the queue that there was and no other one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.errors import OutcomeUnknown
from shardq.storage.opening import open_store
from shardq.storage.requests import QueueRecord
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import FaultKind
from tests.any_store import any_url, connect_any, name

__all__ = ["any_url", "connect_any", "name"]


class Overtaken(WrappedStore):
    """Its first drop of a queue is answered too late, or never: others are at work meanwhile."""

    kind: FaultKind | None = None  # what becomes of the request
    meanwhile: Callable[[], object] | None = None

    def drop_queue(self, name: str, seen: QueueRecord | None = None) -> bool:
        if self.meanwhile is None:
            return super().drop_queue(name, seen)
        if self.kind is FaultKind.LOST_RESPONSE:
            super().drop_queue(name, seen)
        others, self.meanwhile = self.meanwhile, None
        others()
        if self.kind is None:
            return super().drop_queue(name, seen)
        raise OutcomeUnknown("no answer")


@pytest.fixture
def overtaken(any_url: str) -> Iterator[Overtaken]:
    store = Overtaken(open_store(any_url, SystemClock()))
    yield store
    store.close()


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_RESPONSE])
def test_a_queue_that_was_created_again_is_not_taken_by_a_deletion_before_it(
    overtaken: Overtaken, connect_any: Callable[[], shardq.Client], name: str, kind: FaultKind
) -> None:
    # Given a deletion whose answer is lost, and somebody who deletes the queue too, and creates it again
    other = connect_any()
    other.create_queue(name, shards=1, time_shards=1, max_deliveries=None)

    def create_again() -> None:
        if other.exists(name):
            other.delete_queue(name)
        other.create_queue(name, shards=1, time_shards=1, max_deliveries=None).producer().send(b"new")

    overtaken.kind, overtaken.meanwhile = kind, create_again
    # When the deletion is repeated
    shardq.Client(overtaken).delete_queue(name)
    # Then the new queue and its message are there
    assert [each.body for each in connect_any().queue(name).consumer().receive(1, wait=5)] == [b"new"]


@pytest.mark.parametrize("kind", [None, FaultKind.LOST_REQUEST])
def test_a_queue_that_is_altered_meanwhile_is_deleted(
    overtaken: Overtaken, connect_any: Callable[[], shardq.Client], name: str, kind: FaultKind | None
) -> None:
    other = connect_any()
    queue = other.create_queue(name, shards=1, time_shards=1, max_deliveries=None)
    overtaken.kind, overtaken.meanwhile = kind, lambda: queue.alter(visibility_timeout=7)
    shardq.Client(overtaken).delete_queue(name)
    assert not connect_any().exists(name)


def test_a_queue_that_somebody_else_deleted_meanwhile_is_not_found(
    overtaken: Overtaken, connect_any: Callable[[], shardq.Client], name: str
) -> None:
    other = connect_any()
    other.create_queue(name, shards=1, time_shards=1, max_deliveries=None)
    overtaken.meanwhile = lambda: other.delete_queue(name)
    with pytest.raises(shardq.QueueNotFound):
        shardq.Client(overtaken).delete_queue(name)
