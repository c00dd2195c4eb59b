"""PostgreSQL does what a store has to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

import msgspec  # noqa: E402

from shardq.base.shard import Shard  # noqa: E402
from shardq.storage.postgresql.store import PostgresStore  # noqa: E402
from shardq.storage.postgresql.url import parse  # noqa: E402
from shardq.testing import (  # noqa: E402
    ApplicationTransaction,
    ManualClock,
    RawEntry,
    RawQueue,
    RawState,
    StoreHarness,
)
from shardq.testing.conformance import StoreConformance  # noqa: E402
from tools.audit.postgresql_rows import read_postgresql  # noqa: E402

QUEUE = "(SELECT queue_key FROM {s}.queue WHERE name = %(queue)s)"
SHARDS = f"(SELECT shard_key FROM {{s}}.shard WHERE queue_key = {QUEUE})"
SHARD = f"""
    (SELECT shard_key FROM {{s}}.shard
    WHERE queue_key = {QUEUE} AND time_shard = %(time_shard)s AND number = %(number)s)
"""
ENTRIES = f"""
    SELECT bundle_id, first, count,
        CASE WHEN processed_at IS NOT NULL THEN 'processed' WHEN token IS NULL THEN 'waiting' ELSE 'held' END
    FROM {{s}}.slice WHERE shard_key = {SHARD}
"""
BUNDLES = f"SELECT DISTINCT bundle_id FROM {{s}}.slice WHERE shard_key = {SHARD}"
LOST = "shard_key > 0 AND shard_key NOT IN (SELECT shard_key FROM {s}.shard)"
LEFTOVERS = {
    "slice": f"SELECT FROM {{s}}.slice WHERE shard_key IN {SHARDS}",
    "data": f"SELECT FROM {{s}}.bundle_data WHERE shard_key IN {SHARDS}",
    "shard": f"SELECT FROM {{s}}.shard WHERE queue_key = {QUEUE}",
    "dedupe": f"SELECT FROM {{s}}.key WHERE queue_key = {QUEUE}",
    "consumer": f"SELECT FROM {{s}}.consumer WHERE queue_key = {QUEUE}",
    "finished": f"SELECT FROM {{s}}.finished WHERE queue_key = {QUEUE} AND first < 0",
    "moved": f"SELECT FROM {{s}}.finished WHERE queue_key = {QUEUE} AND first >= 0",
    "lost slice": f"SELECT FROM {{s}}.slice WHERE {LOST}",
    "lost data": f"SELECT FROM {{s}}.bundle_data WHERE {LOST}",
    "lost low places": f"SELECT FROM {{s}}.group_low WHERE {LOST}",
    "lost low watermarks": f"SELECT FROM {{s}}.watermark WHERE {LOST}",
}


class PostgresTransaction(ApplicationTransaction):
    def __init__(self, conninfo: str, schema: str) -> None:
        self.conninfo, self.table, self.row = conninfo, f"{schema}.application", os.urandom(8)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self.table} (row bytea)")
        self.connection = psycopg.connect(conninfo, autocommit=True)
        self.begin()

    def begin(self) -> None:
        self.connection.execute("BEGIN")

    def write(self) -> None:
        self.connection.execute(f"INSERT INTO {self.table} VALUES (%s)", (self.row,))

    @property
    def written(self) -> bool:
        with psycopg.connect(self.conninfo) as connection:
            found = connection.execute(f"SELECT count(*) FROM {self.table} WHERE row = %s", (self.row,))
            return found.fetchone() == (1,)

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def roll_back(self) -> None:
        self.connection.execute("ROLLBACK")

    def close(self) -> None:
        self.connection.close()


class PostgresHarness(StoreHarness):
    def __init__(self, url: str) -> None:
        self.schema = f"conformance_{os.urandom(4).hex()}"
        self.address, _ = parse(f"{url}?schema={self.schema}")
        self.empty = msgspec.structs.replace(self.address, schema=f"{self.schema}_empty")
        self.clock = ManualClock()
        self.connection = psycopg.connect(url, autocommit=True)
        self.idle: list[PostgresStore] = []

    def open(self) -> PostgresStore:
        return self.idle.pop() if self.idle else PostgresStore(self.address, clock=self.clock)

    def finish(self, store: Any) -> None:
        self.idle.append(store)  # connecting costs as much as most tests do

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def begin(self) -> PostgresTransaction:
        return PostgresTransaction(self.address.conninfo, self.schema)

    def raw_entries(self, shard: Shard) -> list[RawEntry]:
        rows = self._rows(ENTRIES, shard.queue, shard)
        return [RawEntry(bundle.bytes, first, count, RawState(state)) for bundle, first, count, state in rows]

    def raw_bundles(self, shard: Shard) -> int:
        return len(self._rows(BUNDLES, shard.queue, shard))

    def raw_leftovers(self, queue: str) -> dict[str, int]:
        return {kind: len(self._rows(statement, queue)) for kind, statement in LEFTOVERS.items()}

    def raw_queue(self, queue: str) -> RawQueue:
        return read_postgresql(self.address.conninfo, self.schema, queue)

    def raw_mislead(self, shard: Shard) -> bool:
        """Raise every low watermark to the present: one that is ahead of the clock would count as none."""
        mislead = (
            "INSERT INTO {s}.watermark (shard_key, late, step, low) "
            f"SELECT {SHARD}, {2**40}, 0, array_fill(%(now)s::bigint, ARRAY[10])"
        )
        named = {
            "queue": shard.queue,
            "time_shard": shard.time_shard,
            "number": shard.number,
            "now": self.clock.now(),
        }
        self.connection.execute(mislead.replace("{s}", self.schema), named)
        return True

    def open_empty(self) -> PostgresStore:
        self.connection.execute(f"DROP SCHEMA IF EXISTS {self.empty.schema} CASCADE")
        return PostgresStore(self.empty, clock=self.clock)

    def raw_newer_schema(self) -> bool:
        self.connection.execute(f"UPDATE {self.empty.schema}.meta SET version = 999")
        return True

    def close(self) -> None:
        for store in self.idle:
            store.close()
        for schema in (self.schema, self.empty.schema):
            self.connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        self.connection.close()

    def _rows(self, statement: str, queue: str, shard: Shard | None = None) -> list[tuple[Any, ...]]:
        named: dict[str, object] = {"queue": queue}
        if shard is not None:
            named |= {"time_shard": shard.time_shard, "number": shard.number}
        return self.connection.execute(statement.replace("{s}", self.schema), named).fetchall()


pytestmark = pytest.mark.server


@pytest.fixture(scope="session")
def harness(postgresql_url: str) -> Iterator[PostgresHarness]:
    harness = PostgresHarness(postgresql_url)
    yield harness
    harness.close()


class TestPostgres(StoreConformance):
    """Every contract, on PostgreSQL."""
