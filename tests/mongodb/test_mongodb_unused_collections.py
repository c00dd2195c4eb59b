"""Collections that are dropped when nothing is in them, while others write to them, claim, list, forget and drop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from pymongo.database import Database

from shardq.base.shard import Shard
from shardq.errors import ShardqError
from shardq.storage.mongodb import collections, schema
from shardq.storage.mongodb.directory import Open
from shardq.storage.mongodb.documents import END
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Fenced, Forward, Span, Sweep
from shardq.testing import BundleFactory
from tests.mongodb.interruption import Interruption, Killed, interrupted_client

pytestmark = pytest.mark.server

MINUTE = 60_000_000
MANY = 60  # more commands than anything here has


class Scene:
    """A shard with a collection in which nothing is, one client of it that is interrupted, and others."""

    def __init__(self, open_store: Callable[..., MongoStore], shard: Shard, database: Database) -> None:
        self.shard, self._rows = shard, database[str(shard)]
        self.other, self._third = open_store(), open_store()
        self.make, self._make_last = BundleFactory(self.other.now), BundleFactory(self._third.now)

    def empty(self) -> None:
        """Let there be nothing, as some time after all was finished."""
        self.other.append(Append(self.shard, (self.make(),)))
        self._rows.delete_many({"_id": {"$ne": END["_id"]}})

    @property
    def exists(self) -> bool:
        return collections.find(self.other.session, self.shard) is not None

    def drop(self, store: MongoStore | None = None) -> bool:
        return collections.drop_unused((store or self.other).session, self.shard)

    def check(self, *bundles: Bundle) -> None:
        """These are there once each, listed, and whoever comes next can work with the shard."""
        last = self._make_last()
        self._third.append(Append(self.shard, (last,)))
        assert self._third.shards(self.shard.queue) == (self.shard,)
        claimed = self._third.claim(Claim(self.shard, os.urandom(16), 100, MINUTE))
        assert sorted(each.bundle.id for each in claimed.slices) == sorted(
            each.id for each in (*bundles, last)
        )
        assert self._rows.count_documents({"_id": END["_id"]}) == 1
        assert self._third.purge(self.shard) == len(bundles) + 1


@pytest.fixture
def scene(open_store: Callable[..., MongoStore], shard: Shard, database: Database) -> Scene:
    return Scene(open_store, shard, database)


@pytest.fixture
def interrupted(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[MongoStore, Interruption]]:
    store, interruption = interrupted_client(mongodb_url, monkeypatch)
    yield store, interruption
    store.close()


def send(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    bundle = scene.make()
    store.append(Append(scene.shard, (bundle,)))
    return (bundle,)


def send_again(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    """A send that was not answered is repeated."""
    bundles = send(scene, store)
    store.append(Append(scene.shard, bundles))
    return bundles


def send_and_finish(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    """What was acked is repeated by its sender, and not stored again."""
    (bundle,) = send(scene, store)
    token = os.urandom(16)
    store.claim(Claim(scene.shard, token, 1, MINUTE))
    done = store.acknowledge(Acknowledge(scene.shard, (Span(bundle.id, 0, 1, token),)))
    assert done == Fenced()
    store.append(Append(scene.shard, (bundle,)))
    return ()


def send_and_remove(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    (bundle,) = send(scene, store)
    assert store.remove(scene.shard, bundle.id, 0)
    return ()


def claim(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    store.claim(Claim(scene.shard, os.urandom(16), 1, MINUTE))
    return ()


def forget(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    store.drop_if_empty(scene.shard)
    return ()


def forget_and_send(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    store.drop_if_empty(scene.shard)
    return send(scene, store)


def drop(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    scene.drop(store)
    return ()


def drop_and_send(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    scene.drop(store)
    return send(scene, store)


def sweep(scene: Scene, store: MongoStore) -> tuple[Bundle, ...]:
    """The directory is put right, and what can be is dropped."""
    store.sweep(Sweep(scene.shard.queue, store.now()))
    return ()


def _act(act: Callable[..., tuple[Bundle, ...]], scene: Scene, sent: list[Bundle]) -> None:
    sent.extend(act(scene, scene.other))


def acts(*usual: Callable[..., object], long: tuple[Callable[..., object], ...]) -> list[Any]:
    """What others may do; that which takes longer is for the long tests."""
    return [*usual, *(pytest.param(act, marks=pytest.mark.long) for act in long)]


@pytest.mark.parametrize(
    "act",
    acts(
        send_and_finish,
        forget_and_send,
        long=(send, send_again, send_and_remove, claim, forget, drop, drop_and_send, sweep),
    ),
)
def test_what_others_do_between_any_two_steps_of_a_drop_is_neither_lost_nor_hidden_nor_doubled(
    interrupted: tuple[MongoStore, Interruption], scene: Scene, act: Callable[..., tuple[Bundle, ...]]
) -> None:
    dropper, interruption = interrupted
    for number in range(MANY):
        scene.empty()
        sent: list[Bundle] = []
        with interruption.before(number, partial(_act, act, scene, sent)):
            scene.drop(dropper)
        if not interruption.came:
            assert number >= 5
            return
        scene.check(*sent)
    pytest.fail("a drop has no end")


@pytest.mark.parametrize("act", acts(send, long=(send_and_finish, forget_and_send, claim, sweep)))
def test_a_drop_between_any_two_steps_of_what_others_do_loses_hides_and_doubles_nothing(
    interrupted: tuple[MongoStore, Interruption], scene: Scene, act: Callable[..., tuple[Bundle, ...]]
) -> None:
    client, interruption = interrupted
    for number in range(MANY):
        scene.empty()
        client.client.collections.is_not(scene.shard)
        with interruption.before(number, scene.drop):
            sent = act(scene, client)
        if not interruption.came:
            return
        scene.check(*sent)
    pytest.fail(f"{act.__name__} has no end")


@pytest.mark.parametrize("act", acts(send, long=(send_and_finish, forget_and_send)))
def test_a_drop_that_dies_between_any_two_steps_is_in_nobodys_way(
    interrupted: tuple[MongoStore, Interruption], scene: Scene, act: Callable[..., tuple[Bundle, ...]]
) -> None:
    dropper, interruption = interrupted

    def die() -> None:
        raise Killed

    for number in range(MANY):
        scene.empty()
        try:
            with interruption.before(number, die):
                scene.drop(dropper)
        except Killed:
            # Then another one who does something finds the shard as it has to be
            scene.check(*act(scene, scene.other))
            continue
        assert number >= 5
        return
    pytest.fail("a drop has no end")


def test_a_drop_that_another_one_finishes_is_finished_once(
    interrupted: tuple[MongoStore, Interruption], scene: Scene
) -> None:
    dropper, interruption = interrupted
    for number in range(MANY):
        scene.empty()
        with interruption.before(number, scene.drop):
            scene.drop(dropper)
        assert not scene.exists
        if not interruption.came:
            return


@pytest.mark.long
def test_a_sender_that_dies_between_any_two_steps_beside_a_barred_collection_leaves_it_usable(
    interrupted: tuple[MongoStore, Interruption], scene: Scene, database: Database
) -> None:
    sender, interruption = interrupted

    def die() -> None:
        raise Killed

    for number in range(MANY):
        scene.empty()
        sender.client.collections = Open(sender.session)  # so that it asks all that it ever asks
        bundle = scene.make()
        found = collections.find(scene.other.session, scene.shard)
        assert found is not None
        assert schema.bar(
            database,
            str(scene.shard),
            collections.uuid_of(found),
            in_set=scene.other.session.has_transactions,
        )
        try:
            with interruption.before(number, die):
                sender.append(Append(scene.shard, (bundle,)))
        except Killed:
            scene.other.append(Append(scene.shard, (bundle,)))
            scene.check(bundle)
            continue
        scene.check(bundle)
        return
    pytest.fail("an append has no end")


@pytest.mark.long
def test_a_forward_into_a_collection_that_is_being_dropped_is_stored_once(
    interrupted: tuple[MongoStore, Interruption], scene: Scene, shard: Shard
) -> None:
    client, interruption = interrupted
    if not client.capabilities.forward_across_shards:
        return
    source = Shard(shard.queue, 1, 0)
    for number in range(MANY):
        scene.empty()
        (message, copy), token = (scene.make(), scene.make()), os.urandom(16)
        client.append(Append(source, (message,)))
        client.claim(Claim(source, token, 1, MINUTE))
        client.client.collections.is_not(shard)
        held = Acknowledge(source, (Span(message.id, 0, 1, token),))
        with interruption.before(number, scene.drop):
            assert client.forward(Forward(held, Append(shard, (copy,)))) == Fenced()
        assert client.drop_if_empty(source)
        scene.check(copy)
        if not interruption.came:
            return
    pytest.fail("a forward has no end")


def test_a_sweep_drops_what_is_empty_and_nothing_that_remembers(
    scene: Scene, open_store: Callable[..., MongoStore], database: Database
) -> None:
    store, shard = open_store(), scene.shard
    # Given something that waits, then the memory of what was finished
    (bundle,) = send(scene, store)
    store.sweep(Sweep(shard.queue, store.now()))
    assert scene.exists
    token = os.urandom(16)
    store.claim(Claim(shard, token, 1, MINUTE))
    store.acknowledge(Acknowledge(shard, (Span(bundle.id, 0, 1, token),)))
    store.sweep(Sweep(shard.queue, store.now()))
    assert scene.exists
    # When the server has deleted that
    database[str(shard)].delete_many({"_id": {"$ne": END["_id"]}})
    # Then a sweep drops the collection, once, and the next send makes it again
    assert store.sweep(Sweep(shard.queue, store.now())) == 1
    assert not scene.exists
    assert store.sweep(Sweep(shard.queue, store.now())) == 0
    scene.check()


def test_a_collection_in_which_history_was_kept_stays(scene: Scene, database: Database) -> None:
    store, shard = scene.other, scene.shard
    (bundle,) = send(scene, store)
    token = os.urandom(16)
    store.claim(Claim(shard, token, 1, MINUTE))
    store.acknowledge(Acknowledge(shard, (Span(bundle.id, 0, 1, token),), keep=True))
    database[str(shard)].delete_many({"_id": {"$ne": END["_id"]}})
    assert not scene.drop()
    assert scene.exists
    scene.check()


@pytest.mark.long
def test_history_is_kept_in_sight_whichever_client_knew_the_collection_of_before(
    interrupted: tuple[MongoStore, Interruption], scene: Scene
) -> None:
    keeper, interruption = interrupted
    for number in range(MANY):
        # Given a client that is about to keep something, in a shard whose collection is dropped meanwhile
        scene.empty()
        keeper.client.collections.is_not(scene.shard)
        with interruption.before(number, scene.drop):
            keeper.client.collections.index(scene.shard, history=True)
        came = interruption.came
        if collections.find(scene.other.session, scene.shard) is not None:
            assert not scene.drop()
        # When it keeps something that somebody else sent and holds
        (bundle,), token = send(scene, scene.other), os.urandom(16)
        scene.other.claim(Claim(scene.shard, token, 1, MINUTE))
        spans = (Span(bundle.id, 0, 1, token),)
        assert keeper.acknowledge(Acknowledge(scene.shard, spans, keep=True)) == Fenced()
        # Then all see it
        assert scene.other.count(scene.shard).processed == 1
        assert scene.other.remove(scene.shard, bundle.id, 0)
        scene.other.session.database.drop_collection(str(scene.shard))
        scene.other.client.collections.is_not(scene.shard)
        keeper.client.collections.is_not(scene.shard)
        if not came:
            return


def test_a_look_at_shards_whose_collections_come_and_go_is_answered_or_may_be_repeated(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    """A sweep drops what was not used for long, and nobody who looks meanwhile is to end for that."""
    shards = [replace(shard, time_shard=number) for number in range(8)]
    end = time.monotonic() + 3
    failures: list[ShardqError] = []

    def come_and_go(place: Shard) -> None:
        while time.monotonic() < end:
            database[str(place)].insert_one({"p": 1, "d": 1})
            database[str(place)].drop()

    threads = [threading.Thread(target=come_and_go, args=(place,)) for place in shards[:2]]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        try:
            store.probe(shards)
        except ShardqError as error:
            failures.append(error)
    for thread in threads:
        thread.join()
    assert [str(error) for error in failures if not error.retryable] == []
