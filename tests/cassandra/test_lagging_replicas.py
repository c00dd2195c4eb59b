"""Reads answered by replicas that have not all of it yet: what they do not show is not taken for what there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shardq.base.shard import Shard
from shardq.storage.cassandra import shard_rows
from shardq.storage.cassandra.bundles import CQL_ROW, HEAD_START, ready_of
from shardq.storage.cassandra.changing import CQL_AT, bundle_key
from shardq.storage.cassandra.rows import LEASE, Head, Key, encode, id_time
from shardq.storage.cassandra.session import Answer, Session
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Append, Bundle, Claim, Probe, Release, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000
INLINE, LARGE = 10, 10_000  # bytes of a body


class LaggingSession(Session):
    """The replicas that answer one of its queries for the first time have nothing of it."""

    missed = ""

    def start_read(self, query: str, values: Sequence[Any], **options: Any) -> Answer:
        if query != self.missed:
            return super().start_read(query, values, **options)
        self.missed = ""
        return lambda: iter(())


@pytest.mark.parametrize("again", [False, True], ids=["another claim", "the same claim again"])
def test_a_claim_takes_no_message_without_its_body(
    open_with: Callable[..., tuple[CassandraStore, Any]], store: CassandraStore, shard: Shard, again: bool
) -> None:
    # Given a small message that is given back, or held by a claim
    bundle, token = BundleFactory(store.now)(), os.urandom(16)
    store.append(Append(shard, (bundle,)))
    assert store.claim(Claim(shard, token, 1, MINUTE)).slices
    if not again:
        store.release(Release(shard, (Span(bundle.id, 0, 1, token),)))
        token = os.urandom(16)
    # When a claim sees it, and the replicas that are asked for the body lag behind
    lagging, session = open_with(LaggingSession)
    session.missed = shard_rows.CQL_CARRIED
    (claimed,) = lagging.claim(Claim(shard, token, 1, MINUTE)).slices
    assert session.missed == ""
    # Then the message has its body all the same, now and later
    assert claimed.bundle.data == bundle.data
    found = store.find(shard, bundle.id, 0)
    assert found is not None
    assert found.bundle.data == bundle.data


def repair(store: CassandraStore, shard: Shard, bundle: Bundle, key: Key, value: bytes) -> None:
    """Write what a read without bodies leaves of a row on replicas that have missed it."""
    values = (str(store.place(shard)), *key, value, id_time(bundle.id) - HEAD_START)
    store.session.write([(CQL_ROW, values)])


def received(store: CassandraStore, shard: Shard, token: bytes) -> list[tuple[bytes, bytes]]:
    claimed = store.claim(Claim(shard, token, 10, MINUTE))
    return [(each.bundle.id, each.bundle.data) for each in claimed.slices]


def test_a_lease_row_of_which_only_the_bodies_are_there_is_not_there_yet(
    store: CassandraStore, shard: Shard
) -> None:
    # Given a claim that is on its way, and a read of the bodies that it carries which met it
    token, place = os.urandom(16), str(store.place(shard))
    bodies = f"UPDATE entry SET data = ? {CQL_AT}"
    store.session.write([(bodies, (encode({}), place, *Key(LEASE, 0, 0, token, 0)))])
    bundle = BundleFactory(store.now)()
    # Then whatever looks at the shard finds no lease there, and nothing fails
    assert store.find(shard, bundle.id, 0) is None
    assert not store.remove(shard, bundle.id, 0)
    assert store.probe([shard], deep=True) == (Probe(shard),)
    assert store.purge(shard) == 0
    # And the token is free
    store.append(Append(shard, (bundle,)))
    assert received(store, shard, token) == [(bundle.id, bundle.data)]
    assert received(store, shard, token) == [(bundle.id, bundle.data)]


def test_an_inline_message_that_is_there_without_its_body_is_claimed_when_that_has_come(
    store: CassandraStore, shard: Shard
) -> None:
    # Given an append that is on its way, and a count that met it
    bundle = BundleFactory(store.now)(1, data=bytes(INLINE))
    ready = ready_of(bundle)
    repair(store, shard, bundle, ready.key, ready.value)
    # Then no claim takes it without its body
    assert received(store, shard, os.urandom(16)) == []
    store.append(Append(shard, (bundle,)))
    assert received(store, shard, os.urandom(16)) == [(bundle.id, bundle.data)]


def test_a_bundle_that_is_there_without_its_data_is_answered_when_that_has_come(
    store: CassandraStore, shard: Shard
) -> None:
    # Given an append that is on its way, and a look without bodies that met it
    bundle, token = BundleFactory(store.now)(1, data=bytes(LARGE)), os.urandom(16)
    ready = ready_of(bundle)
    repair(store, shard, bundle, ready.key, ready.value)
    repair(store, shard, bundle, bundle_key(bundle.id), encode(Head.of(bundle)))
    # Then a claim holds it, and answers it with its data or not at all
    assert received(store, shard, token) == []
    store.append(Append(shard, (bundle,)))
    assert received(store, shard, token) == [(bundle.id, bundle.data)]
