"""SQLite does what a store has to do also in the database of an application, with either kind of journal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shardq.storage.sqlite.url import SharedStore
from shardq.testing.conformance import StoreConformance
from tests.conformance.test_sqlite import SqliteHarness


class SharedHarness(SqliteHarness):
    prefix = "shardq_"
    examples = 20

    def __init__(self, folder: Path, journal: str) -> None:
        super().__init__(folder)
        self.journal = journal
        self._begin_application(self.path)

    def open(self) -> SharedStore:
        return SharedStore(str(self.path), tables=self.prefix, clock=self.clock)

    def open_empty(self) -> SharedStore:
        super().open_empty()
        self._begin_application(self.empty)
        return SharedStore(str(self.empty), tables=self.prefix, clock=self.clock)

    def raw_newer_schema(self) -> bool:
        with closing(sqlite3.connect(self.empty)) as connection, connection:
            connection.execute(f"UPDATE {self.prefix}schema_version SET version = 999")
        return True

    def _begin_application(self, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA journal_mode = {self.journal}")
            connection.execute("CREATE TABLE queue (user TEXT)")  # which is none of ours


@pytest.fixture(scope="module", params=["delete", pytest.param("wal", marks=pytest.mark.long)])
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SharedHarness:
    return SharedHarness(tmp_path_factory.mktemp("application"), request.param)


class TestSqliteOfApplications(StoreConformance):
    """Every contract, in the database of an application."""
