"""The collections of a queue's shards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from pymongo.database import Database

import shardq
from shardq.base.shard import Shard
from shardq.errors import InvalidSetting, QueueNotFound
from shardq.storage.mongodb import collections, queues
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    Fenced,
    Forward,
    Peek,
    QueueRecord,
    Span,
    Sweep,
)
from shardq.testing import BundleFactory
from tests.mongodb.interruption import interrupted_client

pytestmark = pytest.mark.server

INDEXES = {"_id_", "claim", "finished"}
MINUTE = 60_000_000


def names(database: Database, queue: str) -> set[str]:
    return {
        name for name in database.list_collection_names() if name.partition(":")[0].partition("@")[0] == queue
    }


def test_a_shard_is_a_collection_of_its_name_with_its_indexes_and_validator(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    assert names(database, shard.queue) == {str(shard)}
    assert set(database[str(shard)].index_information()) == INDEXES
    assert "$jsonSchema" in database[str(shard)].options()["validator"]


def test_a_dropped_queue_has_no_collections(store: MongoStore, database: Database) -> None:
    queue = f"c{os.urandom(6).hex()}"
    store.create_queue(QueueRecord(queue, b"", 1))
    make = BundleFactory(store.now)
    for number in range(3):
        store.append(Append(Shard(queue, number, number), (make(),)))
    assert len(names(database, queue)) == 3
    store.drop_queue(queue)
    assert names(database, queue) == set()


def test_a_late_append_makes_no_collection(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, database: Database
) -> None:
    # Given a client that has sent to a queue which another one drops
    late, make = open_store(), BundleFactory(store.now)
    late.append(Append(shard, (make(),)))
    store.drop_queue(shard.queue)
    with pytest.raises(QueueNotFound):
        late.append(Append(shard, (make(),)))
    assert names(database, shard.queue) == set()


def test_a_client_that_sends_to_a_queue_created_again_uses_its_new_collection(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, database: Database
) -> None:
    late, make = open_store(), BundleFactory(store.now)
    late.append(Append(shard, (make(),)))
    store.drop_queue(shard.queue)
    store.create_queue(QueueRecord(shard.queue, b"", 1))
    late.append(Append(shard, (make(2),)))
    assert store.count(shard).ready == 2
    (name,) = names(database, shard.queue)
    assert set(database[name].index_information()) == INDEXES


def test_a_forgotten_shard_keeps_its_collection_and_takes_nothing_until_it_is_listed_again(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, database: Database
) -> None:
    late, make = open_store(), BundleFactory(store.now)
    bundle = make()
    late.append(Append(shard, (bundle,)))
    store.claim(Claim(shard, bytes(16), 1, MINUTE))
    store.acknowledge(Acknowledge(shard, (Span(bundle.id, 0, 1, bytes(16)),)))
    assert store.drop_if_empty(shard)
    assert names(database, shard.queue) == {str(shard)}
    assert store.shards(shard.queue) == ()
    late.append(Append(shard, (bundle, make())))
    assert store.shards(shard.queue) == (shard,)
    assert store.count(shard).ready == 1


def test_a_drop_that_was_cut_short_is_finished_by_the_next_create(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    database["shardq.queue"].update_one({"_id": shard.queue}, {"$set": {"version": -1}})
    assert store.load_queue(shard.queue) is None
    assert shard.queue not in store.list_queues()
    assert store.create_queue(QueueRecord(shard.queue, b"", 1))
    assert names(database, shard.queue) == set()


def test_a_collection_is_made_when_its_shard_is_first_written(
    mongodb_url: str, database: Database, store: MongoStore
) -> None:
    queue = f"c{os.urandom(6).hex()}"
    with shardq.connect(mongodb_url) as client:
        # Given a queue that was just created, and looked at
        letters = client.create_queue(queue, shards=2, time_shards=3)
        with letters.consumer() as consumer:
            assert not consumer.receive(1)
        assert names(database, queue) == set()
        # When some of its shards are written
        make = BundleFactory(store.now)
        for number in range(2):
            store.append(Append(Shard(queue, 1, number), (make(),)))
        # Then those have one each, as it has to be
        assert len(names(database, queue)) == 2
        assert all(
            set(database[name].index_information()) == INDEXES
            and "$jsonSchema" in database[name].options()["validator"]
            for name in names(database, queue)
        )
        client.delete_queue(queue)
        client.delete_queue(f"{queue}.dead")
    assert names(database, queue) == set()


def test_what_counts_is_what_exists_and_a_queue_has_to_fit_beside_it(
    mongodb_url: str, store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given room for seven collections more
    names = [f"c{os.urandom(6).hex()}" for _ in range(3)]
    monkeypatch.setattr(collections, "MOST", collections.number(store.session) + 7)
    with shardq.connect(mongodb_url) as client:
        # Then any number of queues can be created that would fit by themselves
        for name in names:
            client.create_queue(name, shards=2, time_shards=3, max_deliveries=None)
        # When two of them are written to
        for number in range(4):
            store.append(Append(Shard(names[number % 2], 0, number), (BundleFactory(store.now)(),)))
        # Then another one is refused that could not have all its shards now, until there is room
        with shardq.connect(mongodb_url) as other, pytest.raises(InvalidSetting, match="would have"):
            other.create_queue("six", shards=2, time_shards=3, max_deliveries=None)
        assert not client.exists("six")
        client.delete_queue(names[0])
        client.create_queue(names[0], shards=1, time_shards=5, max_deliveries=None)
        for name in names:
            client.delete_queue(name)


def test_a_collection_that_is_one_too_many_is_refused_with_a_remedy(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, other = BundleFactory(store.now), open_store()
    monkeypatch.setattr(collections, "MOST", collections.number(store.session) + 2)
    for number in range(2):
        store.append(Append(replace(shard, number=number), (make(),)))
    for client in (store, other):
        with pytest.raises(InvalidSetting, match="shardq sweep"):
            client.append(Append(replace(shard, number=2), (make(),)))
    # When there is room again
    monkeypatch.setattr(collections, "MOST", collections.number(store.session) + 1)
    # Then it is seen at once
    store.append(Append(replace(shard, number=2), (make(),)))


def test_making_a_collection_does_not_look_at_all_that_there_are(
    store: MongoStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(collections, "number", lambda session: looks.append(1) or 0)
    monkeypatch.setattr(collections, "_MEMORY", 600.0)
    for number in range(10):
        store.append(Append(replace(shard, number=number), (BundleFactory(store.now)(),)))
        store.create_queue(QueueRecord(f"{shard.queue}-{number}", b"", 1))
        store.create_shards([Shard(f"{shard.queue}-{number}", 0, 0)])
    assert len(looks) == 1
    for number in range(10):
        store.drop_queue(f"{shard.queue}-{number}")


def test_too_many_collections_are_refused_before_any_is_made(
    mongodb_url: str, store: MongoStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collections, "MOST", collections.number(store.session) + 5)
    queue = f"c{os.urandom(6).hex()}"
    with shardq.connect(mongodb_url) as client:
        with pytest.raises(InvalidSetting, match="lower shards or time_shards"):
            client.create_queue(queue, shards=2, time_shards=3)
        assert not client.exists(queue)
        assert names(database, queue) == set()
        small = client.create_queue(queue, shards=2, time_shards=1, max_deliveries=None)
        with pytest.raises(InvalidSetting, match="would have"):
            small.alter(shards=10)
        assert small.settings.shards == 2
        assert queues.planned(store.session)[queues.current_name(store.session, queue) or ""] == 2
        client.delete_queue(queue)


@pytest.mark.parametrize("use", ["append", "claim", "peek", "count", "sweep", "repeat", "peek at history"])
def test_indexes_that_are_missing_are_made_by_whoever_needs_them(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, database: Database, use: str
) -> None:
    # Given a collection that lost its indexes
    make = BundleFactory(store.now)
    store.append(Append(shard, (make(),)))
    database[str(shard)].drop_indexes()
    # When a client uses it
    other = open_store()
    uses: dict[str, Callable[[], object]] = {
        "append": lambda: other.append(Append(shard, (make(),))),
        "claim": lambda: other.claim(Claim(shard, bytes(16), 1, MINUTE)),
        "peek": lambda: other.peek(Peek(shard, 10)),
        "count": lambda: other.count(shard),
        "sweep": lambda: other.sweep(Sweep(shard.queue, other.now())),
        "repeat": lambda: [other.claim(Claim(shard, bytes(16), 1, MINUTE)) for _ in range(2)],
        "peek at history": lambda: (other.peek(Peek(shard, 10, processed=True)), other.count(shard)),
    }
    uses[use]()
    # Then they are there, and nothing is lost
    assert set(database[str(shard)].index_information()) == INDEXES
    assert sum(each.count for each in other.peek(Peek(shard, 10)).slices) >= 1


@pytest.mark.parametrize("use", ["ack", "forward", "sweep"])
def test_the_index_of_the_history_is_made_by_whoever_keeps_some(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, database: Database, use: str
) -> None:
    # Given a collection where nothing was kept, as far as its indexes tell
    make, token = BundleFactory(store.now), bytes(16)
    bundles = tuple(make() for _ in range(2))
    store.append(Append(shard, bundles))
    spans = tuple(Span(bundle.id, 0, 1, token) for bundle in bundles)
    store.claim(Claim(shard, token, 2, MINUTE))
    assert set(database[str(shard)].index_information()) == INDEXES
    store.acknowledge(Acknowledge(shard, spans[:1], keep=True))
    assert set(database[str(shard)].index_information()) == {*INDEXES, "history"}
    database[str(shard)].drop_index("history")
    assert store.count(shard).processed == 0
    # When a client keeps something, or sweeps a queue that keeps its history
    other, second = open_store(), Acknowledge(shard, spans[1:], keep=True)
    uses: dict[str, Callable[[], object]] = {
        "ack": lambda: other.acknowledge(second),
        "forward": lambda: other.forward(Forward(second, Append(shard, (make(),)))),
        "sweep": lambda: other.sweep(Sweep(shard.queue, other.now() - MINUTE)),
    }
    uses[use]()
    # Then all that was ever kept is found
    assert other.count(shard).processed == (1 if use == "sweep" else 2)
    assert len(other.peek(Peek(shard, 10, processed=True)).slices) == other.count(shard).processed


def test_the_index_of_the_history_is_made_after_a_transaction_that_has_used_the_collection(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    if not store.capabilities.transactions:
        pytest.skip("a single server has no transactions")
    make, token = BundleFactory(store.now), os.urandom(16)
    store.append(Append(shard, (make(),)))
    (held,) = store.claim(Claim(shard, token, 1, MINUTE)).slices
    # When a transaction sends to a shard, and then acks the first message that is kept there
    with database.client.start_session() as session, session.start_transaction():
        within, begun = store.within(session), time.monotonic()
        within.append(Append(shard, (make(),)))
        spans = (Span(held.bundle.id, 0, 1, token),)
        assert within.acknowledge(Acknowledge(shard, spans, keep=True)) == Fenced()
        # Then it does not wait for its own end
        assert time.monotonic() - begun < 10
    while not store.count(shard).processed and time.monotonic() - begun < 20:
        time.sleep(0.02)
    assert (store.count(shard).processed, store.count(shard).ready) == (1, 1)


def test_a_collection_that_a_primary_loses_while_it_is_made_is_made_again(
    store: MongoStore, mongodb_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client that makes the collection of a shard, which is lost before any one of its requests
    queue = f"c{os.urandom(6).hex()}"
    store.create_queue(QueueRecord(queue, b"", 1))
    client, interruption = interrupted_client(mongodb_url, monkeypatch)
    make, came, number = BundleFactory(store.now), True, 0
    client.load_queue(queue)
    while came:
        shard = Shard(queue, number, 0)

        def lose(index: int = number) -> None:
            for name in names(database, queue):
                if f":{index}:" in name and database[name].find_one({"n": 1}) is None:  # not stored yet
                    database.drop_collection(name)

        with interruption.before(number, lose):
            client.append(Append(shard, (make(),)))
        # Then the bundle is in one that is listed and has its indexes
        came, number = interruption.came, number + 1
        assert shard in store.shards(queue)
        assert store.count(shard).ready == 1
        assert store.claim(Claim(shard, os.urandom(16), 1, MINUTE)).slices
    assert number > 8
    client.close()
    store.drop_queue(queue)


def test_an_ack_that_keeps_what_is_not_there_any_more_makes_no_collection(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, database: Database
) -> None:
    late = open_store()
    bundle = BundleFactory(store.now)()
    late.append(Append(shard, (bundle,)))
    store.drop_queue(shard.queue)
    spans = (Span(bundle.id, 0, 1, bytes(16)),)
    assert late.acknowledge(Acknowledge(shard, spans, keep=True)).gone == spans
    assert names(database, shard.queue) == set()


def test_the_end_of_the_claim_index_is_nobodys_message(store: MongoStore, shard: Shard) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    end = b"\xff" * 16
    assert store.find(shard, end, 0) is None
    assert not store.remove(shard, end, 0)
    spans = (Span(end, 0, 1, bytes(16)),)
    assert store.acknowledge(Acknowledge(shard, spans)).gone == spans
    assert store.count(shard).ready == 1
