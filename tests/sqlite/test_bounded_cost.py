"""What a claim and a probe cost depends neither on what waits nor on what was consumed."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardq.base.shard import Shard
from shardq.storage.requests import Acknowledge, Append, Claim, Peek, Span
from shardq.storage.sqlite import bundles, claims, peeking, probing, slicing
from shardq.storage.sqlite.connections import Connection
from shardq.storage.sqlite.store import SqliteStore
from shardq.testing import ManualClock

PLANS = {
    "claim": (claims.SQL_DELIVERABLE, "slice_by_due (shard_key=? AND priority=? AND due<?)"),
    "repeated claim": (claims.SQL_HELD, "slice_by_token (shard_key=? AND token=?)"),
    "claim's bodies": (claims.SQL_READ, "slice_by_token (shard_key=? AND token=?)"),
    "ack of a slice": (bundles.SQL_DELETE_HELD, "slice_by_bundle (bundle_id=? AND first=?)"),
    "ack of many": (slicing.SQL_HELD, "slice_by_token (shard_key=? AND token=?)"),
    "ack of a part": (slicing.SQL_COVERING, "slice_by_bundle (bundle_id=? AND first>? AND first<?)"),
    "append": (bundles.SQL_INSERT, "slice_by_bundle (bundle_id=?)"),
    "peek": (
        peeking.SQL_WAITING.bodies,
        "slice_by_due (shard_key=? AND (priority,due,bundle_id,first)>(?,?,?,?))",
    ),
}


@pytest.fixture
def sql(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    connection = Connection.open(path)
    yield connection.sql
    connection.close()


@contextmanager
def steps_of(sql: sqlite3.Connection) -> Iterator[list[int]]:
    """Counts the steps of SQLite's virtual machine, and undoes what they did."""
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    sql.execute("BEGIN IMMEDIATE")
    sql.set_progress_handler(count, 1)
    yield steps
    sql.set_progress_handler(None, 1)
    sql.execute("ROLLBACK")


def claim_steps(sql: sqlite3.Connection, shard: Shard, now: int, token: bytes = b"t" * 16) -> int:
    with steps_of(sql) as steps:
        claims.take(sql, Claim(shard, token, 10, 1_000_000), now)
    return steps[0]


def probe_steps(sql: sqlite3.Connection, shard: Shard, now: int) -> int:
    with steps_of(sql) as steps:
        probing.probe(sql, [shard], now)
    return steps[0]


def fill(store: SqliteStore, shard: Shard, bundle: Callable, count: int) -> None:
    store.append(Append(shard, tuple(bundle(priority=index % 10) for index in range(count))))


@pytest.mark.parametrize("name", PLANS)
def test_a_statement_seeks_in_its_index(sql: sqlite3.Connection, name: str) -> None:
    statement, index = PLANS[name]
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    parameters = (None,) * max(numbered, default=statement.count("?"))
    plan = [row[3] for row in sql.execute("EXPLAIN QUERY PLAN " + statement, parameters)]
    assert any(f"INDEX {index}" in line for line in plan)
    assert not any(line.startswith("SCAN") for line in plan if line != "SCAN CONSTANT ROW")


def test_a_claim_is_read_in_order_without_sorting(sql: sqlite3.Connection) -> None:
    plan = [row[3] for row in sql.execute("EXPLAIN QUERY PLAN " + claims.SQL_DELIVERABLE, (1, 2))]
    assert len(plan) == 1


def test_statistics_do_not_change_the_plan_of_a_claim(
    sql: sqlite3.Connection, store: SqliteStore, shard: Shard, bundle: Callable
) -> None:
    fill(store, shard, bundle, 2_000)
    sql.execute("ANALYZE")
    before = claim_steps(sql, shard, store.now())
    fill(store, shard, bundle, 2_000)
    assert claim_steps(sql, shard, store.now()) <= before * 1.1


def test_a_claim_costs_the_same_whatever_waits(
    sql: sqlite3.Connection, store: SqliteStore, shard: Shard, bundle: Callable
) -> None:
    fill(store, shard, bundle, 100)
    few = claim_steps(sql, shard, store.now())
    fill(store, shard, bundle, 20_000)
    assert claim_steps(sql, shard, store.now()) <= few * 1.1


def test_a_repeated_claim_costs_the_same_whatever_waits(
    sql: sqlite3.Connection, store: SqliteStore, shard: Shard, bundle: Callable
) -> None:
    fill(store, shard, bundle, 100)
    store.claim(Claim(shard, b"t" * 16, 10, 1_000_000))
    few = claim_steps(sql, shard, store.now())
    fill(store, shard, bundle, 20_000)
    assert claim_steps(sql, shard, store.now()) <= few * 1.1


