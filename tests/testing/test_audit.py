"""The audit names what is stored and cannot be reached, and what remains."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from shardq.base.shard import Shard
from shardq.storage.requests import Append, Claim, Claimed, PeekPage, Probe, QueueRecord, ShardCounts
from shardq.storage.store import Store
from shardq.testing import RawEntry, RawQueue, RawState, StoreHarness, WrappedStore
from shardq.testing.audit import broken_rows, drain, hidden, remains
from shardq.testing.messages import BundleFactory

QUEUE = "audited"
SHARD = Shard(QUEUE, 0, 1)
ONE, TWO = b"\1" * 16, b"\2" * 16


@pytest.fixture
def store(harness: StoreHarness) -> Iterator[Store]:
    """A store with three messages, one of which is for later."""
    store = harness.open()
    store.create_queue(QueueRecord(QUEUE, b"", 1))
    make = BundleFactory(store.now)
    store.append(Append(SHARD, (make(2), make(1, delay=60))))
    yield store
    store.close()


def spoil(harness: StoreHarness, statement: str) -> RawQueue:
    with closing(sqlite3.connect(harness.path)) as file, file:  # type: ignore[attr-defined]
        file.execute(statement)
    return harness.raw_queue(QUEUE)


def test_a_sound_queue_has_nothing_to_name(harness: StoreHarness, store: Store) -> None:
    raw = harness.raw_queue(QUEUE)
    assert raw.shards == [SHARD]
    assert broken_rows(raw) + hidden(raw, store) + drain(QUEUE, store) == []
    assert remains(harness.raw_queue(QUEUE)) == []


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE slice SET data = NULL WHERE slice_key = 1", "without a bundle"),
        ("INSERT INTO bundle_data VALUES (1, x'00')", "data of no bundle"),
        ("UPDATE slice SET count = 3 WHERE slice_key = 1", "beyond the end"),
        ("UPDATE slice SET shard_key = 99 WHERE slice_key = 1", "of no shard"),
        ("DELETE FROM shard", "of no shard"),
        ("DELETE FROM queue", "shards of no queue"),
    ],
)
def test_rows_that_contradict_each_other_are_named(
    harness: StoreHarness, store: Store, statement: str, named: str
) -> None:
    assert any(named in each for each in broken_rows(spoil(harness, statement)))
    del store


def test_what_no_directory_lists_and_what_is_stored_twice_is_named() -> None:
    entries = [RawEntry(ONE, 0, 2, RawState.WAITING), RawEntry(ONE, 1, 1, RawState.HELD)]
    found = broken_rows(RawQueue({SHARD: entries}, {SHARD: [ONE]}, frozenset()))
    assert len(found) == 2
    assert "not in the directory" in found[0]
    assert "stored twice" in found[1]


def test_an_entry_that_stands_for_no_messages_is_named() -> None:
    entries = [RawEntry(ONE, 0, 0, RawState.WAITING)]
    (found,) = broken_rows(RawQueue({SHARD: entries}, {SHARD: [ONE]}, frozenset({SHARD})))
    assert "for no messages" in found


def test_what_is_left_of_a_drained_queue_is_named() -> None:
    left = RawQueue({SHARD: []}, {SHARD: [TWO]}, frozenset({SHARD}), ["a row of an earlier incarnation"])
    assert len(remains(left)) == 2


class Uncounted(WrappedStore):
    """Counts nothing."""

    def count(self, shard: Shard, *, sizes: bool = False) -> ShardCounts:
        return ShardCounts()


class Unlisted(WrappedStore):
    """Lists nothing."""

    def peek(self, request: object) -> PeekPage:
        return PeekPage((), b"")


class Unoffered(WrappedStore):
    """Offers nothing, however deep one looks."""

    def probe(self, shards: object, **_: object) -> tuple[Probe, ...]:
        return tuple(map(Probe, shards))  # type: ignore[call-overload]


class Undelivered(WrappedStore):
    """Delivers nothing."""

    def claim(self, request: Claim) -> Claimed:
        return Claimed((), 0)


@pytest.mark.parametrize("broken", [Uncounted, Unlisted, Unoffered])
def test_what_is_stored_and_not_shown_is_hidden(
    harness: StoreHarness, store: Store, broken: type[WrappedStore]
) -> None:
    assert hidden(harness.raw_queue(QUEUE), broken(store)) != []


def test_what_is_due_and_does_not_come_is_named(store: Store) -> None:
    assert any("did not deliver 2 of 2" in each for each in drain(QUEUE, Undelivered(store)))
