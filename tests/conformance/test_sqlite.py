"""SQLite does what a store has to do."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shardq.base.shard import Shard
from shardq.storage.sqlite.store import SqliteStore
from shardq.testing import ApplicationTransaction, ManualClock, RawEntry, RawQueue, RawState, StoreHarness
from shardq.testing.conformance import StoreConformance
from tools.audit.sqlite_rows import open_tables, read_sqlite

SHARD = "(SELECT shard_key FROM shard WHERE queue = ?1 AND time_shard = ?2 AND number = ?3)"
SHARDS = "(SELECT shard_key FROM shard WHERE queue = ?1)"
ENTRIES = f"""
    SELECT bundle_id, first, count, iif(processed_at IS NOT NULL, 'processed', iif(token IS NULL, 'waiting', 'held'))
    FROM slice WHERE shard_key = {SHARD}
"""
BUNDLES = f"SELECT DISTINCT bundle_id FROM slice WHERE shard_key = {SHARD}"
DATA = f"SELECT 1 FROM slice JOIN bundle_data USING (data_key) WHERE shard_key IN {SHARDS}"


class SqliteTransaction(ApplicationTransaction):
    def __init__(self, path: Path) -> None:
        self.path, self.row = path, os.urandom(8)
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.connection.execute("CREATE TABLE IF NOT EXISTS application (row)")
        self.begin()

    def begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def write(self) -> None:
        self.connection.execute("INSERT INTO application VALUES (?)", (self.row,))

    @property
    def written(self) -> bool:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            found = connection.execute("SELECT count(*) FROM application WHERE row = ?", (self.row,))
            return found.fetchone() == (1,)

    def commit(self) -> None:
        self.connection.commit()

    def roll_back(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class SqliteHarness(StoreHarness):
    prefix = ""
    late_requests = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "queue.db"
        self.empty = folder / "empty.db"
        self.clock = ManualClock()

    def open(self) -> SqliteStore:
        return SqliteStore(str(self.path), clock=self.clock)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def begin(self) -> SqliteTransaction:
        return SqliteTransaction(self.path)

    def raw_entries(self, shard: Shard) -> list[RawEntry]:
        rows = self._rows(ENTRIES, shard.queue, shard.time_shard, shard.number)
        return [RawEntry(bundle, first, count, RawState(state)) for bundle, first, count, state in rows]

    def raw_bundles(self, shard: Shard) -> int:
        return len(self._rows(BUNDLES, shard.queue, shard.time_shard, shard.number))

    def raw_leftovers(self, queue: str) -> dict[str, int]:
        by_shard = {t: f"SELECT 1 FROM {t} WHERE shard_key IN {SHARDS}" for t in ("slice", "shard")}
        by_shard["data"] = DATA
        by_queue = {t: f"SELECT 1 FROM {t} WHERE queue = ?1" for t in ("dedupe", "consumer")}
        for kind, table in {"finished": "finished_id", "moved": "moved"}.items():
            by_queue[kind] = (
                f"SELECT 1 FROM {table} WHERE incarnation = (SELECT incarnation FROM queue WHERE name = ?1)"
            )
        lost = {
            "lost slice": "SELECT 1 FROM slice WHERE shard_key NOT IN (SELECT shard_key FROM shard) AND ?1 = ?1",
            "lost data": "SELECT 1 FROM bundle_data WHERE data_key NOT IN "
            "(SELECT data_key FROM slice WHERE data_key IS NOT NULL) AND ?1 = ?1",
        }
        return {kind: len(self._rows(sql, queue)) for kind, sql in (by_shard | by_queue | lost).items()}

    def raw_queue(self, queue: str) -> RawQueue:
        return read_sqlite(self.path, queue, self.prefix)

    def open_empty(self) -> SqliteStore:
        for path in self.empty.parent.glob("empty.db*"):
            path.unlink()
        return SqliteStore(str(self.empty), clock=self.clock)

    def raw_newer_schema(self) -> bool:
        with closing(sqlite3.connect(self.empty)) as connection:
            connection.execute("PRAGMA user_version = 999")
        return True

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(open_tables(self.path, self.prefix)) as connection:
            return connection.execute(sql, values).fetchall()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> SqliteHarness:
    return SqliteHarness(tmp_path_factory.mktemp("sqlite"))


class TestSqlite(StoreConformance):
    """Every contract, on SQLite."""
