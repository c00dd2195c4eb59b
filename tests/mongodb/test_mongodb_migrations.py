"""A database that an earlier version has made goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pymongo.database import Database

from shardq.sharding.shard import Shard
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Claim, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.mongodb

MINUTE = 60_000_000
TOKEN, HISTORY = {"t": 1}, [("h.a", 1), ("_id", 1)]


@pytest.fixture
def of_version_2(store: MongoStore, shard: Shard, database: Database) -> Iterator[Shard]:
    """A shard with the indexes that version 2 made, of a database of that version."""
    store.append(Append(shard, (BundleFactory(store.now)(), BundleFactory(store.now)())))
    rows = database[str(shard)]
    rows.create_index(TOKEN, name="token", sparse=True)
    rows.create_index(HISTORY, name="history", partialFilterExpression={"h": {"$exists": True}})
    database["shardq.schema"].update_one({"_id": "shardq"}, {"$set": {"version": 2}})
    yield shard
    store.create_schema()


def test_the_third_migration_drops_the_index_of_tokens_and_leaves_that_of_the_history(
    store: MongoStore, of_version_2: Shard, database: Database
) -> None:
    store.create_schema()
    names = set(database[str(of_version_2)].index_information())
    assert names == {"_id_", "claim", "finished", "history"}
    store.create_schema()


def test_what_was_kept_before_the_third_migration_is_still_there_after_it(
    store: MongoStore, of_version_2: Shard, database: Database
) -> None:
    held = store.claim(Claim(of_version_2, bytes(16), 1, MINUTE)).slices
    store.acknowledge(Acknowledge(of_version_2, (Span(held[0].bundle.id, 0, 1, bytes(16)),), keep=True))
    store.create_schema()
    assert store.count(of_version_2).processed == 1


def test_a_claim_that_a_client_of_an_earlier_version_began_is_repeated_by_a_newer_one(
    store: MongoStore, of_version_2: Shard, database: Database
) -> None:
    # Given a claim of both messages that left no note of what it chose
    claim = Claim(of_version_2, bytes(16), 2, MINUTE)
    first = store.claim(claim)
    database[str(of_version_2)].update_one({"_id": claim.token}, {"$unset": {"g": 1}})
    store.create_schema()
    # Then a repetition holds the same
    store.append(Append(of_version_2, (BundleFactory(store.now)(),)))
    assert store.claim(claim).slices == first.slices
