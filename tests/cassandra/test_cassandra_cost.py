"""What a claim reads depends neither on what was consumed nor on how many consume."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from shardq.sharding.shard import Shard
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.cassandra.url import parse
from shardq.storage.requests import Acknowledge, Append, Claim, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.cassandra

MINUTE = 60_000_000
TOMBSTONES = re.compile(r"and (\d+) tombstone")


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


def traced(store: CassandraStore, do: Callable[[], Any]) -> int:
    """The tombstones that the requests of a call read."""
    driver = store._session._get().driver
    futures: list[Any] = []
    execute_async = driver.execute_async

    def execute_traced(statement: Any, parameters: Any = None, trace: bool = True, *rest: Any) -> Any:
        futures.append(execute_async(statement, parameters, True, *rest))
        return futures[-1]

    driver.execute_async = execute_traced
    try:
        do()
    finally:
        del driver.execute_async
    events = [event.description for future in futures for event in future.get_query_trace(max_wait=10).events]
    assert any(TOMBSTONES.search(event) for event in events), "the trace tells nothing of tombstones"
    return sum(int(match[1]) for event in events if (match := TOMBSTONES.search(event)))


def test_a_claim_reads_no_tombstones_of_20_000_consumed_messages(store: CassandraStore, shard: Shard) -> None:
    # Given a shard in which 20,000 messages were consumed, by this consumer and so far
    fill(store, shard, 20_000)
    consumed = 0
    while consumed < 19_500:
        taken = take(store, shard, 500)
        store.acknowledge(Acknowledge(shard, taken))
        consumed += sum(span.count for span in taken)
    # Then the next claim reads next to none of their tombstones
    tombstones = traced(store, lambda: take(store, shard, 100))
    assert tombstones < 100


def consume(url: str, shards: list[Shard], first: int, results: Any) -> None:
    store = CassandraStore(parse(url))
    claims = contended = messages = idle = 0
    at = first
    while idle < len(shards):
        shard = shards[at % len(shards)]
        token = os.urandom(16)
        claimed = store.claim(Claim(shard, token, 100, MINUTE))
        claims, contended = claims + 1, contended + claimed.contended
        spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)
        store.acknowledge(Acknowledge(shard, spans))
        messages += sum(span.count for span in spans)
        idle = 0 if spans or claimed.contended else idle + 1
        at += 0 if spans else 1
    results.put((messages, claims, contended))
    store.close()


def test_four_processes_share_the_work_and_are_seldom_in_each_others_way(
    store: CassandraStore, shard: Shard, cassandra_url: str
) -> None:
    shards = [Shard(shard.queue, 0, number) for number in range(8)]
    for each in shards:
        fill(store, each, 600)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=consume, args=(cassandra_url, shards, 2 * number, results))
        for number in range(4)
    ]
    for worker in workers:
        worker.start()
    told = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    messages, claims, contended = (sum(column) for column in zip(*told, strict=True))
    assert messages == 8 * 600
    assert contended <= 0.05 * claims
