"""Who waits on PostgreSQL is told by other processes, and nothing is sent where nobody waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import shardq
from shardq.base.shard import Shard
from shardq.storage.listening import Waiter
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Append
from shardq.testing import BundleFactory
from tests.postgresql.blocked import until_blocked
from tests.processes import eventually

pytestmark = pytest.mark.server

SEND = """
import sys, shardq
url, queue = sys.argv[1:]
with shardq.connect(url) as client:
    producer = client.queue(queue).producer()
    print("ready", flush=True)
    for _ in sys.stdin:
        producer.send(b"x")
"""


def test_a_consumer_gets_a_message_of_another_process_long_before_it_would_look(schema_url: str) -> None:
    with shardq.connect(schema_url) as client:
        queue = client.create_queue(f"w{os.urandom(5).hex()}")
        command = [sys.executable, "-c", SEND, schema_url, queue.name]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
            assert sender.stdin is not None and sender.stdout is not None
            sender.stdout.readline()
            consumer = queue.consumer()
            assert not consumer.receive(1, wait=0.2)
            for _ in range(3):
                time.sleep(0.2)
                sender.stdin.write("\n")
                sender.stdin.flush()
                began = time.monotonic()
                (message,) = consumer.receive(1, wait=30)
                assert time.monotonic() - began < 4  # an idle consumer looks every 5 seconds at least
                message.ack()
            consumer.close()
            sender.stdin.close()
        client.delete_queue(queue.name)


@pytest.mark.parametrize("by", ["an announcement", "an append"])
def test_nothing_is_sent_while_nobody_waits(
    open_store: Callable[..., PostgresStore], shard: Shard, schema_url: str, by: str
) -> None:
    teller, waiting = open_store(), open_store()
    address, _ = parse(schema_url)
    make = BundleFactory(teller.now)
    teller.append(Append(shard, (make(),)))

    def tell() -> None:
        if by == "an append":
            teller.append(Append(shard, (make(),), fresh=True))
        else:
            teller.signals.announce(shard.queue)

    with psycopg.connect(address.conninfo, autocommit=True) as spy:
        spy.execute(f'LISTEN "{teller.channel.channel}"')

        def is_told(wanted: bool) -> bool:
            """Whether it comes to that; who waited before, in another test, does so a little longer."""
            until = time.monotonic() + 30
            told = not wanted
            while told != wanted and time.monotonic() < until:
                tell()
                told = bool(list(spy.notifies(timeout=0.5, stop_after=1)))
            return told

        assert not is_told(False)
        Waiter(waiting).wait([shard.queue], 0.5)
        assert is_told(True)


def test_a_client_that_begins_to_wait_does_so_after_the_appends_that_have_seen_nobody_wait(
    open_store: Callable[..., PostgresStore], shard: Shard, schema_url: str
) -> None:
    sender, waiting = open_store(), open_store()
    make = BundleFactory(sender.now)
    sender.append(Append(shard, (make(),)))
    bundle = make()
    address, _ = parse(schema_url)
    with ThreadPoolExecutor() as threads, psycopg.connect(address.conninfo) as other:
        # Given an append that is under way, as another transaction has stored the same message
        other.execute(
            f"""
            INSERT INTO {address.schema}.slice
                (shard_key, bundle_id, first, count, sent_count, priority, due, sent_due, enqueued_at)
            SELECT shard_key, %s::uuid, 0, 1, 1, 0, 0, 0, 0 FROM {address.schema}.slice WHERE shard_key > 0 LIMIT 1
            """,
            (bundle.id.hex(),),
        )
        sent = threads.submit(sender.append, Append(shard, (bundle,), fresh=True))
        until_blocked(other)
        # When a client begins to wait
        heard = waiting.channel.listen()
        begun = threads.submit(next, heard)
        # Then it waits until that is there
        until_waiting(address.conninfo, waiting.channel.waiting[1], begun)
        other.rollback()
        assert begun.result(30) == ()
        assert waiting.find(shard, bundle.id, 0) is not None
        sent.result(30)
        heard.close()


def until_waiting(conninfo: str, lock: int, until: Future[Any]) -> None:
    """Return when a process of the server waits for the lock; fails if what is to wait for it has ended."""
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND (classid::bigint << 32 | objid::bigint) = %s"
    with psycopg.connect(conninfo, autocommit=True) as watching:
        while watching.execute(waits, (lock,)).rowcount == 0:
            assert not until.done()
            time.sleep(0.01)


def test_nobody_listens_behind_a_pooler_whose_connections_others_use_later(
    open_store: Callable[..., PostgresStore], pooled: str, proxied: str
) -> None:
    heard = open_store(proxied).channel.listen()
    assert next(heard) == ()
    heard.close()
    assert list(open_store(pooled).channel.listen()) == []


def test_a_client_goes_on_listening_though_its_patience_for_answers_is_short(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    heard = open_store(f"{schema_url}&timeout=0.5").channel.listen()
    assert [next(heard), next(heard)] == [(), ()]
    heard.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not count the waits of a thread")
def test_a_client_that_hears_nothing_stays_asleep(
    store: PostgresStore, shard: Shard, begun_threads: Callable[..., list[threading.Thread]]
) -> None:
    Waiter(store).wait([shard.queue], 0.1)
    (listening,) = begun_threads("shardq-signals")
    status = Path(f"/proc/self/task/{listening.native_id}/status")
    assert eventually(store.signals.watches)

    def waits() -> int:
        return int(status.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])

    def sleeps() -> bool:
        before = waits()
        time.sleep(2)
        return waits() - before < 10

    assert eventually(sleeps)  # it may be at its first statements, and wait for other threads of this process


def test_plans_are_pinned_to_indexes_but_not_where_others_use_the_session_later(
    open_store: Callable[..., PostgresStore], pooled: str, proxied: str
) -> None:
    def pinned(url: str) -> set[str]:
        settings = open_store(url).session.read(
            lambda sql: sql.all("SELECT name FROM pg_settings WHERE source = 'session' AND setting = 'off'")
        )
        return {name for (name,) in settings}

    assert pinned(proxied) == {"enable_bitmapscan", "enable_seqscan", "enable_sort", "jit"}
    assert pinned(pooled) == set()
