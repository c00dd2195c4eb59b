"""No shard becomes unreadable, however much was consumed in it: a server gives reads of too many tombstones up."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from shardq.base.shard import Shard
from shardq.storage.cassandra.dedupe import _bucket
from shardq.storage.cassandra.faults import TombstonesRefused
from shardq.storage.cassandra.rows import DUE_INDEX, HISTORY, LEASE, READY
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.keys import UNIQUE_PREFIX, KeyChange
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    EntryState,
    Peek,
    Release,
    ShardCounts,
    Span,
    Sweep,
)
from shardq.testing import BundleFactory
from tests.cassandra_server import TOMBSTONES as THRESHOLD
from tests.conformance.test_cassandra import CassandraHarness

pytestmark = [pytest.mark.server, pytest.mark.long]

SECOND = 1_000_000
MINUTE = 60 * SECOND
DELETE = (
    "DELETE FROM entry WHERE shard = ? AND kind = ? AND priority = ? AND due = ? AND id = ? AND first = ?"
)
AT_ONCE = 1000

Keys = Iterator[tuple[int, int, int, bytes, int]]


def at_one_moment(now: int, rows: int) -> Keys:
    """Singles that were all due at one moment."""
    due = now - 20 * SECOND
    return ((READY, 5, due, (number << 64).to_bytes(16, "big"), 0) for number in range(rows))


def over_minutes(now: int, rows: int) -> Keys:
    """Singles that were due one after the other."""
    return ((READY, 5, now - 20 * SECOND - number * 1000, b"\1" * 16, 0) for number in range(rows))


def of_one_bundle(now: int, rows: int) -> Keys:
    """One bundle that was taken message by message."""
    return ((READY, 5, now - 20 * SECOND, b"\1" * 16, number) for number in range(rows))


def of_claims(now: int, rows: int) -> Keys:
    """Lease rows and their due rows."""
    for number in range(rows):
        token = (number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "big") * 2
        yield LEASE, 0, 0, token, 0
        yield DUE_INDEX, 0, now - 20 * SECOND - number, token, 0


def of_history(now: int, rows: int) -> Keys:
    """What was kept as processed and given up."""
    return ((HISTORY, 0, now - 20 * SECOND, (number << 64).to_bytes(16, "big"), 0) for number in range(rows))


Consumed = Callable[[int, int], Keys]


@pytest.fixture(scope="module")
def cassandra_url(narrow_cassandra_url: str) -> str:
    """Every store of these tests is on the server that refuses reads of few tombstones already."""
    return narrow_cassandra_url


def bury(store: CassandraStore, shard: Shard, keys: Keys) -> None:
    """Leave tombstones, as consumers do."""
    partition, batch = str(store.place(shard)), []
    for key in keys:
        batch.append((DELETE, (partition, *key)))
        if len(batch) == AT_ONCE:
            store.session.write(batch)
            batch.clear()
    if batch:
        store.session.write(batch)


@pytest.mark.parametrize("consumed", [at_one_moment, over_minutes, of_one_bundle, of_claims, of_history])
def test_a_shard_with_too_many_tombstones_for_one_read_works_as_any_other(
    store: CassandraStore,
    open_store: Callable[[], CassandraStore],
    shard: Shard,
    consumed: Consumed,
) -> None:
    # Given a shard with more tombstones than a read may cross, and messages around them in all states
    make = BundleFactory(store.now)
    early, late = make(1, priority=5, delay=-3600), make(3, priority=5, delay=-1)
    store.append(Append(shard, (early, late)))
    kept, held, lapsed = (take(store, shard, 1, lease) for lease in (MINUTE, 60 * MINUTE, 1))
    store.acknowledge(Acknowledge(shard, kept, keep=True))
    bury(store, shard, consumed(store.now(), 3 * THRESHOLD))
    new = open_store()
    # Then a client that comes new sees all of it
    counts = new.count(shard)
    assert (counts.ready, counts.in_flight, counts.processed) == (2, 1, 1)
    for options in ({}, {"glance": True}, {"deep": True}):
        (probe,) = new.probe([shard], **options)
        assert probe.priority == 5
    states = [each.state for each in new.peek(Peek(shard, 100)).slices]
    assert sorted(state.value for state in states) == ["in_flight", "ready", "ready"]
    assert len(new.peek(Peek(shard, 100, processed=True)).slices) == 1
    found = new.find(shard, late.id, 2)
    assert found is not None
    assert found.state is EntryState.READY
    assert not new.drop_if_empty(shard)
    # And works on it
    taken = take(new, shard, 10)
    assert sum(span.count for span in taken) == 2
    assert new.release(Release(shard, taken[:1])).gone == ()
    assert sum(span.count for span in new.acknowledge(Acknowledge(shard, lapsed)).lost) == 1
    assert new.acknowledge(Acknowledge(shard, held)).gone == ()
    assert sum(span.count for span in new.acknowledge(Acknowledge(shard, held)).gone) == 1
    assert new.sweep(Sweep(shard.queue, store.now() + MINUTE)) == 1
    assert new.purge(shard) == 2
    assert new.count(shard) == ShardCounts()
    assert not new.remove(shard, late.id, 2)


def test_the_books_are_checked_however_much_was_deleted(
    store: CassandraStore, shard: Shard, narrow_cassandra_url: str
) -> None:
    # Given more tombstones between two messages than a read may cross
    make = BundleFactory(store.now)
    store.append(Append(shard, (make(1, priority=5, delay=-3600), make(1, priority=5, delay=-1))))
    bury(store, shard, at_one_moment(store.now(), THRESHOLD + 1))
    with closing(CassandraHarness(narrow_cassandra_url)) as harness:
        with pytest.raises(TombstonesRefused):
            store.session.read("SELECT shard FROM entry", ())
        # Then both are found
        assert harness.raw_leftovers(shard.queue)["entry"] == 2


def test_unique_keys_are_listed_however_many_were_taken_out(store: CassandraStore, shard: Shard) -> None:
    # Given a bucket with more tombstones of keys than a read may cross, and entries before, among and after them
    queue, delete = store.place(shard).queue, "DELETE FROM dedupe WHERE queue = ? AND bucket = 0 AND key = ?"
    for start in range(0, 3 * THRESHOLD, AT_ONCE):
        gone = (f"{UNIQUE_PREFIX}customer-{number:07}" for number in range(start, start + AT_ONCE))
        store.session.write([(delete, (queue, key)) for key in gone])
    starts = ("a", "customer", "customer-0000007", "customer-0012345\u20ac", "z", "\U0001f600")
    entered = [one_in_bucket_0(start) for start in starts]
    store.compare_and_set_keys(shard.queue, [KeyChange(key, None, "text") for key in entered])
    # Then all of them are listed, page by page
    listed: list[str] = []
    while page := store.list_keys(shard.queue, listed[-1] if listed else "", 2):
        listed += [each.key for each in page]
    assert listed == sorted(entered)


def one_in_bucket_0(start: str) -> str:
    keys = (f"{start}.{number}" for number in itertools.count())
    return next(key for key in keys if _bucket(UNIQUE_PREFIX + key) == 0)


def test_such_a_read_is_refused_as_a_whole(store: CassandraStore, shard: Shard) -> None:
    # What the tests above rely on: without it they would show nothing
    assert take(store, shard, 1) == ()
    bury(store, shard, at_one_moment(store.now(), THRESHOLD + 1))
    row = WideRow(store.session, str(store.place(shard)))
    query = "SELECT due FROM entry WHERE shard = ? AND kind = 2"
    with pytest.raises(TombstonesRefused, match="too many tombstones"):
        store.session.read(query, (str(store.place(shard)),))
    assert row.holds_nothing()


def take(store: CassandraStore, shard: Shard, limit: int, lease: int = 60 * MINUTE) -> tuple[Span, ...]:
    token = os.urandom(16)
    claimed = store.claim(Claim(shard, token, limit, lease))
    return tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)
