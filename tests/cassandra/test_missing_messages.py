"""An ack that finds a message gone, while reads fail and others change the shard: it tells nobody that more is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.cassandra.session import Answer, Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Acknowledge, Append, Claim, Fenced, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000
ENOUGH = 60  # reads, for any ack


class FailingSession(Session):
    """Does not answer one of its reads."""

    fail_at = -1
    reads = 0

    def start_read(self, query: str, *rest: Any, **options: Any) -> Answer:
        self.reads += 1
        if self.reads - 1 == self.fail_at:
            raise StoreUnavailable("no replica has answered")
        return super().start_read(query, *rest, **options)


@pytest.fixture(params=["", "group"])
def held(request: pytest.FixtureRequest, store: CassandraStore, shard: Shard) -> Callable[[], Acknowledge]:
    """Makes an ack of two messages that are held, of which somebody has acked the first meanwhile."""
    group, place = request.param, shard
    if group:
        place = Shard(shard.queue, GROUP_TIME_SHARD, 3)

    def make() -> Acknowledge:
        bundles = [BundleFactory(store.now)(group=group) for _ in range(2)]
        token = os.urandom(16)
        store.append(Append(place, tuple(bundles)))
        assert len(store.claim(Claim(place, token, 2, MINUTE)).slices) == 2
        spans = tuple(Span(each.id, 0, 1, token) for each in bundles)
        assert store.acknowledge(Acknowledge(place, spans[:1])) == Fenced()
        return Acknowledge(place, spans)

    return make


def test_whichever_read_of_an_ack_fails_what_it_has_done_is_not_lost(
    store: CassandraStore,
    open_with: Callable[..., tuple[CassandraStore, Any]],
    held: Callable[[], Acknowledge],
) -> None:
    failing, session = open_with(FailingSession)
    for fail_at in range(ENOUGH):
        ack = held()
        first, second = ack.spans
        session.reads, session.fail_at = 0, fail_at
        try:
            told = failing.acknowledge(ack)
        except StoreUnavailable:
            assert store.find(ack.shard, second.bundle_id, 0) is not None, "it was done"
        except OutcomeUnknown:
            pass
        else:
            assert told == Fenced(gone=(first,))
        has_failed, session.fail_at = session.reads > fail_at, -1
        assert failing.acknowledge(ack).lost == ()
        assert store.find(ack.shard, second.bundle_id, 0) is None
        if not has_failed:
            return
    pytest.fail("the ack has no end")


def test_an_ack_that_cannot_tell_what_is_gone_says_so(
    store: CassandraStore, held: Callable[[], Acknowledge], monkeypatch: pytest.MonkeyPatch
) -> None:
    ack = held()
    with monkeypatch.context() as busy:
        busy.setattr(WideRow, "undisturbed", lambda _, look: (look(), False))
        with pytest.raises(OutcomeUnknown):  # the second is acked
            store.acknowledge(ack)
        with pytest.raises(StoreUnavailable):  # nothing is
            store.acknowledge(ack)
    told = store.acknowledge(ack)
    assert (told.lost, set(told.gone)) == ((), set(ack.spans))


def test_what_somebody_else_has_is_lost_however_busy_the_shard_is(
    store: CassandraStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = BundleFactory(store.now)()
    store.append(Append(shard, (bundle,)))
    assert store.claim(Claim(shard, os.urandom(16), 1, MINUTE)).slices
    monkeypatch.setattr(WideRow, "undisturbed", lambda _, look: (look(), False))
    others = Span(bundle.id, 0, 1, os.urandom(16))
    assert store.acknowledge(Acknowledge(shard, (others,))) == Fenced(lost=(others,))


@pytest.mark.parametrize("group", ["", "group"])
def test_a_look_that_finds_a_message_needs_no_quiet_and_one_that_does_not_says_so(
    store: CassandraStore, shard: Shard, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a bundle of which one message is acked, and others that change the shard all the time
    place = Shard(shard.queue, GROUP_TIME_SHARD, 3) if group else shard
    bundle, token = BundleFactory(store.now)(2, group=group), os.urandom(16)
    store.append(Append(place, (bundle,)))
    assert store.claim(Claim(place, token, 1, MINUTE)).slices
    assert store.acknowledge(Acknowledge(place, (Span(bundle.id, 0, 1, token),))) == Fenced()
    with monkeypatch.context() as busy:
        busy.setattr(WideRow, "undisturbed", lambda _, look: (look(), False))
        # Then what is stored is found, and of what is not found nobody is told that it is gone
        found = store.find(place, bundle.id, 1)
        assert found is not None
        assert (found.first, found.count) == (1, 1)
        with pytest.raises(StoreUnavailable):
            store.find(place, bundle.id, 0)
    assert store.find(place, bundle.id, 0) is None


def test_a_bundle_of_a_group_that_is_finished_is_gone_however_busy_the_shard_is(
    store: CassandraStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Shard(shard.queue, GROUP_TIME_SHARD, 3)
    bundle, token = BundleFactory(store.now)(group="group"), os.urandom(16)
    store.append(Append(place, (bundle,)))
    assert store.claim(Claim(place, token, 1, MINUTE)).slices
    assert store.acknowledge(Acknowledge(place, (Span(bundle.id, 0, 1, token),))) == Fenced()
    monkeypatch.setattr(WideRow, "undisturbed", lambda _, look: (look(), False))
    assert store.find(place, bundle.id, 0) is None


@pytest.mark.parametrize("keep", [False, True])
def test_messages_whose_bundle_is_lost_are_acked_all_the_same(
    store: CassandraStore, shard: Shard, keep: bool
) -> None:
    # Given two messages of a large bundle that are held, and its row is lost with the disks
    bundle, token = BundleFactory(store.now)(3, data=bytes(10_000)), os.urandom(16)
    store.append(Append(shard, (bundle,)))
    assert store.claim(Claim(shard, token, 2, MINUTE)).slices
    lost = (
        "DELETE FROM entry WHERE shard = ? AND kind = 3 AND priority = 0 AND due = 0 AND id = ? AND first = 0"
    )
    store.session.write([(lost, (str(store.place(shard)), bundle.id))])
    # When they are acked one after the other
    for position in (0, 1):
        span = Span(bundle.id, position, 1, token)
        assert store.acknowledge(Acknowledge(shard, (span,), keep=keep)) == Fenced()
    # Then they are done, and nobody holds anything
    counts = store.count(shard)
    assert (counts.in_flight, counts.processed) == (0, 0)
    assert store.find(shard, bundle.id, 0) is None
