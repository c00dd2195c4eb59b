"""What a claim reads depends neither on what waits nor on what was consumed, and several consumers share the work."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo.database import Database

from shardq.sharding.shard import Shard
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.mongodb.url import parse
from shardq.storage.requests import Acknowledge, Append, Claim, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.mongodb

MINUTE = 60_000_000


def fill(store: MongoStore, shard: Shard, bundles: int, delay: float = 0) -> None:
    make = BundleFactory(store.now)
    store.append(Append(shard, tuple(make(priority=i % 3, delay=delay) for i in range(bundles))))


def take(store: MongoStore, shard: Shard, limit: int) -> tuple[Span, ...]:
    token = os.urandom(16)
    claimed = store.claim(Claim(shard, token, limit, MINUTE))
    return tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)


@contextmanager
def profiled(database: Database) -> Iterator[list[dict[str, Any]]]:
    """What the server did for the requests within the block."""
    database.command("profile", 2)
    found: list[dict[str, Any]] = []
    try:
        yield found
    finally:
        database.command("profile", 0)
        found += database["system.profile"].find({"appName": "shardq"})
        database["system.profile"].drop()


def test_a_claim_reads_what_it_takes_whatever_waits_and_was_consumed(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    fill(store, shard, 3000)
    fill(store, shard, 3000, delay=3600)
    for _ in range(10):
        store.acknowledge(Acknowledge(shard, take(store, shard, 100)))
    with profiled(database) as done:
        assert len(take(store, shard, 100)) == 100
    assert [each["op"] for each in done] == ["query", "query", "update"]
    assert all("IXSCAN" in each["planSummary"] or "IDHACK" in each["planSummary"] for each in done)
    assert sum(each.get("keysExamined", 0) for each in done) <= 330
    assert sum(each.get("docsExamined", 0) for each in done) <= 230


def test_a_probe_reads_an_index_entry_or_two_for_each_priority(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    fill(store, shard, 3000)
    fill(store, shard, 3000, delay=3600)
    with profiled(database) as done:
        store.probe([shard])
    assert len(done) == 1
    assert done[0].get("keysExamined", 0) <= 40
    assert done[0].get("docsExamined", 0) == 0


def test_counting_reads_no_bodies(store: MongoStore, shard: Shard, database: Database) -> None:
    fill(store, shard, 500)
    take(store, shard, 100)
    with profiled(database) as done:
        counts = store.count(shard)
    assert (counts.ready, counts.in_flight) == (400, 100)
    assert sum(each.get("docsExamined", 0) for each in done) == 0


def consume(url: str, shards: list[Shard], first: int, results: Any) -> None:
    store = MongoStore(parse(url))
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
    store: MongoStore, shard: Shard, mongodb_url: str
) -> None:
    shards = [Shard(shard.queue, 0, number) for number in range(8)]
    for each in shards:
        fill(store, each, 600)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=consume, args=(mongodb_url, shards, 2 * number, results))
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
