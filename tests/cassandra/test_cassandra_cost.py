"""What a claim reads depends neither on what was consumed nor on how many consume."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import shardq
from shardq.base.shard import Shard
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import CQL_CARRIED
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Acknowledge, Append, Claim, Peek, QueueRecord, Span
from shardq.testing import BundleFactory
from shardq.testing.seam import claim_round
from tests.cassandra.traces import tombstones_of
from tests.function_calls import function_calls
from tests.sharing import share

pytestmark = [pytest.mark.server, pytest.mark.long]

MINUTE = 60_000_000


def fill(store: CassandraStore, shard: Shard, bundles: int) -> None:
    make = BundleFactory(store.now)
    for start in range(0, bundles, 100):
        store.append(Append(shard, tuple(make() for _ in range(min(100, bundles - start)))))


def drain(store: CassandraStore, shard: Shard, limit: int) -> int:
    drained = 0
    while taken := take(store, shard, limit):
        store.acknowledge(Acknowledge(shard, taken))
        drained += sum(span.count for span in taken)
    return drained


def take(store: CassandraStore, shard: Shard, limit: int) -> tuple[Span, ...]:
    token = os.urandom(16)
    claimed = store.claim(Claim(shard, token, limit, MINUTE))
    return tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)


def test_a_claim_reads_no_tombstones_of_20_000_consumed_messages(store: CassandraStore, shard: Shard) -> None:
    # Given a shard in which 20,000 messages were consumed, by this consumer and so far
    fill(store, shard, 20_000)
    consumed = 0
    while consumed < 19_500:
        taken = take(store, shard, 500)
        store.acknowledge(Acknowledge(shard, taken))
        consumed += sum(span.count for span in taken)
    # Then claims read next to none of their tombstones, but for the one look a second from the low watermarks
    assert min(tombstones_of(store, lambda: take(store, shard, 100)) for _ in range(4)) < 100


def test_what_holds_nothing_is_read_together(
    store: CassandraStore, shard: Shard, requests: Counter[str]
) -> None:
    # Given bundles of one priority, of which one was taken
    make = BundleFactory(store.now)
    store.append(Append(shard, tuple(make(500, priority=5, delay=-60) for _ in range(8))))
    take(store, shard, 500)
    seen = []
    for _ in range(5):
        requests.clear()
        assert sum(span.count for span in take(store, shard, 500)) == 500
        seen.append((requests["read"], requests["batch"]))
    # Then a claim reads: what is held, what has lapsed, this priority, all others, the bundle
    assert min(seen) == (5, 1)


def test_a_priority_that_held_nothing_is_found_once_it_does(store: CassandraStore, shard: Shard) -> None:
    # Given a shard of which bundles of one priority were taken
    make = BundleFactory(store.now)
    store.append(Append(shard, tuple(make(3, priority=5, delay=-60) for _ in range(12))))
    for priority in (5, 0, 9, 4, 6):
        take(store, shard, 3)
        # When others come, those of a higher priority are taken at once, of a lower one after them
        new = make(3, priority=priority, delay=0)
        store.append(Append(shard, (new,)))
        if priority < 5:
            assert {span.bundle_id for span in take(store, shard, 3)} == {new.id}
    counts = store.count(shard)
    assert drain(store, shard, 100) == counts.ready


def test_a_claim_carries_the_bodies_of_what_it_takes_and_no_others(
    store: CassandraStore, shard: Shard
) -> None:
    # Given small messages that were claimed together under a lease that is over
    make, size = BundleFactory(store.now), 4000
    store.append(Append(shard, tuple(make(1, data=bytes(size)) for _ in range(50))))
    assert len(store.claim(Claim(shard, os.urandom(16), 50, 1)).slices) == 50
    # When they are claimed one by one, and again
    for _ in range(3):
        token = os.urandom(16)
        for _ in range(2):
            assert len(store.claim(Claim(shard, token, 1, MINUTE)).slices) == 1
        # Then each lease row has one body
        ((carried,),) = store.session.read(CQL_CARRIED, (str(store.place(shard)), [token]))
        assert size < len(carried) < 2 * size


def asked_of(monkeypatch: pytest.MonkeyPatch, do: Callable[[], Any]) -> list[str]:
    """The queries that a call sends."""
    asked: list[str] = []
    start_read = Session.start_read

    def noted(session: Session, query: str, *rest: Any, **options: Any) -> Any:
        asked.append(query)
        return start_read(session, query, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "start_read", noted)
        do()
    return asked


def test_a_look_and_a_count_without_bodies_ask_for_none(
    store: CassandraStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given bundles of one message and of several: some wait, some are held, some are processed
    make = BundleFactory(store.now)
    store.append(Append(shard, tuple(make(1 + i % 3) for i in range(90))))
    store.acknowledge(Acknowledge(shard, take(store, shard, 50), keep=True))
    take(store, shard, 50)
    pages = []

    def look(processed: bool, bodies: bool) -> Callable[[], Any]:
        return lambda: pages.append(store.peek(Peek(shard, 1_000, processed=processed, bodies=bodies)))

    # Then nothing that is asked for names the column of bodies, but for a look that wants them
    assert any("data" in query for query in asked_of(monkeypatch, look(False, True)))
    for do in (look(False, False), look(True, False), lambda: store.count(shard)):
        asked = asked_of(monkeypatch, do)
        assert asked
        assert not any("data" in query for query in asked)
    # And a look at what waits asks for no bundle
    assert not any("kind = 3" in query for query in asked_of(monkeypatch, look(False, False)))
    assert sum(each.count for each in pages[1].slices) == 130
    assert sum(each.count for each in pages[2].slices) == 50


def test_four_processes_share_the_work_and_are_seldom_in_each_others_way(
    store: CassandraStore, shard: Shard, cassandra_url: str
) -> None:
    shards = [Shard(shard.queue, 0, number) for number in range(8)]
    for each in shards:
        fill(store, each, 600)
    shared = share(cassandra_url, shards, processes=4)
    assert shared.messages == 8 * 600
    assert shared.contended <= 0.1 * shared.claims


def requests_of(store: CassandraStore, do: Callable[[], Any]) -> int:
    """How many requests a call sends."""
    driver = store.session.connected.get().driver
    execute_async, sent = driver.execute_async, []

    def counted(*args: Any, **options: Any) -> Any:
        sent.append(args[0])
        return execute_async(*args, **options)

    driver.execute_async = counted
    try:
        do()
    finally:
        del driver.execute_async
    return len(sent)


def test_a_consumer_of_twenty_queues_asks_for_all_of_them_together(store: CassandraStore) -> None:
    # Given twenty queues with a message each, seen by nobody for a while
    names = [f"many-{os.urandom(4).hex()}" for _ in range(20)]
    make = BundleFactory(store.now)
    for name in names:
        store.create_queue(QueueRecord.new(name, b""))
        store.append(Append(Shard(name, 0, 3), (make(),)))
    shards = [Shard(name, 0, number) for name in names for number in range(8)]
    told: list[Any] = []

    def register_consumer() -> None:
        told.append(store.register_consumer([*names, "nowhere"], "me", MINUTE))

    def look(glance: bool) -> Callable[[], None]:
        return lambda: told.append(store.probe(shards, glance=glance))

    def forget() -> None:
        for name in names:
            store.incarnations.forget(name)

    register_consumer()
    # When it registers, glances and looks
    forget()
    assert requests_of(store, register_consumer) == 3 + 2
    assert requests_of(store, look(glance=True)) == 1
    forget()
    assert requests_of(store, look(glance=False)) <= 1 + 4 * 4 + 3  # ready rows of some priorities apart
    # Then it is told of each
    *_, registered, glanced, looked = told
    assert [each and (each.record.name, each.consumers, each.shards) for each in registered] == [
        *((name, ("me",), (Shard(name, 0, 3),)) for name in names),
        None,
    ]
    for probes in (glanced, looked):
        assert [probe.shard for probe in probes] == shards
        assert [probe.shard.number for probe in probes if probe.priority is not None] == [3] * 20
    for name in names:
        store.drop_queue(name)


def test_a_look_at_many_shards_takes_the_client_little_for_each(store: CassandraStore) -> None:
    # Given a consumer of twenty queues in which nothing is
    client = shardq.Client(store)
    names = [client.create_queue(f"look-{os.urandom(4).hex()}", shards=8).name for _ in range(20)]
    shards = [Shard(name, 0, number) for name in names for number in range(8)]
    store.probe(shards)
    with client.consumer(names) as consumer:
        consumer.receive(1)
        # Then to glance at their shards calls few functions for each, and so do all the looks of a poll
        assert function_calls(lambda: store.probe(shards, glance=True)) <= 35 * len(shards)
        polls = [function_calls(lambda: claim_round(consumer)) for _ in range(6)]
        assert min(polls) <= 100 * len(shards)  # those that only glance
    for name in names:
        client.delete_queue(name)


def test_ten_idle_consumers_of_a_thousand_shards_ask_less_than_seventy_times_a_second(
    cassandra_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given ten clients that wait for messages of a queue with 50 x 20 shards
    asked = 0
    start_read, write, apply = Session.start_read, Session.write, Session.apply

    def counted(do: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            return do(*args, **options)

        return count

    for name, do in (("start_read", start_read), ("write", write), ("apply", apply)):
        monkeypatch.setattr(Session, name, counted(do))
    name = f"idle-{os.urandom(4).hex()}"
    with shardq.connect(cassandra_url) as client:
        queue = client.create_queue(name, shards=20, time_shards=50, time_shard_seconds=30)
        got: list[float] = []
        ready = threading.Barrier(11)
        waiting = [
            threading.Thread(target=wait_for_one, args=(cassandra_url, name, ready, got)) for _ in range(10)
        ]
        for thread in waiting:
            thread.start()
        ready.wait(60)
        time.sleep(3)  # until they know of each other
        # Then they ask seldom
        before, began = asked, time.monotonic()
        time.sleep(6)
        assert (asked - before) / (time.monotonic() - began) < 70
        # And each message is found all the same
        with queue.producer() as producer:
            for _ in waiting:
                producer.send(b"wake up")
        for thread in waiting:
            thread.join(60)
        assert len(got) == 10
        client.delete_queue(name)


def wait_for_one(url: str, name: str, ready: threading.Barrier, got: list[float]) -> None:
    with shardq.connect(url) as client, client.queue(name).consumer() as consumer:
        consumer.receive(1, wait=0)
        ready.wait(60)
        batch = consumer.receive(1, wait=50)
        batch.ack()
        got += [time.monotonic()] * len(batch)