def test_a_claim_costs_the_same_after_much_was_consumed(
    sql: sqlite3.Connection, store: SqliteStore, shard: Shard, bundle: Callable
) -> None:
    fill(store, shard, bundle, 100)
    before = claim_steps(sql, shard, store.now())
    fill(store, shard, bundle, 5_000)
    claimed = store.claim(Claim(shard, b"t" * 16, 5_000, 1_000_000))
    spans = tuple(Span(part.bundle.id, part.first, part.count, b"t" * 16) for part in claimed.slices)
    store.acknowledge(Acknowledge(shard, spans))
    # Priorities that have run empty cost a seek each.
    assert claim_steps(sql, shard, store.now()) <= before * 1.25


def test_a_probe_costs_the_same_whatever_waits_is_held_or_delayed(
    sql: sqlite3.Connection, store: SqliteStore, shard: Shard, bundle: Callable, clock: ManualClock
) -> None:
    fill(store, shard, bundle, 100)
    few = probe_steps(sql, shard, store.now())
    fill(store, shard, bundle, 20_000)
    store.claim(Claim(shard, b"t" * 16, 5_000, 60_000_000))
    assert probe_steps(sql, shard, store.now()) <= few * 1.2


@pytest.mark.parametrize("processed", [False, True])
def test_a_look_without_bodies_reads_none(
    sql: sqlite3.Connection, store: SqliteStore, shard: Shard, bundle: Callable, processed: bool
) -> None:
    fill(store, shard, bundle, 100)
    claimed = store.claim(Claim(shard, b"t" * 16, 50, 1_000_000))
    spans = tuple(Span(part.bundle.id, part.first, part.count, b"t" * 16) for part in claimed.slices)
    store.acknowledge(Acknowledge(shard, spans, keep=True))
    read: set[str] = set()

    def note(action: int, table: str | None, column: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_READ:
            read.add(f"{table}.{column}")
        return sqlite3.SQLITE_OK

    sql.set_authorizer(note)  # is asked for every column that a statement reads
    page = peeking.peek(sql, Peek(shard, 1_000, processed=processed, bodies=False), store.now())
    assert len(page.slices) == 50
    assert "slice.sent_count" in read
    assert not read & {"slice.data", "bundle_data.data"}


def test_a_claim_reads_long_data_by_no_query(
    sql: sqlite3.Connection, store: SqliteStore, shard: Shard, bundle: Callable
) -> None:
    sent = [bundle(data=b"x" * size) for size in (bundles.SHORT + 1, 5, 2 * bundles.SHORT, 100_000)]
    store.append(Append(shard, tuple(sent)))
    request = Claim(shard, b"t" * 16, 10, 1_000_000)
    queried: set[str] = set()

    def note(action: int, table: str | None, column: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_READ:
            queried.add(f"{table}.{column}")
        return sqlite3.SQLITE_OK

    sql.set_authorizer(note)
    taken = claims.take(sql, request, store.now())
    claimed = claims.read(sql, request, taken)
    assert [piece.bundle.data for piece in claimed.slices] == [each.data for each in sent]
    assert "slice.data" in queried
    assert "bundle_data.data" not in queried


def test_an_append_copies_long_data_into_no_statement(
    sql: sqlite3.Connection, shard: Shard, bundle: Callable, clock: ManualClock
) -> None:
    sent = bundle(data=os.urandom(20_000))
    statements: list[str] = []
    sql.set_trace_callback(statements.append)  # tells them with their values
    bundles.append(sql, Append(shard, (sent,)), clock.now())
    sql.set_trace_callback(None)
    assert max(map(len, statements)) < 5_000
    (found,) = peeking.find_many(sql, shard, [(sent.id, 0)], clock.now())
    assert found is not None
    assert found.bundle.data == sent.data


def test_what_was_purged_since_it_was_claimed_is_left_out(
    sql: sqlite3.Connection, store: SqliteStore, shard: Shard, bundle: Callable
) -> None:
    store.append(Append(shard, (bundle(data=b"short"), bundle(data=bytes(bundles.SHORT + 1)))))
    request = Claim(shard, b"t" * 16, 10, 1_000_000)
    taken = claims.take(sql, request, store.now())
    store.purge(shard)
    claimed = claims.read(sql, request, taken)
    assert [piece.bundle.data for piece in claimed.slices] == [b"short"]


def test_counts_are_taken_from_the_indexes(sql: sqlite3.Connection) -> None:
    plan = [row[3] for row in sql.execute("EXPLAIN QUERY PLAN " + peeking.SQL_COUNT, (1, 2))]
    assert any("COVERING INDEX slice_by_due" in line for line in plan)
    assert not any("bundle_data" in line or line.startswith("SCAN slice") for line in plan)
