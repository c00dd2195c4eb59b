"""A look that takes several reads, while others move the message from one place to the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from shardq.base.shard import Shard
from shardq.errors import StoreUnavailable
from shardq.storage.cassandra import directory, shard_rows
from shardq.storage.cassandra.peeking import is_empty
from shardq.storage.cassandra.session import Answer, Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Append, Bundle, Claim, Peek, Release, ShardCounts, Span
from shardq.testing import BundleFactory

pytestmark = [pytest.mark.server, pytest.mark.long]

MINUTE = 60_000_000
ENOUGH = 60  # reads, for any look
INLINE, LARGE = 10, 10_000  # bytes of a body

Look = Callable[[CassandraStore, Shard, bytes], bool]


class DisturbedSession(Session):
    """Lets others do something before one of its reads."""

    disturb_at = -1
    reads = 0
    disturb: Callable[[], object] = staticmethod(lambda: None)

    def start_read(self, query: str, values: Sequence[Any], **options: Any) -> Answer:
        self.reads += 1
        if self.reads - 1 == self.disturb_at:
            self.disturb()
        return super().start_read(query, values, **options)


class RestlessSession(Session):
    """Lets others do something before each of its reads of what lease rows carry."""

    disturb: Callable[[], object] = staticmethod(lambda: None)

    def start_read(self, query: str, values: Sequence[Any], **options: Any) -> Answer:
        if query == shard_rows.CQL_CARRIED:
            self.disturb()
        return super().start_read(query, values, **options)


def is_peeked(store: CassandraStore, shard: Shard, bundle_id: bytes, *, bodies: bool) -> bool:
    page = store.peek(Peek(shard, 10, bodies=bodies))
    return [each.bundle.id for each in page.slices] == [bundle_id]


LOOKS: dict[str, Look] = {
    "count": lambda store, shard, bundle_id: store.count(shard) != ShardCounts(),
    "find": lambda store, shard, bundle_id: store.find(shard, bundle_id, 0) is not None,
    "peek": lambda store, shard, bundle_id: is_peeked(store, shard, bundle_id, bodies=True),
    "peek without bodies": lambda store, shard, bundle_id: is_peeked(store, shard, bundle_id, bodies=False),
    "is empty": lambda store, shard, bundle_id: (
        not is_empty(WideRow(store.session, str(store.place(shard))), store.now())
    ),
    "forget": lambda store, shard, bundle_id: not store.drop_if_empty(shard),
    "remove": lambda store, shard, bundle_id: store.remove(shard, bundle_id, 0),
    "purge": lambda store, shard, bundle_id: store.purge(shard) > 0,
}


@pytest.fixture
def disturbed(open_with: Callable[..., tuple[CassandraStore, Any]]) -> CassandraStore:
    return open_with(DisturbedSession)[0]


@pytest.mark.parametrize("size", [INLINE, LARGE], ids=["inline", "with a row of its own"])
@pytest.mark.parametrize("move", ["claim", "release"])
@pytest.mark.parametrize("look", list(LOOKS))
def test_a_message_that_moves_meanwhile_is_found(
    disturbed: CassandraStore,
    store: CassandraStore,
    shard: Shard,
    look: str,
    move: str,
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "NOTICE", 0.0)  # an announcement is noticed at once
    session = disturbed.session
    assert isinstance(session, DisturbedSession)
    for disturb_at in range(ENOUGH):
        # Given a message that waits, or is held
        bundle = BundleFactory(store.now)(1, data=bytes(size))
        session.disturb = given(store, shard, bundle, move)
        # When somebody claims it, or gives it back, between two reads of a look
        session.reads, session.disturb_at = 0, disturb_at
        found = LOOKS[look](disturbed, shard, bundle.id)
        was_disturbed = session.reads > disturb_at
        session.disturb_at = -1
        # Then the look finds it
        assert found, f"not found when moved before read {disturb_at}"
        store.purge(shard)
        if not was_disturbed:
            return
    pytest.fail("the look has no end")


def given(store: CassandraStore, shard: Shard, bundle: Bundle, move: str) -> Callable[[], object]:
    """Store the bundle; returns what moves it."""
    store.append(Append(shard, (bundle,)))
    token = os.urandom(16)
    claim = partial(store.claim, Claim(shard, token, 1, MINUTE))
    if move == "claim":
        return claim
    assert claim().slices
    return partial(store.release, Release(shard, (Span(bundle.id, 0, 1, token),), delay=MINUTE))


def test_a_message_that_moves_in_every_look_is_not_told_as_gone(
    open_with: Callable[..., tuple[CassandraStore, Any]], store: CassandraStore, shard: Shard
) -> None:
    # Given a small message that is given back and claimed again whenever it was seen
    bundle = BundleFactory(store.now)(1, data=bytes(INLINE))
    looking, session = open_with(RestlessSession)
    store.append(Append(shard, (bundle,)))
    tokens = [os.urandom(16)]
    assert store.claim(Claim(shard, tokens[0], 1, MINUTE)).slices

    def move() -> None:
        store.release(Release(shard, (Span(bundle.id, 0, 1, tokens[-1]),)))
        tokens.append(os.urandom(16))
        assert store.claim(Claim(shard, tokens[-1], 1, MINUTE)).slices

    session.disturb = move
    # When somebody looks for it, then they are not told that it is gone
    with pytest.raises(StoreUnavailable, match="not known whether a message is stored") as caught:
        looking.find(shard, bundle.id, 0)
    assert caught.value.retryable
    # And find it when it stands still
    session.disturb = lambda: None
    assert looking.find(shard, bundle.id, 0) is not None
