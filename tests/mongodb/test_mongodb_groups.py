"""Groups on MongoDB: what a crashed client holds up, what is left of a group, and who has none."""

from __future__ import annotations

import os

import pytest
from pymongo.database import Database

from shardq.errors import StoreUnavailable
from shardq.sharding.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.mongodb import groups, transactions
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.mongodb

MINUTE = 60_000_000


@pytest.fixture
def grouped(store: MongoStore, shard: Shard) -> Shard:
    if not store.capabilities.groups:
        pytest.skip("a single server has no groups")
    return Shard(shard.queue, GROUP_TIME_SHARD, 3)


def given(store: MongoStore, shard: Shard, *names: str) -> list[Bundle]:
    make = BundleFactory(store.now)
    bundles = [make(group=name) for name in names]
    store.append(Append(shard, tuple(bundles)))
    return bundles


def claimed(store: MongoStore, shard: Shard) -> list[bytes]:
    """Claim everything; returns the ids of the bundles."""
    return [each.bundle.id for each in store.claim(Claim(shard, os.urandom(16), 100, MINUTE)).slices]


def test_a_transaction_of_a_client_that_died_holds_up_its_own_group_only(
    store: MongoStore, grouped: Shard, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "PATIENT", transactions.BRIEF)
    bundles = given(store, grouped, *"abcdefgh")
    with database.client.start_session() as dead, dead.start_transaction():
        database[str(grouped)].update_one({"_id": bytes(16) + b"a"}, {"$inc": {"y": 1}}, session=dead)
        taken = [each for _ in range(20) for each in claimed(store, grouped)]
        # The server ends the transaction after a while, on a slow machine before this
        assert sorted({*taken, bundles[0].id}) == [each.id for each in bundles]
        dead.abort_transaction()
    assert sorted(taken + claimed(store, grouped)) == [each.id for each in bundles]


def test_an_append_that_a_dead_client_holds_up_can_be_repeated(
    store: MongoStore, grouped: Shard, database: Database
) -> None:
    given(store, grouped, "a")
    more = BundleFactory(store.now)(group="a")
    with pytest.MonkeyPatch.context() as brief:
        brief.setattr(groups.in_transaction, "__defaults__", (transactions.BRIEF,))
        with database.client.start_session() as dead, dead.start_transaction():
            database[str(grouped)].update_one({"_id": bytes(16) + b"a"}, {"$inc": {"y": 1}}, session=dead)
            with pytest.raises(StoreUnavailable) as raised:
                store.append(Append(grouped, (more,)))
            assert raised.value.retryable
    store.append(Append(grouped, (more,)))
    assert store.count(grouped).ready == 2


def test_the_document_of_a_group_goes_with_its_last_message(
    store: MongoStore, grouped: Shard, database: Database
) -> None:
    given(store, grouped, "a", "a", "b")
    names = lambda: {each["r"] for each in database[str(grouped)].find({"j": {"$exists": True}})}  # noqa: E731
    assert names() == {"a", "b"}
    token = os.urandom(16)
    spans = [
        Span(each.bundle.id, each.first, each.count, token)
        for each in store.claim(Claim(grouped, token, 10, MINUTE)).slices
    ]
    store.acknowledge(Acknowledge(grouped, tuple(spans[:2])))
    assert len(names()) == 1
    store.acknowledge(Acknowledge(grouped, tuple(spans[2:])))
    assert names() == set()


def test_a_shard_without_groups_has_no_index_of_them(
    store: MongoStore, shard: Shard, grouped: Shard, database: Database
) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    given(store, grouped, "a")
    assert "group" not in database[str(shard)].index_information()
    assert "group" in database[str(grouped)].index_information()
