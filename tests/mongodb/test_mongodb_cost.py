"""What a claim reads depends neither on what waits nor on what was consumed, and several consumers share the work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from pymongo.database import Database

from shardq.base.shard import Shard
from shardq.storage.mongodb import forwarding
from shardq.storage.mongodb.documents import inserted
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Claim, Extend, Fenced, Peek, Span, Sweep
from shardq.testing import BundleFactory
from tests.mongodb.interruption import interrupted_client
from tests.sharing import share

pytestmark = pytest.mark.server

MINUTE = 60_000_000


def fill(store: MongoStore, shard: Shard, bundles: int, delay: float = 0, *, priorities: int = 3) -> None:
    make = BundleFactory(store.now)
    store.append(Append(shard, tuple(make(priority=i % priorities, delay=delay) for i in range(bundles))))


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
    done = [each for each in done if each["ns"].endswith(str(shard))]
    assert [each["op"] for each in done] == [
        "command",
        "update",
        "update",
    ]  # that it began; all that it takes
    assert all("IXSCAN" in each["planSummary"] or "IDHACK" in each["planSummary"] for each in done)
    assert sum(each.get("keysExamined", 0) for each in done) <= 330
    assert sum(each.get("docsExamined", 0) for each in done) <= 230


def test_a_claim_reads_a_body_more_than_it_takes_at_most_whatever_was_claimed_before(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    # Given bundles of 50, of which one message was claimed alone, and as many in shards that are new to the client
    second, third = (replace(shard, number=number) for number in (1, 2))
    make = BundleFactory(store.now)
    for each in (shard, second, third):
        store.append(Append(each, tuple(make(50) for _ in range(30))))
    assert len(take(store, shard, 1)) == 1
    # When all of a few bundles is claimed
    for each, limit in ((shard, 149), (second, 149), (third, 150)):
        with profiled(database) as done:
            spans = take(store, each, limit)
        # Then the look has fetched these bundles, and another one where they do not hold just as many
        (look,) = (one for one in done if "aggregate" in one["command"])
        assert sum(span.count for span in spans) == limit
        spare, of_directory = int(limit % 50 > 0), 1
        again = look["docsExamined"] - (len(spans) + spare + of_directory)
        assert 0 <= again <= look["numYield"]  # a document is fetched again after the server let others go on


def test_the_first_append_to_a_shard_waits_for_disks_twice(
    mongodb_url: str, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client that makes the collection of a shard by its first append
    store, interruption = interrupted_client(mongodb_url, monkeypatch)
    with interruption.before(99, lambda: None):
        fill(store, shard, 1)
    store.close()
    # Then only the entry of the directory and the bundle are waited for
    assert "create" in interruption.commands
    assert interruption.synced == ["update", "insert"]


def test_a_probe_reads_an_index_entry_or_two_for_each_priority(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    fill(store, shard, 3000)
    fill(store, shard, 3000, delay=3600)
    with profiled(database) as done:
        store.probe([shard])
    watermarks, probe = done
    assert watermarks["ns"].endswith("shardq.shard")
    of_queue_and_listing = 2
    assert probe["keysExamined"] <= 40 + of_queue_and_listing
    assert probe.get("docsExamined", 0) <= of_queue_and_listing


def skipped(database: Database) -> int:
    """Index entries of what is gone that cursors have crossed since the server began."""
    cursors = database.command("serverStatus")["wiredTiger"]["cursor"]
    return sum(count for name, count in cursors.items() if name.startswith("Total number of entries skipped"))


def test_claims_and_probes_keep_off_what_was_consumed_although_the_server_keeps_it(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    # Given many messages that were consumed, of which a replica set keeps the index entries for minutes
    fill(store, shard, 20_000, priorities=1)
    while spans := take(store, shard, 1000):
        store.acknowledge(Acknowledge(shard, spans))
    time.sleep(3)
    store.probe([shard])  # and a client that knows of it
    # When a few more are claimed, by that client and by a new one
    fill(store, shard, 900, priorities=1)
    newcomer = MongoStore(store.session.address)
    try:
        for each in (store, newcomer):
            before = skipped(database)
            each.probe([shard], glance=True)
            for _ in range(3):
                each.acknowledge(Acknowledge(shard, take(each, shard, 100)))
            # Then it crosses few of them
            assert skipped(database) - before < 5_000
    finally:
        newcomer.close()


def test_what_comes_late_is_found_below_the_low_watermarks(
    open_store: Callable[..., MongoStore], store: MongoStore, shard: Shard, database: Database
) -> None:
    # Given low watermarks that were raised, and two clients that read from there
    fill(store, shard, 50)
    assert len(take(store, shard, 100)) == 50
    time.sleep(3)
    other = open_store()
    assert [take(each, shard, 1) for each in (store, other)] == [(), ()]
    listed: Any = database["shardq.shard"].find_one({"_id.q": shard.queue})
    assert listed["f"]["0"] > 0
    # When a bundle is stored long after it was due
    late = BundleFactory(store.now)(delay=-3600)
    store.append(Append(shard, (late,)))
    # Then every client sees and gets it
    assert [each.probe([shard])[0].due for each in (store, other)] == [late.due, late.due]
    assert [span.bundle_id for span in take(other, shard, 1)] == [late.id]


def test_what_a_writer_that_died_left_below_the_low_watermarks_is_found_after_a_sweep(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    fill(store, shard, 50)
    take(store, shard, 100)
    time.sleep(3)
    assert take(store, shard, 1) == ()
    document = inserted(BundleFactory(store.now)(delay=-3600))
    database[str(shard)].insert_one(document)
    assert take(store, shard, 1) == ()
    store.sweep(Sweep(shard.queue, 0))
    assert [span.bundle_id for span in take(store, shard, 1)] == [document["_id"]]


def test_counting_reads_no_bodies(store: MongoStore, shard: Shard, database: Database) -> None:
    fill(store, shard, 500)
    take(store, shard, 100)
    with profiled(database) as done:
        counts = store.count(shard)
    assert (counts.ready, counts.in_flight) == (400, 100)
    assert sum(each.get("docsExamined", 0) for each in done if each["ns"].endswith(str(shard))) == 0


def test_a_look_for_several_messages_makes_one_request_and_one_more_for_each_bundle_that_misses_some(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    make = BundleFactory(store.now)
    whole, begun = make(50), make(50)
    store.append(Append(shard, (whole, begun)))
    token = os.urandom(16)
    (taken,) = store.claim(Claim(shard, token, 50, MINUTE)).slices
    store.acknowledge(Acknowledge(shard, (Span(taken.bundle.id, 0, 40, token),)))
    both = [(bundle.id, position) for bundle in (whole, begun) for position in range(50)]
    with profiled(database) as done:
        found = store.find_many(shard, both)
    assert sum(each is not None for each in found) == 60
    looks = [each["op"] for each in done if each["ns"].endswith(str(shard))]
    assert len(looks) in (1, 2)  # a single server needs no second one


@pytest.mark.parametrize("processed", [False, True])
def test_a_look_without_bodies_is_sent_none(
    store: MongoStore, shard: Shard, database: Database, processed: bool
) -> None:
    make = BundleFactory(store.now)
    store.append(Append(shard, tuple(make(data=b"x" * 10_000) for _ in range(100))))
    store.acknowledge(Acknowledge(shard, take(store, shard, 50), keep=True))
    sent = {}
    for bodies in (True, False):
        with profiled(database) as done:
            page = store.peek(Peek(shard, 1_000, processed=processed, bodies=bodies))
        assert len(page.slices) == 50
        sent[bodies] = sum(each["responseLength"] for each in done if each["ns"].endswith(str(shard)))
    assert sent[True] > 500_000
    assert sent[False] < 50 * 300


def test_a_look_page_by_page_reads_each_bundle_about_once(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    fill(store, shard, 3000, priorities=1)
    take(store, shard, 50)
    after, seen, pages = b"", 0, 0
    with profiled(database) as done:
        while after or not pages:
            page = store.peek(Peek(shard, 100, after=after))
            after, seen, pages = page.after, seen + len(page.slices), pages + 1
    assert (seen, pages) == (3000, 30)
    assert sum(each.get("docsExamined", 0) for each in done) < 3 * seen


def test_four_processes_share_the_work_and_are_seldom_in_each_others_way(
    store: MongoStore, shard: Shard, mongodb_url: str
) -> None:
    shards = [Shard(shard.queue, 0, number) for number in range(8)]
    for each in shards:
        fill(store, each, 600)
    shared = share(mongodb_url, shards, processes=4)
    assert shared.messages == 8 * 600
    assert shared.contended <= 0.1 * shared.claims


def test_looking_where_nothing_was_ever_sent_writes_nothing(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    with profiled(database) as done:
        found = store.probe([Shard(shard.queue, 0, number) for number in range(8)])
        time.sleep(0.1)  # for what nobody waits for
    assert all(probe.empty for probe in found)
    assert done and all(each["op"] in ("query", "command") for each in done)


@pytest.mark.parametrize("starts", [False, True])
def test_the_leases_of_messages_sent_one_by_one_are_extended_by_one_command_without_a_look(
    store: MongoStore, shard: Shard, database: Database, starts: bool
) -> None:
    # Given messages of one claim, of which some have been started
    fill(store, shard, 100)
    token = os.urandom(16)
    claimed = store.claim(Claim(shard, token, 100, MINUTE, started=False))
    spans = tuple(Span(each.bundle.id, each.first, each.count, token) for each in claimed.slices)
    store.extend(Extend(shard, spans[:30], MINUTE, starts=True))
    # When all of them are extended, and once more
    with profiled(database) as done:
        assert store.extend(Extend(shard, spans, 2 * MINUTE, starts=starts)) == Fenced()
    assert {each["op"] for each in done if each["ns"].endswith(str(shard))} == {"update"}
    store.extend(Extend(shard, spans, MINUTE, shorten=False, starts=starts))
    # Then the leases are as long as the longest, and deliveries were counted once
    found = store.peek(Peek(shard, 100)).slices
    assert len(found) == 100
    assert min(each.due for each in found) > store.now() + 1.5 * MINUTE
    assert sum(each.deliveries for each in found) == (100 if starts else 30)


def test_a_deep_look_asks_for_intents_only_where_clients_write_them(
    store: MongoStore, shard: Shard, database: Database
) -> None:
    fill(store, shard, 3)
    with profiled(database) as done:
        store.probe([shard], deep=True)
    asked = any(each["ns"].endswith(forwarding._INTENTS) for each in done)
    assert asked is not store.capabilities.forward_across_shards


@pytest.mark.parametrize("deep", [False, True], ids=["full", "deep"])
def test_an_idle_consumer_makes_three_requests_to_count_itself_and_to_look(
    store: MongoStore, mongodb_url: str, monkeypatch: pytest.MonkeyPatch, shard: Shard, deep: bool
) -> None:
    fill(store, shard, 3)
    store.acknowledge(Acknowledge(shard, take(store, shard, 3)))
    client, interruption = interrupted_client(mongodb_url, monkeypatch)
    client.register_consumer([shard.queue], "c", MINUTE)
    client.probe([shard])  # raises the low watermarks once
    with interruption.before(99, lambda: None):
        client.register_consumer([shard.queue], "c", MINUTE)
        client.probe([shard], deep=deep)
    intents = ["find"] if deep and not client.capabilities.forward_across_shards else []
    assert interruption.commands == ["update", "aggregate", *intents, "aggregate"]
    client.close()
