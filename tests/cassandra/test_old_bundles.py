"""Bundles with old ids, as permits have them, that are appended again after the tombstones of what became of them."""

from __future__ import annotations

import os
import time

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.core.limits import permits
from shardq.storage.cassandra import bundles
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Release, ShardCounts, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000
HOURS = 120 * MINUTE  # ago, the ids were made
SMALL, LARGE = 10, 10_000  # bytes of a body


@pytest.fixture(params=[SMALL, LARGE], ids=["inline", "with a row of its own"])
def old(request: pytest.FixtureRequest, store: CassandraStore) -> Bundle:
    return BundleFactory(lambda: store.now() - HOURS)(1, data=bytes(request.param))


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written now is later than every tombstone, as if there were none."""
    monkeypatch.setattr(bundles, "_REMEMBERED", -MINUTE // 60)
    monkeypatch.setattr(bundles, "HEAD_START", -HOURS - MINUTE)


def take(store: CassandraStore, shard: Shard) -> tuple[Span, ...]:
    token = os.urandom(16)
    claimed = store.claim(Claim(shard, token, 10, MINUTE))
    return tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)


@pytest.mark.parametrize("after", ["a claim", "a release", "an ack that is kept"])
def test_what_was_taken_long_ago_and_is_stored_is_not_stored_again(
    store: CassandraStore, shard: Shard, old: Bundle, after: str, request: pytest.FixtureRequest
) -> None:
    # Given a bundle that was claimed, and the tombstone of its ready row is gone
    store.append(Append(shard, (old,)))
    spans = take(store, shard)
    if after == "a release":
        store.release(Release(shard, spans, delay=MINUTE))
    elif after == "an ack that is kept":
        store.acknowledge(Acknowledge(shard, spans, keep=True))
    before = store.count(shard)
    request.getfixturevalue("forget")
    # When it is appended again
    store.append(Append(shard, (old,)))
    # Then it is there once
    assert store.count(shard) == before
    assert take(store, shard) == ()


def test_what_waits_as_it_was_sent_is_written_again(store: CassandraStore, shard: Shard, old: Bundle) -> None:
    # An append whose answer was lost may have reached some replicas only, so it is not enough that it is seen
    written = "SELECT WRITETIME(value) FROM entry WHERE shard = ? AND kind = 2"
    partition = str(store.place(shard))
    store.append(Append(shard, (old,)))
    ((first,),) = store.session.read(written, (partition,))
    store.append(Append(shard, (old,)))
    ((second,),) = store.session.read(written, (partition,))
    assert second >= first
    assert store.count(shard).ready == 1
    assert len(take(store, shard)) == 1


def test_what_was_removed_comes_back_when_it_is_not_remembered_any_more(
    store: CassandraStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a bundle with an old id that was removed
    old = BundleFactory(lambda: store.now() - HOURS)(3)
    store.append(Append(shard, (old,)))
    assert store.purge(shard) == 3
    # When it is appended again soon after that, then it stays removed
    store.append(Append(shard, (old,)))
    assert store.count(shard) == ShardCounts()
    # When more than 15 minutes have gone by, then it comes back
    time.sleep(0.2)  # the clocks of client and server agree within that
    monkeypatch.setattr(bundles, "_REMEMBERED", 0)
    store.append(Append(shard, (old,)))
    assert store.count(shard).ready == 3
    assert [(span.bundle_id, span.count) for span in take(store, shard)] == [(old.id, 3)]


def test_a_permit_that_a_look_misses_is_there_once(
    cassandra_url: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    name = f"c{os.urandom(6).hex()}"
    with shardq.connect(cassandra_url) as client, shardq.connect(cassandra_url) as other:
        # Given a permit that is held, and was held before
        with client.semaphore(name, permits=1).acquire(timeout=10):
            pass
        with client.semaphore(name, permits=1).acquire(timeout=10):
            # When somebody else looks which permits there are, and misses it, as others move it all the while
            request.getfixturevalue("forget")
            monkeypatch.setattr(permits, "slices", lambda *_: iter(()))
            with pytest.raises(shardq.PermitTimeout):
                other.semaphore(name, permits=1).acquire(timeout=0.5)
            assert other.queue(f"_shardq/permits/{name}").counts().in_flight == 1
            assert other.queue(f"_shardq/permits/{name}").counts().ready == 0
        client.delete_queue(f"_shardq/permits/{name}")
