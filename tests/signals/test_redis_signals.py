"""Consumers are told of messages through Redis, and go on without it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis import Redis

from shardq.base.shard import Shard
from shardq.storage.listening import Waiter
from shardq.storage.redis import open_redis
from shardq.storage.requests import Append
from shardq.storage.sqlite.store import SqliteStore
from shardq.storage.wrapped_store import SignalledStore
from shardq.testing import BundleFactory
from tests.forking import start
from tests.redis_server import OwnRedis

GUARD = 20.0

Opener = Callable[[str], SignalledStore]


def settled(store: SignalledStore, *queues: str) -> Waiter:
    """Wait until the line stands and nothing is new any more."""
    waiter = Waiter(store)
    deadline = time.monotonic() + GUARD
    while waiter.wait(queues, 0.1) or not store.signals.watches():
        assert time.monotonic() < deadline, "the line does not come to stand"
    return waiter


def send(store: SignalledStore, shard: Shard) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(),)))


def test_only_those_who_wait_for_the_queue_are_woken(open_on: Opener, shard: Shard, redis_url: str) -> None:
    store, other = open_on(redis_url), open_on(redis_url)
    waiter = settled(other, "another-queue", shard.queue)
    send(store, shard)
    assert waiter.wait([shard.queue], GUARD)
    assert not waiter.wait(["another-queue"], 0.1)


def test_many_announcements_become_few_messages(open_on: Opener, shard: Shard, redis_url: str) -> None:
    with Redis.from_url(redis_url) as redis, redis.pubsub() as subscription:
        subscription.subscribe("shardq:0")
        subscription.get_message(timeout=GUARD)
        signals = open_on(redis_url).signals
        began = time.monotonic()
        for number in range(200):
            signals.announce(f"{shard.queue}-{number}")
            time.sleep(0.001)
        signals.close()
        most = (time.monotonic() - began) / 0.004 + 2
        told, messages = b"", 0
        while (message := subscription.get_message(timeout=0.3)) is not None:
            messages += 1
            told += message["data"]
    assert messages <= most
    # And none is missing
    assert all(f'"{shard.queue}-{number}"'.encode() in told for number in range(200))


def test_a_send_does_not_wait_for_a_redis_that_hangs(
    open_on: Opener, shard: Shard, own_redis: OwnRedis
) -> None:
    sending, waiting = open_on(own_redis.url), open_on(own_redis.url)
    settled(waiting, shard.queue)
    send(sending, shard)
    waiter = settled(waiting, shard.queue)
    with Redis.from_url(own_redis.url) as redis:
        redis.client_pause(8_000, all=True)
    began = time.monotonic()
    send(sending, shard)
    assert time.monotonic() - began < 6
    assert waiter.wait([shard.queue], GUARD)


def test_what_redis_did_not_take_is_told_again(open_on: Opener, shard: Shard, own_redis: OwnRedis) -> None:
    # Given a server that takes no more clients than the one who waits
    sending, waiting = open_on(own_redis.url), open_on(own_redis.url)
    waiter = settled(waiting, shard.queue, "another-queue")
    with Redis.from_url(own_redis.url) as redis:
        redis.config_set("maxclients", 1)
        # When something is sent that it does not take
        send(sending, shard)
        assert not waiter.wait([shard.queue], 0.3)
        assert not sending.diagnose()[-1].ok
        # Then it is told as soon as the server takes it, and without an interruption
        redis.config_set("maxclients", 100)
    assert waiter.wait([shard.queue], GUARD)
    assert not waiter.wait(["another-queue"], 0)


def test_while_redis_is_away_sends_go_on_and_waits_end_in_time(
    open_on: Opener, path: Path, shard: Shard, own_redis: OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a client whose line stands
    caplog.set_level(logging.INFO, "shardq.storage.signals")
    sending, waiting = open_on(own_redis.url), open_on(own_redis.url)
    waiter = settled(waiting, shard.queue)
    # When Redis dies
    own_redis.kill()
    while waiting.signals.watches():
        time.sleep(0.01)
    # Then sends go on, and waits end in time
    began = time.monotonic()
    for _ in range(5):
        send(sending, shard)
    waiter.wait([shard.queue], 0)
    assert waiter.wait([shard.queue], 0.2) == ()
    assert time.monotonic() - began < GUARD
    assert waiting.count(shard).ready == 5
    assert not waiting.diagnose()[-1].ok
    # And when it is there again, what came meanwhile counts as told, and what comes is told
    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(waiter.wait, [shard.queue], GUARD)
        own_redis.start()
        assert woken.result(timeout=GUARD)
    waiter = settled(waiting, shard.queue)
    send(sending, shard)
    assert waiter.wait([shard.queue], GUARD)
    assert waiting.diagnose()[-1].ok
    # And the log has said so, each once
    lost, found = (record.getMessage() for record in caplog.records)
    assert lost.startswith("Redis at 127.0.0.1") and lost.endswith("is lost: consumers poll for messages")
    assert "is connected again" in found


def test_while_redis_is_away_the_stores_own_signals_serve(path: Path, shard: Shard) -> None:
    nobody = open_redis("redis://127.0.0.1:1/0")
    waiting, other = SignalledStore(SqliteStore(str(path)), nobody), SqliteStore(str(path))
    waiter = Waiter(waiting)
    while waiter.wait([shard.queue], 0.1):
        pass
    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(waiter.wait, [shard.queue], GUARD)
        other.append(Append(shard, (BundleFactory(other.now)(),)))
        assert woken.result(timeout=GUARD)
    waiting.close()
    other.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_tells_and_is_told(open_on: Opener, shard: Shard, redis_url: str) -> None:
    # Given a client that tells and waits already
    store = open_on(redis_url)
    send(store, shard)
    waiter = settled(store, shard.queue)
    # When a forked child uses it too
    here, there = os.pipe()

    def use() -> None:
        settled(store, shard.queue)
        send(store, shard)
        waiter = settled(store, shard.queue)
        os.write(there, b"it waits")
        assert waiter.wait([shard.queue], GUARD)

    child = start(use)
    # Then the parent is told by the child, and the child by the parent
    assert waiter.wait([shard.queue], GUARD)
    os.read(here, 100)
    send(store, shard)
    assert os.waitpid(child, 0) == (child, 0)


def test_what_was_told_during_an_interruption_counts_as_heard(
    open_on: Opener, shard: Shard, own_redis: OwnRedis
) -> None:
    # Given a server that has lost the one who waits, but not the one who sends
    sending, waiting = open_on(own_redis.url), open_on(own_redis.url)
    send(sending, shard)
    waiter = settled(waiting, shard.queue)
    with Redis.from_url(own_redis.url) as redis:
        redis.config_set("maxclients", 1)
        redis.client_kill_filter(_type="pubsub")
        while waiting.signals.watches():
            time.sleep(0.01)
        # When something is told
        told = redis.info("commandstats")["cmdstat_publish"]["calls"]
        send(sending, shard)
        while redis.info("commandstats")["cmdstat_publish"]["calls"] == told:
            time.sleep(0.01)
        assert not waiter.wait([shard.queue], 0.1)
        redis.config_set("maxclients", 100)
    # Then the one who waits looks when it hears again
    assert waiter.wait([shard.queue], GUARD)


def test_a_closed_store_has_no_thread_left(open_on: Opener, shard: Shard, redis_url: str) -> None:
    before = set(threading.enumerate())
    store = open_on(redis_url)
    settled(store, shard.queue)
    send(store, shard)
    begun = {each for each in threading.enumerate() if each not in before}
    assert {each.name for each in begun} == {"shardq-signals", "shardq-publisher"}
    store.close()
    for each in begun:
        each.join(GUARD)
    assert not any(each.is_alive() for each in begun)
    # And it can be used again
    settled(store, shard.queue)


@pytest.mark.parametrize(
    "published",
    [b"\xff no names", b'["\xff"]', b"[" * 100_000],
    ids=["no JSON", "no UTF-8", "nested"],
)
def test_what_others_publish_on_the_channel_does_no_harm(
    open_on: Opener, shard: Shard, redis_url: str, published: bytes
) -> None:
    store, other = open_on(redis_url), open_on(redis_url)
    waiter = settled(other, shard.queue)
    with Redis.from_url(redis_url) as redis:
        redis.publish("shardq:0", published)
    send(store, shard)
    assert waiter.wait([shard.queue], GUARD)
    assert other.signals.watches()
