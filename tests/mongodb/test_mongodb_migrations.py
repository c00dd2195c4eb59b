"""A database that an earlier version has made goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pymongo.database import Database

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.errors import SchemaMismatch
from shardq.storage.mongodb import schema
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Claim, Fenced, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

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


def test_the_queues_of_a_database_of_before_groups_have_them_once_it_is_migrated(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, database: Database
) -> None:
    # Given a database of version 3, a message in it, and a client of it that holds another one
    sent = [BundleFactory(store.now)() for _ in range(2)]
    store.append(Append(shard, tuple(sent)))
    store.claim(Claim(shard, bytes(16), 1, MINUTE))
    database["shardq.schema"].update_one({"_id": "shardq"}, {"$set": {"version": 3}})
    # Then clients refuse it until the schema is applied
    with pytest.raises(SchemaMismatch, match="needs 5"):
        open_store().load_queue(shard.queue)
    open_store().create_schema()
    again = open_store()
    assert again.load_queue(shard.queue) is not None
    # And go on with what it holds, beside groups
    assert again.acknowledge(Acknowledge(shard, (Span(sent[0].id, 0, 1, bytes(16)),))) == Fenced()
    assert [each.bundle.id for each in again.claim(Claim(shard, b"t" * 16, 9, MINUTE)).slices] == [sent[1].id]
    if again.capabilities.groups:
        grouped = Shard(shard.queue, GROUP_TIME_SHARD, 3)
        pair = tuple(BundleFactory(store.now)(group="a") for _ in range(2))
        again.append(Append(grouped, pair))
        assert [each.bundle for each in again.claim(Claim(grouped, b"t" * 16, 1, MINUTE)).slices] == [pair[0]]
    assert "group" not in database[str(shard)].index_information()


def test_a_new_database_has_no_version_until_all_of_it_is_made(
    store: MongoStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, seen = schema.seed, list[int]()

    def look(session: Session) -> None:
        seen.append(schema.version(session))
        seed(session)

    monkeypatch.setattr(schema, "seed", look)
    database["shardq.schema"].delete_one({"_id": "shardq"})
    store.create_schema()
    assert set(seen) == {0}
    assert database["shardq.schema"].find_one({"_id": "shardq"}) == {"_id": "shardq", "version": 5}
