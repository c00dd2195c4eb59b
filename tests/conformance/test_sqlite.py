"""SQLite does what a store has to do."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shardq.sharding.shard import Shard
from shardq.storage.sqlite.store import SqliteStore
from shardq.testing import ManualClock, RawEntry, RawQueue, RawState, StoreHarness
from shardq.testing.conformance import StoreConformance
from tools.audit.sqlite_rows import read_sqlite

SHARD = "(SELECT shard_key FROM shard WHERE queue = ?1 AND time_shard = ?2 AND number = ?3)"
SHARDS = "(SELECT shard_key FROM shard WHERE queue = ?1)"
ENTRIES = f"""
    SELECT b.bundle_id, e.first, e.count, iif(e.token IS NULL, 'waiting', 'held')
    FROM entry e LEFT JOIN bundle b USING (bundle_key) WHERE e.shard_key = {SHARD}
    UNION ALL SELECT b.bundle_id, h.first, h.count, 'processed'
    FROM history h LEFT JOIN bundle b USING (bundle_key) WHERE h.shard_key = {SHARD}
"""


class SqliteHarness(StoreHarness):
    def __init__(self, folder: Path) -> None:
        self.path = folder / "queue.db"
        self.empty = folder / "empty.db"
        self.clock = ManualClock()

    def open(self) -> SqliteStore:
        return SqliteStore(str(self.path), clock=self.clock)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def raw_entries(self, shard: Shard) -> list[RawEntry]:
        rows = self._rows(ENTRIES, shard.queue, shard.time_shard, shard.number)
        return [RawEntry(bundle, first, count, RawState(state)) for bundle, first, count, state in rows]

    def raw_bundles(self, shard: Shard) -> int:
        rows = self._rows(
            f"SELECT 1 FROM bundle WHERE shard_key = {SHARD}", shard.queue, shard.time_shard, shard.number
        )
        return len(rows)

    def raw_leftovers(self, queue: str) -> dict[str, int]:
        by_shard = {
            t: f"SELECT 1 FROM {t} WHERE shard_key IN {SHARDS}"
            for t in ("entry", "bundle", "history", "shard")
        }
        by_queue = {t: f"SELECT 1 FROM {t} WHERE queue = ?1" for t in ("dedupe", "consumer")}
        for t in ("finished", "moved"):
            by_queue[t] = (
                f"SELECT 1 FROM {t} WHERE incarnation = (SELECT incarnation FROM queue WHERE name = ?1)"
            )
        lost = {
            f"lost {t}": f"SELECT 1 FROM {t} WHERE shard_key NOT IN (SELECT shard_key FROM shard) AND ?1 = ?1"
            for t in ("entry", "bundle", "history")
        }
        return {kind: len(self._rows(sql, queue)) for kind, sql in (by_shard | by_queue | lost).items()}

    def raw_queue(self, queue: str) -> RawQueue:
        return read_sqlite(self.path, queue)

    def open_empty(self) -> SqliteStore:
        for path in self.empty.parent.glob("empty.db*"):
            path.unlink()
        return SqliteStore(str(self.empty), clock=self.clock)

    def raw_newer_schema(self) -> bool:
        with closing(sqlite3.connect(self.empty)) as connection:
            connection.execute("PRAGMA user_version = 999")
        return True

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            return connection.execute(sql, values).fetchall()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> SqliteHarness:
    return SqliteHarness(tmp_path_factory.mktemp("sqlite"))


class TestSqlite(StoreConformance):
    """Every contract, on SQLite."""
