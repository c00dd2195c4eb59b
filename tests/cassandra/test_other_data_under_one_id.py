"""Other data under one id breaks a rule of the port: the message can be settled all the same, and the log has an error.

All appends of an id have one write time, so Cassandra keeps the larger value of each column. A small message is in its
ready row, and a large one in a separate row. So a message that was appended small and large has both.
"""

from __future__ import annotations

import logging
import os

import msgspec
import pytest

from shardq.base.shard import Shard
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Release, Span, Sweep
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000
SMALL, LARGE = bytes(10), bytes(10_000)


@pytest.fixture
def bundle(store: CassandraStore) -> Bundle:
    return BundleFactory(store.now)(1, data=SMALL)


def with_data(bundle: Bundle, data: bytes) -> Bundle:
    return msgspec.structs.replace(bundle, data=data)


def take(store: CassandraStore, shard: Shard) -> tuple[Span, ...]:
    token = os.urandom(16)
    claimed = store.claim(Claim(shard, token, 10, MINUTE))
    return tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)


@pytest.mark.parametrize("late", [False, True], ids=["before the claim", "after the claim"])
@pytest.mark.parametrize("keep", [False, True], ids=["deleted", "kept"])
@pytest.mark.parametrize("sizes", [(SMALL, LARGE), (LARGE, SMALL), (SMALL, SMALL * 2), (LARGE, LARGE * 2)])
def test_what_was_appended_with_data_of_two_sizes_is_delivered_once_and_finished(
    store: CassandraStore,
    shard: Shard,
    bundle: Bundle,
    sizes: tuple[bytes, bytes],
    keep: bool,
    late: bool,
) -> None:
    first, second = (with_data(bundle, data) for data in sizes)
    store.append(Append(shard, (first,)))
    if not late:
        store.append(Append(shard, (second,)))
    spans = take(store, shard)
    assert len(spans) == 1
    if late:
        store.append(Append(shard, (second,)))
    fenced = store.acknowledge(Acknowledge(shard, spans, keep=keep))
    assert (fenced.lost, fenced.gone) == ((), ())
    assert store.count(shard).processed == keep
    assert take(store, shard) == ()
    if keep:
        found = store.find(shard, bundle.id, 0)
        assert found is not None
        assert found.bundle.data in sizes
        assert store.sweep(Sweep(shard.queue, store.now() + MINUTE)) == 1
        assert store.find(shard, bundle.id, 0) is None


def test_it_can_be_released_and_delivered_again(store: CassandraStore, shard: Shard, bundle: Bundle) -> None:
    for data in (SMALL, LARGE):
        store.append(Append(shard, (with_data(bundle, data),)))
    store.release(Release(shard, take(store, shard)))
    again = take(store, shard)
    assert len(again) == 1
    store.acknowledge(Acknowledge(shard, again, keep=True))
    assert store.count(shard).processed == 1


def test_the_log_has_an_error(
    store: CassandraStore, shard: Shard, bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    for data in (SMALL, LARGE):
        store.append(Append(shard, (with_data(bundle, data),)))
    with caplog.at_level(logging.ERROR):
        take(store, shard)
    assert "was appended again with other data" in caplog.text


def test_a_usual_repetition_leaves_no_line_in_the_log(
    store: CassandraStore, shard: Shard, bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        store.append(Append(shard, (bundle,)))
    with caplog.at_level(logging.WARNING):
        store.acknowledge(Acknowledge(shard, take(store, shard), keep=True))
    assert caplog.text == ""
