"""What clients of a dropped queue leave behind is in nobody's sight, and is removed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count

import pytest
from pymongo.database import Database

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, QueueNotFound, StoreUnavailable
from shardq.storage.keys import KeyChange
from shardq.storage.mongodb import collections, directory, queues, removal
from shardq.storage.mongodb.collections import CollectionLimit
from shardq.storage.mongodb.read_cursors import ReadCursor, ReadCursors
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Append, Bundle, Claim, QueueRecord, Sweep
from shardq.testing import BundleFactory
from tests.mongodb.interruption import Killed, interrupted_client

pytestmark = pytest.mark.server

MINUTE = 60_000_000


@pytest.fixture
def fresh(store: MongoStore) -> Iterator[Shard]:
    """A shard of a queue that has an incarnation."""
    shard = Shard(f"c{os.urandom(6).hex()}", 0, 0)
    assert store.create_queue(QueueRecord(shard.queue, b"", 1))
    yield shard
    store.drop_queue(shard.queue)


@pytest.fixture(params=["of before", "fresh"])
def either(request: pytest.FixtureRequest) -> Shard:
    """A shard of a queue with an incarnation, or of one of before there were any."""
    return request.getfixturevalue("shard" if request.param == "of before" else "fresh")


def again(store: MongoStore, shard: Shard) -> None:
    assert store.drop_queue(shard.queue)
    assert store.create_queue(QueueRecord(shard.queue, b"", 1))


def again_with_a_message(store: MongoStore, shard: Shard) -> Callable[[], None]:
    make = BundleFactory(store.now)

    def created_again_and_sent_to() -> None:
        again(store, shard)
        store.append(Append(shard, (make(),)))

    return created_again_and_sent_to


def names(database: Database, shard: Shard) -> set[str]:
    found = database.list_collection_names()
    return {name for name in found if name.partition(":")[0].partition("@")[0] == shard.queue}


def claimed(store: MongoStore, shard: Shard) -> list[Bundle]:
    return [each.bundle for each in store.claim(Claim(shard, os.urandom(16), 10, MINUTE)).slices]


def test_a_claim_that_meets_a_drop_makes_no_collection(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    either: Shard,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a claim that has looked
    store.append(Append(either, (BundleFactory(store.now)(),)))
    other, take = open_store(), ShardRows.take

    def dropped_before(*args: object) -> int | None:
        monkeypatch.undo()
        assert other.drop_queue(either.queue)
        return take(*args)  # type: ignore[arg-type]

    # When another client drops the queue before it takes anything
    monkeypatch.setattr(ShardRows, "take", dropped_before)
    assert claimed(store, either) == []
    # Then there is nothing of it, and a queue of that name works
    assert names(database, either) == set()
    assert other.create_queue(QueueRecord(either.queue, b"", 1))
    bundle = BundleFactory(store.now)()
    store.append(Append(either, (bundle,)))
    assert claimed(other, either) == [bundle]


def test_an_append_leaves_nothing_of_a_queue_that_is_deleted_between_any_two_of_its_steps(
    mongodb_url: str, store: MongoStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, interruption = interrupted_client(mongodb_url, monkeypatch)
    for number in count():
        shard = Shard(f"c{os.urandom(6).hex()}", 0, 0)
        assert store.create_queue(QueueRecord(shard.queue, b"", 1))
        bundle = BundleFactory(store.now)()
        with (
            interruption.before(number, partial(store.drop_queue, shard.queue)),
            suppress(QueueNotFound),
        ):
            client.append(Append(shard, (bundle,)))
        if not interruption.came:
            break
        assert names(database, shard) == set(), number
        assert database["shardq.shard"].find_one({"_id.q": {"$regex": f"^{shard.queue}"}}) is None, number
    assert number > 8
    client.close()
    store.drop_queue(shard.queue)


def test_a_sweep_of_any_queue_finishes_a_drop_that_ended_at_any_command(
    mongodb_url: str, store: MongoStore, fresh: Shard, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        raise Killed

    for number in count():
        # Given a queue with a message and a unique key, and a client that ends before one of the commands of its drop
        shard = Shard(f"c{os.urandom(6).hex()}", 0, 0)
        assert store.create_queue(QueueRecord(shard.queue, b"", 1))
        store.append(Append(shard, (BundleFactory(store.now)(),)))
        assert store.compare_and_set_keys(shard.queue, [KeyChange("key", None, "text")]) == ("text",)
        client, interruption = interrupted_client(mongodb_url, monkeypatch)
        with suppress(Killed), interruption.before(number, die):
            client.drop_queue(shard.queue)
        client.close()
        # When another queue is swept, then nothing is left of it, or all of it
        alive = store.load_queue(shard.queue) is not None
        while store.sweep(Sweep(fresh.queue, 0)):
            pass
        if alive:
            assert store.drop_queue(shard.queue)
        assert names(database, shard) == set(), number
        assert database["shardq.queue"].find_one({"_id": shard.queue}) is None, number
        for kept in ("shardq.shard", "shardq.dedupe"):
            assert database[kept].find_one({"_id.q": {"$regex": f"^{shard.queue}"}}) is None, (kept, number)
        if not interruption.came:
            break
    assert number > 4


def test_what_a_client_of_before_makes_is_not_in_the_new_queue_and_a_sweep_removes_it(
    store: MongoStore, either: Shard, database: Database
) -> None:
    # Given a client that is about to make the collection of a shard when the queue is dropped and created again
    place = Shard(store.incarnations.of(either.queue), 3, 1)
    again(store, either)
    collections.make(store.session, CollectionLimit(store.session), place)
    directory.enter_again(store.session, place)
    database[str(place)].insert_one(
        {"_id": b"x" * 16, "p": 0, "d": 1, "o": 1, "e": 1, "n": 1, "v": 0, "m": 1}
    )
    # Then the new queue has nothing of it
    shard = Shard(either.queue, 3, 1)
    assert store.shards(either.queue) == ()
    assert store.probe([shard], deep=True)[0].empty
    with pytest.raises(QueueNotFound):
        directory.enter(store.session, CollectionLimit(store.session), place)
    # And a sweep removes it
    assert store.sweep(Sweep(either.queue, 0)) == 2
    assert names(database, either) == set()
    assert database["shardq.shard"].count_documents({"_id.q": place.queue}) == 0
    assert store.sweep(Sweep(either.queue, 0)) == 0


def test_a_sweep_removes_what_is_left_of_a_queue_that_does_not_exist(
    store: MongoStore, fresh: Shard, database: Database
) -> None:
    place = Shard(store.incarnations.of(fresh.queue), 0, 0)
    assert store.drop_queue(fresh.queue)
    collections.make(store.session, CollectionLimit(store.session), place)
    assert store.sweep(Sweep(fresh.queue, 0)) == 1
    assert names(database, fresh) == set()
    assert store.sweep(Sweep(fresh.queue, 0)) == 0


def test_whoever_finishes_a_drop_late_takes_nothing_from_the_queue_created_meanwhile(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    either: Shard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given two clients that drop a queue, and the second one creates it again before the first one goes on
    other, bundle = open_store(), BundleFactory(store.now)(2)
    remove = removal.remove_remains

    def late(*args: object) -> int:
        monkeypatch.undo()
        again(other, either)
        other.append(Append(either, (bundle,)))
        return remove(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(removal, "remove_remains", late)
    assert store.drop_queue(either.queue)
    # Then what was sent to it is there
    assert other.shards(either.queue) == (either,)
    assert claimed(store, either) == [bundle]


def test_a_drop_that_is_carried_out_late_takes_nothing_from_the_queue_created_meanwhile(
    mongodb_url: str, store: MongoStore, either: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a drop whose update comes after the queue was dropped and created again, as one that was repeated may
    bundle = BundleFactory(store.now)(2)

    def come_before() -> None:
        again(store, either)
        store.append(Append(either, (bundle,)))

    client, interruption = interrupted_client(mongodb_url, monkeypatch)
    client.ping()
    with interruption.before(1, come_before):
        client.drop_queue(either.queue)
    # Then the update it was, and what was sent is there
    assert interruption.commands[1] == "update"
    assert claimed(store, either) == [bundle]
    client.close()


def test_what_ends_a_drop_after_the_queue_is_gone_leaves_its_outcome_unknown(
    store: MongoStore, fresh: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a drop that finds no server when the queue is gone
    def fail(*_: object) -> int:
        raise StoreUnavailable("no primary")

    # When it ends, then it does not say that nothing was changed
    with monkeypatch.context() as patch, pytest.raises(OutcomeUnknown):
        patch.setattr(removal, "remove_remains", fail)
        store.drop_queue(fresh.queue)
    assert store.load_queue(fresh.queue) is None


def test_whoever_finishes_a_drop_to_create_the_queue_takes_nothing_from_one_created_meanwhile(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    either: Shard,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a drop that was cut short, and two clients that create the queue, of which one stands still for a while
    database["shardq.queue"].update_one({"_id": either.queue}, {"$set": {"version": -1}})
    other, bundle = open_store(), BundleFactory(store.now)(2)
    is_condemned = queues.is_condemned

    def late(*args: object) -> bool:
        found = is_condemned(*args)  # type: ignore[arg-type]
        monkeypatch.undo()
        assert other.create_queue(QueueRecord(either.queue, b"", 1))
        other.append(Append(either, (bundle,)))
        return found

    monkeypatch.setattr(queues, "is_condemned", late)
    assert not store.create_queue(QueueRecord(either.queue, b"", 1))
    # Then what was sent to the one that was created first is there
    assert claimed(store, either) == [bundle]


def test_queues_of_before_keep_the_names_of_their_collections(
    store: MongoStore, shard: Shard, fresh: Shard, database: Database
) -> None:
    for each in (shard, fresh):
        store.append(Append(each, (BundleFactory(store.now)(),)))
    assert names(database, shard) == {str(shard)}
    name = queues.current_name(store.session, fresh.queue)
    assert name and name.startswith(f"{fresh.queue}@")
    assert names(database, fresh) == {f"{name}:0:0"}


@pytest.mark.parametrize("requests", [1, 2])
def test_a_queue_that_is_created_again_before_any_request_of_a_look_hides_nothing(
    store: MongoStore, mongodb_url: str, monkeypatch: pytest.MonkeyPatch, fresh: Shard, requests: int
) -> None:
    client, interruption = interrupted_client(mongodb_url, monkeypatch)
    if requests == 2:
        monkeypatch.setattr(ReadCursors, "remembered", remembers_nothing)
    created_again_and_sent_to = again_with_a_message(store, fresh)

    for number in count():
        # Given a client that knows the queue as it is, empty or not
        if number % 2:
            created_again_and_sent_to()
        else:
            again(store, fresh)
        client.probe([fresh])
        # When it looks, and the queue is created again before one of its requests, with a message
        with interruption.before(number, created_again_and_sent_to):
            (found,) = client.probe([fresh])
        if not interruption.came:
            break
        # Then the look finds one, of before or of after
        assert not found.empty
    assert number >= requests
    client.close()


def remembers_nothing(*_: object) -> list[ReadCursor]:
    """A client that has not looked at the shards yet."""
    return []


@pytest.mark.parametrize(("requests", "later"), [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)])
def test_a_queue_that_is_created_again_twice_during_a_look_hides_nothing(
    store: MongoStore,
    mongodb_url: str,
    monkeypatch: pytest.MonkeyPatch,
    fresh: Shard,
    requests: int,
    later: int,
) -> None:
    client, interruption = interrupted_client(mongodb_url, monkeypatch)
    if requests == 2:
        monkeypatch.setattr(ReadCursors, "remembered", remembers_nothing)
    created_again_and_sent_to = again_with_a_message(store, fresh)

    def twice() -> None:
        created_again_and_sent_to()
        interruption.again(later, created_again_and_sent_to)

    for number in count():
        # Given a client that knows the queue, which is empty
        again(store, fresh)
        client.probe([fresh])
        # When it looks, and the queue is created again before one of its requests, and again before a later one
        with interruption.before(number, twice):
            (found,) = client.probe([fresh])
        if not interruption.came:
            break
        # Then the look finds what is in the last one
        assert not found.empty, number
    assert number >= 1
    client.close()


def test_a_consumer_counts_in_the_queue_that_is_created_again_before_any_request_of_its_registerment(
    store: MongoStore, mongodb_url: str, monkeypatch: pytest.MonkeyPatch, fresh: Shard, database: Database
) -> None:
    client, interruption = interrupted_client(mongodb_url, monkeypatch)

    def created_again() -> None:
        again(store, fresh)
        store.append(Append(fresh, (BundleFactory(store.now)(),)))

    for number in count():
        # Given a consumer that is counted
        client.register_consumer([fresh.queue], "c", MINUTE)
        # When it counts itself again, and the queue is created again before one of its requests
        with interruption.before(number, created_again):
            (told,) = client.register_consumer([fresh.queue], "c", MINUTE)
        if not interruption.came:
            break
        # Then it is told of the queue of now, with its shards, and counts there
        assert told is not None
        assert told.shards == store.shards(fresh.queue) == (fresh,)
        assert told.consumers == ("c",)
        assert [each.consumer for each in store.seen_consumers(fresh.queue)] == ["c"]
        # And nowhere else
        assert database["shardq.consumer"].count_documents({"_id.q": {"$regex": f"^{fresh.queue}"}}) == 1
    assert number == 2  # requests
    client.close()


def test_a_consumer_is_told_that_its_queue_is_gone(store: MongoStore, fresh: Shard) -> None:
    other = Shard(f"{fresh.queue}x", 0, 0)
    assert store.create_queue(QueueRecord(other.queue, b"", 1))
    assert None not in store.register_consumer([fresh.queue, other.queue], "c", MINUTE)
    store.drop_queue(fresh.queue)
    gone, there = store.register_consumer([fresh.queue, other.queue], "c", MINUTE)
    assert gone is None
    assert not store.seen_consumers(fresh.queue)
    assert there is not None
    assert there.consumers == ("c",)
    store.drop_queue(other.queue)
