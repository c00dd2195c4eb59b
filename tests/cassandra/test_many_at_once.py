"""More in one call than the server or the driver take in one change: it is done in parts."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.cassandra import settling
from shardq.storage.cassandra.changing import Change
from shardq.storage.cassandra.groups import settling as group_settling
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Acknowledge, Append, Claim, Extend, Fenced, Release, ShardCounts, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000
MOST_BYTES = 16 << 20  # in a change, as far as the server takes it

Settle = Callable[[CassandraStore, Shard, tuple[Span, ...]], Fenced]
VERBS: dict[str, Settle] = {
    "release": lambda store, shard, spans: store.release(Release(shard, spans)),
    "keep": lambda store, shard, spans: store.acknowledge(Acknowledge(shard, spans, keep=True)),
    "acknowledge": lambda store, shard, spans: store.acknowledge(Acknowledge(shard, spans)),
    "extend": lambda store, shard, spans: store.extend(Extend(shard, spans, MINUTE)),
}
EXPECTED = {  # ready, held and processed, of those that were held
    "release": (1, 0, 0),
    "keep": (0, 0, 1),
    "acknowledge": (0, 0, 0),
    "extend": (0, 1, 0),
}


@pytest.fixture(params=[False, True], ids=["alone", "of groups"])
def place(request: pytest.FixtureRequest, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> Shard:
    """A shard of which thirty messages are settled in a change."""
    monkeypatch.setattr(settling, "_MOST_SPANS", 30)
    monkeypatch.setattr(group_settling, "_MOST_SLICES", 30)
    return Shard(shard.queue, GROUP_TIME_SHARD, 3) if request.param else shard


def hold(store: CassandraStore, shard: Shard, messages: int, size: int) -> tuple[Span, ...]:
    """Store small messages and claim all of them; in a shard of groups each has a group of its own."""
    make, spans = BundleFactory(store.now), list[Span]()
    for start in range(0, messages, 100):
        groups = [f"g{start + number}" if shard.is_grouped else "" for number in range(100)]
        store.append(Append(shard, tuple(make(1, data=bytes(size), group=group) for group in groups)))
    while len(spans) < messages:
        token = os.urandom(16)
        claimed = store.claim(Claim(shard, token, messages, 10 * MINUTE))
        spans += (Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)
    return tuple(spans)


@pytest.mark.long
@pytest.mark.parametrize("verb", ["release", "keep"])
def test_more_bodies_than_one_change_may_have_are_settled_with_one_call(
    store: CassandraStore, shard: Shard, verb: str
) -> None:
    # Given small messages with more bytes together than the server takes in one change
    size = 4000
    messages = (MOST_BYTES // size // 100 + 1) * 100
    spans = hold(store, shard, messages, size)
    # When they are settled with one call
    assert VERBS[verb](store, shard, spans) == Fenced()
    # Then all of them are
    counts = store.count(shard)
    expected = tuple(messages * each for each in EXPECTED[verb])
    assert (counts.ready, counts.in_flight, counts.processed) == expected


@pytest.mark.parametrize("verb", list(VERBS))
def test_what_others_have_of_many_is_told_of_every_part(
    store: CassandraStore, place: Shard, verb: str
) -> None:
    spans = hold(store, place, 100, 10)
    # Given two of them that somebody has acked, and one that is somebody else's
    assert store.acknowledge(Acknowledge(place, (spans[3], spans[70]))) == Fenced()
    others = Span(spans[40].bundle_id, 0, 1, os.urandom(16))
    named = (*spans[:40], others, *spans[41:])
    # When all are settled with one call
    told = VERBS[verb](store, place, named)
    # Then that is told, and the rest is done
    assert set(told.gone) == {spans[3], spans[70]}
    assert told.lost == (others,)
    counts = store.count(place)
    ready, held, processed = (97 * each for each in EXPECTED[verb])
    assert (counts.ready, counts.in_flight, counts.processed) == (ready, held + 1, processed)


def fail_after(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    """Let so many changes be made, and none after them."""
    apply, left = Change.apply, changes

    def fails(change: Change) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreUnavailable("no replica has answered")
        return apply(change)

    monkeypatch.setattr(Change, "apply", fails)


def test_a_part_that_fails_behind_others_leaves_the_outcome_unknown(
    store: CassandraStore, place: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = hold(store, place, 100, 10)
    with monkeypatch.context() as failing, pytest.raises(OutcomeUnknown):
        fail_after(failing, 2)
        store.acknowledge(Acknowledge(place, spans))
    # When it is repeated, then the rest is done, and nothing counts as lost
    told = store.acknowledge(Acknowledge(place, spans))
    assert told.lost == ()
    assert len(told.gone) == 60
    assert store.count(place).in_flight == 0


def test_a_purge_that_fails_half_way_does_not_say_that_nothing_was_changed(
    store: CassandraStore, place: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given messages that are held, and one that waits
    hold(store, place, 100, 10)
    store.append(Append(place, (BundleFactory(store.now)(group="waits" if place.is_grouped else ""),)))
    with monkeypatch.context() as failing, pytest.raises(StoreUnavailable):
        fail_after(failing, 0)
        store.purge(place)
    assert store.count(place).in_flight == 100
    with monkeypatch.context() as failing, pytest.raises(OutcomeUnknown):
        fail_after(failing, 1)
        store.purge(place)
    # Then a repeated one removes the rest
    assert store.purge(place) == 100
    assert store.count(place) == ShardCounts()
