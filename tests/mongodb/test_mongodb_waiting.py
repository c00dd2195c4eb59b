"""Idle consumers are woken by other processes, and ask for nothing meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from pymongo.database import Database

from shardq.base.shard import Shard
from shardq.storage.listening import Waiter
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Append, QueueRecord
from shardq.testing import BundleFactory
from tests.mongodb.lossy_proxy import LossyProxy

pytestmark = pytest.mark.server

GUARD = 20.0


def settled(store: MongoStore, queue: str) -> Waiter:
    """Wait until nothing is new any more, so that the watch stands."""
    waiter = Waiter(store)
    while waiter.wait([queue], 0.3):
        pass
    return waiter


def test_ten_idle_consumers_send_next_to_nothing(
    open_store: Callable[..., MongoStore], shard: Shard, proxy: LossyProxy, proxied: str
) -> None:
    store = open_store(proxied)
    settled(store, shard.queue)
    proxy.arm(-1)

    def idle() -> tuple[str, ...]:
        waiter = Waiter(store)
        return waiter.wait([shard.queue], 0.1) and waiter.wait([shard.queue], 3.0)

    with ThreadPoolExecutor(10) as pool:
        assert not any(future.result() for future in [pool.submit(idle) for _ in range(10)])
    assert len(proxy.commands) <= 3, proxy.commands


@pytest.mark.parametrize("way", [{}, {"glance": True}, {"deep": True}], ids=["full", "glance", "deep"])
def test_a_look_at_twenty_queues_makes_the_requests_of_a_look_at_one(
    open_store: Callable[..., MongoStore], proxy: LossyProxy, proxied: str, way: dict[str, bool]
) -> None:
    # Given twenty empty queues
    store = open_store(proxied)
    shards = [Shard(f"many-{os.urandom(4).hex()}", 0, 0) for _ in range(20)]
    for shard in shards:
        store.create_queue(QueueRecord.new(shard.queue, b""))
    asked = {}
    for count in (1, 20):
        store.probe(shards[:count], **way)
        # When so many of them are looked at again, after everything that was seen of them became old or not
        for seen in (True, False):
            if not seen:
                for shard in shards:
                    store.incarnations.forget(shard.queue)
            proxy.arm(-1)
            assert len(store.probe(shards[:count], **way)) == count
            asked[count, seen] = proxy.commands.copy()
    # Then it takes as many requests
    assert len(asked[20, True]) == len(asked[1, True]) <= 4
    assert len(asked[20, False]) == len(asked[1, False]) <= 5
    for shard in shards:
        store.drop_queue(shard.queue)


def test_what_comes_while_the_watch_is_interrupted_is_not_missed(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, proxy: LossyProxy, proxied: str
) -> None:
    waiting = open_store(proxied)
    waiter = settled(waiting, shard.queue)
    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(lambda: waiter.wait([shard.queue], 0) or waiter.wait([shard.queue], GUARD))
        proxy.interrupt()
        store.append(Append(shard, (BundleFactory(store.now)(),)))
        assert woken.result(timeout=GUARD)
    # And the watch stands again
    waiter = settled(waiting, shard.queue)
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    assert waiter.wait([shard.queue], GUARD)


def test_signals_are_found_after_more_of_them_than_the_collection_holds(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, database: Database
) -> None:
    settled(store, shard.queue)
    database["shardq.signal"].insert_many([{"q": "x" * 200} for _ in range(3000)])
    waiter = settled(store, shard.queue)
    open_store().append(Append(shard, (BundleFactory(store.now)(),)))
    assert waiter.wait([shard.queue], GUARD)


@pytest.mark.long
def test_a_closed_store_has_no_thread_left_that_waits_for_signals(
    store: MongoStore, shard: Shard, begun_threads: Callable[..., list[threading.Thread]]
) -> None:
    settled(store, shard.queue)
    watchers = begun_threads("shardq-signals")
    assert watchers
    store.close()
    for each in watchers:
        each.join(GUARD)
    assert not any(each.is_alive() for each in watchers)


def test_a_client_that_waits_for_few_seconds_only_keeps_its_line(
    open_store: Callable[..., MongoStore], mongodb_url: str, shard: Shard, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a client that gives an answer up after two seconds
    waiting = open_store(f"{mongodb_url}{'&' if '?' in mongodb_url else '?'}socketTimeoutMS=2000")
    waiter = settled(waiting, shard.queue)
    # When nothing comes for longer
    assert not waiter.wait([shard.queue], 3)
    # Then its line was never lost
    assert waiting.signals.watches()
    assert "is lost" not in caplog.text
