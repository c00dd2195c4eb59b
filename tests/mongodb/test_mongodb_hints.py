"""Low watermarks and the directory are hints: what is wrong with them is found and put right; no crash makes it so."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pytest
from pymongo.database import Database

from shardq.base.shard import Shard
from shardq.storage.mongodb import collections, directory
from shardq.storage.mongodb.collections import CollectionLimit
from shardq.storage.mongodb.documents import inserted
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Append, Bundle, Claim, Sweep
from shardq.testing import BundleFactory
from tests.mongodb.interruption import interrupted_client

pytestmark = pytest.mark.server

SECOND = 1_000_000
MINUTE = 60_000_000
HOUR = 60 * MINUTE


class Killed(BaseException):
    """The end of a client."""


@contextmanager
def killed_before(request: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """End this client before its n-th request; how many it made is the length of the list."""
    translated, made = Session.translated, []

    @contextmanager
    def counted(session: Session, *, writing: bool) -> Iterator[None]:
        if len(made) == request:
            raise Killed
        made.append(None)
        with translated(session, writing=writing):
            yield

    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(Session, "translated", counted)
        yield made


def claimed(store: MongoStore, shard: Shard) -> list[Bundle]:
    return [each.bundle for each in store.claim(Claim(shard, os.urandom(16), 10, MINUTE)).slices]


@pytest.fixture
def hide(database: Database, shard: Shard) -> Callable[..., None]:
    """Raise the low watermarks of some priorities to a moment."""

    def raise_watermarks(moment: int, *priorities: int) -> None:
        watermarks = {f"f.{priority}": moment for priority in priorities or range(10)}
        database["shardq.shard"].update_one({"_id": directory.key(shard)}, {"$set": watermarks}, upsert=True)

    return raise_watermarks


def test_a_client_killed_anywhere_in_forget_leaves_no_message_outside_of_the_directory(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    shard: Shard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given an empty shard that is listed, and somebody who sends to it once it was found empty
    other, bundle = open_store(), BundleFactory(store.now)
    is_empty: Any = vars(directory)["is_empty"]
    translated = Session.translated
    found: list[bool] = []

    def looked(rows: ShardRows) -> bool:
        found.append(is_empty(rows))
        if len(found) == 1:
            with monkeypatch.context() as patched:
                patched.setattr(Session, "translated", translated)
                other.append(Append(shard, (bundle(),)))
        return found[-1]

    monkeypatch.setattr(directory, "is_empty", looked)
    for request in range(30):
        directory.enter(store.session, CollectionLimit(store.session), shard)
        other.client.collections.uuid(shard)
        found.clear()
        # When a client that forgets it is killed before any of its requests
        with killed_before(request, monkeypatch) as made:
            assert not store.drop_if_empty(shard)
        # Then what was sent is listed
        assert store.count(shard).ready == min(len(found), 1)
        assert store.shards(shard.queue) == (shard,)
        store.purge(shard)
        if len(made) < request:
            return
    pytest.fail("forget has no end")


def test_a_message_that_a_low_watermark_hides_is_found_by_a_deep_probe_for_every_client(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    shard: Shard,
    hide: Callable[..., None],
) -> None:
    # Given messages of two priorities below the low watermarks
    make, other = BundleFactory(store.now), open_store()
    hidden = [make(priority=3), make(priority=7), make(priority=7, delay=50)]
    store.append(Append(shard, tuple(hidden)))
    hide(store.now() + HOUR, 3, 7)
    stale = open_store()
    assert claimed(stale, shard) == []
    # When somebody looks without hints
    (probe,) = other.probe([shard], deep=True)
    # Then it offers them, and every client gets them
    assert (probe.priority, probe.due, probe.next_due) == (3, hidden[0].due, hidden[2].due)
    assert stale.probe([shard]) == (probe,)
    assert claimed(stale, shard) == hidden[:2]


@pytest.mark.parametrize("seconds", [0.0, 1.2], ids=["just now", "a while ago"])
@pytest.mark.parametrize("listed", [True, False], ids=["listed", "forgotten"])
def test_what_comes_late_is_found_by_who_remembers_where_the_low_watermarks_were(
    store: MongoStore,
    mongodb_url: str,
    monkeypatch: pytest.MonkeyPatch,
    shard: Shard,
    hide: Callable[..., None],
    seconds: float,
    listed: bool,
) -> None:
    client, interruption = interrupted_client(mongodb_url, monkeypatch)
    make = BundleFactory(store.now)
    for number in count():
        # Given a client that has looked at a shard, of which everything is below the low watermarks
        store.purge(shard)
        assert listed or store.drop_if_empty(shard)
        if listed:
            hide(store.now() - 5 * SECOND)
        (probe,) = client.probe([shard])
        assert probe.empty
        time.sleep(seconds)
        late = make(1, delay=-60)
        # When it looks, and a message that was due before comes before one of its requests
        with interruption.before(number, lambda late=late: store.append(Append(shard, (late,)))):  # type: ignore[misc]
            (found,) = client.probe([shard])
        if not interruption.came:
            break
        # Then this look or the next one finds it, and who claims too
        (found,) = (found,) if not found.empty else client.probe([shard])
        assert found.due == late.due
        assert claimed(client, shard) == [late]
    assert number >= 1
    client.close()


def test_a_shard_that_is_not_listed_is_listed_by_a_deep_probe_if_it_holds_something(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    empty = Shard(shard.queue, 1, 0)
    make = BundleFactory(store.now)
    store.create_shards([shard, empty])
    store.append(Append(shard, (make(delay=1000),)))
    database["shardq.shard"].delete_many({"_id.q": shard.queue})
    store.probe([empty, shard], deep=True)
    assert store.shards(shard.queue) == (shard,)


@pytest.mark.parametrize("keep", [False, True], ids=["waiting", "history"])
def test_a_sweep_lists_every_collection_that_holds_something(
    store: MongoStore, shard: Shard, database: Database, keep: bool
) -> None:
    document = inserted(BundleFactory(store.now)())
    if keep:
        document = {"_id": document["_id"], "p": 0, "o": 1, "e": 1, "n": 1, "b": b""}
        document["h"] = [{"f": 0, "c": 1, "v": 1, "a": store.now()}]
    collections.make(store.session, CollectionLimit(store.session), shard)
    database[str(shard)].insert_one(document)
    assert store.shards(shard.queue) == ()
    assert store.sweep(Sweep(shard.queue, 0)) == 1
    assert store.shards(shard.queue) == (shard,)
    assert store.sweep(Sweep(shard.queue, 0)) == 0


def test_a_sweep_finds_what_low_watermarks_hide(
    store: MongoStore, shard: Shard, hide: Callable[..., None]
) -> None:
    bundle = BundleFactory(store.now)(priority=5)
    store.append(Append(shard, (bundle,)))
    hide(store.now() + HOUR)
    assert store.sweep(Sweep(shard.queue, 0)) == 1
    assert claimed(store, shard) == [bundle]


def test_a_claim_that_begins_after_a_late_append_gets_it_first(
    store: MongoStore, open_store: Callable[..., MongoStore], shard: Shard
) -> None:
    # Given a client that has just read on beyond what comes late
    make, other = BundleFactory(store.now), open_store()
    store.append(Append(shard, tuple(make(priority=6) for _ in range(3))))
    assert len(store.claim(Claim(shard, os.urandom(16), 1, MINUTE)).slices) == 1
    # When another client's append has taken long
    late = make(priority=5, delay=-2)
    other.append(Append(shard, (late,)))
    # Then the next claim begins with it
    assert claimed(store, shard)[0] == late


def test_what_is_seen_a_little_late_is_not_passed_over(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    make = BundleFactory(store.now)
    store.append(Append(shard, tuple(make(priority=6) for _ in range(3))))
    assert len(store.claim(Claim(shard, os.urandom(16), 1, MINUTE)).slices) == 1
    late = make(priority=5, delay=-0.5)  # committed after half a second, and not said to be late
    database[str(shard)].insert_one(inserted(late))
    assert claimed(store, shard)[0] == late
