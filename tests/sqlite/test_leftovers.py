"""However messages were cut and moved, nothing of them stays."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shardq.base.shard import Shard
from shardq.storage.requests import Acknowledge, Claim, Extend, Release, Span, Sweep
from shardq.storage.sqlite.store import SqliteStore
from shardq.testing import ManualClock

TABLES = ("slice", "bundle_data")


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("keep", [False, True])
def test_mixed_work_leaves_nothing(
    path: Path, store: SqliteStore, shard: Shard, send: Callable, clock: ManualClock, seed: int, keep: bool
) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        send(chance.randint(1, 40), priority=chance.randint(0, 9))
    step = 0
    while store.count(shard).ready + store.count(shard).in_flight:
        step += 1
        token = step.to_bytes(16, "big")
        for part in store.claim(Claim(shard, token, chance.randint(1, 60), 1_000_000)).slices:
            first = part.first + chance.randrange(part.count)
            span = Span(part.bundle.id, first, chance.randint(1, part.first + part.count - first), token)
            store.extend(Extend(shard, (span,), 2_000_000))
            if chance.random() < 0.3:
                store.release(Release(shard, (span,)))
            elif chance.random() < 0.2:
                store.remove(shard, part.bundle.id, first)
            else:
                store.acknowledge(Acknowledge(shard, (span,), keep=keep))
        clock.advance(chance.choice([0, 3]))
        assert step < 2_000
    clock.advance(1)
    store.sweep(Sweep("orders", store.now()))
    assert {table: rows(path, table) for table in TABLES} == dict.fromkeys(TABLES, 0)
    assert store.drop_if_empty(shard)


def test_ids_of_finished_bundles_are_forgotten_in_time_without_a_sweep(
    path: Path, store: SqliteStore, shard: Shard, send: Callable, clock: ManualClock
) -> None:
    for _ in range(20):
        store.remove(shard, send().id, 0)
    assert rows(path, "finished_id") == 20
    clock.advance(20 * 60)
    for _ in range(15):
        store.remove(shard, send().id, 0)
    assert rows(path, "finished_id") == 15
    assert rows(path, "finished_period") == 1


def test_the_pieces_of_a_slice_never_overlap(
    path: Path, store: SqliteStore, shard: Shard, send: Callable
) -> None:
    sent = send(10)
    store.claim(Claim(shard, b"t" * 16, 8, 1_000_000))
    fenced = store.acknowledge(Acknowledge(shard, (Span(sent.id, 3, 6, b"t" * 16),)))
    assert fenced.lost == (Span(sent.id, 8, 1, b"t" * 16),)
    with closing(sqlite3.connect(path)) as connection:
        pieces = connection.execute("SELECT first, count, token IS NULL FROM slice ORDER BY first").fetchall()
    assert pieces == [(0, 3, 0), (8, 2, 1)]
