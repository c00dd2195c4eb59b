"""Reads answered by replicas that have not all of it yet: what they do not show is not taken for what there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shardq.sharding.shard import Shard
from shardq.storage.cassandra import shard_rows
from shardq.storage.cassandra.session import Answer, Session
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Append, Claim, Release, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.cassandra

MINUTE = 60_000_000


class LaggingSession(Session):
    """The replicas that answer one of its queries for the first time have nothing of it."""

    missed = ""

    def start_read(self, query: str, values: Sequence[Any], **options: Any) -> Answer:
        if query != self.missed:
            return super().start_read(query, values, **options)
        self.missed = ""
        return lambda: iter(())


@pytest.fixture
def lagging(open_store: Callable[[], CassandraStore]) -> CassandraStore:
    store = open_store()
    store._session.__class__ = LaggingSession
    return store


@pytest.mark.parametrize("again", [False, True], ids=["another claim", "the same claim again"])
def test_a_claim_takes_no_message_without_its_body(
    lagging: CassandraStore, store: CassandraStore, shard: Shard, again: bool
) -> None:
    # Given a small message that is given back, or held by a claim
    bundle, token = BundleFactory(store.now)(), os.urandom(16)
    store.append(Append(shard, (bundle,)))
    assert store.claim(Claim(shard, token, 1, MINUTE)).slices
    if not again:
        store.release(Release(shard, (Span(bundle.id, 0, 1, token),)))
        token = os.urandom(16)
    # When a claim sees it, and the replicas that are asked for the body lag behind
    session = lagging._session
    assert isinstance(session, LaggingSession)
    session.missed = shard_rows._CARRIED
    (claimed,) = lagging.claim(Claim(shard, token, 1, MINUTE)).slices
    assert session.missed == ""
    # Then the message has its body all the same, now and later
    assert claimed.bundle.data == bundle.data
    found = store.find(shard, bundle.id, 0)
    assert found is not None
    assert found.bundle.data == bundle.data
